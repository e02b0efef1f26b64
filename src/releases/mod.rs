//! Installed charts of the cluster, and their comparison with the catalog.
//!
//! ```text
//!  Secrets, ConfigMaps ──payload──┐
//!  Flux, Argo CD ─────────────────┴─► cluster::list ─► Release ─► InstalledChart ─┐
//!                                                                                 ├─► judge ─► Judgement
//!  catalog ──────────────────────────────────────────────────────► Candidate ─────┘
//! ```
//! Matching never guesses: several repositories that differ are ambiguous, and have no verdict.

pub mod cluster;
mod judge;
pub mod metrics;
mod payload;
pub mod watch;
pub mod watched;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::{is_control, is_invisible};
pub use judge::{MAX_VERSIONS, judge};
pub use payload::{PayloadError, decode};

/// Charts in one request.
pub const MAX_CHARTS: usize = 1000;

/// Names of repositories in one judgement. Others of an ambiguous match are omitted.
pub const MAX_REPOSITORIES: usize = 20;

/// Bytes of the name and of the version of an installed chart, and of its links.
const MAX_NAME: usize = 256;
const MAX_LINK: usize = 512;

/// The kind of object that declares a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReleaseKind {
    Helm,
    HelmRelease,
    OciRepository,
    Application,
}

impl fmt::Display for ReleaseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Helm => "Helm",
            Self::HelmRelease => "HelmRelease",
            Self::OciRepository => "OCIRepository",
            Self::Application => "Application",
        })
    }
}

/// An installed chart, as the cluster knows it. It has no content of a Secret but the metadata of the chart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    pub kind: ReleaseKind,
    pub namespace: String,
    pub name: String,
    pub state: ReleaseState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    pub chart: InstalledChart,
}

impl Release {
    /// Returns false if no revision is deployed: the chart is listed, but has no verdict.
    #[must_use]
    pub fn is_deployed(&self) -> bool {
        self.state == ReleaseState::Deployed
    }
}

/// The state of a release in Helm's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ReleaseState {
    Deployed,
    Failed,
    /// The states `pending-install`, `pending-upgrade` and `pending-rollback`.
    Pending,
    Other(String),
}

impl From<String> for ReleaseState {
    fn from(word: String) -> Self {
        match word.as_str() {
            "deployed" => Self::Deployed,
            "failed" => Self::Failed,
            pending if pending.starts_with("pending") => Self::Pending,
            _ => Self::Other(word),
        }
    }
}

impl From<ReleaseState> for String {
    fn from(state: ReleaseState) -> Self {
        state.to_string()
    }
}

impl fmt::Display for ReleaseState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Deployed => "deployed",
            Self::Failed => "failed",
            Self::Pending => "pending",
            Self::Other(word) => word,
        })
    }
}

/// The question to the catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstalledChart {
    pub name: String,
    pub version: String,
    /// The declared URL of the repository, or of the chart in a registry. Helm stores none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl InstalledChart {
    /// Returns none unless name and version are short and printable: any object of the cluster may contain them.
    fn new(name: &str, version: &str) -> Option<Self> {
        let is_valid = is_plain(name, MAX_NAME) && is_plain(version, MAX_NAME);
        is_valid.then(|| Self {
            name: name.to_owned(),
            version: version.to_owned(),
            ..Self::default()
        })
    }
}

fn is_plain(text: &str, limit: usize) -> bool {
    !text.is_empty() && text.len() <= limit && !text.contains(|c| is_control(c) || is_invisible(c))
}

/// Icons that are embedded in their URL are none.
fn is_link(text: &str) -> bool {
    is_plain(text, MAX_LINK)
}

/// A chart of the catalog that may be the installed one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    pub namespace: String,
    pub repository: String,
    pub url: String,
    pub chart: String,
    pub home: Option<String>,
    pub icon: Option<String>,
    pub sources: Vec<String>,
    /// In any order.
    pub versions: Vec<ListedVersion>,
    pub deprecated: bool,
    /// Versions of the chart may be left out, by a filter rule for example.
    pub filtered: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedVersion {
    pub version: String,
    pub digest: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JudgeOptions {
    /// Repositories that decide an ambiguous match, the first one first.
    pub prefer: Vec<RepositoryName>,
    /// Reports prereleases also for a chart that is none.
    pub devel: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Judgement {
    pub matched: Match,
    /// At most [`MAX_REPOSITORIES`].
    pub repositories: Vec<RepositoryName>,
    /// `None` unless a single chart matches, and for a version that Helm does not accept.
    pub verdict: Option<Verdict>,
}

impl Judgement {
    /// The judgement of a chart that is not in the catalog, or that was not asked for.
    #[must_use]
    pub fn unknown() -> Self {
        Self {
            matched: Match::Unknown,
            repositories: Vec::new(),
            verdict: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Match {
    /// The declared URL is the repository's.
    Exact,
    /// The version is listed, and home, icon, a source or the digest is equal.
    Likely,
    /// The version is listed, or home is equal.
    Possible,
    Ambiguous,
    Unknown,
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Exact => "exact",
            Self::Likely => "likely",
            Self::Possible => "possible",
            Self::Ambiguous => "ambiguous",
            Self::Unknown => "unknown",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    pub status: Status,
    pub newest_patch: Option<String>,
    pub newest_minor: Option<String>,
    pub newest_major: Option<String>,
    pub deprecated: bool,
}

/// From the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    Current,
    Patch,
    Minor,
    Major,
    /// The complete list of the repository has older and newer versions, but not the installed one.
    Withdrawn,
    NotListed,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Current => "current",
            Self::Patch => "patch",
            Self::Minor => "minor",
            Self::Major => "major",
            Self::Withdrawn => "withdrawn",
            Self::NotListed => "not-listed",
        })
    }
}

/// A repository of the catalog, as text `NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RepositoryName {
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not the name of a repository; write NAMESPACE/NAME")]
pub struct InvalidRepositoryName;

impl FromStr for RepositoryName {
    type Err = InvalidRepositoryName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(InvalidRepositoryName),
        }
    }
}

impl fmt::Display for RepositoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.namespace, self.name))
    }
}

/// Body of `POST /api/v1/outdated`, with at most [`MAX_CHARTS`] charts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutdatedRequest {
    pub charts: Vec<InstalledChart>,
    #[serde(default)]
    pub prefer: Vec<RepositoryName>,
    #[serde(default)]
    pub devel: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OutdatedResponse {
    /// In the order of the charts.
    pub items: Vec<Judgement>,
    /// The database is away, and the catalog is as it was before.
    pub stale: bool,
}

/// A release with its judgement: a line of the command, the API and the page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JudgedRelease {
    #[serde(flatten)]
    pub release: Release,
    #[serde(flatten)]
    pub judgement: Judgement,
}
