//! Connection pools and transactions for SQLite and Postgres.
//!
//! The common type of the driver (`Any`) can bind neither JSON nor arrays. Both drivers accept `$1` and share most SQL,
//! so most statements are written once and compiled for each engine by [`on_engine!`], [`execute!`] and [`select!`].
//! Long statements that differ are files in `sql/`.

use std::{path::Path, time::Duration};

use sqlx::{
    ConnectOptions, PgConnection, PgPool, Postgres, Sqlite, SqliteConnection, SqlitePool,
    postgres::{PgConnectOptions, PgPoolOptions},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use super::Error;

const SQLITE_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);

/// Short, because waiting blocks a worker and the backoff retries anyway.
const POSTGRES_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for the write lock of SQLite while another process writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const SQLITE_READERS: u32 = 4;

/// Timeout for the writer connection to SQLite. Long, because syncs of large repositories may be queued.
const WRITE_QUEUE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

#[derive(Clone, Debug)]
pub(super) enum Engine<S, P> {
    Sqlite(S),
    Postgres(P),
}

macro_rules! on_engine {
    ($engine:expr, $bound:ident => $body:expr) => {
        match $engine {
            $crate::catalog::engine::Engine::Sqlite($bound) => $body,
            $crate::catalog::engine::Engine::Postgres($bound) => $body,
        }
    };
}
pub(super) use on_engine;

/// Runs a statement with the namespace, the name and further values. Returns the number of affected rows.
macro_rules! execute {
    ($source:expr, $statement:expr, $name:expr $(, $value:expr)* $(,)?) => {
        $crate::catalog::engine::on_engine!($source.executor(), executor => sqlx::query($statement)
            .bind(&$name.namespace)
            .bind(&$name.name)
            $(.bind($value))*
            .execute(executor)
            .await?
            .rows_affected())
    };
}
pub(super) use execute;

/// Runs a statement with the namespace, the name, further values and a list: JSON for SQLite, an array for Postgres.
macro_rules! execute_list {
    ($tx:expr, $sqlite:expr, $postgres:expr, $name:expr $(, $value:expr)*; $list:expr) => {
        match $tx.executor() {
            $crate::catalog::engine::Engine::Sqlite(connection) => sqlx::query($sqlite)
                .bind(&$name.namespace)
                .bind(&$name.name)
                $(.bind($value))*
                .bind(sqlx::types::Json($list))
                .execute(connection)
                .await
                .map(drop)?,
            $crate::catalog::engine::Engine::Postgres(connection) => sqlx::query($postgres)
                .bind(&$name.namespace)
                .bind(&$name.name)
                $(.bind($value))*
                .bind($list)
                .execute(connection)
                .await
                .map(drop)?,
        }
    };
}
pub(super) use execute_list;

/// Selects rows for the namespace, the name and further values by a method such as `fetch_all`.
macro_rules! select {
    ($method:ident, $source:expr, $statement:expr, $name:expr $(, $value:expr)* $(,)?) => {
        $crate::catalog::engine::on_engine!($source.executor(), executor => sqlx::query_as($statement)
            .bind(&$name.namespace)
            .bind(&$name.name)
            $(.bind($value))*
            .$method(executor)
            .await?)
    };
}
pub(super) use select;

/// Includes a statement from `sql/sqlite/` or `sql/postgres/`. The file documents its parameters.
macro_rules! sql {
    ($engine:expr, $file:literal) => {
        $engine.choose(
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/catalog/sql/sqlite/", $file)),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/catalog/sql/postgres/", $file)),
        )
    };
}
pub(super) use sql;

/// SQLite allows one write at a time, so one connection writes and readers never wait for it.
#[derive(Clone, Debug)]
pub(super) struct SqlitePools {
    read: SqlitePool,
    write: Option<SqlitePool>,
}

pub(super) type Pools = Engine<SqlitePools, PgPool>;

/// A write transaction. A type of its own, because async closures do not accept a type with lifetime parameters.
pub(super) struct Transaction(Engine<sqlx::Transaction<'static, Sqlite>, sqlx::Transaction<'static, Postgres>>);

impl Pools {
    /// Opens a SQLite file. A writable one is created if it does not exist.
    pub(super) async fn sqlite(path: &Path, writable: bool) -> Result<Self, Error> {
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
            let pool = sqlite_pool(1).acquire_timeout(WRITE_QUEUE_TIMEOUT);
            Some(pool.connect_with(options).await?)
        } else {
            None
        };
        let read = sqlite_pool(SQLITE_READERS).connect_with(options.read_only(true));
        Ok(Self::Sqlite(SqlitePools {
            read: read.await?,
            write,
        }))
    }

    /// Opens a Postgres database. Connects once outside the pool, whose only error for an unreachable server is a
    /// timeout.
    pub(super) async fn postgres(options: &PgConnectOptions, connections: u32) -> Result<Self, Error> {
        use sqlx::Connection;
        let options = options.clone().disable_statement_logging();
        tokio::time::timeout(POSTGRES_ACQUIRE_TIMEOUT, options.connect())
            .await
            .map_err(|_| Error::timed_out("connect to the database", POSTGRES_ACQUIRE_TIMEOUT))??
            .close()
            .await?;
        Ok(Self::postgres_lazy(&options, connections))
    }

    pub(super) fn postgres_lazy(options: &PgConnectOptions, connections: u32) -> Self {
        let options = options.clone().disable_statement_logging();
        let pool = PgPoolOptions::new()
            .max_connections(connections.max(1))
            .acquire_timeout(POSTGRES_ACQUIRE_TIMEOUT)
            .connect_lazy_with(options);
        Self::Postgres(pool)
    }

    /// Returns the pool for single read statements. On SQLite they see committed data only.
    pub(super) fn executor(&self) -> Engine<&SqlitePool, &PgPool> {
        match self {
            Self::Sqlite(pools) => Engine::Sqlite(&pools.read),
            Self::Postgres(pool) => Engine::Postgres(pool),
        }
    }

    pub(super) fn writer(&self) -> Result<Engine<&SqlitePool, &PgPool>, Error> {
        Ok(match self {
            Self::Sqlite(pools) => Engine::Sqlite(pools.write.as_ref().ok_or(Error::ReadOnly)?),
            Self::Postgres(pool) => Engine::Postgres(pool),
        })
    }

    /// Begins a write transaction.
    ///
    /// SQLite takes the write lock immediately: a transaction that starts with a read may find its snapshot out of date
    /// at the first write, and fails without waiting.
    pub(super) async fn begin(&self) -> Result<Transaction, Error> {
        Ok(Transaction(match self {
            Self::Sqlite(pools) => {
                let write = pools.write.as_ref().ok_or(Error::ReadOnly)?;
                Engine::Sqlite(write.begin_with("BEGIN IMMEDIATE").await?)
            }
            Self::Postgres(pool) => Engine::Postgres(begin_uncanceled(pool.clone()).await?),
        }))
    }

    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite(SqlitePools { read, write }) => {
                read.close().await;
                // The last writable connection checkpoints the write-ahead log.
                if let Some(write) = write {
                    write.close().await;
                }
            }
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

impl<S, P> Engine<S, P> {
    pub(super) const fn choose<T: Copy>(&self, sqlite: T, postgres: T) -> T {
        match self {
            Self::Sqlite(_) => sqlite,
            Self::Postgres(_) => postgres,
        }
    }
}

impl Transaction {
    pub(super) fn executor(&mut self) -> Engine<&mut SqliteConnection, &mut PgConnection> {
        match &mut self.0 {
            Engine::Sqlite(tx) => Engine::Sqlite(tx),
            Engine::Postgres(tx) => Engine::Postgres(tx),
        }
    }

    pub(super) const fn choose<T: Copy>(&self, sqlite: T, postgres: T) -> T {
        self.0.choose(sqlite, postgres)
    }

    pub(super) async fn commit(self) -> Result<(), Error> {
        on_engine!(self.0, tx => tx.commit().await?);
        Ok(())
    }
}

/// Begins a transaction in its own task, so that a canceled caller can't interrupt it.
///
/// The driver loses track of a transaction whose `BEGIN` was canceled, and the next user of the connection would run
/// inside it (<https://github.com/transact-rs/sqlx/issues/4385>). A transaction without a receiver is rolled back.
async fn begin_uncanceled(pool: PgPool) -> Result<sqlx::Transaction<'static, Postgres>, sqlx::Error> {
    match tokio::spawn(async move { pool.begin().await }).await {
        Ok(transaction) => transaction,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only the shutdown of the runtime cancels the task.
            Err(_) => Err(sqlx::Error::PoolClosed),
        },
    }
}

fn sqlite_pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(SQLITE_ACQUIRE_TIMEOUT)
        // A connection to a file does not break, and the test costs as much as most statements.
        .test_before_acquire(false)
        // Connections to a file do not need renewal.
        .idle_timeout(None)
        .max_lifetime(None)
}
