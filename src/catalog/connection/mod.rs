//! Connections and transactions of SQLite and Postgres.
//!
//! ```text
//!  call ─► permit ─► pool ─► connection ─┬─ completed ─► pool
//!                                        └─ timed out, canceled, or broken ─► closed
//! ```
//!
//! A connection that is dropped amid a call may still run a statement, or have an open transaction. The next call would
//! wait for the statement, or write into the transaction.

mod answers;
mod calls;
mod failover;
pub mod lock;
mod permits;
mod pools;
mod postgres_pool;
pub mod sqlite_file;
mod writable;

use std::{pin::pin, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sqlx::{Database, PgConnection, Postgres, SqlSafeStr, Sqlite, SqliteConnection, pool::PoolConnection};
use sqlx_core::transaction::TransactionManager;
use tokio::time::{Instant, timeout_at};

use super::Error;
use super::engine::Engine;
use answers::LastAnswer;
use permits::Permit;
pub(super) use permits::Usage;
pub(super) use pools::{PoolSettings, Pools};
use postgres_pool::PostgresConnection;
pub(super) use writable::WriteHistory;

/// Above the server's `statement_timeout`, which gives the better error: for a server that is gone without a reset.
const STATEMENT_DEADLINE: Duration = Duration::from_secs(60);

/// Opens a write transaction behind a pooler, which hands the session to other clients.
const BEGIN_WITH_TIMEOUTS: &str = "BEGIN; SET LOCAL lock_timeout = '5s'; SET LOCAL statement_timeout = '30s'; \
    SET LOCAL idle_in_transaction_session_timeout = '60s'";

/// A connection of a pool, closed on drop unless [`Connection::release`] was called.
pub(super) struct Connection {
    inner: Engine<SqlitePoolConnection, PostgresConnection>,
    progress: CallProgress,
    answers: LastAnswer,
    has_statement: bool,
    has_session: bool,
    /// Dropped last: the next caller finds the connection in the pool.
    permit: Option<Permit>,
}

impl Connection {
    fn new(
        inner: Engine<SqlitePoolConnection, PostgresConnection>,
        answers: LastAnswer,
        has_session: bool,
        permit: Option<Permit>,
    ) -> Self {
        Self {
            inner,
            progress: CallProgress::default(),
            answers,
            has_statement: false,
            has_session,
            permit,
        }
    }

    /// Begins a statement. The statement before it was answered.
    pub(super) fn executor(&mut self) -> Engine<&mut SqliteConnection, &mut PgConnection> {
        self.progress.touch();
        if std::mem::replace(&mut self.has_statement, true) {
            self.answers.touch();
        }
        match &mut self.inner {
            Engine::Sqlite(connection) => Engine::Sqlite(&mut connection.inner),
            Engine::Postgres(connection) => Engine::Postgres(connection),
        }
    }

    pub(super) const fn choose<T: Copy>(&self, sqlite: T, postgres: T) -> T {
        self.inner.choose(sqlite, postgres)
    }

    pub(super) fn progress(&self) -> CallProgress {
        self.progress.clone()
    }

    /// Returns the connection, which has answered, to its pool.
    pub(super) fn release(self) {
        self.answers.touch();
        match self.inner {
            Engine::Sqlite(connection) => connection.release(),
            Engine::Postgres(connection) => connection.release(),
        }
        drop(self.permit);
    }
}

/// Closed on drop unless it was released.
struct SqlitePoolConnection {
    inner: PoolConnection<Sqlite>,
    is_released: bool,
}

impl SqlitePoolConnection {
    const fn new(inner: PoolConnection<Sqlite>) -> Self {
        Self {
            inner,
            is_released: false,
        }
    }

    fn release(mut self) {
        self.is_released = true;
    }
}

impl Drop for SqlitePoolConnection {
    fn drop(&mut self) {
        if !self.is_released {
            self.inner.close_on_drop();
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
pub(super) struct CallProgress(Arc<Mutex<Instant>>);

impl Default for CallProgress {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl CallProgress {
    fn touch(&self) {
        *self.0.lock() = Instant::now();
    }

    /// Runs `work` as long as its statements complete, at most for `total`.
    pub(super) async fn within<T>(
        &self,
        operation: &'static str,
        total: Duration,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let end = Instant::now() + total;
        let mut work = pin!(work);
        loop {
            let deadline = end.min(*self.0.lock() + STATEMENT_DEADLINE);
            if let Ok(result) = timeout_at(deadline, &mut work).await {
                return result;
            }
            if *self.0.lock() + STATEMENT_DEADLINE <= deadline {
                return Err(Error::no_response(STATEMENT_DEADLINE).context(operation));
            }
            if deadline == end {
                return Err(Error::timed_out(operation, total));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "write the charts";
    const TOTAL: Duration = Duration::from_secs(15 * 60);

    async fn statements(progress: &CallProgress, count: u32, duration: Duration) -> Result<(), Error> {
        for _ in 0..count {
            progress.touch();
            tokio::time::sleep(duration).await;
        }
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_goes_on_as_long_as_its_statements_complete() {
        let progress = CallProgress::default();
        let work = statements(&progress, 20, Duration::from_secs(29));
        progress.within(COMMIT, TOTAL, work).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_with_a_statement_that_does_not_complete() {
        let progress = CallProgress::default();
        let started = Instant::now();
        let work = statements(&progress, 1, Duration::from_secs(3600));
        let error = progress.within(COMMIT, TOTAL, work).await.unwrap_err();
        assert_eq!(started.elapsed(), STATEMENT_DEADLINE);
        assert_eq!(error.reason(), "DatabaseUnreachable");
        let text = error.to_string();
        assert!(
            text.contains("write the charts") && text.contains("no response within 60s"),
            "{text}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_after_its_total_time() {
        let progress = CallProgress::default();
        let started = Instant::now();
        let work = statements(&progress, 1000, Duration::from_secs(10));
        let error = progress.within(COMMIT, TOTAL, work).await.unwrap_err();
        assert_eq!(started.elapsed(), TOTAL);
        assert!(error.to_string().starts_with("timed out after 900s"), "{error}");
    }
}
