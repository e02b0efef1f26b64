//! The one transaction of a sync: charts, removals, Kubeapps' row of the repository, our own record and its history are written
//! together or not at all.
//!
//! ```text
//!  lock, identity ─► repos row ─► stored charts, as fingerprints
//!                                        │
//!            new charts, one by one ──► compare ──► batches: insert, update (and files of versions that went)
//!                                        │
//!                            not seen ──► delete ─► cuts ─► repos row ─► memory of a registry ─► record, history ─► commit
//! ```
//!
//! Where the caller knows of charts that they are the ones of the last index ([`DigestUpdate::unchanged`]), these are neither among the
//! new ones nor are their stored ones read: what a sync costs then follows what has changed.
//!
//! Nothing of the network happens inside, and of the charts only one batch is in memory.

use std::{fmt, io};

use futures::FutureExt;

use super::index_cache::Memory;
use super::{delete as forget, diff as write};
use crate::api::NamespacedName;
use crate::catalog::engine::{Pools, Transaction, on_engine};
use crate::catalog::repositories::ReposRow;
use crate::catalog::{ChartRow, DigestUpdate, Error, HistoryEntry, Keep, OciGone, Record, history, record};

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
    /// What of a registry's memory goes with the charts.
    pub gone: Option<OciGone>,
    /// What is to be remembered of the index, and which of its charts are not among the rows since they are what they were.
    /// Nothing: the rows are all charts, and nothing is remembered of this repository's index any more.
    pub cuts: Option<DigestUpdate>,
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
            gone: None,
            cuts: None,
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
            .field("gone", &self.gone)
            .field("cuts", &self.cuts)
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
pub(in crate::catalog) async fn commit(
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
        gone,
        cuts,
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
    if is_of_other_input(&mut tx, &record).await? {
        retry_all(&mut tx, &name).await?;
    }
    let memory = Memory::recall(&mut tx, &record, cuts).await?;
    let written = write::charts(&mut tx, &name, rows, keep, memory.untouched(), &mut committed);
    written.boxed().await?;
    memory.save(&mut tx, &name, &committed.rejected).await?;
    // A body that was known already, and charts that are all alike: the row is left alone, as Kubeapps leaves it.
    let as_before = repos.checksum.as_deref() == Some(&checksum) && !committed.is_change();
    let repos = if as_before || before.is_none() {
        repos
    } else {
        repos.update(&mut tx, checksum).await?
    };
    if let Some(gone) = gone {
        forget::forget(&mut tx, &name, &gone).await?;
    }
    let entry = conclude(&committed, &mut record);
    record::save(&mut tx, &record).await?;
    repos.remember(&mut tx, &name).await?;
    if let Some(entry) = entry {
        history::add(&mut tx, &name, &entry).await?;
    }
    tx.commit().await?;
    Ok(committed)
}

/// Whether the charts were made until now for another object, or from what else decides about them beside the index.
async fn is_of_other_input(tx: &mut Transaction, record: &Record) -> Result<bool, Error> {
    const SELECT: &str = "SELECT count(*) FROM portolan_repositories
        WHERE namespace = $1 AND name = $2 AND (uid <> $3 OR change_key <> $4)";
    let others: i64 = on_engine!(tx, tx => sqlx::query_scalar(SELECT)
        .bind(&record.name.namespace)
        .bind(&record.name.name)
        .bind(&*record::storable(&record.uid))
        .bind(&*record::storable(&record.change_key))
        .fetch_one(&mut **tx)
        .await?);
    Ok(others > 0)
}

/// Files and icons that have failed may be had by now: they count as not tried.
async fn retry_all(tx: &mut Transaction, name: &NamespacedName) -> Result<(), Error> {
    for statement in [
        "UPDATE portolan_files SET tries = 0, next_try = 0 WHERE namespace = $1 AND name = $2",
        "DELETE FROM portolan_icons WHERE namespace = $1 AND name = $2",
    ] {
        on_engine!(&mut *tx, tx => {
            sqlx::query(statement)
                .bind(&name.namespace)
                .bind(&name.name)
                .execute(&mut **tx)
                .await?;
        });
    }
    Ok(())
}
