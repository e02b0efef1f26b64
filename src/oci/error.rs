use std::time::Duration;

use reqwest::StatusCode;
use url::Url;

use super::decode::OciDecodeError;
use crate::http::FetchError;
use crate::text::public_url;

/// A failed registry request. Messages contain no secrets.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    #[error("{}", fetch_message(.0))]
    Fetch(#[from] FetchError),
    #[error("invalid registry URL: {0}; fix it in the repository's spec")]
    InvalidUrl(String),
    #[error("the chart's URL is not a valid OCI reference: {0}; expected oci://host/path/chart:tag")]
    InvalidReference(String),
    #[error("{0:?} is not a valid repository name; fix the URL or spec.ociRepositories")]
    InvalidName(String),
    #[error("{0:?} is not a valid tag or SHA-256 digest")]
    InvalidTag(String),
    #[error("access to {url} denied: {problem}")]
    Unauthorized { url: String, problem: String },
    #[error("cannot obtain a token for {url}: {problem}")]
    Challenge { url: String, problem: String },
    #[error("{url} is not a Helm chart: found {what}")]
    NotAChart { url: String, what: String, digest: String },
    #[error("invalid response from {url}: {error}; check that the URL is a registry")]
    Invalid { url: String, error: OciDecodeError },
    #[error("{url} is corrupt: expected {expected}, got {found}; check the registry and proxies in front of it")]
    Mismatch {
        url: String,
        expected: String,
        found: String,
    },
    #[error(
        "{url} exceeds the limit of {limit} bytes ({size} bytes according to its manifest); raise the limit if this is expected"
    )]
    TooLarge { url: String, limit: u64, size: u64 },
    #[error(
        "the listing of {url} has more than {limit} {what}; set spec.ociRepositories or use a URL with a longer path"
    )]
    TooMany {
        url: String,
        limit: u64,
        what: &'static str,
    },
    #[error("failed to fetch the next page of {url}: {problem}")]
    NextPage { url: String, problem: &'static str },
    #[error("{url} does not list its charts ({tried}); set spec.ociRepositories")]
    NoListing { url: String, tried: String },
}

impl OciError {
    pub(super) fn invalid(url: &Url) -> impl FnOnce(OciDecodeError) -> Self {
        let url = public_url(url);
        |error| Self::Invalid { url, error }
    }

    pub(super) fn too_many(url: &Url, limit: u64, what: &'static str) -> Self {
        Self::TooMany {
            url: public_url(url),
            limit,
            what,
        }
    }

    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Fetch(error) => error.reason(),
            Self::InvalidUrl(_) => "InvalidURL",
            Self::InvalidReference(_) => "InvalidReference",
            Self::InvalidName(_) => "InvalidName",
            Self::InvalidTag(_) => "InvalidTag",
            Self::Unauthorized { .. } => "Unauthorized",
            Self::Challenge { .. } => "InvalidChallenge",
            Self::NotAChart { .. } => "NotAChart",
            Self::Invalid { .. } => "InvalidAnswer",
            Self::Mismatch { .. } => "DigestMismatch",
            Self::TooLarge { .. } => "TooLarge",
            Self::TooMany { .. } => "TooMany",
            Self::NextPage { .. } => "InvalidNextPage",
            Self::NoListing { .. } => "NoListing",
        }
    }

    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Fetch(error) if error.is_transient())
    }

    /// Returns the remaining `Retry-After` of the registry.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Fetch(error) => error.retry_after(),
            _ => None,
        }
    }

    /// Returns true for a 401 or 403.
    #[must_use]
    pub fn is_access_denied(&self) -> bool {
        match self {
            Self::Fetch(FetchError::Status { status, .. }) => *status == StatusCode::FORBIDDEN,
            Self::Unauthorized { .. } => true,
            _ => false,
        }
    }

    /// Returns true if all requests with these credentials would fail.
    #[must_use]
    pub fn is_credential_error(&self) -> bool {
        self.is_access_denied() || matches!(self, Self::Challenge { .. })
    }

    /// Returns true for a 404 or 410.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Fetch(FetchError::Status { status, .. }) if matches!(status.as_u16(), 404 | 410))
    }
}

/// Returns the message of a [`FetchError`], with advice for registries instead of Helm indexes.
fn fetch_message(error: &FetchError) -> String {
    match error {
        FetchError::Status { url, status, .. } if matches!(status.as_u16(), 404 | 410) => {
            format!("{url} returned {status}; check the repository's URL and spec.ociRepositories")
        }
        error => error.to_string(),
    }
}
