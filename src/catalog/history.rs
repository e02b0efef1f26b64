//! Syncs that changed something, failed, or recovered: `portolan_syncs`.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use sqlx::FromRow;

use super::{
    Error,
    engine::{Connection, Transaction, execute, select},
    record::{parse_time, signed, storable, unsigned},
};
use crate::api::NamespacedName;

pub const HISTORY_LIMIT: i64 = 50;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryEntry {
    pub started_at: Timestamp,
    pub duration: Duration,
    /// `Succeeded`, `Failed` or `Stalled`.
    pub result: String,
    pub reason: String,
    pub message: String,
    /// SHA-256 of the index in hex; empty if none was read.
    pub digest: String,
    pub charts: u64,
    pub versions: u64,
    pub added: u64,
    pub changed: u64,
    pub removed: u64,
    pub skipped: u64,
}

/// A sync as commands and the REST API show it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncView<'a> {
    start_time: Timestamp,
    duration_seconds: f64,
    result: &'a str,
    reason: &'a str,
    message: &'a str,
    /// SHA-256 of the index, in hex; empty if none was read.
    digest: &'a str,
    charts: u64,
    versions: u64,
    added: u64,
    changed: u64,
    removed: u64,
    /// Entries of the index that are invalid.
    skipped: u64,
}

impl<'a> SyncView<'a> {
    #[must_use]
    pub fn new(entry: &'a HistoryEntry) -> Self {
        Self {
            start_time: entry.started_at,
            duration_seconds: entry.duration.as_secs_f64(),
            result: &entry.result,
            reason: &entry.reason,
            message: &entry.message,
            digest: &entry.digest,
            charts: entry.charts,
            versions: entry.versions,
            added: entry.added,
            changed: entry.changed,
            removed: entry.removed,
            skipped: entry.skipped,
        }
    }
}

pub(super) async fn add(tx: &mut Transaction, name: &NamespacedName, entry: &HistoryEntry) -> Result<(), Error> {
    const INSERT: &str =
        "INSERT INTO portolan_syncs (namespace, name, started_at, duration_ms, result, reason, message, digest,
            charts, versions, added, changed, removed, skipped)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";
    const PRUNE: &str = "DELETE FROM portolan_syncs WHERE namespace = $1 AND name = $2 AND id NOT IN
        (SELECT id FROM portolan_syncs WHERE namespace = $1 AND name = $2 ORDER BY id DESC LIMIT $3)";
    execute!(
        tx,
        INSERT,
        name,
        entry.started_at.to_string(),
        i64::try_from(entry.duration.as_millis()).unwrap_or(i64::MAX),
        storable(&entry.result),
        storable(&entry.reason),
        storable(&entry.message),
        storable(&entry.digest),
        signed(entry.charts),
        signed(entry.versions),
        signed(entry.added),
        signed(entry.changed),
        signed(entry.removed),
        signed(entry.skipped),
    );
    execute!(tx, PRUNE, name, HISTORY_LIMIT);
    Ok(())
}

pub(super) async fn newest(
    connection: &mut Connection,
    name: &NamespacedName,
    limit: u32,
) -> Result<Vec<HistoryEntry>, Error> {
    const SELECT: &str =
        "SELECT started_at, duration_ms, result, reason, message, digest, charts, versions, added, changed,
            removed, skipped
        FROM portolan_syncs WHERE namespace = $1 AND name = $2 ORDER BY id DESC LIMIT $3";
    let rows: Vec<HistoryRow> = select!(fetch_all, connection, SELECT, name, i64::from(limit));
    Ok(rows.into_iter().map(HistoryEntry::from).collect())
}

#[derive(FromRow)]
struct HistoryRow {
    started_at: String,
    duration_ms: i64,
    result: String,
    reason: String,
    message: String,
    digest: String,
    charts: i64,
    versions: i64,
    added: i64,
    changed: i64,
    removed: i64,
    skipped: i64,
}

impl From<HistoryRow> for HistoryEntry {
    fn from(row: HistoryRow) -> Self {
        Self {
            started_at: parse_time(Some(&row.started_at)).unwrap_or(Timestamp::UNIX_EPOCH),
            duration: Duration::from_millis(unsigned(row.duration_ms)),
            result: row.result,
            reason: row.reason,
            message: row.message,
            digest: row.digest,
            charts: unsigned(row.charts),
            versions: unsigned(row.versions),
            added: unsigned(row.added),
            changed: unsigned(row.changed),
            removed: unsigned(row.removed),
            skipped: unsigned(row.skipped),
        }
    }
}
