//! Fetching indexes: one client for everything that leaves the process, with bounds on bytes, time and requests.
//!
//! ```text
//!  host on hold? ─► slot of the host ─► bucket of the host ─► conditional GET ─► status
//!                                                                └─► body, chunk by chunk: cap, stall, hash ─► spool
//! ```

mod body;
mod client;
mod error;
mod hosts;
#[cfg(test)]
mod tests;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

pub use body::{Body, read_file};
pub use client::Fetcher;
pub use error::FetchError;

/// The bounds of one download.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The most bytes that a body may have, before and after decompression.
    pub max_bytes: u64,
    /// The longest silence between two pieces of a body.
    pub stall: Duration,
    /// The longest time from the request to the last byte.
    pub total: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Several times the largest public index; the largest private ones on record have 100 MB.
            max_bytes: 100 * 1024 * 1024,
            stall: Duration::from_secs(30),
            // What Kubeapps allows.
            total: Duration::from_secs(180),
        }
    }
}

/// How the client behaves towards all servers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the client calls itself.
    pub user_agent: String,
    /// Where bodies wait that are too large for memory; the system's own place by default.
    pub spool_dir: Option<PathBuf>,
    /// How long a connection may take to come about.
    pub connect_timeout: Duration,
    /// How many requests a second one host gets.
    pub requests_per_second: NonZeroU32,
    /// How many requests one host gets at once after a rest.
    pub burst: NonZeroU32,
    /// How many requests to one host may be under way at once.
    pub requests_at_once: usize,
    /// Certificates in PEM of authorities that are trusted beside the system's.
    pub extra_roots: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        const FIFTY: NonZeroU32 = NonZeroU32::new(50).unwrap();
        const HUNDRED: NonZeroU32 = NonZeroU32::new(100).unwrap();
        Self {
            user_agent: user_agent(None),
            spool_dir: None,
            connect_timeout: Duration::from_secs(10),
            requests_per_second: FIFTY,
            burst: HUNDRED,
            requests_at_once: 8,
            extra_roots: Vec::new(),
        }
    }
}

/// What the client calls itself; `comment` is what an operator adds to it.
#[must_use]
pub fn user_agent(comment: Option<&str>) -> String {
    let name = concat!("portolan/", env!("CARGO_PKG_VERSION"));
    comment
        .filter(|comment| !comment.is_empty())
        .map_or_else(|| name.to_owned(), |comment| format!("{name} ({comment})"))
}

/// What a server said of a body, to be sent back with the next request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    /// `ETag`.
    pub etag: Option<String>,
    /// `Last-Modified`.
    pub last_modified: Option<String>,
}

impl Validators {
    /// Whether there is nothing to ask with.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }
}

/// What came of a request.
#[derive(Debug)]
pub enum Fetched {
    /// The body is the one that the validators were of.
    NotModified,
    /// A body.
    Body(Body),
}

/// The address of the index of the repository at `repository_url`: `index.yaml` below its path, the query kept, as Helm and
/// Kubeapps build it.
///
/// # Errors
/// The text is no URL of http or https.
pub fn index_url(repository_url: &str) -> Result<Url, FetchError> {
    let invalid = |why: &str| FetchError::InvalidUrl { why: why.to_owned() };
    let mut url = Url::parse(repository_url.trim()).map_err(|error| invalid(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(invalid("only http and https are read"));
    }
    let segments: Vec<&str> = url
        .path()
        .split('/')
        .filter(|segment| !segment.is_empty())
        .chain(["index.yaml"])
        .collect();
    let path = format!("/{}", segments.join("/"));
    url.set_path(&path);
    url.set_fragment(None);
    Ok(url)
}
