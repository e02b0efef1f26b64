//! The database: migrations, rows and queries for SQLite and Postgres behind one type.
//!
//! ```text
//!  Kubeapps' tables, read by its API server          Portolan's own tables
//!  repos ◄── charts ◄── files                        portolan_repositories ◄── portolan_syncs
//!                                                    portolan_files, portolan_icons, portolan_kept_versions
//!                                                    portolan_chart_metadata, portolan_svg_icons
//!                                                    portolan_index_cache, portolan_chart_digests, portolan_news
//!                                                    portolan_deprecated_charts
//!                   portolan_clusters, portolan_fences, portolan_oci_repositories, portolan_oci_tags
//! ```
//!
//! No foreign key connects the two halves, because Kubeapps may drop and recreate its own at any time.
//! [`Record::trusted`] is true while the charts are as Portolan wrote them. A call that misses a table recreates
//! all tables, and [`Catalog::rebuilt`] then notifies the controllers to sync every repository.

mod chart;
mod cluster;
mod connection;
mod engine;
mod error;
mod fault;
mod fence;
mod files;
mod history;
mod icons;
mod identity;
pub mod news;
mod oci;
mod pages;
pub mod query;
mod record;
mod repositories;
mod schema;
mod settings;
mod stored_bytes;
pub mod sync;
pub mod transfer;

use crate::api::NamespacedName;
use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use tokio::sync::watch;

pub use chart::{ChartFingerprint, ChartInfo, ChartRow, ChartVersion, Maintainer, RepoRef};
pub use cluster::{ClusterClaim, RENEW_INTERVAL};
pub use connection::lock;
use connection::{Pools, Transaction, Usage};
use engine::{execute, on_engine, select};
pub use error::{Error, ErrorKind};
pub use fault::Fault;
pub use fence::{Blockers, BlockingSession, HeldLease, LeaseGeneration};
pub use files::changed::ChangedCharts;
pub use files::info::FetchedFiles;
pub use files::metadata::ChartMetadata;
pub use files::missing::MAX_URL_CHARACTERS;
pub use files::read::{FilesProblem, StoredText};
pub use files::write::FilesResult;
pub use files::{ChartFiles, FilesMode, FilesProgress, MissingFiles, MissingFilesPage, SaveOutcome};
pub use history::{HISTORY_LIMIT, HistoryEntry, SyncView};
pub use icons::MissingIcon;
pub use oci::{OciChange, OciMetadata, OciRepository, OciTag};
use record::RecordRow;
pub use record::{Baseline, Handled, ONE_SHOT, PARTIAL_PREFIX, Poll, Record, RecordState, Refused};
pub use schema::SchemaVersions;
pub use settings::{
    CatalogSettings, DEFAULT_POSTGRES_CONNECTIONS, Database, Login, Migrations, Password, Pooler, SettingsError,
};
pub use stored_bytes::{StorageLimits, StoredBytes};
pub use sync::chart_digests::{ChartDigest, ChartDigests, DigestUpdate, UnchangedChart};
pub use sync::commit::{CommitSummary, CompleteRecord, SyncCommit};
pub use sync::delete::OciRemovals;
pub use sync::deprecated::DeprecatedCharts;
pub use sync::retention::{RetainedPart, Retention};

const PING_DEADLINE: Duration = Duration::from_secs(5);

/// For calls that touch a few rows.
const SHORT_DEADLINE: Duration = Duration::from_secs(60);

/// For all charts of a repository, on a slow disk. A statement has its own deadline.
const COMMIT_DEADLINE: Duration = Duration::from_secs(15 * 60);

/// A handle to the database. Clones share the connection pools.
#[derive(Clone, Debug)]
pub struct Catalog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pools: Pools,
    writable: bool,
    migrations: Migrations,
    limits: stored_bytes::StoredLimits,
    rebuilt: watch::Sender<u64>,
    refused_logins: watch::Sender<u64>,
    is_foreign_file: AtomicBool,
    writes: connection::WriteHistory,
    fences: fence::Fences,
    news: watch::Sender<u64>,
}

/// The repository that is removed: guards against a new object of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence<'a> {
    /// Any repository, as a user's command requests.
    None,
    /// The repository whose record has this UID, or no record.
    Uid(Option<&'a str>),
}

impl Catalog {
    /// Connects, runs or refuses the migrations, and creates missing tables of Kubeapps.
    pub async fn open(settings: &CatalogSettings) -> Result<Self, Error> {
        let catalog = Self::connect(settings, true).await?;
        catalog.create_tables().await?;
        Ok(catalog)
    }

    /// `None` for SQLite. Postgres may be unreachable: calls fail, and [`Catalog::ensure_tables`] is due afterwards.
    #[must_use]
    pub fn open_lazy(settings: &CatalogSettings) -> Option<Self> {
        match &settings.database {
            Database::Sqlite(_) => None,
            Database::Postgres(options) => {
                let pools = Pools::postgres_lazy(options, &settings.pools());
                Some(Self::from_pools(pools, settings, true))
            }
        }
    }

    /// Connects without creating or changing tables. Fails with [`ErrorKind::NoDatabase`] if the SQLite file does not exist.
    pub async fn open_read_only(settings: &CatalogSettings) -> Result<Self, Error> {
        if let Some(path) = settings.database.sqlite_path()
            && !path.exists()
        {
            return Err(ErrorKind::NoDatabase {
                database: settings.database.to_string(),
            }
            .into());
        }
        Self::connect(settings, false).await
    }

    /// As [`Catalog::open_read_only`], but Postgres may be unreachable or refuse the password: calls fail meanwhile.
    pub async fn open_read_only_lazy(settings: &CatalogSettings) -> Result<Self, Error> {
        match &settings.database {
            Database::Sqlite(_) => Self::open_read_only(settings).await,
            Database::Postgres(options) => {
                let pools = Pools::postgres_lazy(options, &settings.pools());
                Ok(Self::from_pools(pools, settings, false))
            }
        }
    }

    async fn connect(settings: &CatalogSettings, writable: bool) -> Result<Self, Error> {
        let pools = match &settings.database {
            Database::Sqlite(path) => Pools::sqlite(path, writable, &settings.metrics).await,
            Database::Postgres(options) => Pools::postgres(options, &settings.pools()).await,
        }
        .map_err(|error| error.context("connect to the database"))?;
        Ok(Self::from_pools(pools, settings, writable))
    }

    fn from_pools(pools: Pools, settings: &CatalogSettings, writable: bool) -> Self {
        Self(Arc::new(Inner {
            pools,
            writable,
            migrations: settings.migrations,
            limits: settings.limits.resolve(settings.database.sqlite_path()),
            rebuilt: watch::Sender::new(0),
            refused_logins: watch::Sender::new(0),
            is_foreign_file: AtomicBool::new(false),
            writes: connection::WriteHistory::default(),
            fences: fence::Fences::default(),
            news: watch::Sender::new(0),
        }))
    }

    pub async fn close(&self) {
        self.0.pools.close().await;
    }

    /// Asks the database for a response, on the reserved connection if all others are in use.
    pub async fn ping(&self) -> Result<(), Error> {
        const OPERATION: &str = "ping the database";
        self.ensure_own_file()?;
        let ping = async {
            let mut connection = self.0.pools.reader(Usage::Reserved, "").await?;
            on_engine!(connection.executor(), executor => { sqlx::query("SELECT 1").execute(executor).await?; });
            connection.release();
            Ok(())
        };
        let ping = tokio::time::timeout(PING_DEADLINE, ping).await;
        let ping = ping.unwrap_or_else(|_| Err(Error::no_response(PING_DEADLINE)));
        ping.map_err(|error| self.classify(OPERATION, error))
    }

    /// Creates missing tables. Returns true if there were any: every repository needs a sync then.
    pub async fn ensure_tables(&self) -> Result<bool, Error> {
        self.ensure_writable()?;
        let was_incomplete = self.create_tables().await?;
        if was_incomplete {
            self.notify_rebuilt();
        }
        Ok(was_incomplete)
    }

    async fn create_tables(&self) -> Result<bool, Error> {
        const OPERATION: &str = "create the tables";
        let created = tokio::time::timeout(SHORT_DEADLINE, schema::ensure(&self.0.pools, self.0.migrations)).await;
        let created = created.unwrap_or_else(|_| Err(Error::timed_out(OPERATION, SHORT_DEADLINE)));
        if let Some(file) = self.0.pools.sqlite_file() {
            file.remember_log();
        }
        created.map_err(|error| self.classify(OPERATION, error))
    }

    pub async fn recreate(&self) -> Result<(), Error> {
        const OPERATION: &str = "recreate the tables";
        self.ensure_writable()?;
        let recreated = tokio::time::timeout(SHORT_DEADLINE, schema::recreate(&self.0.pools)).await;
        recreated
            .unwrap_or_else(|_| Err(Error::timed_out(OPERATION, SHORT_DEADLINE)))
            .map_err(|error| self.classify(OPERATION, error))?;
        self.notify_rebuilt();
        Ok(())
    }

    /// Returns a counter of the times that missing tables were recreated.
    #[must_use]
    pub fn rebuilt(&self) -> watch::Receiver<u64> {
        self.0.rebuilt.subscribe()
    }

    /// Returns a counter of the connections that Postgres refused because of the user or the password.
    #[must_use]
    pub fn refused_logins(&self) -> watch::Receiver<u64> {
        self.0.refused_logins.subscribe()
    }

    pub fn set_password(&self, password: &Password) {
        self.0.pools.set_password(password);
    }

    pub async fn record(&self, name: &NamespacedName) -> Result<Option<Record>, Error> {
        self.read("read the repository record", &name.namespace, async |connection| {
            let row: Option<RecordRow> = select!(fetch_optional, connection, record::SELECT_ONE, name);
            row.map(Record::try_from).transpose()
        })
        .await
    }

    /// Returns the UID of the stored record. Reads no other field: an unreadable record can still be removed.
    pub async fn stored_uid(&self, name: &NamespacedName) -> Result<Option<String>, Error> {
        const SELECT: &str = "SELECT uid FROM portolan_repositories WHERE namespace = $1 AND name = $2";
        let operation = "read the UID of the repository";
        let select = async |tx: &mut Transaction| {
            let row: Option<(String,)> = select!(fetch_optional, tx, SELECT, name);
            Ok(row.map(|(uid,)| uid))
        };
        // Part of clean-up, which waits for no sync.
        let namespace = &name.namespace;
        self.write_with(operation, Usage::Reserved, namespace, SHORT_DEADLINE, select)
            .await
    }

    /// A record that can't be read, of a newer release, concerns only its own repository: it is logged and left out.
    pub async fn records(&self) -> Result<Vec<Record>, Error> {
        self.read("list the repository records", "", async |connection| {
            let rows: Vec<RecordRow> = on_engine!(connection.executor(), executor =>
                sqlx::query_as(record::SELECT_ALL).fetch_all(executor).await?);
            let readable = |row| {
                Record::try_from(row)
                    .inspect_err(|error| tracing::warn!(%error, "ignoring a record"))
                    .ok()
            };
            Ok(rows.into_iter().filter_map(readable).collect())
        })
        .await
    }

    /// Returns the names of all repositories with a record, readable or not.
    pub async fn names(&self) -> Result<Vec<NamespacedName>, Error> {
        const SELECT: &str = "SELECT namespace, name FROM portolan_repositories ORDER BY namespace, name";
        self.read("list the repositories", "", async |connection| {
            let rows: Vec<(String, String)> =
                on_engine!(connection.executor(), executor => sqlx::query_as(SELECT).fetch_all(executor).await?);
            Ok(rows
                .into_iter()
                .map(|(namespace, name)| NamespacedName { namespace, name })
                .collect())
        })
        .await
    }

    /// Deletes charts, record and history too. Returns false for another repository than the fence names, or for none.
    pub async fn remove(&self, name: &NamespacedName, fence: Fence<'_>) -> Result<bool, Error> {
        self.remove_with(name, fence, None).await
    }

    /// Same as [`Catalog::remove`], and keeps syncs of the repository with this UID from committing later.
    pub async fn remove_deleted(&self, name: &NamespacedName, fence: Fence<'_>, uid: &str) -> Result<bool, Error> {
        self.remove_with(name, fence, Some(uid)).await
    }

    async fn remove_with(&self, name: &NamespacedName, fence: Fence<'_>, deleted: Option<&str>) -> Result<bool, Error> {
        const DELETE_REPOS: &str = "DELETE FROM repos WHERE namespace = $1 AND name = $2";
        let remove = async |tx: &mut Transaction| {
            record::lock(tx, name).await?;
            if let Some(uid) = deleted {
                sync::tombstones::add(tx, name, uid).await?;
            }
            let stored = record::stored_identity(tx, name).await?.map(|(uid, _)| uid);
            if let Fence::Uid(expected) = fence
                && expected != stored.as_deref()
            {
                return Ok(false);
            }
            let mut removed = sync::diff::delete_all_charts(tx, name).await?;
            for statement in sync::garbage::REPOSITORY_STATEMENTS.into_iter().chain([DELETE_REPOS]) {
                removed += execute!(tx, statement, name);
            }
            Ok(removed > 0)
        };
        let (operation, namespace) = ("delete the repository", &name.namespace);
        self.write_with(operation, Usage::Reserved, namespace, COMMIT_DEADLINE, remove)
            .await
    }

    /// Without imported files only Kubeapps reads the rows, and only from Postgres.
    #[must_use]
    pub fn needs_files(&self, mode: FilesMode) -> bool {
        mode != FilesMode::None || !self.0.pools.is_sqlite()
    }

    fn limits(&self) -> &stored_bytes::StoredLimits {
        &self.0.limits
    }

    fn ensure_writable(&self) -> Result<(), Error> {
        if !self.0.writable {
            return Err(ErrorKind::ReadOnly.into());
        }
        self.ensure_own_file()
    }

    fn notify_rebuilt(&self) {
        self.0.rebuilt.send_modify(|count| *count += 1);
    }
}
