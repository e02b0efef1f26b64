//! Status of AppRepositories. The controller never makes decisions by it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lenient;

/// Observed state of a repository.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AppRepositoryStatus {
    /// Summary: `Ready`, or `Failed: ` and the cause.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,

    /// Generation of the spec that this status describes.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The kstatus conditions Ready, Reconciling and Stalled.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,

    /// Value of the last handled resync request.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,

    /// Time at which the catalog was last up to date with the repository. Updated at least hourly.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub last_sync_time: Option<Time>,

    /// True while the repository is suspended by spec or annotation.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub suspended: Option<bool>,

    /// Import progress of chart files (README, values, schema). Absent if no files are imported.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub files: Option<Files>,

    /// Summary of the last successful sync.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub last_sync: Option<LastSync>,
}

/// Import progress of chart files, in chart versions.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Files {
    /// Versions whose files are in the catalog.
    pub imported: i64,
    /// Versions whose files are requested.
    pub total: i64,
    /// Versions whose archives failed to download. Retried with backoff.
    pub failed: i64,
    /// First versions that failed, or whose archive has another digest than the index contains, with reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<SkippedEntry>,
}

/// Summary of a sync. Numbers count charts unless noted otherwise.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastSync {
    /// `Synced` or `NotModified`.
    pub result: String,
    /// Digest of the index, computed from the names, versions and digests of its entries.
    pub digest: String,
    /// Duration of the sync, for example `1.2s`.
    pub duration: String,
    /// Charts in the catalog.
    pub charts: i64,
    /// Chart versions in the catalog.
    pub versions: i64,
    /// Charts skipped because their newest version is deprecated.
    pub deprecated: i64,
    /// Charts excluded by the filter.
    pub filtered: i64,
    /// Versions retained in the catalog although the repository no longer contains them.
    pub kept: i64,
    /// Duplicate versions within a chart.
    pub duplicates: i64,
    pub added: i64,
    pub changed: i64,
    /// Charts removed from the repository.
    pub removed: i64,
    /// Invalid entries of the index.
    pub skipped_count: i64,
    /// First invalid entries with their reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedEntry>,
}

/// A skipped entry of the index.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SkippedEntry {
    /// Name of the chart.
    pub chart: String,
    /// Version of the chart. Absent if the whole chart was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Reason for skipping it.
    pub reason: String,
}
