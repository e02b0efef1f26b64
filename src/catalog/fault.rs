//! Faults of the database that concern all repositories, and the probes that tell their end.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Executor};

use super::connection::{Transaction, Usage};
use super::engine::Engine;
use super::{Catalog, Error, schema};

/// Time of a probe, so that the end of a fault is noticed soon.
const PROBE_DEADLINE: Duration = Duration::from_secs(1);
/// Less than [`PROBE_DEADLINE`], after which the session would go on waiting.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '500ms'";

/// A fault of the database, not of one repository. A probe finds its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// No server, or no connection to it. Probed by a ping.
    Unreachable,
    /// Another session holds a lock. Probed by locking all tables without waiting.
    Locked,
    /// Reads succeed and writes do not. Probed by writing a row.
    Unwritable,
}

impl Catalog {
    pub async fn probe(&self, fault: Fault) -> Result<(), Error> {
        const OPERATION: &str = "probe the database";
        let probe = async {
            match fault {
                Fault::Unreachable => {
                    // A server that was away has closed them, and the next call would fail.
                    self.0.pools.drop_idle();
                    self.ping().await
                }
                Fault::Locked => {
                    self.write_with(OPERATION, Usage::Reserved, "", PROBE_DEADLINE, lock_all_tables)
                        .await
                }
                Fault::Unwritable => self.write_test_row().await,
            }
        };
        let probe = tokio::time::timeout(PROBE_DEADLINE, probe).await;
        probe.unwrap_or_else(|_| Err(Error::no_response(PROBE_DEADLINE).context(OPERATION)))
    }
}

/// Fails if a write would wait for another session's lock. A write transaction of SQLite has it. The end of the
/// transaction checks the fences, whose rows a former leader may have locked.
async fn lock_all_tables(tx: &mut Transaction) -> Result<(), Error> {
    if let Engine::Postgres(connection) = tx.executor() {
        let tables = schema::tables().join(", ");
        let lock = format!("{LOCK_TIMEOUT}; LOCK TABLE {tables} IN ROW EXCLUSIVE MODE NOWAIT");
        connection.execute(sqlx::raw_sql(AssertSqlSafe(lock))).await?;
    }
    Ok(())
}
