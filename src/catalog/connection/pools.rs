//! Connection pools, and what each new, idle or returned connection has to pass.

use std::{path::Path, sync::Arc, time::Duration};

use futures::FutureExt;
use parking_lot::RwLock;
use sqlx::{
    ConnectOptions, Connection as _, SqlitePool,
    postgres::PgConnectOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};
use tokio::time::Instant;

use super::answers::LastAnswer;
use super::failover::ConnectionGeneration;
use super::permits::{Permit, Permits, Usage};
use super::postgres_pool::PostgresPool;
use super::sqlite_file::SqliteFile;
use super::{Connection, SqlitePoolConnection};
use crate::budget::{ResourceMetrics, return_to_runtime};
use crate::catalog::engine::Engine;
use crate::catalog::{Error, ErrorKind, Password, Pooler};

/// Short, because waiting blocks a worker, and the caller retries anyway.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for the write lock of SQLite while another process writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const SQLITE_READERS: u32 = 4;

/// Timeout of short writes for the writer of SQLite, which may be in a commit.
const WRITER_TIMEOUT: Duration = Duration::from_secs(60);

/// Long, because a sync that gives up is repeated; shorter than a wait for memory, which the sync holds.
const COMMIT_QUEUE_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// Timeout for any answer of the server.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause until a caller asks again after the server refused another connection.
const REFUSED_RETRY: Duration = Duration::from_millis(250);

pub(in crate::catalog) struct PoolSettings<'a> {
    pub(in crate::catalog) connections: u32,
    pub(in crate::catalog) pooler: Pooler,
    pub(in crate::catalog) metrics: &'a ResourceMetrics,
}

#[derive(Debug)]
pub(in crate::catalog) struct Pools {
    engine: Engine<SqliteDatabase, PostgresPool>,
    permits: Permits,
    answers: LastAnswer,
    generation: Arc<ConnectionGeneration>,
    pooler: Pooler,
}

/// SQLite allows one write at a time, so one connection writes and readers never wait for it.
#[derive(Clone, Debug)]
struct SqlitePools {
    read: SqlitePool,
    write: Option<SqlitePool>,
}

#[derive(Debug)]
struct SqliteDatabase {
    /// Replaced when the file was.
    pools: RwLock<SqlitePools>,
    file: SqliteFile,
}

impl Pools {
    /// Opens a SQLite file. A writable file is created if it does not exist.
    pub(in crate::catalog) async fn sqlite(
        path: &Path,
        writable: bool,
        metrics: &ResourceMetrics,
    ) -> Result<Self, Error> {
        let pools = SqlitePools::open(path, writable).await?;
        Ok(Self {
            engine: Engine::Sqlite(SqliteDatabase {
                pools: RwLock::new(pools),
                file: SqliteFile::new(path),
            }),
            // The writer; readers have a pool of their own.
            permits: Permits::new(1, metrics.clone()),
            answers: LastAnswer::default(),
            generation: Arc::default(),
            pooler: Pooler::Session,
        })
    }

    /// Opens a Postgres database, and connects to it once.
    pub(in crate::catalog) async fn postgres(
        options: &PgConnectOptions,
        settings: &PoolSettings<'_>,
    ) -> Result<Self, Error> {
        let pools = Self::postgres_lazy(options, settings);
        pools.writer(Usage::Call, "").await?.release();
        Ok(pools)
    }

    pub(in crate::catalog) fn postgres_lazy(options: &PgConnectOptions, settings: &PoolSettings<'_>) -> Self {
        let connections = usize::try_from(settings.connections.max(1)).unwrap_or(usize::MAX);
        let (generation, pooler) = (Arc::<ConnectionGeneration>::default(), settings.pooler);
        Self {
            engine: Engine::Postgres(PostgresPool::new(options, pooler, Arc::clone(&generation))),
            permits: Permits::new(connections, settings.metrics.clone()),
            answers: LastAnswer::default(),
            generation,
            pooler,
        }
    }

    pub(in crate::catalog) const fn choose<T: Copy>(&self, sqlite: T, postgres: T) -> T {
        self.engine.choose(sqlite, postgres)
    }

    pub(in crate::catalog) const fn is_sqlite(&self) -> bool {
        matches!(self.engine, Engine::Sqlite(_))
    }

    /// Returns true if settings of a session hold for all its statements: there is no pooler in transaction mode.
    pub(in crate::catalog) const fn has_session(&self) -> bool {
        matches!(self.pooler, Pooler::Session)
    }

    /// Returns a connection for statements that read. On SQLite they see committed data only.
    pub(in crate::catalog) async fn reader(&self, usage: Usage, namespace: &str) -> Result<Connection, Error> {
        match &self.engine {
            Engine::Sqlite(database) => {
                return_to_runtime();
                let read = database.pools.read().read.clone();
                let connection = SqlitePoolConnection::new(read.acquire().await?);
                Ok(Connection::new(
                    Engine::Sqlite(connection),
                    self.answers.clone(),
                    true,
                    None,
                ))
            }
            Engine::Postgres(_) => self.writer(usage, namespace).await,
        }
    }

    /// Returns a connection for any statements. A task that has left the runtime for large work returns to it: each
    /// statement would wait for a CPU permit while others wait for the connection and its locks.
    pub(in crate::catalog) async fn writer(&self, usage: Usage, namespace: &str) -> Result<Connection, Error> {
        return_to_runtime();
        let timeout = self.timeout(usage);
        let deadline = Instant::now() + timeout;
        match &self.engine {
            Engine::Sqlite(database) => {
                let permit = self.permit(usage, namespace, timeout).await?;
                let write = database.pools.read().write.clone().ok_or(ErrorKind::ReadOnly)?;
                let connection = Engine::Sqlite(SqlitePoolConnection::new(write.acquire().await?));
                Ok(Connection::new(connection, self.answers.clone(), true, Some(permit)))
            }
            Engine::Postgres(pool) => loop {
                let wait = deadline.saturating_duration_since(Instant::now());
                let permit = self.permit(usage, namespace, wait).await?;
                match pool.acquire().await {
                    Ok(connection) => {
                        self.permits.record_open(pool.open());
                        let (answers, connection) = (self.answers.clone(), Engine::Postgres(connection));
                        return Ok(Connection::new(connection, answers, self.has_session(), Some(permit)));
                    }
                    Err(error) if error.is_connection_limit() => {
                        self.answers.touch();
                        self.permits.record_refusal(pool.open());
                        drop(permit);
                        if Instant::now() + REFUSED_RETRY >= deadline {
                            return Err(error);
                        }
                        tokio::time::sleep(REFUSED_RETRY).await;
                    }
                    Err(error) => return Err(error),
                }
            },
        }
    }

    const fn timeout(&self, usage: Usage) -> Duration {
        match usage {
            Usage::Call => self.choose(WRITER_TIMEOUT, ACQUIRE_TIMEOUT),
            Usage::Commit | Usage::Reserved => COMMIT_QUEUE_TIMEOUT,
        }
    }

    async fn permit(&self, usage: Usage, namespace: &str, timeout: Duration) -> Result<Permit, Error> {
        if let Some(permit) = self.permits.acquire(usage, namespace, timeout).await {
            return Ok(permit);
        }
        // Without an answer for so long, the connections may be stuck. Otherwise they are busy.
        if !self.answers.is_within(timeout) {
            let asked = tokio::time::timeout(ASK_TIMEOUT, self.ask_server()).await;
            asked.unwrap_or_else(|_| Err(Error::no_response(timeout)))?;
        }
        Err(ErrorKind::NoConnection {
            seconds: self.timeout(usage).as_secs(),
            advice: match &self.engine {
                Engine::Sqlite(_) => "another write takes long",
                Engine::Postgres(_) if self.permits.is_reduced() => {
                    "the server grants fewer than --database-connections: raise its max_connections or the user's \
                     CONNECTION LIMIT"
                }
                Engine::Postgres(_) => "raise --database-connections",
            },
        }
        .into())
    }

    pub(in crate::catalog) fn is_busy(&self) -> bool {
        self.permits.are_all_used()
    }

    pub(in crate::catalog) fn has_answered_within(&self, age: Duration) -> bool {
        self.answers.is_within(age)
    }

    /// Asks the server for any answer, beside the permits, which may all be in use. SQLite has no server.
    pub(in crate::catalog) async fn ask_server(&self) -> Result<(), Error> {
        if let Engine::Postgres(pool) = &self.engine {
            pool.ask().await?;
            self.answers.touch();
        }
        Ok(())
    }

    /// Closes idle connections to Postgres, which may be broken.
    pub(in crate::catalog) fn drop_idle(&self) {
        if let Engine::Postgres(pool) = &self.engine {
            pool.drop_idle();
        }
    }

    pub(in crate::catalog) fn generation(&self) -> &ConnectionGeneration {
        &self.generation
    }

    pub(in crate::catalog) fn set_password(&self, password: &Password) {
        if let Engine::Postgres(pool) = &self.engine {
            pool.set_password(password);
        }
    }

    pub(in crate::catalog) fn sqlite_file(&self) -> Option<&SqliteFile> {
        match &self.engine {
            Engine::Sqlite(database) => Some(&database.file),
            Engine::Postgres(_) => None,
        }
    }

    /// Opens the file that is at the path now. Closes the old file first: the last connection to a file deletes the
    /// write-ahead log by its name, even the log of another file.
    pub(in crate::catalog) async fn reopen(&self) -> Result<(), Error> {
        let Engine::Sqlite(database) = &self.engine else {
            return Ok(());
        };
        self.close().await;
        database.file.delete_old_log().map_err(sqlx::Error::Io)?;
        let pools = SqlitePools::open(database.file.path(), true).await?;
        *database.pools.write() = pools;
        database.file.remember();
        Ok(())
    }

    pub(in crate::catalog) async fn close(&self) {
        match &self.engine {
            Engine::Sqlite(database) => {
                let SqlitePools { read, write } = database.pools.read().clone();
                read.close().await;
                // The last writable connection checkpoints the write-ahead log.
                if let Some(write) = write {
                    write.close().await;
                }
            }
            Engine::Postgres(pool) => pool.close().await,
        }
    }
}

impl SqlitePools {
    async fn open(path: &Path, writable: bool) -> Result<Self, Error> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT)
            .disable_statement_logging();
        let write = if writable {
            let options = options
                .clone()
                .create_if_missing(true)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Normal);
            Some(sqlite_pool(1).connect_with(options).await?)
        } else {
            None
        };
        let read = sqlite_pool(SQLITE_READERS).connect_with(options.read_only(true));
        Ok(Self {
            read: read.await?,
            write,
        })
    }
}

fn sqlite_pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        // A connection to a file does not break, and the test costs as much as most statements.
        .test_before_acquire(false)
        // A full disk may end a transaction without the driver's knowledge.
        .after_release(|connection, _| {
            let is_idle = !connection.is_in_transaction();
            async move { Ok(is_idle) }.boxed()
        })
        // Connections to a file do not need renewal.
        .idle_timeout(None)
        .max_lifetime(None)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::poll;
    use tokio::time::timeout;

    use super::*;
    use crate::budget::{Budgets, Sizes, leave_runtime};
    use crate::catalog::{Catalog, CatalogSettings, Database, Login};

    #[tokio::test]
    async fn a_transaction_after_large_work_waits_for_no_cpu_permit() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", directory.path().join("catalog.db").display());
        let settings = CatalogSettings::new(Database::parse(&url, &Login::default()).unwrap());
        let catalog = Catalog::open(&settings).await.unwrap();
        let budgets = Budgets::new(Sizes {
            cpu_permits: 1,
            ..Sizes::default()
        });
        let write = async {
            leave_runtime().await;
            // It gets the permit after this poll, and keeps it.
            let mut other = pin!(budgets.cpu.acquire("other", 1));
            assert!(poll!(&mut other).is_pending());
            catalog.write_test_row().await
        };
        let written = timeout(Duration::from_secs(30), budgets.offloadable("team", write)).await;
        written.expect("it needs no permit").unwrap();
    }
}
