//! What is asked, and what is answered.

use std::fmt;

use ::url::Url;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;

use super::Validators;
use super::body::Body;
use super::secret::Secret;
use crate::text::public_url;

/// One request, for [`super::Fetcher::send`].
#[derive(Clone)]
pub struct Request {
    /// What is asked for. User information in it is sent as `Basic` credentials to its own origin.
    pub url: Url,
    /// Asks with HEAD: headers without a body.
    pub head: bool,
    /// The header `Accept`; any type if there is none.
    pub accept: Option<String>,
    /// Which credentials are sent.
    pub authorization: Authorization,
    /// What the server said of an earlier body: an unchanged one is answered with 304.
    pub validators: Option<Validators>,
    /// Wants the bytes as they are served, such as archives and blobs that have a digest: no compression is asked for, and
    /// one that the server calls a transport's (as some do with every `.tgz`) is left as it is.
    pub verbatim: bool,
    /// Follows no redirect to plain `http`, where the answer itself is a secret.
    pub tls_only: bool,
}

impl Request {
    /// GET, any type, with the credentials that the [`super::Access`] gives.
    #[must_use]
    pub const fn new(url: Url) -> Self {
        Self {
            url,
            head: false,
            accept: None,
            authorization: Authorization::OfAccess,
            validators: None,
            verbatim: false,
            tls_only: false,
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("url", &public_url(&self.url))
            .field("head", &self.head)
            .field("authorization", &self.authorization)
            .field("verbatim", &self.verbatim)
            .finish_non_exhaustive()
    }
}

/// Which credentials a request takes along.
#[derive(Debug, Clone, Default)]
pub enum Authorization {
    /// By the rules of the [`super::Access`].
    #[default]
    OfAccess,
    /// None at all.
    None,
    /// This token, to the scheme, host and port of the request's own URL and to no other that a redirect leads to.
    Bearer(Secret),
    /// This value of the header, to the scheme, host and port of the request's own URL and to no other.
    Header(Secret),
}

/// A successful answer.
pub struct Answer {
    /// 200, or 304 if the request had validators.
    pub status: StatusCode,
    /// As they came. Their number and bytes are bounded by hyper: over HTTP/1 100 headers and 408 KiB (its
    /// `DEFAULT_MAX_HEADERS` and `DEFAULT_MAX_BUFFER_SIZE`), over HTTP/2 16 KiB (`DEFAULT_MAX_HEADER_LIST_SIZE`).
    pub headers: HeaderMap,
    /// Where it came from in the end, without user information. It may hold a signature: show it by `public_url`.
    pub url: Url,
    /// Empty for 304 and HEAD.
    pub body: Body,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.status)
            .field("url", &public_url(&self.url))
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}
