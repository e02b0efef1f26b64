//! Why a registry gave nothing, in words that say what to do.

use std::time::Duration;

use reqwest::StatusCode;

use super::decode::DecodeError;
use crate::http::FetchError;

/// Why something could not be had from a registry. Nothing in it is secret, and names and URLs in it are fit to be shown.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// It could not be fetched at all.
    #[error("{}", fetching(.0))]
    Fetch(#[from] FetchError),
    /// The repository's URL leads to no registry.
    #[error("the URL can't be used for a registry: {0}; correct it in the repository's spec")]
    InvalidUrl(String),
    /// A chart's URL leads to nothing in a registry.
    #[error("the chart's URL is no reference into a registry: {0}; oci://host/path/chart:tag is wanted")]
    InvalidReference(String),
    /// A name that is none.
    #[error("{0:?} is no name of a repository in a registry; correct the URL or spec.ociRepositories")]
    InvalidName(String),
    /// A tag or digest that is none.
    #[error("{0:?} is neither a tag nor a SHA-256 digest")]
    InvalidTag(String),
    /// It wants other credentials than there are.
    #[error("{url} is not allowed: {problem}")]
    Unauthorized {
        /// What was asked for.
        url: String,
        /// What was tried, and what to do.
        problem: String,
    },
    /// Its token server can't be used.
    #[error("{url} wants a token, and none can be asked for: {problem}; this is for the registry's operator to mend")]
    Challenge {
        /// What was asked for.
        url: String,
        /// Why not.
        problem: String,
    },
    /// The tag stands for something else.
    #[error("{url} is {what} and no Helm chart")]
    NotAChart {
        /// The manifest.
        url: String,
        /// What it is.
        what: String,
        /// Digest of the manifest.
        digest: String,
    },
    /// An answer that can't be understood.
    #[error("the answer of {url} can't be used: {error}; check that the URL leads to a registry")]
    Invalid {
        /// What was asked for.
        url: String,
        /// Why.
        error: DecodeError,
    },
    /// The bytes are others than was said.
    #[error(
        "{url} is not what it should be: {expected} was expected and {found} came; the registry, or something before it, damages what it serves"
    )]
    Mismatch {
        /// What was asked for.
        url: String,
        /// The digest or size.
        expected: String,
        /// That of what came.
        found: String,
    },
    /// It is larger than is taken, by its own account.
    #[error(
        "{url} is larger than the limit of {limit} bytes ({size} bytes by its manifest); raise the limit if that is as it should be"
    )]
    TooLarge {
        /// What it is.
        url: String,
        /// The limit.
        limit: u64,
        /// The size.
        size: u64,
    },
    /// A listing goes on for too long.
    #[error(
        "the listing of {url} is refused: it holds more than {limit} {what}; name what is wanted in spec.ociRepositories, or take a URL further down"
    )]
    TooMany {
        /// What was listed.
        url: String,
        /// The limit.
        limit: u64,
        /// Of what.
        what: &'static str,
    },
    /// The next page of a listing stands where we do not go.
    #[error("the listing of {url} can't be followed: {problem}; this is for the registry's operator to mend")]
    NextPage {
        /// What was listed.
        url: String,
        /// Why not.
        problem: &'static str,
    },
    /// There is no way to find out what a registry holds.
    #[error("{url} does not tell which charts it has ({tried}); declare them in spec.ociRepositories")]
    NoListing {
        /// The registry with the path below which the charts are looked for.
        url: String,
        /// What was tried, and how it ended.
        tried: String,
    },
}

impl OciError {
    /// The reason for a status condition.
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

    /// Whether it may go away by itself, so that it is worth being tried again soon.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Fetch(error) if error.is_transient())
    }

    /// How long the registry wants to be left alone.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Fetch(error) => error.retry_after(),
            _ => None,
        }
    }

    /// Whether the registry says that this is not for whoever has these credentials, or none: with 401 or with 403.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        match self {
            Self::Fetch(FetchError::Status { status, .. }) => *status == StatusCode::FORBIDDEN,
            Self::Unauthorized { .. } => true,
            _ => false,
        }
    }

    /// Whether it is about who asks: whatever else is asked for there would be refused alike.
    #[must_use]
    pub fn is_about_credentials(&self) -> bool {
        self.is_refused() || matches!(self, Self::Challenge { .. })
    }

    /// Whether the registry says that there is no such thing.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Fetch(FetchError::Status { status, .. }) if matches!(status.as_u16(), 404 | 410))
    }
}

/// What [`FetchError`] says, but for the advice that is for the index of a Helm repository.
fn fetching(error: &FetchError) -> String {
    match error {
        FetchError::Status { url, status, .. } if matches!(status.as_u16(), 404 | 410) => {
            format!("{url} answered {status}; check the repository's URL and spec.ociRepositories")
        }
        error => error.to_string(),
    }
}
