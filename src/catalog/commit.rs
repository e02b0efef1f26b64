//! The one transaction of a sync: charts, removals, Kubeapps' row of the repository, our own record and its history are written
//! together or not at all.
//!
//! ```text
//!  lock, identity ─► repos row ─► stored charts, as fingerprints
//!                                        │
//!            new charts, one by one ──► compare ──► batches: insert, update (and files of versions that went)
//!                                        │
//!                            not seen ──► delete ─► repos row ─► record, history ─► commit
//! ```
//!
//! Nothing of the network happens inside, and of the charts only one batch is in memory.

use std::{collections::HashMap, fmt, io};

use futures::TryStreamExt;
use jiff::Timestamp;

use super::{
    ChartInfo, ChartRow, Error, HistoryEntry, Keep, Record, RepositoryName,
    batch::{Batch, Change},
    chart::Fingerprint,
    engine::{Engine, Pools, Transaction, on_engine},
    history, record,
};

/// How many rows are deleted by one statement.
const DELETE_AT_ONCE: usize = 1000;

/// Told what was written, it completes the record (with the counts of the summary, say) and gives the entry for the history, if
/// this sync is worth one. It runs inside the transaction, so it should only compute.
pub type Conclude = Box<dyn FnOnce(&Committed, &mut Record) -> Option<HistoryEntry> + Send>;

/// What a sync writes beside the charts.
pub struct Commit {
    /// The record as it is to be; its `trusted` and `charts` are not looked at.
    pub record: Record,
    /// The UID that was stored when the sync began; nothing if there was no record.
    pub expected_uid: Option<String>,
    /// SHA-256 of the index's body, in hex: what Kubeapps stores of a repository to know that nothing is new.
    pub checksum: String,
    /// Completes the record when the charts are written.
    pub conclude: Conclude,
    /// For how long versions and charts stay that are not among the rows. Nothing: they go at once, and so do those that were kept.
    pub keep: Option<Keep>,
}

impl Commit {
    /// A commit of a record that is complete already, without history.
    #[must_use]
    pub fn new(record: Record, expected_uid: Option<String>, checksum: impl Into<String>) -> Self {
        Self {
            record,
            expected_uid,
            checksum: checksum.into(),
            conclude: Box::new(|_, _| None),
            keep: None,
        }
    }

    /// Keeps versions and charts for a while that are not among the rows.
    #[must_use]
    pub fn keep_removed(mut self, keep: Keep) -> Self {
        self.keep = Some(keep);
        self
    }

    /// Completes the record by `conclude`.
    #[must_use]
    pub fn conclude_with(
        mut self,
        conclude: impl FnOnce(&Committed, &mut Record) -> Option<HistoryEntry> + Send + 'static,
    ) -> Self {
        self.conclude = Box::new(conclude);
        self
    }
}

impl fmt::Debug for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commit")
            .field("record", &self.record)
            .field("expected_uid", &self.expected_uid)
            .field("checksum", &self.checksum)
            .field("keep", &self.keep)
            .finish_non_exhaustive()
    }
}

/// What a commit did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Charts that were new.
    pub added: u64,
    /// Charts that were there and differed.
    pub changed: u64,
    /// Charts that were there and are no more.
    pub removed: u64,
    /// Charts that were there already, alike.
    pub unchanged: u64,
    /// Charts that the database would not take, by `chart_id`, each with the reason. What is stored of them stays.
    pub rejected: Vec<(String, String)>,
    /// The id of Kubeapps' row of the repository.
    pub repos_id: i64,
    /// Versions that left the index and are still there.
    pub kept: u64,
}

impl Committed {
    /// Whether the charts are others than before.
    #[must_use]
    pub const fn is_change(&self) -> bool {
        self.added + self.changed + self.removed > 0
    }
}

/// Runs the transaction. The rows' errors end it, and nothing is written then.
pub(super) async fn commit(
    pools: &Pools,
    commit: Commit,
    rows: impl Iterator<Item = io::Result<ChartRow>> + Send,
) -> Result<Committed, Error> {
    let Commit {
        mut record,
        expected_uid,
        checksum,
        conclude,
        keep,
    } = commit;
    let name = record.name.clone();
    let mut tx = pools.begin().await?;
    record::lock_and_identify(&mut tx, &record, expected_uid.as_deref()).await?;
    let before = ReposRow::find(&mut tx, &name).await?;
    let repos = match &before {
        Some(row) => row.clone(),
        None => ReposRow::insert(&mut tx, &name, &checksum).await?,
    };
    let mut committed = Committed {
        repos_id: repos.id,
        ..Committed::default()
    };
    write_charts(&mut tx, &name, rows, &mut committed).await?;
    // A body that was known already, and charts that are all alike: the row is left alone, as Kubeapps leaves it.
    let as_before = repos.checksum.as_deref() == Some(&checksum) && !committed.is_change();
    let repos = if as_before || before.is_none() {
        repos
    } else {
        repos.update(&mut tx, checksum).await?
    };
    let entry = conclude(&committed, &mut record);
    record::save(&mut tx, &record).await?;
    repos.remember(&mut tx, &name).await?;
    if let Some(entry) = entry {
        history::add(&mut tx, &name, &entry).await?;
    }
    tx.commit().await?;
    Ok(committed)
}

async fn write_charts(
    tx: &mut Transaction,
    name: &RepositoryName,
    rows: impl Iterator<Item = io::Result<ChartRow>> + Send,
    committed: &mut Committed,
) -> Result<(), Error> {
    let (mut stored, mut gone) = stored_charts(tx, name).await?;
    let mut batch = Batch::default();
    for row in rows {
        let row = row.map_err(|source| Error::Rows { source })?;
        let change = match stored.get_mut(&row.chart_id) {
            None => Change::Insert,
            Some(stored) if stored.seen => {
                let reason = "another chart of this repository has the same id".to_owned();
                committed.rejected.push((row.chart_id, reason));
                continue;
            }
            Some(stored) => {
                stored.seen = true;
                if stored.fingerprint == Some(row.info.fingerprint()) {
                    committed.unchanged += 1;
                    continue;
                }
                Change::Update {
                    id: stored.id,
                    keep_icon: stored.icon.is_some()
                        && row.info.raw_icon.is_none()
                        && stored.icon.as_deref() == Some(&row.info.icon),
                }
            }
        };
        if matches!(change, Change::Insert) {
            stored.insert(row.chart_id.clone(), Stored::new_row());
        }
        batch.push(row, change)?;
        if batch.is_full() {
            batch.write(tx, name, committed).await?;
        }
    }
    batch.write(tx, name, committed).await?;
    gone.extend(
        stored
            .into_values()
            .filter(|stored| !stored.seen)
            .map(|stored| stored.id),
    );
    committed.removed = delete_charts(tx, &gone).await?;
    Ok(())
}

/// What is known of a stored chart while the new ones go by.
struct Stored {
    id: i64,
    /// Nothing where the row is not of Kubeapps' shape: it differs from whatever comes.
    fingerprint: Option<Fingerprint>,
    /// URL of the icon that was imported, if one was.
    icon: Option<String>,
    /// It is in the new index too.
    seen: bool,
}

impl Stored {
    fn of(id: i64, info: &str) -> Self {
        let info: Option<ChartInfo> = serde_json::from_str(info).ok();
        Self {
            id,
            fingerprint: info.as_ref().map(ChartInfo::fingerprint),
            icon: info.filter(ChartInfo::has_imported_icon).map(|info| info.icon),
            seen: false,
        }
    }

    /// One that comes with this very sync: a second of its id is seen by it.
    const fn new_row() -> Self {
        Self {
            id: 0,
            fingerprint: None,
            icon: None,
            seen: true,
        }
    }
}

/// The stored charts of a repository by chart_id, read one by one; and the rows that have none, which nobody can find.
async fn stored_charts(
    tx: &mut Transaction,
    name: &RepositoryName,
) -> Result<(HashMap<String, Stored>, Vec<i64>), Error> {
    const SELECT: &str = "SELECT CAST(id AS BIGINT), chart_id, CAST(info AS TEXT) FROM charts
        WHERE repo_name = $1 AND repo_namespace = $2";
    let mut stored = HashMap::new();
    let mut nameless = Vec::new();
    on_engine!(tx, tx => {
        let mut rows = sqlx::query_as::<_, (i64, Option<String>, String)>(SELECT)
            .bind(&name.name)
            .bind(&name.namespace)
            .fetch(&mut **tx);
        while let Some((id, chart_id, info)) = rows.try_next().await? {
            match chart_id {
                Some(chart_id) => {
                    stored.insert(chart_id, Stored::of(id, &info));
                }
                None => nameless.push(id),
            }
        }
    });
    Ok((stored, nameless))
}

/// Deletes charts by the ids of their rows; their files go with them.
async fn delete_charts(tx: &mut Transaction, ids: &[i64]) -> Result<u64, Error> {
    let mut deleted = 0;
    for ids in ids.chunks(DELETE_AT_ONCE) {
        deleted += match tx {
            Engine::Sqlite(tx) => sqlx::query("DELETE FROM charts WHERE id IN (SELECT value FROM json_each($1))")
                .bind(sqlx::types::Json(ids))
                .execute(&mut **tx)
                .await?
                .rows_affected(),
            Engine::Postgres(tx) => sqlx::query("DELETE FROM charts WHERE id = ANY($1)")
                .bind(ids)
                .execute(&mut **tx)
                .await?
                .rows_affected(),
        };
    }
    Ok(deleted)
}

/// Kubeapps' row of a repository.
#[derive(Clone, Debug)]
struct ReposRow {
    id: i64,
    checksum: Option<String>,
    last_update: Option<String>,
}

impl ReposRow {
    /// On Postgres the row is locked: it can't be removed under the charts that are about to refer to it.
    async fn find(tx: &mut Transaction, name: &RepositoryName) -> Result<Option<Self>, Error> {
        const SQLITE: &str = "SELECT id, checksum, last_update FROM repos WHERE namespace = $1 AND name = $2";
        const POSTGRES: &str =
            "SELECT CAST(id AS BIGINT), checksum, last_update FROM repos WHERE namespace = $1 AND name = $2
            FOR UPDATE";
        let row: Option<(i64, Option<String>, Option<String>)> = match tx {
            Engine::Sqlite(tx) => {
                let query = sqlx::query_as(SQLITE).bind(&name.namespace).bind(&name.name);
                query.fetch_optional(&mut **tx).await?
            }
            Engine::Postgres(tx) => {
                let query = sqlx::query_as(POSTGRES).bind(&name.namespace).bind(&name.name);
                query.fetch_optional(&mut **tx).await?
            }
        };
        Ok(row.map(|(id, checksum, last_update)| Self {
            id,
            checksum,
            last_update,
        }))
    }

    /// Inserts the row, or takes over the one that Kubeapps' syncer has inserted since it was looked for.
    async fn insert(tx: &mut Transaction, name: &RepositoryName, checksum: &str) -> Result<Self, Error> {
        const INSERT: &str = "INSERT INTO repos (namespace, name, checksum, last_update) VALUES ($1, $2, $3, $4)
            ON CONFLICT (namespace, name) DO UPDATE SET checksum = excluded.checksum, last_update = excluded.last_update
            RETURNING CAST(id AS BIGINT)";
        let last_update = go_time(Timestamp::now());
        let id = on_engine!(tx, tx => sqlx::query_scalar(INSERT)
            .bind(&name.namespace)
            .bind(&name.name)
            .bind(checksum)
            .bind(&last_update)
            .fetch_one(&mut **tx)
            .await?);
        Ok(Self {
            id,
            checksum: Some(checksum.to_owned()),
            last_update: Some(last_update),
        })
    }

    async fn update(self, tx: &mut Transaction, checksum: String) -> Result<Self, Error> {
        let last_update = go_time(Timestamp::now());
        on_engine!(tx, tx => {
            sqlx::query("UPDATE repos SET checksum = $2, last_update = $3 WHERE id = $1")
                .bind(self.id)
                .bind(&checksum)
                .bind(&last_update)
                .execute(&mut **tx)
                .await?;
        });
        Ok(Self {
            id: self.id,
            checksum: Some(checksum),
            last_update: Some(last_update),
        })
    }

    /// Notes the row by value, so that a change by another hand is seen.
    async fn remember(&self, tx: &mut Transaction, name: &RepositoryName) -> Result<(), Error> {
        const UPDATE: &str =
            "UPDATE portolan_repositories SET repos_id = $3, repos_checksum = $4, repos_last_update = $5
            WHERE namespace = $1 AND name = $2";
        on_engine!(tx, tx => {
            sqlx::query(UPDATE)
                .bind(&name.namespace)
                .bind(&name.name)
                .bind(self.id)
                .bind(&self.checksum)
                .bind(&self.last_update)
                .execute(&mut **tx)
                .await?;
        });
        Ok(())
    }
}

/// A time as Go's `time.String()` prints it in UTC, which is what Kubeapps stores in `repos.last_update`.
fn go_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S%.f +0000 UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_last_update_is_as_go_prints_it() {
        let time = |text: &str| go_time(text.parse().unwrap());
        assert_eq!(
            time("2024-12-24T08:06:53.123456789Z"),
            "2024-12-24 08:06:53.123456789 +0000 UTC"
        );
        assert_eq!(time("2024-12-24T08:06:53.5Z"), "2024-12-24 08:06:53.5 +0000 UTC");
        assert_eq!(time("2024-12-24T08:06:53Z"), "2024-12-24 08:06:53 +0000 UTC");
    }
}
