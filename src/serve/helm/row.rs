//! Rows of any writer: every field is optional, and unknown fields are ignored.

use serde::{Deserialize, Serialize};

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Row {
    name: Option<String>,
    pub(super) description: Option<String>,
    pub(super) home: Option<String>,
    pub(super) icon: Option<String>,
    pub(super) keywords: Option<Vec<Option<String>>>,
    pub(super) sources: Option<Vec<Option<String>>>,
    pub(super) maintainers: Option<Vec<Option<Maintainer>>>,
    repo: Option<RepositoryRow>,
    #[serde(rename = "chartVersions")]
    versions: Option<Vec<VersionRow>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RepositoryRow {
    url: Option<String>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Maintainer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) email: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) url: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct VersionRow {
    version: Option<String>,
    pub(super) app_version: Option<String>,
    pub(super) created: Option<String>,
    digest: Option<String>,
    urls: Option<Vec<Option<String>>>,
}

impl Row {
    /// Returns `None` if the row is not readable.
    pub(super) fn decode(info: &str) -> Option<Self> {
        serde_json::from_str(info).ok()
    }

    /// Returns the name of the chart, or else its place in the repository.
    pub(super) fn name(&self, stored_path: &str) -> String {
        let name = self.name.as_deref().filter(|name| !name.is_empty());
        unescaped(name.unwrap_or(stored_path))
    }

    pub(super) fn versions(&self) -> &[VersionRow] {
        self.versions.as_deref().unwrap_or_default()
    }

    pub(super) fn repository_url(&self) -> &str {
        let url = self.repo.as_ref().and_then(|repo| repo.url.as_deref());
        url.unwrap_or_default().trim()
    }
}

impl VersionRow {
    pub(super) fn version(&self) -> &str {
        self.version.as_deref().unwrap_or_default()
    }

    pub(super) fn digest(&self) -> &str {
        self.digest.as_deref().unwrap_or_default()
    }

    /// Returns the first URL, the only one that clients use.
    pub(super) fn url(&self) -> Option<&str> {
        let first = self.urls.as_deref()?.first()?.as_deref()?;
        (!first.trim().is_empty()).then_some(first)
    }
}

/// Returns the part of a chart ID after the repository: the name, or the path in a registry, with `%2F` for each slash.
pub(super) fn stored_path(chart_id: &str) -> &str {
    chart_id.split_once('/').map_or(chart_id, |(_, path)| path)
}

/// Replaces the `%2F` of stored names.
pub(super) fn unescaped(stored: &str) -> String {
    stored.replace("%2F", "/")
}

/// Helm refuses a chart whose name has a slash, so that the last part of the name counts.
pub(super) fn base_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}
