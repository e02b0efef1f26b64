//! What is remembered of a repository beside its charts: `portolan_repositories`, one row each.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::{Encode, FromRow, Type, query::Query};

use super::{
    Error,
    engine::{Engine, Pools, Transaction, on_engine, sql},
    identity::repository_key,
};
use crate::api::NamespacedName;

/// All that decisions about a repository rest on. The database decides; the status of the object only shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The repository.
    pub name: NamespacedName,
    /// UID of the object that the charts belong to.
    pub uid: String,
    /// Where the object is from: the UID of the namespace kube-system, an id of the folder, or `one-shot`.
    pub origin: String,
    /// The repository's URL at the last sync.
    pub url: String,
    /// `helm` or `oci`.
    pub kind: String,
    /// What the charts depend on beside the index: URL, type, filter and the decoder's version, as one text.
    pub change_key: String,
    /// The `ETag` of the last index.
    pub etag: Option<String>,
    /// The `Last-Modified` of the last index.
    pub last_modified: Option<String>,
    /// The names and versions of the Secrets by which the validators came, and nothing of what is in them. With other credentials a
    /// server may show something else.
    pub credentials: String,
    /// SHA-256 of the last index's body, in hex; empty before the first.
    pub index_digest: String,
    /// What the shrink guard measures the next index by.
    pub baseline: Option<Baseline>,
    /// The index that was refused last.
    pub refused: Option<Refused>,
    /// The requests for a resync that were met.
    pub handled: Handled,
    /// When it is synced, as a cron expression or a length of time; only shown, never decided by.
    pub schedule: Option<String>,
    /// When a sync was tried last.
    pub last_attempt: Option<Timestamp>,
    /// When a sync succeeded last, changed or not.
    pub last_success: Option<Timestamp>,
    /// How the last attempt went.
    pub state: State,
    /// The summary of the last sync, as the object's status has it.
    pub last_sync: Option<serde_json::Value>,
    /// A hash of the spec that was tried last: another one is a request for a sync.
    pub spec_hash: Option<String>,
    /// Folders only: rises with the hash of the spec.
    pub generation: i64,
    /// Read only: counts the writes of this record. One that was read is written only if nobody has written it since.
    pub revision: Option<i64>,
    /// Read only: Kubeapps' row of this repository is still as we wrote it. If it isn't, somebody else has been at the charts: then
    /// validators don't count, and all rows are to be compared.
    pub trusted: bool,
    /// Read only: how many charts are stored.
    pub charts: u64,
}

/// Size of the last index that was accepted, before the filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Baseline {
    /// Names of charts.
    pub names: u64,
    /// Versions of all charts.
    pub versions: u64,
}

/// An index that was refused, so that it is not fetched and parsed again as long as it stays the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Refused {
    /// Its `ETag`.
    pub etag: Option<String>,
    /// Its `Last-Modified`.
    pub last_modified: Option<String>,
    /// SHA-256 of its body, in hex.
    pub digest: String,
    /// Why, in CamelCase.
    pub reason: String,
    /// Why, as a sentence.
    pub message: String,
    /// The digest by which a user lets it in all the same; only for an index that has shrunk.
    pub confirm: Option<String>,
    /// What the refusal rests on beside the body, as one text: with another it may not be refused.
    #[serde(rename = "inputs")]
    pub given: String,
}

/// The value handled last of each way to ask for a resync.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Handled {
    /// `spec.resyncRequests`.
    pub resync_requests: Option<i64>,
    /// The annotation `apprepositories.kubeapps.com/requested-at`.
    pub requested_at: Option<String>,
    /// The annotation `reconcile.fluxcd.io/requestedAt`.
    pub flux_requested_at: Option<String>,
    /// Of the annotations' values the one that was handled last, whichever it stood in.
    pub last: Option<String>,
}

/// How the last attempt went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct State {
    /// The condition Ready; nothing where it is unknown.
    #[serde(skip)]
    pub ready: Option<bool>,
    /// Whether it failed in a way that does not pass by itself.
    pub stalled: bool,
    /// The condition's reason.
    pub reason: String,
    /// The condition's message.
    pub message: String,
    /// Attempts that failed since the last success.
    pub failures: u32,
}

impl Record {
    /// A record of a repository of which nothing is known yet.
    pub fn new(name: NamespacedName, uid: impl Into<String>) -> Self {
        Self {
            name,
            uid: uid.into(),
            ..Self::default()
        }
    }
}

/// The fields of a record that are stored as one JSON text, since no statement filters by them.
///
/// A field that is not known is an error: a newer release wrote it, and this one would drop it with the next write.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Details {
    baseline: Option<Baseline>,
    refused: Option<Refused>,
    handled: Handled,
    schedule: Option<String>,
    state: State,
    last_sync: Option<serde_json::Value>,
}

impl Details {
    fn of(record: &Record) -> Self {
        let mut state = record.state.clone();
        state.message = storable(&state.message).into_owned();
        Self {
            baseline: record.baseline,
            refused: record.refused.clone(),
            handled: record.handled.clone(),
            schedule: record.schedule.clone(),
            state,
            last_sync: record.last_sync.clone(),
        }
    }

    fn to_json(&self) -> Result<String, Error> {
        Ok(serde_json::to_string(self).map_err(|error| sqlx::Error::Encode(Box::new(error)))?)
    }
}

/// Selects one repository: `$1` is its namespace, `$2` its name.
pub(super) const SELECT_ONE: &str = include_str!("sql/record.sql");

/// Selects all repositories, by namespace and name.
pub(super) const SELECT_ALL: &str = include_str!("sql/records.sql");

/// A record as the database returns it.
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
        let details: Details = serde_json::from_str(&row.details).map_err(|error| Error::UnreadableRecord {
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
            schedule: details.schedule,
            last_attempt: time(row.last_attempt.as_deref()),
            last_success: time(row.last_success.as_deref()),
            state: State {
                ready: row.ready,
                ..details.state
            },
            last_sync: details.last_sync,
            spec_hash: row.spec_hash,
            generation: row.generation,
            revision: Some(row.revision),
            trusted: row.trusted,
            charts: unsigned(row.charts),
        })
    }
}

/// A stored time; one that can't be read, since somebody has edited the row, counts as none.
pub(super) fn time(text: Option<&str>) -> Option<Timestamp> {
    text.and_then(|text| text.parse().ok())
}

/// A count from the database, which has no unsigned numbers.
pub(super) fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}

/// A count on its way into the database.
pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A text that Postgres takes: it can't store NUL, and a message made from hostile input may hold one.
pub(super) fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', ""))
    } else {
        Cow::Borrowed(text)
    }
}

/// What is stored of a repository's identity: the UID, and how often the record was written.
pub(super) async fn stored_identity(
    tx: &mut Transaction,
    name: &NamespacedName,
) -> Result<Option<(String, i64)>, Error> {
    const SELECT: &str = "SELECT uid, revision FROM portolan_repositories WHERE namespace = $1 AND name = $2";
    Ok(on_engine!(tx, tx => sqlx::query_as(SELECT)
        .bind(&name.namespace)
        .bind(&name.name)
        .fetch_optional(&mut **tx)
        .await?))
}

/// Takes the repository's lock until the transaction ends, and makes sure that it still is the one that the work began with,
/// and that nobody has written `record` since it was read.
///
/// On SQLite the transaction itself is the lock: there is only one that writes.
pub(super) async fn lock_and_identify(
    tx: &mut Transaction,
    record: &Record,
    expected_uid: Option<&str>,
) -> Result<(), Error> {
    lock(tx, &record.name).await?;
    let stored = stored_identity(tx, &record.name).await?;
    let is_same = match (&stored, expected_uid) {
        (None, None) => true,
        (Some((uid, revision)), Some(expected)) => {
            uid == expected && record.revision.is_none_or(|read| read == *revision)
        }
        _ => false,
    };
    if is_same {
        Ok(())
    } else {
        Err(Error::Superseded {
            repository: record.name.clone(),
        })
    }
}

/// Takes the repository's lock until the transaction ends: one-shot commands and controllers may share a Postgres database.
pub(super) async fn lock(tx: &mut Transaction, name: &NamespacedName) -> Result<(), Error> {
    if let Engine::Postgres(tx) = tx {
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(repository_key(name))
            .execute(&mut **tx)
            .await?;
    }
    Ok(())
}

/// Takes the repository's lock, and says whether it still is the one of this UID.
pub(super) async fn lock_if_of(tx: &mut Transaction, name: &NamespacedName, uid: &str) -> Result<bool, Error> {
    lock(tx, name).await?;
    let stored = stored_identity(tx, name).await?;
    Ok(stored.is_some_and(|(stored, _)| stored == uid))
}

/// Binds a record to `$1` up to `$17`, in the order of the statements that write records.
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

/// Writes the record.
pub(super) async fn save(tx: &mut Transaction, record: &Record) -> Result<(), Error> {
    const UPSERT: &str = include_str!("sql/record_upsert.sql");
    on_engine!(tx, tx => {
        bind(sqlx::query(UPSERT), record)?.execute(&mut **tx).await?;
    });
    Ok(())
}

/// Writes the record by one statement if the stored one has this UID and this revision. Returns false if it has not.
pub(super) async fn update(pools: &Pools, record: &Record, uid: &str, revision: i64) -> Result<bool, Error> {
    let writer = pools.writer()?;
    let statement = sql!(writer, "record_update.sql");
    // Only Postgres reads the key of the lock.
    let written = on_engine!(writer, pool => bind(sqlx::query(statement), record)?
        .bind(uid)
        .bind(revision)
        .bind(repository_key(&record.name))
        .execute(pool)
        .await?
        .rows_affected());
    Ok(written > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Databases hold this text: a key that is renamed needs a migration.
    #[test]
    fn the_keys_of_the_details_stay_the_same() {
        let mut record = Record::new(NamespacedName::new("kubeapps", "stable"), "uid");
        record.baseline = Some(Baseline { names: 1, versions: 2 });
        record.refused = Some(Refused {
            etag: Some("e".into()),
            last_modified: Some("m".into()),
            digest: "d".into(),
            reason: "r".into(),
            message: "m".into(),
            confirm: Some("c".into()),
            given: "g".into(),
        });
        record.handled = Handled {
            resync_requests: Some(3),
            requested_at: Some("a".into()),
            flux_requested_at: Some("f".into()),
            last: Some("l".into()),
        };
        record.schedule = Some("@daily".into());
        record.state = State {
            ready: Some(true),
            stalled: true,
            reason: "r".into(),
            message: "m".into(),
            failures: 4,
        };
        record.last_sync = Some(serde_json::json!({"charts": 5}));
        assert_eq!(
            Details::of(&record).to_json().unwrap(),
            concat!(
                r#"{"baseline":{"names":1,"versions":2},"#,
                r#""refused":{"etag":"e","lastModified":"m","digest":"d","reason":"r","message":"m","confirm":"c","inputs":"g"},"#,
                r#""handled":{"resyncRequests":3,"requestedAt":"a","fluxRequestedAt":"f","last":"l"},"#,
                r#""schedule":"@daily","state":{"stalled":true,"reason":"r","message":"m","failures":4},"lastSync":{"charts":5}}"#
            )
        );
    }
}
