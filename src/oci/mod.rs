//! A client of OCI registries, over the guarded HTTP client: what charts there are, in which versions, and their bytes.
//!
//! Its rules are those of the OCI distribution specification 1.1, and of Docker's token authentication. It only reads.
//!
//! ```text
//!  list ──────┐                                 ┌─ challenge ─► token server
//!  tags ──────┤  pages: Link, caps ─┐           │
//!  digest ────┼─────────────────────┴─► auth: send ─► fetch ─► decode, manifest ─► names, tags, ChartManifest
//!  manifest ──┤                                       │
//!  config ────┤                                       └─► size and SHA-256 against the descriptor ─► bytes
//!  layer ─────┘
//! ```

mod auth;
mod body;
mod challenge;
pub mod decode;
mod error;
mod lenient;
mod link;
mod list;
mod manifest;
mod name;
mod pages;
mod pull;
mod reference;
mod tags;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use challenge::{Challenge, challenges};
pub use error::OciError;
pub use link::next_link;
pub use manifest::{Descriptor, Manifest, manifest};
pub use name::{is_repository_name, is_tag, is_version, tag_of, version_of};
pub use pull::ChartManifest;
pub use reference::ChartReference;
pub use tags::Tags;
use url::Url;

use crate::http::{self as fetch, Fetcher};
use crate::text::{printable, public_url, truncate};

/// Bounds of what a registry may give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Times, for each request; its bytes are those below.
    pub fetch: fetch::Limits,
    /// Bytes of a manifest: what the OCI distribution specification has registries take.
    pub manifest_bytes: u64,
    /// Bytes of a Chart.yaml.
    pub config_bytes: u64,
    /// Names that are asked for in one page of a listing; a registry may give fewer.
    pub page_names: u32,
    /// Bytes of a page of a listing.
    pub page_bytes: u64,
    /// Bytes of a whole listing.
    pub listing_bytes: u64,
    /// For a whole listing.
    pub listing_time: Duration,
    /// Pages of a listing.
    pub pages: usize,
    /// Tags of a repository.
    pub tags: usize,
    /// Repositories below a URL.
    pub repositories: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            fetch: fetch::Limits::default(),
            manifest_bytes: 4 * MIB,
            config_bytes: MIB,
            // The most that Docker's registry lists of its catalogue.
            page_names: 1_000,
            page_bytes: 4 * MIB,
            listing_bytes: 32 * MIB,
            listing_time: Duration::from_mins(10),
            // A whole listing in pages of 100, as some registries have them at most.
            pages: 1_000,
            // As many as versions of a chart in an index.
            tags: 50_000,
            repositories: 10_000,
        }
    }
}

impl Limits {
    /// The limits of a fetch of so many bytes.
    const fn document(&self, max_bytes: u64) -> fetch::Limits {
        fetch::Limits {
            max_bytes,
            ..self.fetch
        }
    }
}

/// One registry, below one path, for one sync. What is learned about getting in is kept inside and goes with it. It may be
/// asked from several tasks at once.
#[derive(Debug)]
pub struct Registry {
    fetcher: Fetcher,
    /// As the user has it, by which credentials are given out; without user information.
    declared: Url,
    /// Scheme, host and port.
    base: Url,
    prefix: String,
    /// Where namespaces are listed, if this is Docker Hub.
    hub: Option<Url>,
    limits: Limits,
    keys: auth::Keys,
}

impl Registry {
    /// The registry at `url` (`oci://` and `https://` mean the same, `http://` stays as it is), whose path is that below
    /// which the charts' repositories are. The credentials are those of the fetcher's access.
    ///
    /// # Errors
    /// [`OciError::InvalidUrl`] when the URL can't be one of a registry.
    pub fn new(fetcher: Fetcher, url: &Url, limits: Limits) -> Result<Self, OciError> {
        let invalid = |problem: &str| OciError::InvalidUrl(problem.to_owned());
        let scheme = match url.scheme() {
            "oci" | "https" => "https",
            "http" => "http",
            _ => return Err(invalid("its scheme is none of oci, https and http")),
        };
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| invalid("it has no host"))?.to_ascii_lowercase();
        // The name that is Docker Hub's in references leads to no registry.
        let is_hub = host == "docker.io" || host.ends_with(".docker.io");
        let host = match host.as_str() {
            "docker.io" | "index.docker.io" => "registry-1.docker.io",
            host => host,
        };
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let base = Url::parse(&format!("{scheme}://{host}{port}/")).map_err(|error| invalid(&error.to_string()))?;

        let segments: Vec<&str> = url.path().split('/').filter(|segment| !segment.is_empty()).collect();
        let prefix = segments.join("/");
        if !prefix.is_empty() && !is_repository_name(&prefix) {
            return Err(invalid("its path can't be that of a repository in a registry"));
        }
        // Neither is needed to tell whose credentials may go here, and this is never the place that shows them.
        let mut declared = url.clone();
        let _ = declared.set_username("");
        let _ = declared.set_password(None);
        let hub = is_hub.then(|| Url::parse("https://hub.docker.com/").ok()).flatten();
        Ok(Self {
            fetcher,
            declared,
            base,
            prefix,
            hub,
            limits,
            keys: auth::Keys::default(),
        })
    }

    /// The same with another server of Docker Hub's listing of namespaces, which then is used whatever the registry is: the
    /// real one can't be asked in tests.
    #[cfg(test)]
    fn with_hub(mut self, hub: Url) -> Self {
        self.hub = Some(hub);
        self
    }

    /// The whole name of a repository, given below the URL's path.
    #[must_use]
    pub fn repository(&self, name: &str) -> String {
        match self.prefix.as_str() {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        }
    }

    /// The URL by which readers find a chart: `oci://host/path/chart:tag`, whatever scheme the registry speaks, as
    /// Kubeapps' API server wants it in `urls`.
    #[must_use]
    pub fn chart_url(&self, repository: &str, tag: &str) -> String {
        let host = self.declared.host_str().unwrap_or_default();
        let port = self.declared.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("oci://{host}{port}/{repository}:{tag}")
    }

    /// Whether a reference leads to this registry, so that it can be followed by this client: what [`Registry::chart_url`]
    /// gives does, though it no longer says whether the registry speaks plain HTTP.
    #[must_use]
    pub fn holds(&self, reference: &ChartReference) -> bool {
        let (own, other) = (&self.declared, &reference.registry);
        let same_host = own.host_str().zip(other.host_str());
        same_host.is_some_and(|(own, other)| own.eq_ignore_ascii_case(other)) && own.port() == other.port()
    }

    fn url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(path);
        url
    }

    fn shown(&self) -> String {
        public_url(&self.declared)
    }

    /// The scope of a token for reading a repository, in the words of Docker's token authentication.
    fn scope(repository: &str) -> Result<String, OciError> {
        if !is_repository_name(repository) {
            return Err(OciError::InvalidName(shown(repository)));
        }
        Ok(format!("repository:{repository}:pull"))
    }
}

/// A name from outside, fit to be shown.
fn shown(text: &str) -> String {
    const SHOWN_BYTES: usize = 128;
    truncate(&printable(text), SHOWN_BYTES)
}
