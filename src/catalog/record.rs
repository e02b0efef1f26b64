mod details;

use std::borrow::Cow;

use jiff::Timestamp;
use sqlx::{Encode, FromRow, Type, query::Query};

use super::{
    Error, ErrorKind,
    engine::{Connection, Transaction, on_engine, select, sql},
    identity::{advisory_lock, repository_key},
    sync::tombstones,
};
use crate::api::NamespacedName;
use details::Details;
pub use details::{Baseline, Handled, Poll, RecordState, Refused};

/// Origin of rows written by one-shot commands. The orphan check ignores them.
pub const ONE_SHOT: &str = "one-shot";

/// A row of `portolan_repositories`. Decisions depend on it; the status of the object only displays it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    pub name: NamespacedName,
    pub uid: String,
    /// UID of the namespace kube-system, ID of a manifests directory, or [`ONE_SHOT`].
    pub origin: String,
    pub url: String,
    pub kind: String,
    /// Inputs of the charts besides the index: URL, type, filter and version of the decoder.
    pub change_key: String,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    /// Names and versions of the Secrets that the validators are valid for, never their content.
    pub credentials: String,
    /// SHA-256 of the last index in hex; empty before the first sync.
    pub index_digest: String,
    pub baseline: Option<Baseline>,
    pub refused: Option<Refused>,
    pub handled: Handled,
    pub poll: Poll,
    pub schedule: Option<String>,
    pub last_attempt: Option<Timestamp>,
    pub last_success: Option<Timestamp>,
    pub state: RecordState,
    pub last_sync: Option<serde_json::Value>,
    /// A registry is pulled in parts, and was never pulled completely.
    pub is_first_pull: bool,
    pub spec_hash: Option<String>,
    /// Manifests directories only: incremented when `spec_hash` changes.
    pub generation: i64,
    /// Read only: number of writes. A record is written only if its stored revision is still the same.
    pub revision: Option<i64>,
    /// Read only: true if Kubeapps' row of the repository is unchanged since our last write. Otherwise another process
    /// wrote the charts: cache validators don't count, and every row must be compared.
    pub trusted: bool,
    pub charts: u64,
}

/// Marks the digest of a registry that is not pulled completely. It never equals the digest of a complete registry.
pub const PARTIAL_PREFIX: &str = "cut-short:";

impl Record {
    pub fn new(name: NamespacedName, uid: impl Into<String>) -> Self {
        Self {
            name,
            uid: uid.into(),
            ..Self::default()
        }
    }

    /// Returns true if a registry is not pulled completely.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.index_digest.starts_with(PARTIAL_PREFIX)
    }
}

pub(super) const SELECT_ONE: &str = include_str!("sql/record.sql");

pub(super) const SELECT_ALL: &str = include_str!("sql/records.sql");

#[derive(FromRow)]
pub(super) struct RecordRow {
    namespace: String,
    name: String,
    uid: String,
    origin: String,
    url: String,
    kind: String,
    change_key: String,
    etag: Option<String>,
    last_modified: Option<String>,
    credentials: String,
    index_digest: String,
    ready: Option<bool>,
    last_attempt: Option<String>,
    last_success: Option<String>,
    spec_hash: Option<String>,
    generation: i64,
    details: String,
    revision: i64,
    trusted: bool,
    charts: i64,
}

impl TryFrom<RecordRow> for Record {
    type Error = Error;

    fn try_from(row: RecordRow) -> Result<Self, Error> {
        let name = NamespacedName::new(row.namespace, row.name);
        let details: Details = serde_json::from_str(&row.details).map_err(|error| ErrorKind::UnreadableRecord {
            repository: name.clone(),
            reason: error.to_string(),
        })?;
        Ok(Self {
            name,
            uid: row.uid,
            origin: row.origin,
            url: row.url,
            kind: row.kind,
            change_key: row.change_key,
            etag: row.etag,
            last_modified: row.last_modified,
            credentials: row.credentials,
            index_digest: row.index_digest,
            baseline: details.baseline,
            refused: details.refused,
            handled: details.handled,
            poll: details.poll,
            schedule: details.schedule,
            last_attempt: parse_time(row.last_attempt.as_deref()),
            last_success: parse_time(row.last_success.as_deref()),
            state: RecordState {
                ready: row.ready,
                ..details.state
            },
            last_sync: details.last_sync,
            is_first_pull: details.is_first_pull,
            spec_hash: row.spec_hash,
            generation: row.generation,
            revision: Some(row.revision),
            trusted: row.trusted,
            charts: unsigned(row.charts),
        })
    }
}

/// Parses a stored time. An invalid time, from a manual edit, counts as absent.
pub(super) fn parse_time(text: Option<&str>) -> Option<Timestamp> {
    text.and_then(|text| text.parse().ok())
}

pub(super) fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}

pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Removes NUL, which Postgres can't store in text.
pub(super) fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', ""))
    } else {
        Cow::Borrowed(text)
    }
}

pub(super) async fn stored_identity(
    tx: &mut Transaction,
    name: &NamespacedName,
) -> Result<Option<(String, i64)>, Error> {
    const SELECT: &str = "SELECT uid, revision FROM portolan_repositories WHERE namespace = $1 AND name = $2";
    Ok(select!(fetch_optional, tx, SELECT, name))
}

/// Locks the repository and fails with [`ErrorKind::Superseded`] if its UID or its revision has changed, or if it was deleted.
pub(super) async fn lock_and_check_identity(
    tx: &mut Transaction,
    record: &Record,
    expected_uid: Option<&str>,
) -> Result<(), Error> {
    lock(tx, &record.name).await?;
    if tombstones::has(tx, &record.uid).await? {
        return Err(superseded(record));
    }
    let stored = stored_identity(tx, &record.name).await?;
    let is_same = match (&stored, expected_uid) {
        (None, None) => true,
        (Some((uid, revision)), Some(expected)) => {
            uid == expected && record.revision.is_none_or(|read| read == *revision)
        }
        _ => false,
    };
    if is_same { Ok(()) } else { Err(superseded(record)) }
}

fn superseded(record: &Record) -> Error {
    let repository = record.name.clone();
    ErrorKind::Superseded { repository }.into()
}

/// Locks the repository until the transaction ends.
pub(super) async fn lock(tx: &mut Transaction, name: &NamespacedName) -> Result<(), Error> {
    advisory_lock(tx, repository_key(name)).await
}

/// Locks the repository. Returns false if its UID is not `uid`.
pub(super) async fn lock_if_uid(tx: &mut Transaction, name: &NamespacedName, uid: &str) -> Result<bool, Error> {
    lock(tx, name).await?;
    let stored = stored_identity(tx, name).await?;
    Ok(stored.is_some_and(|(stored, _)| stored == uid))
}

fn bind<'q, DB: sqlx::Database>(
    query: Query<'q, DB, DB::Arguments>,
    record: &Record,
) -> Result<Query<'q, DB, DB::Arguments>, Error>
where
    for<'t> String: Encode<'t, DB> + Type<DB>,
    for<'t> Option<String>: Encode<'t, DB> + Type<DB>,
    for<'t> Option<bool>: Encode<'t, DB> + Type<DB>,
    for<'t> i64: Encode<'t, DB> + Type<DB>,
{
    let text = |text: &str| storable(text).into_owned();
    let optional = |value: &Option<String>| value.as_deref().map(text);
    let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
    Ok(query
        .bind(record.name.namespace.clone())
        .bind(record.name.name.clone())
        .bind(text(&record.uid))
        .bind(text(&record.origin))
        .bind(text(&record.url))
        .bind(text(&record.kind))
        .bind(text(&record.change_key))
        .bind(optional(&record.etag))
        .bind(optional(&record.last_modified))
        .bind(text(&record.credentials))
        .bind(text(&record.index_digest))
        .bind(record.state.ready)
        .bind(time(record.last_attempt))
        .bind(time(record.last_success))
        .bind(optional(&record.spec_hash))
        .bind(record.generation)
        .bind(Details::of(record).to_json()?))
}

pub(super) async fn save(tx: &mut Transaction, record: &Record) -> Result<(), Error> {
    const UPSERT: &str = include_str!("sql/record_upsert.sql");
    on_engine!(tx.executor(), executor => { bind(sqlx::query(UPSERT), record)?.execute(executor).await?; });
    Ok(())
}

/// Writes the record in one statement. Fails with [`ErrorKind::Superseded`] if the stored UID or revision differs.
pub(super) async fn update(
    connection: &mut Connection,
    record: &Record,
    uid: &str,
    revision: i64,
) -> Result<(), Error> {
    let statement = sql!(connection, "record_update.sql");
    // SQLite ignores the lock key.
    let written = on_engine!(connection.executor(), executor => bind(sqlx::query(statement), record)?
        .bind(uid)
        .bind(revision)
        .bind(repository_key(&record.name))
        .execute(executor)
        .await?
        .rows_affected());
    if written > 0 { Ok(()) } else { Err(superseded(record)) }
}
