//! What an AppRepository's status says. It only shows: decisions read the spec, the annotations and the catalogue.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lenient;

/// How things stand with a repository, as seen by Portolan.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppRepositoryStatus {
    /// The state in one line: `Ready`, or `Failed: ` and the cause.
    #[serde(
        default,
        deserialize_with = "lenient::or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub status: Option<String>,

    /// The generation of the spec that this status is about.
    #[serde(
        default,
        deserialize_with = "lenient::or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub observed_generation: Option<i64>,

    /// Ready, and where they hold Reconciling and Stalled, in the sense of kstatus.
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    #[serde(
        default,
        deserialize_with = "lenient::or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<Condition>,

    /// The value of the request for a resync that was handled last.
    #[serde(
        default,
        deserialize_with = "lenient::or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub last_handled_reconcile_at: Option<String>,

    /// When the catalogue was last known to be in step with the repository; renewed at least once an hour.
    #[serde(
        default,
        deserialize_with = "lenient::or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub last_sync_time: Option<Time>,

    /// True while the repository is suspended, by its spec or by annotation.
    #[serde(
        default,
        deserialize_with = "lenient::or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub suspended: Option<bool>,

    /// How far the files of the charts' versions (README, values, schema) are imported; absent where none are.
    #[serde(
        default,
        deserialize_with = "lenient::or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub files: Option<Files>,

    /// What the last sync that succeeded found and did.
    #[serde(
        default,
        deserialize_with = "lenient::or_default",
        skip_serializing_if = "Option::is_none"
    )]
    pub last_sync: Option<LastSync>,
}

/// How far the import of files is. Numbers are of chart versions.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Files {
    /// Versions whose files are in the catalogue.
    pub imported: i64,
    /// Versions whose files are wanted.
    pub total: i64,
    /// Versions whose archives could not be had; they are tried again, less and less often.
    pub failed: i64,
    /// The first of those, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<SkippedEntry>,
}

/// What a sync found and did. Numbers are of charts where nothing else is said.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastSync {
    /// What came of it: `Synced` or `NotModified`.
    pub result: String,
    /// The digest of the index: it changes with the names, versions and digests of the index' entries, and with nothing else.
    pub digest: String,
    /// How long the sync took, as `1.2s`.
    pub duration: String,
    /// Charts in the catalogue.
    pub charts: i64,
    /// Chart versions in the catalogue.
    pub versions: i64,
    /// Charts left out because their newest version is deprecated.
    pub deprecated: i64,
    /// Charts left out by the filter.
    pub filtered: i64,
    /// Versions in the catalogue although they have left the repository, for as long as they are kept.
    pub kept: i64,
    /// Versions that stand more than once in their chart, each further one counted.
    pub duplicates: i64,
    /// Charts that were new.
    pub added: i64,
    /// Charts that had changed.
    pub changed: i64,
    /// Charts that were gone from the repository.
    pub removed: i64,
    /// Entries of the index that were left out because they are broken.
    pub skipped_count: i64,
    /// The first of the entries that were left out, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedEntry>,
}

/// An entry of the index that was left out.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SkippedEntry {
    /// The chart's name.
    pub chart: String,
    /// The chart's version; absent where the whole chart was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What is wrong with it.
    pub reason: String,
}
