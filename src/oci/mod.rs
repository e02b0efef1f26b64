//! A read-only client of OCI registries, by the OCI distribution specification 1.1 and Docker's token authentication.

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
mod tag_memory;
mod tags;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use challenge::{Challenge, challenges};
pub use error::OciError;
pub use link::next_link;
pub use manifest::{ContentDescriptor, Manifest, manifest};
pub use name::{is_repository_name, is_tag, is_version, tag_of, version_of};
pub use pull::ChartManifest;
pub use reference::ChartReference;
pub use tag_memory::TagMemory;
pub use tags::Tags;
use url::Url;

use crate::http::{self as fetch, Fetcher};
use crate::text::{printable, truncate, without_user_info};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Timeouts of each request. Its `max_bytes` is replaced by the limits below.
    pub fetch: fetch::FetchLimits,
    pub manifest_bytes: u64,
    pub config_bytes: u64,
    /// Page size to request; a registry may return fewer names.
    pub page_names: u32,
    pub page_bytes: u64,
    /// Total size of all pages of a listing.
    pub listing_bytes: u64,
    pub listing_timeout: Duration,
    pub pages: usize,
    pub tags: usize,
    pub repositories: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            fetch: fetch::FetchLimits::default(),
            // The size that the OCI distribution specification requires registries to accept.
            manifest_bytes: 4 * MIB,
            config_bytes: MIB,
            // The maximum page size of Docker's registry.
            page_names: 1_000,
            page_bytes: 4 * MIB,
            listing_bytes: 32 * MIB,
            listing_timeout: Duration::from_mins(10),
            // Some registries return at most 100 names per page.
            pages: 1_000,
            // Same limit as for versions of a chart in an index.
            tags: 50_000,
            repositories: 10_000,
        }
    }
}

impl Limits {
    const fn with_max_bytes(&self, max_bytes: u64) -> fetch::FetchLimits {
        fetch::FetchLimits {
            max_bytes,
            ..self.fetch
        }
    }
}

/// A client for one registry and path prefix. It caches tokens and may be shared by tasks.
#[derive(Debug)]
pub struct Registry {
    fetcher: Fetcher,
    /// URL of the spec without user information. Its origin is the scope of credentials.
    declared: Url,
    base: Url,
    prefix: String,
    /// URL of Docker Hub's API if the registry is Docker Hub.
    hub: Option<Url>,
    limits: Limits,
    auth: auth::AuthState,
    tag_memory: Option<TagMemory>,
}

impl Registry {
    /// Creates a client. `oci://` means `https://`; the path of `url` is the prefix of the charts' repositories.
    pub fn new(fetcher: Fetcher, url: &Url, limits: Limits) -> Result<Self, OciError> {
        let invalid = |problem: &str| OciError::InvalidUrl(problem.to_owned());
        let scheme = match url.scheme() {
            "oci" | "https" => "https",
            "http" => "http",
            _ => return Err(invalid("unsupported scheme, expected oci, https or http")),
        };
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| invalid("missing host"))?.to_ascii_lowercase();
        // Docker Hub's name in references is not the host of its registry.
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
            return Err(invalid("the path is not a valid repository name"));
        }
        let hub = is_hub.then(|| Url::parse("https://hub.docker.com/").ok()).flatten();
        Ok(Self {
            fetcher,
            // The scope of credentials is the origin, so user information is not needed.
            declared: without_user_info(url),
            base,
            prefix,
            hub,
            limits,
            auth: auth::AuthState::default(),
            tag_memory: None,
        })
    }

    /// Charges the memory of listed tags.
    #[must_use]
    pub fn charging(mut self, tag_memory: TagMemory) -> Self {
        self.tag_memory = Some(tag_memory);
        self
    }

    #[cfg(test)]
    fn with_hub(mut self, hub: Url) -> Self {
        self.hub = Some(hub);
        self
    }

    #[must_use]
    pub fn repository(&self, name: &str) -> String {
        match self.prefix.as_str() {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        }
    }

    /// Returns `oci://host/path/chart:tag`, the form that Kubeapps expects in `urls`, whatever scheme the registry uses.
    #[must_use]
    pub fn chart_url(&self, repository: &str, tag: &str) -> String {
        let host = self.declared.host_str().unwrap_or_default();
        let port = self.declared.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("oci://{host}{port}/{repository}:{tag}")
    }

    /// Returns true if this client can pull the reference. Ignores the scheme, which [`Registry::chart_url`] drops.
    #[must_use]
    pub fn contains(&self, reference: &ChartReference) -> bool {
        let (declared, registry) = (&self.declared, &reference.registry);
        let hosts = declared.host_str().zip(registry.host_str());
        hosts.is_some_and(|(host, other)| host.eq_ignore_ascii_case(other)) && declared.port() == registry.port()
    }

    fn url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(path);
        url
    }

    fn scope(repository: &str) -> Result<String, OciError> {
        if !is_repository_name(repository) {
            return Err(OciError::InvalidName(sanitized(repository)));
        }
        Ok(format!("repository:{repository}:pull"))
    }
}

/// Returns an untrusted name in a printable, bounded form.
fn sanitized(text: &str) -> String {
    const MAX_BYTES: usize = 128;
    truncate(&printable(text), MAX_BYTES)
}
