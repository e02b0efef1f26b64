//! Equality of URLs: of repositories, and of home, icon and sources of charts.

use url::Url;

use crate::releases::{Candidate, InstalledChart};

/// Sources of a chart that are compared.
const MAX_SOURCES: usize = 16;

/// The URL of a repository without what does not name it: credentials, query, default port, `index.yaml`, last slash.
pub(super) struct RepositoryUrl {
    /// Without scheme: Kubeapps names registries by `https` too.
    address: String,
    is_registry: bool,
}

impl RepositoryUrl {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let url = Url::parse(text.trim()).ok()?;
        let host = url.host_str()?.to_ascii_lowercase();
        let host = match host.as_str() {
            "docker.io" | "index.docker.io" => "registry-1.docker.io",
            host => host,
        };
        let is_registry = url.scheme() == "oci";
        // The parser knows the default ports of http and https only.
        let port = url.port().filter(|port| !(is_registry && *port == 443));
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let path = url.path().trim_end_matches('/');
        let path = path.strip_suffix("/index.yaml").unwrap_or(path).trim_end_matches('/');
        Some(Self {
            address: format!("{host}{port}{path}"),
            is_registry,
        })
    }

    /// Returns true for the repository of a candidate. The URL of an `OCIRepository` ends with the chart.
    pub(super) fn has_chart(&self, candidate: &Candidate) -> bool {
        let Some(repository) = Self::parse(&candidate.url) else {
            return false;
        };
        let below = self.address.strip_prefix(&repository.address);
        let chart = below.and_then(|path| path.strip_prefix('/'));
        below == Some("") || (self.is_registry && chart == Some(candidate.chart.as_str()))
    }
}

/// Returns true if home, icon or a source are equal.
pub(super) fn has_equal_link(installed: &InstalledChart, candidate: &Candidate) -> bool {
    let listed = || candidate.sources.iter().take(MAX_SOURCES);
    let mut sources = installed.sources.iter().take(MAX_SOURCES);
    has_equal_home(installed, candidate)
        || is_equal(installed.icon.as_deref(), candidate.icon.as_deref())
        || sources.any(|source| listed().any(|listed| is_equal(Some(source), Some(listed))))
}

pub(super) fn has_equal_home(installed: &InstalledChart, candidate: &Candidate) -> bool {
    is_equal(installed.home.as_deref(), candidate.home.as_deref())
}

fn is_equal(one: Option<&str>, other: Option<&str>) -> bool {
    let (one, other) = (link(one), link(other));
    !one.is_empty() && one == other
}

fn link(text: Option<&str>) -> &str {
    text.unwrap_or_default().trim().trim_end_matches('/')
}
