//! The outbox of news: `portolan_news`. A row is inserted in the transaction of the change, and deleted when delivered.
//!
//! ```text
//!  commit of charts, record of a failure ─► a row for each sink ─► due ─┬─► delivered
//!                                                                       ├─► postponed
//!                                                                       └─► expired, trimmed, sink or repository gone
//! ```
//!
//! Two clusters may share a database: a row has the origin of its repository, and no statement of one cluster concerns rows of
//! another. Of the processes of a cluster, each delivers the news of the repositories that it watches.

mod changes;
mod outbox;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::engine::{Transaction, execute, execute_list, select};
use super::record::storable;
use super::{Error, Record};
use crate::text::{hex, truncate};
pub(super) use changes::ChangeLog;
pub use outbox::{DueNews, NewsBacklog};

/// Changes that an event lists. The others are counted.
pub const MAX_LISTED: usize = 20;

const MESSAGE_BYTES: usize = 1024;

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

/// Inserts the news of a commit. Returns the number of rows.
pub(super) async fn insert_changes(
    tx: &mut Transaction,
    record: &Record,
    sinks: &[String],
    kind: EventKind,
    changes: ChangeLog,
) -> Result<u64, Error> {
    if sinks.is_empty() || (kind == EventKind::Versions && changes.count == 0) {
        return Ok(0);
    }
    let mut hash = event_hash(record, kind);
    if kind == EventKind::Versions {
        // A version that is added, removed and added again is news each time.
        hash.update(record.revision.unwrap_or_default().to_le_bytes());
    }
    hash.update(changes.hash.finalize());
    let more = changes.count - changes.listed.len() as u64;
    let event = Event {
        charts: changes.listed,
        more,
        ..Event::new(record, kind)
    };
    insert(tx, record, sinks, hash, &event).await
}

/// Inserts the news that a repository failed or recovered, as the record says. Returns the number of rows.
pub(super) async fn insert_health(
    tx: &mut Transaction,
    record: &Record,
    sinks: &[String],
    was_reported: bool,
) -> Result<u64, Error> {
    let kind = match (was_reported, record.state.failure_reported) {
        (false, true) => EventKind::Failed,
        (true, false) => EventKind::Recovered,
        _ => return Ok(0),
    };
    if sinks.is_empty() {
        return Ok(0);
    }
    let mut hash = event_hash(record, kind);
    // A repository that fails again has succeeded since.
    let last_success = record.last_success.map_or(i64::MIN, Timestamp::as_millisecond);
    hash.update(last_success.to_le_bytes());
    let event = Event {
        message: Some(truncate(&record.state.message, MESSAGE_BYTES)),
        ..Event::new(record, kind)
    };
    insert(tx, record, sinks, hash, &event).await
}

/// Leaves the news of a repository to the origin of the record, before the record of another origin is overwritten.
pub(super) async fn take_over(tx: &mut Transaction, record: &Record) -> Result<(), Error> {
    const SELECT: &str =
        "SELECT count(*) FROM portolan_repositories WHERE namespace = $1 AND name = $2 AND origin <> $3";
    const UPDATE: &str = "UPDATE portolan_news SET origin = $3 WHERE namespace = $1 AND name = $2";
    let origin = storable(&record.origin);
    let (others,): (i64,) = select!(fetch_one, tx, SELECT, record.name, &*origin);
    if others > 0 {
        execute!(tx, UPDATE, record.name, &*origin);
    }
    Ok(())
}

impl Event {
    fn new(record: &Record, kind: EventKind) -> Self {
        Self {
            kind,
            namespace: record.name.namespace.clone(),
            repository: record.name.name.clone(),
            charts: Vec::new(),
            more: 0,
            message: None,
        }
    }
}

fn event_hash(record: &Record, kind: EventKind) -> Sha256 {
    let mut hash = Sha256::new();
    // With the UID: a repository that is created again has news of its own.
    for text in [
        &record.origin,
        &record.uid,
        &record.name.namespace,
        &record.name.name,
        &format!("{kind:?}"),
    ] {
        changes::feed(&mut hash, text);
    }
    hash
}

async fn insert(
    tx: &mut Transaction,
    record: &Record,
    sinks: &[String],
    hash: Sha256,
    event: &Event,
) -> Result<u64, Error> {
    // SQLite needs WHERE to parse ON CONFLICT after SELECT.
    const SQLITE: &str =
        "INSERT INTO portolan_news (namespace, name, origin, id, event, created, tries, next_try, sink)
        SELECT $1, $2, $3, $4, $5, $6, 0, $6, value FROM json_each($7) WHERE true ON CONFLICT (sink, id) DO NOTHING";
    const POSTGRES: &str =
        "INSERT INTO portolan_news (namespace, name, origin, id, event, created, tries, next_try, sink)
        SELECT $1, $2, $3, $4, $5, $6, 0, $6, unnest($7::text[]) ON CONFLICT (sink, id) DO NOTHING";
    let id = hex(&hash.finalize());
    let json = serde_json::to_string(event)?;
    let (origin, json) = (storable(&record.origin), storable(&json));
    let now = Timestamp::now().as_millisecond();
    execute_list!(tx, SQLITE, POSTGRES, record.name, origin, &id, json, now; sinks);
    Ok(sinks.len() as u64)
}
