//! The transaction of a sync. It writes charts, Kubeapps' row of the repository, our record and the history, or
//! nothing.
//!
//! ```text
//!  lock, identity ─► repos row ─► stored charts, as fingerprints
//!                                        │
//!                rows, one by one ──► compare ──► batches: insert, update (and delete files of deleted versions)
//!                                        │
//!             missing ──► delete ─► deprecated charts, chart digests ─► repos row ─► cached registry state
//!                                                                    ─► record, history, news ─► commit
//! ```
//!
//! Charts in [`DigestUpdate::unchanged`] have no row, and their stored rows are not read, so the cost is proportional
//! to the number of changed charts. The transaction has no network I/O, and only one batch of charts is in memory.

use std::{fmt, io};

use futures::FutureExt;

use super::index_cache::StoredDigests;
use super::{delete, deprecated, diff};
use crate::api::NamespacedName;
use crate::catalog::connection::Usage;
use crate::catalog::engine::{Connection, Transaction, execute, select};
use crate::catalog::files::failures;
use crate::catalog::news::{self, EventKind};
use crate::catalog::repositories::ReposRow;
use crate::catalog::stored_bytes::{self, StoredBytes, StoredLimits};
use crate::catalog::{
    COMMIT_DEADLINE, Catalog, ChangedCharts, ChartRow, DeprecatedCharts, DigestUpdate, Error, HistoryEntry,
    OciRemovals, Record, Retention, SHORT_DEADLINE, history, record,
};

/// Completes the record and returns the history entry, if any. Runs inside the transaction.
pub type CompleteRecord = Box<dyn FnOnce(&CommitSummary, &mut Record) -> Option<HistoryEntry> + Send>;

pub struct SyncCommit {
    pub record: Record,
    /// UID stored at the start of the sync; `None` if there was no record.
    pub expected_uid: Option<String>,
    /// SHA-256 of the index in hex. Kubeapps compares it to detect an unchanged index.
    pub checksum: String,
    pub complete_record: CompleteRecord,
    /// Retention of charts and versions without a row; `None` deletes them, also if they were retained before.
    pub retention: Option<Retention>,
    pub oci_removals: Option<OciRemovals>,
    pub deprecated: DeprecatedCharts,
    /// `None`: every chart has a row, and stored digests are deleted.
    pub digests: Option<DigestUpdate>,
    /// A user requested the sync: creation times are compared, failed files and icons are tried again, and the stored
    /// bytes are counted again.
    pub is_complete: bool,
    /// `namespace/name` of the Secrets that the news goes to.
    pub sinks: Vec<String>,
}

impl SyncCommit {
    #[must_use]
    pub fn new(record: Record, expected_uid: Option<String>, checksum: impl Into<String>) -> Self {
        Self {
            record,
            expected_uid,
            checksum: checksum.into(),
            complete_record: Box::new(|_, _| None),
            retention: None,
            oci_removals: None,
            deprecated: DeprecatedCharts::default(),
            digests: None,
            is_complete: false,
            sinks: Vec::new(),
        }
    }

    #[must_use]
    pub fn complete_record_with(
        mut self,
        complete_record: impl FnOnce(&CommitSummary, &mut Record) -> Option<HistoryEntry> + Send + 'static,
    ) -> Self {
        self.complete_record = Box::new(complete_record);
        self
    }
}

impl fmt::Debug for SyncCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncCommit")
            .field("record", &self.record)
            .field("expected_uid", &self.expected_uid)
            .field("checksum", &self.checksum)
            .field("retention", &self.retention)
            .field("oci_removals", &self.oci_removals)
            .field("deprecated", &self.deprecated)
            .field("digests", &self.digests)
            .field("is_complete", &self.is_complete)
            .field("sinks", &self.sinks)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitSummary {
    pub added: u64,
    pub changed: u64,
    pub removed: u64,
    pub unchanged: u64,
    /// Charts that the database rejected, by `chart_id`, with the reason. Their stored rows stay.
    pub rejected: Vec<(String, String)>,
    pub repos_id: i64,
    pub kept: u64,
    pub written: ChangedCharts,
    pub bytes: StoredBytes,
    /// Rows of the outbox.
    pub news: u64,
}

impl CommitSummary {
    #[must_use]
    pub const fn is_change(&self) -> bool {
        self.added + self.changed + self.removed > 0
    }
}

impl Catalog {
    /// The sync changed no charts. Fails with `ErrorKind::Superseded` if the stored UID is not `expected_uid`
    /// (`None`: no record), or if the record was written since `record` was read.
    pub async fn save(
        &self,
        record: &Record,
        expected_uid: Option<&str>,
        history: Option<&HistoryEntry>,
    ) -> Result<(), Error> {
        self.save_with_news(record, expected_uid, history, &[], false).await
    }

    /// Same as [`Catalog::save`], and inserts the news that the repository failed or recovered.
    pub async fn save_with_news(
        &self,
        record: &Record,
        expected_uid: Option<&str>,
        history: Option<&HistoryEntry>,
        sinks: &[String],
        was_failure_reported: bool,
    ) -> Result<(), Error> {
        const OPERATION: &str = "write the repository record";
        let namespace = &record.name.namespace;
        self.ensure_writable()?;
        // A fence and news need a transaction. Without them, a single statement suffices.
        let is_simple = self.0.pools.has_session() && !self.0.fences.has_lease() && sinks.is_empty();
        if let (Some(uid), Some(revision), None, true) = (expected_uid, record.revision, history, is_simple) {
            let update = async |connection: &mut Connection| record::update(connection, record, uid, revision).await;
            let updated = self
                .on_connection(OPERATION, true, namespace, SHORT_DEADLINE, update)
                .await;
            return self.handle_missing_table(updated).await;
        }
        let save = self.write(OPERATION, namespace, async |tx| {
            record::lock_and_check_identity(tx, record, expected_uid).await?;
            news::take_over(tx, record).await?;
            record::save(tx, record).await?;
            if let Some(entry) = history {
                history::add(tx, &record.name, entry).await?;
            }
            news::insert_health(tx, record, sinks, was_failure_reported).await
        });
        self.notify_news(save.await?);
        Ok(())
    }

    /// Inserts the news of a failure that no sync records. Until one succeeds, the record says that it was reported.
    pub async fn report_failure(&self, record: &Record, message: &str, sinks: &[String]) -> Result<(), Error> {
        let mut reported = record.clone();
        reported.state.failure_reported = true;
        let report = self.write("report a failure", &record.name.namespace, async |tx| {
            record::lock_and_check_identity(tx, &reported, Some(&reported.uid)).await?;
            record::save(tx, &reported).await?;
            message.clone_into(&mut reported.state.message);
            news::insert_health(tx, &reported, sinks, false).await
        });
        self.notify_news(report.await?);
        Ok(())
    }

    /// Replaces the charts of a repository by `rows` and writes its record, in one transaction.
    ///
    /// A row whose chart differs only in creation times is not written, unless [`SyncCommit::is_complete`]. An imported
    /// icon stays while its URL is the same. Charts without a row are deleted, or retained as [`SyncCommit::retention`]
    /// says. Of several rows with one ID the first is used. [`CommitSummary::rejected`] charts keep their rows.
    ///
    /// Fails with `ErrorKind::Superseded` if the stored UID is not `expected_uid`, `ErrorKind::StaleDigests` if a
    /// chart of [`DigestUpdate::unchanged`] has changed, `ErrorKind::Rows` if the iterator fails,
    /// `ErrorKind::QuotaExceeded` if the charts take more space than allowed. Nothing is written then.
    pub async fn commit(
        &self,
        commit: SyncCommit,
        rows: impl Iterator<Item = io::Result<ChartRow>> + Send,
    ) -> Result<CommitSummary, Error> {
        const OPERATION: &str = "write the charts of the repository";
        let namespace = commit.record.name.namespace.clone();
        let limits = &self.0.limits;
        // Boxed, because this is by far the largest future and would be copied on the stack.
        let write = async |tx: &mut Transaction| write_commit(tx, limits, commit, rows).boxed().await;
        let committed = self.write_with(OPERATION, Usage::Commit, &namespace, COMMIT_DEADLINE, write);
        let committed = committed.await?;
        self.notify_news(committed.news);
        Ok(committed)
    }
}

async fn write_commit(
    tx: &mut Transaction,
    limits: &StoredLimits,
    commit: SyncCommit,
    rows: impl Iterator<Item = io::Result<ChartRow>> + Send,
) -> Result<CommitSummary, Error> {
    let SyncCommit {
        mut record,
        expected_uid,
        checksum,
        complete_record,
        retention,
        oci_removals,
        deprecated,
        digests,
        is_complete,
        sinks,
    } = commit;
    let name = record.name.clone();
    record::lock_and_check_identity(tx, &record, expected_uid.as_deref()).await?;
    news::take_over(tx, &record).await?;
    let before = ReposRow::find(tx, &name).await?;
    let repos = match &before {
        Some(row) => row.clone(),
        None => ReposRow::insert(tx, &name, &checksum).await?,
    };
    let mut committed = CommitSummary {
        repos_id: repos.id,
        ..CommitSummary::default()
    };
    if has_other_inputs(tx, &record).await? {
        reset_failures(tx, &name).await?;
    }
    if is_complete {
        failures::retry(tx, &name).await?;
    }
    let index_cache = StoredDigests::load(tx, &record, digests).await?;
    let unchanged = index_cache.unchanged_rows();
    let options = diff::DiffOptions {
        retention,
        compares_times: is_complete,
        has_sinks: !sinks.is_empty(),
    };
    let diff = diff::write_charts(tx, &name, rows, options, unchanged, &mut committed);
    let changes = diff.boxed().await?;
    index_cache.save(tx, &name, &committed.rejected).await?;
    let deprecated_bytes = deprecated::write(tx, &name, deprecated).await?;
    committed.bytes.charts += deprecated_bytes;
    // As in Kubeapps, an unchanged index does not touch the row. After an upgrade, it has deprecated charts for the first time.
    let is_change = committed.is_change() || deprecated_bytes != 0;
    let is_unmodified = repos.checksum.as_deref() == Some(&checksum) && !is_change;
    let repos = if is_unmodified || before.is_none() {
        repos
    } else {
        repos.update(tx, checksum).await?
    };
    stored_bytes::commit(tx, &name, committed.bytes, limits, is_complete).await?;
    if let Some(oci_removals) = oci_removals {
        delete::delete(tx, &name, &oci_removals).await?;
    }
    let (was_failure_reported, was_first_pull) = (record.state.failure_reported, record.is_first_pull);
    let entry = complete_record(&committed, &mut record);
    record.is_first_pull = record.is_partial() && (was_first_pull || before.is_none());
    record::save(tx, &record).await?;
    repos.store_values(tx, &name).await?;
    if let Some(entry) = entry {
        history::add(tx, &name, &entry).await?;
    }
    let kind = if before.is_none() {
        EventKind::FirstSync
    } else {
        EventKind::Versions
    };
    // A first sync in parts is one event.
    let sinks_of_changes: &[String] = if was_first_pull { &[] } else { &sinks };
    committed.news = news::insert_changes(tx, &record, sinks_of_changes, kind, changes).await?
        + news::insert_health(tx, &record, &sinks, was_failure_reported).await?;
    Ok(committed)
}

/// Returns true if the stored charts belong to another object or change key.
async fn has_other_inputs(tx: &mut Transaction, record: &Record) -> Result<bool, Error> {
    const SELECT: &str = "SELECT count(*) FROM portolan_repositories
        WHERE namespace = $1 AND name = $2 AND (uid <> $3 OR change_key <> $4)";
    let (uid, change_key) = (record::storable(&record.uid), record::storable(&record.change_key));
    let (count,): (i64,) = select!(fetch_one, tx, SELECT, record.name, &*uid, &*change_key);
    Ok(count > 0)
}

/// Resets failed files and icons: the new inputs may fix them.
async fn reset_failures(tx: &mut Transaction, name: &NamespacedName) -> Result<(), Error> {
    for statement in [
        "UPDATE portolan_files SET tries = 0, next_try = 0 WHERE namespace = $1 AND name = $2",
        "DELETE FROM portolan_icons WHERE namespace = $1 AND name = $2",
    ] {
        execute!(tx, statement, name);
    }
    Ok(())
}
