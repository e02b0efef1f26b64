//! Connection pools, and what each new, idle or returned connection has to pass.

use std::{path::Path, sync::Arc, time::Duration};

use futures::FutureExt;
use parking_lot::RwLock;
use sqlx::{
    ConnectOptions, Connection as _, Executor, PgPool, SqlitePool,
    postgres::{PgConnectOptions, PgPoolOptions},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use super::Connection;
use super::failover::Generation;
use super::permits::{Permit, Permits, Usage};
use super::sqlite_file::SqliteFile;
use crate::budget::ResourceMetrics;
use crate::catalog::engine::Engine;
use crate::catalog::{Error, Password, Pooler};

/// Short, because waiting blocks a worker and the backoff retries anyway.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for the write lock of SQLite while another process writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const SQLITE_READERS: u32 = 4;

/// Timeout of short writes for the writer of SQLite, which may be in a commit.
const WRITER_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout for a connection that commits a sync. Long, because a sync that gives up here has to be repeated; shorter than
/// a wait for memory, which the sync holds.
const COMMIT_QUEUE_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// Connections that were idle for this long are pinged before use, because a firewall may have dropped them. Fresher
/// ones are not, because a ping costs as much as most statements.
const MAX_IDLE_WITHOUT_PING: Duration = Duration::from_secs(10);

const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// Set after connecting, since poolers refuse unknown startup parameters.
const SESSION_TIMEOUTS: &str =
    "SET lock_timeout = '5s'; SET statement_timeout = '30s'; SET idle_in_transaction_session_timeout = '60s'";

pub(in crate::catalog) struct PoolSettings<'a> {
    pub(in crate::catalog) connections: u32,
    pub(in crate::catalog) pooler: Pooler,
    pub(in crate::catalog) metrics: &'a ResourceMetrics,
}

#[derive(Debug)]
pub(in crate::catalog) struct Pools {
    engine: Engine<SqliteDatabase, PgPool>,
    permits: Permits,
    generation: Arc<Generation>,
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
    /// Opens a SQLite file. A writable one is created if it does not exist.
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
            generation: Arc::default(),
            pooler: Pooler::Session,
        })
    }

    /// Opens a Postgres database. Connects once outside the pool, whose only error for an unreachable server is a
    /// timeout.
    pub(in crate::catalog) async fn postgres(
        options: &PgConnectOptions,
        settings: &PoolSettings<'_>,
    ) -> Result<Self, Error> {
        let options = options.clone().disable_statement_logging();
        tokio::time::timeout(ACQUIRE_TIMEOUT, options.connect())
            .await
            .map_err(|_| Error::timed_out("connect to the database", ACQUIRE_TIMEOUT))??
            .close()
            .await?;
        Ok(Self::postgres_lazy(&options, settings))
    }

    pub(in crate::catalog) fn postgres_lazy(options: &PgConnectOptions, settings: &PoolSettings<'_>) -> Self {
        let options = options.clone().disable_statement_logging();
        let connections = settings.connections.max(1);
        let (generation, pooler) = (Arc::<Generation>::default(), settings.pooler);
        let retired = Arc::clone(&generation);
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .after_connect(move |connection, _| {
                async move {
                    if pooler == Pooler::Session {
                        connection.execute(sqlx::raw_sql(SESSION_TIMEOUTS)).await?;
                    }
                    Ok(())
                }
                .boxed()
            })
            .test_before_acquire(false)
            .before_acquire(move |connection, meta| {
                let is_retired = retired.is_retired(meta.age);
                async move {
                    if is_retired || meta.idle_for < MAX_IDLE_WITHOUT_PING {
                        return Ok(!is_retired);
                    }
                    let ping = tokio::time::timeout(PING_TIMEOUT, connection.ping()).await;
                    Ok(matches!(ping, Ok(Ok(()))))
                }
                .boxed()
            })
            .after_release(|connection, _| {
                let is_idle = !connection.is_in_transaction();
                async move { Ok(is_idle) }.boxed()
            })
            .connect_lazy_with(options);
        Self {
            engine: Engine::Postgres(pool),
            permits: Permits::new(
                usize::try_from(connections).unwrap_or(usize::MAX),
                settings.metrics.clone(),
            ),
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
                let read = database.pools.read().read.clone();
                Ok(Connection::new(Engine::Sqlite(read.acquire().await?), true, None))
            }
            Engine::Postgres(_) => self.writer(usage, namespace).await,
        }
    }

    pub(in crate::catalog) async fn writer(&self, usage: Usage, namespace: &str) -> Result<Connection, Error> {
        let permit = Some(self.permit(usage, namespace).await?);
        Ok(match &self.engine {
            Engine::Sqlite(database) => {
                let write = database.pools.read().write.clone().ok_or(Error::ReadOnly)?;
                Connection::new(Engine::Sqlite(write.acquire().await?), true, permit)
            }
            Engine::Postgres(pool) => {
                Connection::new(Engine::Postgres(pool.acquire().await?), self.has_session(), permit)
            }
        })
    }

    async fn permit(&self, usage: Usage, namespace: &str) -> Result<Permit, Error> {
        let timeout = match usage {
            Usage::Call => self.choose(WRITER_TIMEOUT, ACQUIRE_TIMEOUT),
            Usage::Commit | Usage::Reserved => COMMIT_QUEUE_TIMEOUT,
        };
        let permit = self.permits.acquire(usage, namespace, timeout).await;
        permit.ok_or(Error::NoConnection {
            operation: "",
            seconds: timeout.as_secs(),
        })
    }

    pub(in crate::catalog) fn generation(&self) -> &Generation {
        &self.generation
    }

    /// Connections that are opened from now on use this password.
    pub(in crate::catalog) fn set_password(&self, Password(password): &Password) {
        if let Engine::Postgres(pool) = &self.engine {
            let options = pool.connect_options().as_ref().clone();
            pool.set_connect_options(options.password(password));
        }
    }

    pub(in crate::catalog) fn sqlite_file(&self) -> Option<&SqliteFile> {
        match &self.engine {
            Engine::Sqlite(database) => Some(&database.file),
            Engine::Postgres(_) => None,
        }
    }

    /// Closes the SQLite file and opens the one that is at its path now.
    ///
    /// Closes first: the last connection to a file deletes the write-ahead log by its name, even that of another file.
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
