//! The outbox of news: `portolan_news`. A row is inserted in the transaction of the change, and deleted when delivered.
//!
//! ```text
//!  commit of charts, record of a failure ─► a row for each sink ─► due ─┬─► delivered
//!                                                                       ├─► postponed
//!                                                                       └─► expired, trimmed, sink or repository gone
//! ```
//!
//! Two clusters may share a database, so that reads are limited to the repositories of an origin.

mod outbox;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use outbox::NewsBacklog;

/// Changes that an event lists. The others are counted.
pub const MAX_LISTED: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewsRow {
    /// Receivers detect a repeated delivery by it.
    pub id: String,
    /// Namespace of the repository.
    pub namespace: String,
    pub name: String,
    /// `namespace/name` of the Secret that holds the address.
    pub sink: String,
    pub event: Event,
    pub created: Timestamp,
    pub tries: u32,
    pub next_try: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    pub kind: EventKind,
    pub namespace: String,
    pub repository: String,
    /// At most [`MAX_LISTED`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charts: Vec<ChartNews>,
    /// Changes that are not listed.
    #[serde(default)]
    pub more: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EventKind {
    Versions,
    FirstSync,
    Failed,
    Recovered,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChartNews {
    pub chart: String,
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    pub change: VersionChange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum VersionChange {
    Added,
    Removed,
}
