//! What is remembered of a repository beside its charts: `portolan_repositories`, one row each.

use std::borrow::Cow;

use jiff::Timestamp;
use sqlx::FromRow;

use super::{
    Error, RepositoryName,
    engine::{Engine, Pools, Transaction, on_engine},
    identity::repository_key,
};

/// All that decisions about a repository rest on. The database decides; the status of the object only shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The repository.
    pub name: RepositoryName,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// Names of charts.
    pub names: u64,
    /// Versions of all charts.
    pub versions: u64,
}

/// An index that was refused, so that it is not fetched and parsed again as long as it stays the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    pub given: String,
}

/// The value handled last of each way to ask for a resync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The condition Ready; nothing where it is unknown.
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
    pub fn new(name: RepositoryName, uid: impl Into<String>) -> Self {
        Self {
            name,
            uid: uid.into(),
            ..Self::default()
        }
    }
}

/// Whether Kubeapps' row of a repository, `r`, is as we wrote it and remember it in ours, `p`. It is compared by value: a row of the
/// same id that was written by another hand has another time of writing.
macro_rules! is_trusted {
    () => {
        "coalesce(r.id = p.repos_id AND r.checksum = p.repos_checksum AND r.last_update = p.repos_last_update, FALSE)"
    };
}
pub(super) use is_trusted;

/// Both databases; followed by a condition and an order.
macro_rules! select_records {
    ($rest:literal) => {
        concat!(
            "SELECT p.namespace, p.name, p.uid, p.origin, p.url, p.kind, p.change_key, p.etag, p.last_modified, p.index_digest,
                p.baseline_names, p.baseline_versions, p.refused_etag, p.refused_last_modified, p.refused_digest,
                p.refused_reason, p.refused_message, p.refused_confirm, p.refused_given, p.handled_resync_requests, p.handled_requested_at,
                p.handled_flux_requested_at, p.handled_last, p.schedule, p.last_attempt, p.last_success, p.ready, p.stalled, p.reason, p.message, p.failures,
                p.last_sync, p.spec_hash, p.generation, p.credentials, p.revision, ",
            is_trusted!(),
            " AS trusted,
                (SELECT count(*) FROM charts c WHERE c.repo_name = p.name AND c.repo_namespace = p.namespace) AS charts
            FROM portolan_repositories p LEFT JOIN repos r ON r.namespace = p.namespace AND r.name = p.name ",
            $rest
        )
    };
}

/// One repository: `$1` is its namespace, `$2` its name.
pub(super) const SELECT_ONE: &str = select_records!("WHERE p.namespace = $1 AND p.name = $2");

/// All repositories, by namespace and name.
pub(super) const SELECT_ALL: &str = select_records!("ORDER BY p.namespace, p.name");

/// A record as the database gives it.
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
    index_digest: String,
    baseline_names: Option<i64>,
    baseline_versions: Option<i64>,
    refused_etag: Option<String>,
    refused_last_modified: Option<String>,
    refused_digest: Option<String>,
    refused_reason: Option<String>,
    refused_message: Option<String>,
    refused_confirm: Option<String>,
    refused_given: Option<String>,
    handled_resync_requests: Option<i64>,
    handled_requested_at: Option<String>,
    handled_flux_requested_at: Option<String>,
    handled_last: Option<String>,
    schedule: Option<String>,
    last_attempt: Option<String>,
    last_success: Option<String>,
    ready: Option<bool>,
    stalled: bool,
    reason: String,
    message: String,
    failures: i64,
    last_sync: Option<String>,
    spec_hash: Option<String>,
    generation: i64,
    credentials: String,
    revision: i64,
    trusted: bool,
    charts: i64,
}

impl From<RecordRow> for Record {
    fn from(row: RecordRow) -> Self {
        Self {
            name: RepositoryName::new(row.namespace, row.name),
            uid: row.uid,
            origin: row.origin,
            url: row.url,
            kind: row.kind,
            change_key: row.change_key,
            etag: row.etag,
            last_modified: row.last_modified,
            credentials: row.credentials,
            index_digest: row.index_digest,
            baseline: row
                .baseline_names
                .zip(row.baseline_versions)
                .map(|(names, versions)| Baseline {
                    names: unsigned(names),
                    versions: unsigned(versions),
                }),
            refused: row.refused_reason.map(|reason| Refused {
                etag: row.refused_etag,
                last_modified: row.refused_last_modified,
                digest: row.refused_digest.unwrap_or_default(),
                reason,
                message: row.refused_message.unwrap_or_default(),
                confirm: row.refused_confirm,
                given: row.refused_given.unwrap_or_default(),
            }),
            handled: Handled {
                resync_requests: row.handled_resync_requests,
                requested_at: row.handled_requested_at,
                flux_requested_at: row.handled_flux_requested_at,
                last: row.handled_last,
            },
            schedule: row.schedule,
            last_attempt: time(row.last_attempt.as_deref()),
            last_success: time(row.last_success.as_deref()),
            state: State {
                ready: row.ready,
                stalled: row.stalled,
                reason: row.reason,
                message: row.message,
                failures: u32::try_from(row.failures).unwrap_or(u32::MAX),
            },
            last_sync: row.last_sync.and_then(|text| serde_json::from_str(&text).ok()),
            spec_hash: row.spec_hash,
            generation: row.generation,
            revision: Some(row.revision),
            trusted: row.trusted,
            charts: unsigned(row.charts),
        }
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

fn maybe(text: Option<&String>) -> Option<Cow<'_, str>> {
    text.map(|text| storable(text))
}

/// What is stored of a repository's identity: the UID, and how often the record was written.
pub(super) async fn stored_identity(
    tx: &mut Transaction,
    name: &RepositoryName,
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
pub(super) async fn lock(tx: &mut Transaction, name: &RepositoryName) -> Result<(), Error> {
    if let Engine::Postgres(tx) = tx {
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(repository_key(name))
            .execute(&mut **tx)
            .await?;
    }
    Ok(())
}

/// Takes the repository's lock, and says whether it still is the one of this UID.
pub(super) async fn lock_if_of(tx: &mut Transaction, name: &RepositoryName, uid: &str) -> Result<bool, Error> {
    lock(tx, name).await?;
    let stored = stored_identity(tx, name).await?;
    Ok(stored.is_some_and(|(stored, _)| stored == uid))
}

/// All but what tells whether Kubeapps' row is as we wrote it, which only a commit of charts may change. The parameters are those of
/// [`bound!`].
macro_rules! set {
    () => {
        "uid = $3, origin = $4, url = $5, kind = $6, change_key = $7, etag = $8, last_modified = $9, index_digest = $10,
        baseline_names = $11, baseline_versions = $12, refused_etag = $13, refused_last_modified = $14,
        refused_digest = $15, refused_reason = $16, refused_message = $17, handled_resync_requests = $18,
        handled_requested_at = $19, handled_flux_requested_at = $20, last_attempt = $21, last_success = $22, ready = $23,
        reason = $24, message = $25, failures = $26, last_sync = $27, spec_hash = $28, generation = $29, stalled = $30,
        refused_confirm = $31, handled_last = $32, refused_given = $33, schedule = $34, credentials = $35,
        revision = portolan_repositories.revision + 1"
    };
}

const UPSERT: &str = concat!(
    "INSERT INTO portolan_repositories (namespace, name, uid, origin, url, kind, change_key, etag, last_modified,
        index_digest, baseline_names, baseline_versions, refused_etag, refused_last_modified, refused_digest, refused_reason,
        refused_message, handled_resync_requests, handled_requested_at, handled_flux_requested_at, last_attempt, last_success,
        ready, reason, message, failures, last_sync, spec_hash, generation, stalled, refused_confirm, handled_last,
        refused_given, schedule, credentials, revision)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25,
        $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, 1)
    ON CONFLICT (namespace, name) DO UPDATE SET ",
    set!()
);

/// Binds a record to `$1` up to `$35`.
macro_rules! bound {
    ($query:expr, $record:expr) => {{
        let record: &Record = $record;
        let refused = record.refused.as_ref();
        $query
            .bind(&record.name.namespace)
            .bind(&record.name.name)
            .bind(storable(&record.uid))
            .bind(storable(&record.origin))
            .bind(storable(&record.url))
            .bind(storable(&record.kind))
            .bind(storable(&record.change_key))
            .bind(maybe(record.etag.as_ref()))
            .bind(maybe(record.last_modified.as_ref()))
            .bind(storable(&record.index_digest))
            .bind(record.baseline.map(|baseline| signed(baseline.names)))
            .bind(record.baseline.map(|baseline| signed(baseline.versions)))
            .bind(maybe(refused.and_then(|refused| refused.etag.as_ref())))
            .bind(maybe(refused.and_then(|refused| refused.last_modified.as_ref())))
            .bind(refused.map(|refused| storable(&refused.digest)))
            .bind(refused.map(|refused| storable(&refused.reason)))
            .bind(refused.map(|refused| storable(&refused.message)))
            .bind(record.handled.resync_requests)
            .bind(maybe(record.handled.requested_at.as_ref()))
            .bind(maybe(record.handled.flux_requested_at.as_ref()))
            .bind(record.last_attempt.map(|time| time.to_string()))
            .bind(record.last_success.map(|time| time.to_string()))
            .bind(record.state.ready)
            .bind(storable(&record.state.reason))
            .bind(storable(&record.state.message))
            .bind(i64::from(record.state.failures))
            .bind(record.last_sync.as_ref().map(ToString::to_string))
            .bind(maybe(record.spec_hash.as_ref()))
            .bind(record.generation)
            .bind(record.state.stalled)
            .bind(maybe(refused.and_then(|refused| refused.confirm.as_ref())))
            .bind(maybe(record.handled.last.as_ref()))
            .bind(refused.map(|refused| storable(&refused.given)))
            .bind(maybe(record.schedule.as_ref()))
            .bind(storable(&record.credentials))
    }};
}

/// Writes the record.
pub(super) async fn save(tx: &mut Transaction, record: &Record) -> Result<(), Error> {
    on_engine!(tx, tx => {
        bound!(sqlx::query(UPSERT), record).execute(&mut **tx).await?;
    });
    Ok(())
}

/// Writes the record by one statement, if the stored one is of this UID and has this revision; says whether it is.
///
/// Another process may be about to write it in a transaction that began with the same revision: the lock lets that end first.
pub(super) async fn update(pools: &Pools, record: &Record, uid: &str, revision: i64) -> Result<bool, Error> {
    const SQLITE: &str = concat!(
        "UPDATE portolan_repositories SET ",
        set!(),
        " WHERE namespace = $1 AND name = $2 AND uid = $36 AND revision = $37"
    );
    const POSTGRES: &str = concat!(
        "UPDATE portolan_repositories SET ",
        set!(),
        " FROM (SELECT 1 FROM pg_advisory_xact_lock($38)) AS locked
        WHERE namespace = $1 AND name = $2 AND uid = $36 AND revision = $37"
    );
    let written = match pools.writer()? {
        Engine::Sqlite(pool) => {
            let query = bound!(sqlx::query(SQLITE), record).bind(uid).bind(revision);
            query.execute(pool).await?.rows_affected()
        }
        Engine::Postgres(pool) => {
            let query = bound!(sqlx::query(POSTGRES), record).bind(uid).bind(revision);
            let query = query.bind(repository_key(&record.name));
            query.execute(pool).await?.rows_affected()
        }
    };
    Ok(written > 0)
}
