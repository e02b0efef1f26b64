//! Connections and transactions of SQLite and Postgres.
//!
//! ```text
//!  call ─► permit ─► pool ─► connection ─┬─ completed ─► pool
//!                                        └─ timed out, canceled, or broken ─► closed
//! ```
//!
//! A connection that is dropped amid a call may still run a statement, or have an open transaction. The next call would
//! wait for the one, or write into the other.

mod calls;
mod failover;
pub mod lock;
mod permits;
mod pools;
pub mod sqlite_file;
mod writable;

use std::{pin::pin, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sqlx::{Database, PgConnection, Postgres, SqlSafeStr, Sqlite, SqliteConnection, pool::PoolConnection};
use sqlx_core::transaction::TransactionManager;
use tokio::time::{Instant, timeout_at};

use super::Error;
use super::engine::{Engine, on_engine};
use permits::Permit;
pub(super) use permits::Usage;
pub(super) use pools::{PoolSettings, Pools};
pub(super) use writable::WriteHistory;

/// Above the server's `statement_timeout`, which gives the better error: for a server that is gone without a reset.
const STATEMENT_DEADLINE: Duration = Duration::from_secs(60);

/// Opens a write transaction behind a pooler, which hands the session to other clients.
const BEGIN_WITH_TIMEOUTS: &str = "BEGIN; SET LOCAL lock_timeout = '5s'; SET LOCAL statement_timeout = '30s'; \
    SET LOCAL idle_in_transaction_session_timeout = '60s'";

/// A connection of a pool, closed on drop unless [`Connection::release`] was called.
pub(super) struct Connection {
    inner: Engine<PoolConnection<Sqlite>, PoolConnection<Postgres>>,
    progress: Progress,
    is_released: bool,
    has_session: bool,
    _permit: Option<Permit>,
}

impl Connection {
    fn new(
        inner: Engine<PoolConnection<Sqlite>, PoolConnection<Postgres>>,
        has_session: bool,
        permit: Option<Permit>,
    ) -> Self {
        Self {
            inner,
            progress: Progress::default(),
            is_released: false,
            has_session,
            _permit: permit,
        }
    }

    pub(super) fn executor(&mut self) -> Engine<&mut SqliteConnection, &mut PgConnection> {
        self.progress.touch();
        match &mut self.inner {
            Engine::Sqlite(connection) => Engine::Sqlite(connection),
            Engine::Postgres(connection) => Engine::Postgres(connection),
        }
    }

    pub(super) const fn choose<T: Copy>(&self, sqlite: T, postgres: T) -> T {
        self.inner.choose(sqlite, postgres)
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Returns the connection to its pool.
    pub(super) fn release(mut self) {
        self.is_released = true;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.is_released {
            on_engine!(&mut self.inner, connection => connection.close_on_drop());
        }
    }
}

/// A write transaction. Its connection is closed if it is dropped before its end.
pub(super) struct Transaction(Connection);

impl Transaction {
    /// SQLite takes the write lock immediately: a transaction that starts with a read may find its snapshot out of date
    /// at the first write, and fails without waiting.
    pub(super) async fn begin(mut connection: Connection) -> Result<Self, Error> {
        let has_session = connection.has_session;
        match connection.executor() {
            Engine::Sqlite(sqlite) => begin::<Sqlite>(sqlite, Some("BEGIN IMMEDIATE")).await?,
            Engine::Postgres(postgres) => {
                begin::<Postgres>(postgres, (!has_session).then_some(BEGIN_WITH_TIMEOUTS)).await?;
            }
        }
        Ok(Self(connection))
    }

    pub(super) fn executor(&mut self) -> Engine<&mut SqliteConnection, &mut PgConnection> {
        self.0.executor()
    }

    pub(super) const fn choose<T: Copy>(&self, sqlite: T, postgres: T) -> T {
        self.0.choose(sqlite, postgres)
    }

    pub(super) async fn commit(mut self) -> Result<(), Error> {
        match self.executor() {
            Engine::Sqlite(sqlite) => <Sqlite as Database>::TransactionManager::commit(sqlite).await?,
            Engine::Postgres(postgres) => <Postgres as Database>::TransactionManager::commit(postgres).await?,
        }
        self.0.release();
        Ok(())
    }

    /// Rolls back after `error`, and returns it. The connection is kept if it still responds.
    pub(super) async fn fail(mut self, error: Error) -> Error {
        if error.leaves_connection_usable() {
            let rolled_back = match self.executor() {
                Engine::Sqlite(sqlite) => <Sqlite as Database>::TransactionManager::rollback(sqlite).await,
                Engine::Postgres(postgres) => <Postgres as Database>::TransactionManager::rollback(postgres).await,
            };
            if rolled_back.is_ok() {
                self.0.release();
            }
        }
        error
    }
}

async fn begin<DB: Database>(connection: &mut DB::Connection, statement: Option<&'static str>) -> Result<(), Error> {
    let statement = statement.map(SqlSafeStr::into_sql_str);
    Ok(DB::TransactionManager::begin(connection, statement).await?)
}

/// The time of the last statement that a call began.
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<Mutex<Instant>>);

impl Default for Progress {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl Progress {
    fn touch(&self) {
        *self.0.lock() = Instant::now();
    }

    /// Runs `work` as long as its statements complete, at most for `total`. Returns `None` otherwise.
    pub(super) async fn within<T>(&self, total: Duration, work: impl Future<Output = T>) -> Option<T> {
        let end = Instant::now() + total;
        let mut work = pin!(work);
        loop {
            let deadline = end.min(*self.0.lock() + STATEMENT_DEADLINE);
            if let Ok(result) = timeout_at(deadline, &mut work).await {
                return Some(result);
            }
            if deadline == end || *self.0.lock() + STATEMENT_DEADLINE <= deadline {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn statements(progress: &Progress, count: u32, duration: Duration) {
        for _ in 0..count {
            progress.touch();
            tokio::time::sleep(duration).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_goes_on_as_long_as_its_statements_complete() {
        let progress = Progress::default();
        let total = Duration::from_secs(15 * 60);
        let work = statements(&progress, 20, Duration::from_secs(29));
        assert_eq!(progress.within(total, work).await, Some(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_with_a_statement_that_does_not_complete() {
        let progress = Progress::default();
        let started = Instant::now();
        let total = Duration::from_secs(15 * 60);
        let work = statements(&progress, 1, Duration::from_secs(3600));
        assert_eq!(progress.within(total, work).await, None);
        assert_eq!(started.elapsed(), STATEMENT_DEADLINE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_after_its_total_time() {
        let progress = Progress::default();
        let started = Instant::now();
        let total = Duration::from_secs(15 * 60);
        let work = statements(&progress, 1000, Duration::from_secs(10));
        assert_eq!(progress.within(total, work).await, None);
        assert_eq!(started.elapsed(), total);
    }
}
