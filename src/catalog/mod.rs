//! The database: migrations, rows, queries; SQLite and Postgres behind one type.
//!
//! ```text
//!  Kubeapps' tables, read by its API server          our own, read by nobody else
//!  repos ◄── charts ◄── files                        portolan_repositories ◄── portolan_syncs
//!                                                    portolan_files, portolan_icons, portolan_kept_versions
//!                                                    portolan_index_cache, portolan_chart_digests
//!                                                    portolan_oci_repositories, portolan_oci_tags
//! ```
//!
//! The two halves are tied by value only, since Kubeapps drops and remakes its half as it likes: a [`Record`] tells by `trusted`
//! whether the charts are still the ones that we wrote. Tables that vanish under a running process are made again by the call
//! that misses them, and [`Catalog::rebuilt`] tells that every repository is to be looked at.

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

use crate::api::NamespacedName;
use std::{io, sync::Arc, time::Duration};

use futures::FutureExt;
use tokio::sync::watch;

pub use chart::{ChartInfo, ChartRow, ChartVersion, Fingerprint, Maintainer, RepoRef};
use engine::{Pools, on_engine};
pub use error::Error;
pub use files::info::FetchedFiles;
pub use files::{ChartFiles, FilesMode, Progress, Saved, Wanted, WantedFiles};
pub use history::{HISTORY_KEPT, HistoryEntry};
pub use icons::WantedIcon;
pub use oci::{OciChange, OciMetadata, OciRepository, OciTag};
use record::RecordRow;
pub use record::{Baseline, Handled, Record, Refused, State};
pub use settings::{DEFAULT_POSTGRES_CONNECTIONS, Database, Login, Password, Settings, SettingsError};
pub use sync::chart_digests::{ChartDigest, ChartDigests, DigestUpdate, Unchanged};
pub use sync::commit::{Commit, Committed, Conclude};
pub use sync::delete::OciGone;
pub use sync::retention::{Held, Keep};

/// What is asked for readiness must be answered while somebody waits.
const PING_DEADLINE: Duration = Duration::from_secs(5);

/// For whatever touches a few rows. It is longer than a connection is waited for, so that this is told rather than that.
const SHORT_DEADLINE: Duration = Duration::from_secs(60);

/// For the charts of a whole repository, on a slow disk, behind another sync of the same repository.
const COMMIT_DEADLINE: Duration = Duration::from_secs(15 * 60);

/// The catalogue. Clones are handles of one.
#[derive(Clone, Debug)]
pub struct Catalog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pools: Pools,
    writable: bool,
    rebuilt: watch::Sender<u64>,
}

impl Catalog {
    /// Connects, brings our own tables up to date, and makes Kubeapps' where they are missing.
    ///
    /// # Errors
    /// When the database can't be reached or used: the message says what to do. Whether to wait and try again is told by
    /// [`Error::is_transient`].
    pub async fn open(settings: &Settings) -> Result<Self, Error> {
        let catalog = Self::connect(settings, true).await?;
        catalog
            .within("making the tables", SHORT_DEADLINE, schema::ensure(&catalog.0.pools))
            .await?;
        Ok(catalog)
    }

    /// The catalogue in a Postgres that may not be there yet: each call fails until it is. The tables are to be brought up to
    /// date by [`Catalog::ensure_tables`] as soon as it can be reached. Nothing for SQLite, whose file is there or is not.
    #[must_use]
    pub fn open_later(settings: &Settings) -> Option<Self> {
        match &settings.database {
            Database::Sqlite(_) => None,
            Database::Postgres(options) => Some(Self::of(
                Pools::postgres_later(options, settings.postgres_connections),
                true,
            )),
        }
    }

    /// Connects to read only: no table is made or changed, and a SQLite file that isn't there is no catalogue.
    ///
    /// # Errors
    /// As [`Catalog::open`], and [`Error::NoDatabase`].
    pub async fn open_to_read(settings: &Settings) -> Result<Self, Error> {
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
        .map_err(|error| error.during("connecting to the database"))?;
        Ok(Self::of(pools, writable))
    }

    fn of(pools: Pools, writable: bool) -> Self {
        Self(Arc::new(Inner {
            pools,
            writable,
            rebuilt: watch::Sender::new(0),
        }))
    }

    /// Closes all connections, once their work is done. Any call after it fails.
    pub async fn close(&self) {
        self.0.pools.close().await;
    }

    /// Whether the database answers, within 5 s.
    ///
    /// # Errors
    /// When it doesn't.
    pub async fn ping(&self) -> Result<(), Error> {
        self.within("asking the database for an answer", PING_DEADLINE, async {
            on_engine!(self.0.pools.reader(), pool => { sqlx::query("SELECT 1").execute(pool).await?; });
            Ok(())
        })
        .await
    }

    /// Makes whatever table is missing, and says whether one was: then all repositories are to be synced again.
    ///
    /// # Errors
    /// When the database can't be reached or doesn't allow it.
    pub async fn ensure_tables(&self) -> Result<bool, Error> {
        self.must_be_writable()?;
        let made = self
            .within("making the tables", SHORT_DEADLINE, schema::ensure(&self.0.pools))
            .await?;
        if made {
            self.tell_rebuilt();
        }
        Ok(made)
    }

    /// Drops Kubeapps' three tables and makes them anew, empty; what we remember of the repositories stays, but no record is trusted.
    ///
    /// # Errors
    /// When the database can't be reached or doesn't allow it.
    pub async fn recreate(&self) -> Result<(), Error> {
        self.must_be_writable()?;
        self.within(
            "making the tables anew",
            SHORT_DEADLINE,
            schema::recreate(&self.0.pools),
        )
        .await?;
        self.tell_rebuilt();
        Ok(())
    }

    /// Counts up each time that tables had vanished and were made anew.
    #[must_use]
    pub fn rebuilt(&self) -> watch::Receiver<u64> {
        self.0.rebuilt.subscribe()
    }

    /// What is remembered of a repository.
    ///
    /// # Errors
    /// When the database fails, and [`Error::UnreadableRecord`].
    pub async fn record(&self, name: &NamespacedName) -> Result<Option<Record>, Error> {
        self.look("reading a repository", async {
            let row: Option<RecordRow> = on_engine!(self.0.pools.reader(), pool => sqlx::query_as(record::SELECT_ONE)
                .bind(&name.namespace)
                .bind(&name.name)
                .fetch_optional(pool)
                .await?);
            row.map(Record::try_from).transpose()
        })
        .await
    }

    /// What is remembered of all repositories, by namespace and name.
    ///
    /// # Errors
    /// When the database fails, and [`Error::UnreadableRecord`] if one of them cannot be read.
    pub async fn records(&self) -> Result<Vec<Record>, Error> {
        self.look("reading the repositories", async {
            let rows: Vec<RecordRow> = on_engine!(self.0.pools.reader(), pool => sqlx::query_as(record::SELECT_ALL)
                .fetch_all(pool)
                .await?);
            rows.into_iter().map(Record::try_from).collect()
        })
        .await
    }

    /// Writes the record of an attempt that has no charts to write: nothing new, or a failure.
    ///
    /// # Errors
    /// [`Error::Superseded`], and nothing is written, if the UID that is stored is not `expected_uid` (nothing: there is no
    /// record), or if the record was written since `record` was read.
    pub async fn save(
        &self,
        record: &Record,
        expected_uid: Option<&str>,
        history: Option<&HistoryEntry>,
    ) -> Result<(), Error> {
        self.must_be_writable()?;
        self.call("writing a repository", SHORT_DEADLINE, async {
            if let (Some(uid), Some(revision), None) = (expected_uid, record.revision, history) {
                let is_written = record::update(&self.0.pools, record, uid, revision).await?;
                return is_written.then_some(()).ok_or_else(|| Error::Superseded {
                    repository: record.name.clone(),
                });
            }
            let mut tx = self.0.pools.begin().await?;
            record::lock_and_identify(&mut tx, record, expected_uid).await?;
            record::save(&mut tx, record).await?;
            if let Some(entry) = history {
                history::add(&mut tx, &record.name, entry).await?;
            }
            tx.commit().await
        })
        .await
    }

    /// Brings the charts of a repository in step with `rows`, together with its record: all of it, or nothing.
    ///
    /// A chart's row is written only if something else than its times of creation differs; an imported icon is kept as long as
    /// its URL is the same; charts that are not among the rows are removed, or kept for a while where [`Commit::keep`] says so. The rows are taken one by one, and their ids should
    /// differ (of two alike the first counts). A chart that the database will not take is named in the answer and left as it was.
    ///
    /// # Errors
    /// [`Error::Superseded`] if the UID that is stored is not `expected_uid`; [`Error::OutdatedCuts`] if a chart of
    /// [`DigestUpdate::unchanged`] is not what it was; [`Error::Rows`] if the iterator gives an error; otherwise when the database fails.
    /// Nothing is written then.
    pub async fn commit(
        &self,
        commit: Commit,
        rows: impl Iterator<Item = io::Result<ChartRow>> + Send,
    ) -> Result<Committed, Error> {
        self.must_be_writable()?;
        self.call(
            "writing the charts of a repository",
            COMMIT_DEADLINE,
            // On the heap: it is by far the largest of all, and moving it about takes stack.
            sync::commit::commit(&self.0.pools, commit, rows).boxed(),
        )
        .await
    }

    /// Removes a repository: its charts, its record, its history, and all else that is known of it. Says whether there was anything.
    ///
    /// With `expected_uid` this is done only if the record is of this UID, or there is none: a repository that was made anew
    /// under the same name keeps its charts, and the answer is `false`.
    ///
    /// # Errors
    /// When the database fails.
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
        self.must_be_writable()?;
        self.call("removing a repository", COMMIT_DEADLINE, async {
            let mut tx = self.0.pools.begin().await?;
            record::lock(&mut tx, name).await?;
            let stored = record::stored_identity(&mut tx, name).await?.map(|(uid, _)| uid);
            if let (Some(expected), Some(stored)) = (expected_uid, stored)
                && expected != stored
            {
                return Ok(false);
            }
            let mut removed = 0;
            for statement in STATEMENTS {
                removed += on_engine!(&mut tx, tx => sqlx::query(statement)
                    .bind(&name.namespace)
                    .bind(&name.name)
                    .execute(&mut **tx)
                    .await?
                    .rows_affected());
            }
            tx.commit().await?;
            Ok(removed > 0)
        })
        .await
    }

    /// Runs a piece of work within its time. If a table turns out to be missing, all are made again, and the caller is to repeat
    /// the work: whatever it knew of the catalogue is out of date.
    async fn call<T>(
        &self,
        doing: &'static str,
        deadline: Duration,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match self.within(doing, deadline, work).await {
            Err(error) if error.is_missing_table() && self.0.writable => {
                tracing::warn!("catalog tables are missing, recreating them and resyncing all repositories");
                self.within("making the tables", SHORT_DEADLINE, schema::ensure(&self.0.pools))
                    .await?;
                // Told in any case: if another process was quicker to make them, they are as empty.
                self.tell_rebuilt();
                Err(Error::TablesRebuilt)
            }
            result => result,
        }
    }

    /// Runs a piece of work that only reads. Where the catalogue was opened to read, a table that isn't there is an empty one: a
    /// database that Kubeapps alone has filled has none of ours.
    async fn look<T: Default>(
        &self,
        doing: &'static str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match self.call(doing, SHORT_DEADLINE, work).await {
            Err(error) if error.is_missing_table() => Ok(T::default()),
            result => result,
        }
    }

    async fn within<T>(
        &self,
        doing: &'static str,
        deadline: Duration,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(deadline, work).await {
            Ok(result) => result.map_err(|error| error.during(doing)),
            Err(_) => Err(Error::timed_out(doing, deadline)),
        }
    }

    fn must_be_writable(&self) -> Result<(), Error> {
        if self.0.writable { Ok(()) } else { Err(Error::ReadOnly) }
    }

    fn tell_rebuilt(&self) {
        self.0.rebuilt.send_modify(|count| *count += 1);
    }
}
