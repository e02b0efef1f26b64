//! Two databases behind one type: the pools, and a transaction on either.
//!
//! The driver's own common type (`Any`) can neither bind nor read JSON and arrays. But both drivers take `$1` for a parameter
//! and share most of their SQL, so a statement is mostly written once and compiled for each by [`on_engine!`]; where the
//! databases differ, both texts stand side by side, long ones as files in `sql/`.

use std::{path::Path, time::Duration};

use sqlx::{
    ConnectOptions, PgPool, Postgres, Sqlite, SqlitePool,
    postgres::{PgConnectOptions, PgPoolOptions},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use super::Error;

/// How long the one connection that writes to SQLite is waited for: the work of others may stand before it.
const SQLITE_ACQUIRE: Duration = Duration::from_secs(30);

/// How long a connection to Postgres is waited for. Whoever waits keeps a worker from others, and the back-off tries again.
const POSTGRES_ACQUIRE: Duration = Duration::from_secs(10);

/// How long SQLite waits for another process that is writing.
const BUSY: Duration = Duration::from_secs(5);

const SQLITE_READERS: u32 = 4;

/// How long a sync waits in this process for its turn to write into SQLite. It is long, since whole repositories may be before
/// it; whoever has less time gives up earlier by itself.
const TURN: Duration = Duration::from_secs(15 * 60);

/// The same thing for either database.
#[derive(Clone, Debug)]
pub(super) enum Engine<S, P> {
    Sqlite(S),
    Postgres(P),
}

/// Runs one piece of code on whichever database it is.
macro_rules! on_engine {
    ($engine:expr, $bound:ident => $body:expr) => {
        match $engine {
            $crate::catalog::engine::Engine::Sqlite($bound) => $body,
            $crate::catalog::engine::Engine::Postgres($bound) => $body,
        }
    };
}
pub(super) use on_engine;

/// Includes the statement in `sql/sqlite/` or `sql/postgres/`, whichever the engine is. The file says what its parameters are.
macro_rules! sql {
    ($engine:expr, $file:literal) => {
        match $engine {
            $crate::catalog::engine::Engine::Sqlite(_) => {
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/catalog/sql/sqlite/", $file))
            }
            $crate::catalog::engine::Engine::Postgres(_) => {
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/catalog/sql/postgres/", $file))
            }
        }
    };
}
pub(super) use sql;

/// SQLite lets one write at a time: so one connection writes, and the readers never wait for it.
#[derive(Clone, Debug)]
pub(super) struct SqlitePools {
    read: SqlitePool,
    /// Absent when the catalogue was opened to read.
    write: Option<SqlitePool>,
}

pub(super) type Pools = Engine<SqlitePools, PgPool>;

pub(super) type Transaction = Engine<sqlx::Transaction<'static, Sqlite>, sqlx::Transaction<'static, Postgres>>;

impl Pools {
    /// A SQLite file. To be written to, it is made when it isn't there.
    pub(super) async fn sqlite(path: &Path, writable: bool) -> Result<Self, Error> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .foreign_keys(true)
            .busy_timeout(BUSY)
            .disable_statement_logging();
        let write = if writable {
            let options = options
                .clone()
                .create_if_missing(true)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Normal);
            Some(sqlite_pool(1).acquire_timeout(TURN).connect_with(options).await?)
        } else {
            None
        };
        let read = sqlite_pool(SQLITE_READERS)
            .connect_with(options.read_only(true))
            .await?;
        Ok(Self::Sqlite(SqlitePools { read, write }))
    }

    /// A Postgres database. One connection is made at once, outside the pool, since the pool would say nothing but "timed out"
    /// of a server that can't be reached.
    pub(super) async fn postgres(options: &PgConnectOptions, connections: u32) -> Result<Self, Error> {
        use sqlx::Connection;
        let options = options.clone().disable_statement_logging();
        tokio::time::timeout(POSTGRES_ACQUIRE, options.connect())
            .await
            .map_err(|_| Error::timed_out("connecting to the database", POSTGRES_ACQUIRE))??
            .close()
            .await?;
        Ok(Self::postgres_later(&options, connections))
    }

    /// A Postgres database that may not be there yet: each call tries to reach it.
    pub(super) fn postgres_later(options: &PgConnectOptions, connections: u32) -> Self {
        let options = options.clone().disable_statement_logging();
        let pool = PgPoolOptions::new()
            .max_connections(connections.max(1))
            .acquire_timeout(POSTGRES_ACQUIRE)
            .connect_lazy_with(options);
        Self::Postgres(pool)
    }

    /// What single reading statements run on. On SQLite they see what is committed, whatever is being written.
    pub(super) fn reader(&self) -> Engine<&SqlitePool, &PgPool> {
        match self {
            Self::Sqlite(pools) => Engine::Sqlite(&pools.read),
            Self::Postgres(pool) => Engine::Postgres(pool),
        }
    }

    /// What single writing statements run on.
    pub(super) fn writer(&self) -> Result<Engine<&SqlitePool, &PgPool>, Error> {
        Ok(match self {
            Self::Sqlite(pools) => Engine::Sqlite(pools.write.as_ref().ok_or(Error::ReadOnly)?),
            Self::Postgres(pool) => Engine::Postgres(pool),
        })
    }

    /// Begins a transaction that writes.
    ///
    /// On SQLite it takes the write lock at once: one that began by reading may find at its first write that what it has read
    /// is out of date, and then fails without waiting.
    pub(super) async fn begin(&self) -> Result<Transaction, Error> {
        Ok(match self {
            Self::Sqlite(SqlitePools { write: Some(write), .. }) => {
                Engine::Sqlite(write.begin_with("BEGIN IMMEDIATE").await?)
            }
            Self::Sqlite(_) => return Err(Error::ReadOnly),
            Self::Postgres(pool) => Engine::Postgres(begin_to_the_end(pool.clone()).await?),
        })
    }

    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite(SqlitePools { read, write }) => {
                read.close().await;
                // The last connection that may write takes the log back into the file.
                if let Some(write) = write {
                    write.close().await;
                }
            }
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

impl Transaction {
    pub(super) async fn commit(self) -> Result<(), Error> {
        on_engine!(self, tx => tx.commit().await?);
        Ok(())
    }
}

/// Begins a transaction that ends although the caller may be given up while it begins: the driver forgets one whose beginning it was
/// not let to wait for, and the next user of the connection would be within it (<https://github.com/transact-rs/sqlx/issues/4385>).
/// So the beginning has a task of its own, and a transaction that nobody takes is rolled back.
async fn begin_to_the_end(pool: PgPool) -> Result<sqlx::Transaction<'static, Postgres>, sqlx::Error> {
    match tokio::spawn(async move { pool.begin().await }).await {
        Ok(begun) => begun,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Nobody but the end of the process gives the task up.
            Err(_) => Err(sqlx::Error::PoolClosed),
        },
    }
}

fn sqlite_pool(connections: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(SQLITE_ACQUIRE)
        // A file does not hang up, and asking whether it has would cost as much as most statements.
        .test_before_acquire(false)
        // A local file needs no renewed connections.
        .idle_timeout(None)
        .max_lifetime(None)
}
