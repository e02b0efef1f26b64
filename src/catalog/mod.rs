//! The database: migrations, rows and queries for SQLite and Postgres behind one type.
//!
//! ```text
//!  Kubeapps' tables, read by its API server          Portolan's own tables
//!  repos ◄── charts ◄── files                        portolan_repositories ◄── portolan_syncs
//!                                                    portolan_files, portolan_icons, portolan_kept_versions
//!                                                    portolan_index_cache, portolan_chart_digests
//!                                                    portolan_oci_repositories, portolan_oci_tags
//! ```
//!
//! No foreign key connects the two halves, because Kubeapps may drop and recreate its own at any time.
//! [`Record::trusted`] is true while the charts are the ones that Portolan wrote. A call that misses a table recreates
//! all tables, and [`Catalog::rebuilt`] then notifies the controllers to sync every repository.

mod chart;
mod engine;
mod error;
mod files;
mod history;
mod icons;
mod identity;
pub mod lock;
mod oci;
mod problems;
pub mod query;
mod record;
mod repositories;
mod schema;
mod settings;
pub mod sync;
mod writable;

use crate::api::NamespacedName;
use std::{io, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio::sync::watch;

pub use chart::{ChartInfo, ChartRow, ChartVersion, Fingerprint, Maintainer, RepoRef};
use engine::{Pools, Transaction, execute, on_engine, select};
pub use error::Error;
pub use files::info::FetchedFiles;
pub use files::{ChartFiles, FilesMode, MissingFiles, MissingFilesPage, Progress, SaveOutcome};
pub use history::{HISTORY_LIMIT, HistoryEntry};
pub use icons::MissingIcon;
pub use oci::{OciChange, OciMetadata, OciRepository, OciTag};
use record::RecordRow;
pub use record::{Baseline, Handled, Record, Refused, State};
pub use settings::{DEFAULT_POSTGRES_CONNECTIONS, Database, Login, Password, Settings, SettingsError};
pub use sync::chart_digests::{ChartDigest, ChartDigests, DigestUpdate, UnchangedChart};
pub use sync::commit::{CommitSummary, CompleteRecord, SyncCommit};
pub use sync::delete::OciRemovals;
pub use sync::retention::{RetainedPart, Retention};

const PING_DEADLINE: Duration = Duration::from_secs(5);

/// For calls that touch a few rows. Longer than the acquire timeouts of the pools, which give the better error.
const SHORT_DEADLINE: Duration = Duration::from_secs(60);

/// For all charts of a repository, on a slow disk, queued behind another sync.
const COMMIT_DEADLINE: Duration = Duration::from_secs(15 * 60);

/// A handle to the database. Clones share the connection pools.
#[derive(Clone, Debug)]
pub struct Catalog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pools: Pools,
    writable: bool,
    rebuilt: watch::Sender<u64>,
    writes: writable::WriteHistory,
}

impl Catalog {
    /// Connects, runs the migrations, and creates missing tables of Kubeapps.
    pub async fn open(settings: &Settings) -> Result<Self, Error> {
        let catalog = Self::connect(settings, true).await?;
        catalog
            .with_deadline("create the tables", SHORT_DEADLINE, schema::ensure(&catalog.0.pools))
            .await?;
        Ok(catalog)
    }

    /// Returns a catalog whose Postgres may not be reachable yet, or `None` for SQLite.
    ///
    /// Calls fail until it is. Call [`Catalog::ensure_tables`] once it can be reached.
    #[must_use]
    pub fn open_lazy(settings: &Settings) -> Option<Self> {
        match &settings.database {
            Database::Sqlite(_) => None,
            Database::Postgres(options) => Some(Self::from_pools(
                Pools::postgres_lazy(options, settings.postgres_connections),
                true,
            )),
        }
    }

    /// Connects without creating or changing tables. Fails with [`Error::NoDatabase`] if the SQLite file does not exist.
    pub async fn open_read_only(settings: &Settings) -> Result<Self, Error> {
        if let Some(path) = settings.database.sqlite_path()
            && !path.exists()
        {
            return Err(Error::NoDatabase {
                database: settings.database.to_string(),
            });
        }
        Self::connect(settings, false).await
    }

    async fn connect(settings: &Settings, writable: bool) -> Result<Self, Error> {
        let pools = match &settings.database {
            Database::Sqlite(path) => Pools::sqlite(path, writable).await,
            Database::Postgres(options) => Pools::postgres(options, settings.postgres_connections).await,
        }
        .map_err(|error| error.context("connect to the database"))?;
        Ok(Self::from_pools(pools, writable))
    }

    fn from_pools(pools: Pools, writable: bool) -> Self {
        Self(Arc::new(Inner {
            pools,
            writable,
            rebuilt: watch::Sender::new(0),
            writes: writable::WriteHistory::default(),
        }))
    }

    pub async fn close(&self) {
        self.0.pools.close().await;
    }

    pub async fn ping(&self) -> Result<(), Error> {
        self.with_deadline("ping the database", PING_DEADLINE, async {
            on_engine!(self.0.pools.executor(), pool => { sqlx::query("SELECT 1").execute(pool).await?; });
            Ok(())
        })
        .await
    }

    /// Creates missing tables. Returns true if there were any: every repository needs a sync then.
    pub async fn ensure_tables(&self) -> Result<bool, Error> {
        self.ensure_writable()?;
        let was_incomplete = self
            .with_deadline("create the tables", SHORT_DEADLINE, schema::ensure(&self.0.pools))
            .await?;
        if was_incomplete {
            self.notify_rebuilt();
        }
        Ok(was_incomplete)
    }

    pub async fn recreate(&self) -> Result<(), Error> {
        self.ensure_writable()?;
        self.with_deadline("recreate the tables", SHORT_DEADLINE, schema::recreate(&self.0.pools))
            .await?;
        self.notify_rebuilt();
        Ok(())
    }

    /// Returns a counter of the times that missing tables were recreated.
    #[must_use]
    pub fn rebuilt(&self) -> watch::Receiver<u64> {
        self.0.rebuilt.subscribe()
    }

    pub async fn record(&self, name: &NamespacedName) -> Result<Option<Record>, Error> {
        self.read("read the repository record", async {
            let row: Option<RecordRow> = select!(fetch_optional, self.0.pools, record::SELECT_ONE, name);
            row.map(Record::try_from).transpose()
        })
        .await
    }

    pub async fn records(&self) -> Result<Vec<Record>, Error> {
        self.read("list the repository records", async {
            let rows: Vec<RecordRow> =
                on_engine!(self.0.pools.executor(), pool => sqlx::query_as(record::SELECT_ALL).fetch_all(pool).await?);
            rows.into_iter().map(Record::try_from).collect()
        })
        .await
    }

    /// Writes the record of a sync that changed no charts.
    ///
    /// Fails with [`Error::Superseded`] if the stored UID is not `expected_uid` (`None`: no record), or if the record was
    /// written since `record` was read.
    pub async fn save(
        &self,
        record: &Record,
        expected_uid: Option<&str>,
        history: Option<&HistoryEntry>,
    ) -> Result<(), Error> {
        const OPERATION: &str = "write the repository record";
        self.ensure_writable()?;
        if let (Some(uid), Some(revision), None) = (expected_uid, record.revision, history) {
            let update = record::update(&self.0.pools, record, uid, revision);
            return self.recorded(self.call(OPERATION, SHORT_DEADLINE, update)).await;
        }
        self.write(OPERATION, SHORT_DEADLINE, async |tx| {
            record::lock_and_check_identity(tx, record, expected_uid).await?;
            record::save(tx, record).await?;
            match history {
                Some(entry) => history::add(tx, &record.name, entry).await,
                None => Ok(()),
            }
        })
        .await
    }

    /// Replaces the charts of a repository by `rows` and writes its record, in one transaction.
    ///
    /// A row whose chart differs only in creation times is not written. An imported icon stays while its URL is the
    /// same. Charts without a row are deleted, or retained as [`SyncCommit::retention`] says. Of several rows with one
    /// ID the first is used. A chart that the database rejects keeps its old row and is reported in
    /// [`CommitSummary::rejected`].
    ///
    /// Fails with [`Error::Superseded`] if the stored UID is not `expected_uid`, [`Error::StaleDigests`] if a chart of
    /// [`DigestUpdate::unchanged`] has changed, [`Error::Rows`] if the iterator fails. Nothing is written then.
    pub async fn commit(
        &self,
        commit: SyncCommit,
        rows: impl Iterator<Item = io::Result<ChartRow>> + Send,
    ) -> Result<CommitSummary, Error> {
        self.ensure_writable()?;
        self.recorded(self.call(
            "write the charts of the repository",
            COMMIT_DEADLINE,
            // Boxed, because this is by far the largest future and would be copied on the stack.
            sync::commit::commit(&self.0.pools, commit, rows).boxed(),
        ))
        .await
    }

    /// Deletes a repository with its charts, record and history. Returns false if there was nothing to delete.
    ///
    /// With `expected_uid`, a record of another UID is left alone: the repository was recreated under the same name.
    pub async fn remove(&self, name: &NamespacedName, expected_uid: Option<&str>) -> Result<bool, Error> {
        const STATEMENTS: [&str; 9] = [
            "DELETE FROM portolan_repositories WHERE namespace = $1 AND name = $2",
            "DELETE FROM portolan_files WHERE namespace = $1 AND name = $2",
            "DELETE FROM portolan_icons WHERE namespace = $1 AND name = $2",
            "DELETE FROM portolan_kept_versions WHERE namespace = $1 AND name = $2",
            "DELETE FROM portolan_index_cache WHERE namespace = $1 AND name = $2",
            "DELETE FROM portolan_chart_digests WHERE namespace = $1 AND name = $2",
            "DELETE FROM portolan_oci_tags WHERE namespace = $1 AND name = $2",
            "DELETE FROM portolan_oci_repositories WHERE namespace = $1 AND name = $2",
            "DELETE FROM repos WHERE namespace = $1 AND name = $2",
        ];
        self.write("delete the repository", COMMIT_DEADLINE, async |tx| {
            record::lock(tx, name).await?;
            let stored = record::stored_identity(tx, name).await?.map(|(uid, _)| uid);
            if let (Some(expected), Some(stored)) = (expected_uid, stored)
                && expected != stored
            {
                return Ok(false);
            }
            let mut removed = 0;
            for statement in STATEMENTS {
                removed += execute!(tx, statement, name);
            }
            Ok(removed > 0)
        })
        .await
    }

    /// Runs `work`. If a table is missing, recreates all tables and fails, because earlier reads are out of date.
    async fn call<T>(
        &self,
        operation: &'static str,
        deadline: Duration,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match self.with_deadline(operation, deadline, work).await {
            Err(error) if error.is_missing_table() && self.0.writable => {
                tracing::warn!("catalog tables are missing, recreating them and resyncing all repositories");
                self.with_deadline("create the tables", SHORT_DEADLINE, schema::ensure(&self.0.pools))
                    .await?;
                // Also if another process recreated them first: they are just as empty.
                self.notify_rebuilt();
                Err(Error::TablesRebuilt)
            }
            result => result,
        }
    }

    /// Runs `work` in a write transaction and commits it.
    async fn write<T>(
        &self,
        operation: &'static str,
        deadline: Duration,
        work: impl AsyncFnOnce(&mut Transaction) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.ensure_writable()?;
        self.recorded(self.call(operation, deadline, async {
            let mut tx = self.0.pools.begin().await?;
            let result = work(&mut tx).await?;
            tx.commit().await?;
            Ok(result)
        }))
        .await
    }

    /// Remembers a successful write, for [`Catalog::check_writable`].
    async fn recorded<T>(&self, write: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let written = write.await?;
        self.0.writes.succeeded();
        Ok(written)
    }

    /// Runs read-only work. In a read-only catalog a missing table counts as empty.
    async fn read<T: Default>(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match self.call(operation, SHORT_DEADLINE, work).await {
            Err(error) if error.is_missing_table() => Ok(T::default()),
            result => result,
        }
    }

    async fn with_deadline<T>(
        &self,
        operation: &'static str,
        deadline: Duration,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let result = match tokio::time::timeout(deadline, work).await {
            Ok(result) => result.map_err(|error| error.context(operation)),
            Err(_) => Err(Error::timed_out(operation, deadline)),
        };
        result.inspect_err(|_| self.0.writes.failed())
    }

    fn ensure_writable(&self) -> Result<(), Error> {
        if self.0.writable { Ok(()) } else { Err(Error::ReadOnly) }
    }

    fn notify_rebuilt(&self) {
        self.0.rebuilt.send_modify(|count| *count += 1);
    }
}
