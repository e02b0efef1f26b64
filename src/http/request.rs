use std::fmt;

use ::url::Url;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;

use super::Validators;
use super::body::Body;
use super::secret::Secret;
use crate::text::public_url;

#[derive(Clone)]
pub struct Request {
    /// User information is sent as `Basic` credentials to the URL's own origin.
    pub url: Url,
    /// Sends HEAD instead of GET.
    pub head: bool,
    pub accept: Option<String>,
    pub authorization: Authorization,
    /// Validators of an earlier body, for a conditional request.
    pub validators: Option<Validators>,
    /// Reads the bytes as stored, without content encoding, for archives and blobs that have a digest.
    pub verbatim: bool,
    /// Rejects redirects to plain `http`, for responses that contain a secret.
    pub tls_only: bool,
}

impl Request {
    /// Creates a GET request with the credentials of the [`super::Access`].
    #[must_use]
    pub const fn new(url: Url) -> Self {
        Self {
            url,
            head: false,
            accept: None,
            authorization: Authorization::FromAccess,
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

#[derive(Debug, Clone, Default)]
pub enum Authorization {
    /// The credentials that the [`super::Access`] allows for each hop.
    #[default]
    FromAccess,
    None,
    /// Bearer token, sent to the origin of the request's URL only.
    Bearer(Secret),
    /// Header value, sent to the origin of the request's URL only.
    Header(Secret),
}

pub struct Response {
    /// 200, or 304 for conditional requests.
    pub status: StatusCode,
    /// hyper limits them: 100 headers and 408 KiB with HTTP/1, 16 KiB with HTTP/2.
    pub headers: HeaderMap,
    /// URL of the last hop without user information. May contain a signature; print it with `public_url`.
    pub url: Url,
    pub body: Body,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("url", &public_url(&self.url))
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}
