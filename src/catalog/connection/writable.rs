//! The readiness of the database: true while its server answers and writes succeed.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::Usage;
use crate::api::NamespacedName;
use crate::catalog::engine::execute;
use crate::catalog::{Catalog, Error, SHORT_DEADLINE};

/// Age up to which a successful write shows that the database is writable.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Age up to which an answer shows that the server can be reached, and interval of tests: anyone may ask for readiness.
const INTERVAL: Duration = Duration::from_secs(1);
/// Of a test through the pool, and of the question beside it. Together below the kubelet's default probe timeout of one
/// second.
const DEADLINE: Duration = Duration::from_millis(350);

/// Times of writes by this process.
#[derive(Debug, Default)]
pub(in crate::catalog) struct WriteHistory {
    /// `None` after a failed call.
    last_success: Mutex<Option<Instant>>,
    /// The last test. Locked during the test, so that concurrent requests share it.
    last_test: tokio::sync::Mutex<Option<(Instant, Result<(), String>)>>,
}

impl WriteHistory {
    pub(in crate::catalog) fn succeeded(&self) {
        *self.last_success.lock() = Some(Instant::now());
    }

    pub(in crate::catalog) fn failed(&self) {
        *self.last_success.lock() = None;
    }

    fn is_fresh(&self) -> bool {
        let last = *self.last_success.lock();
        last.is_some_and(|last| last.elapsed() < MAX_AGE)
    }
}

impl Catalog {
    /// Succeeds if the server answers and writes succeed: the last one did, is recent, and no fault of the database occurred
    /// since; otherwise a row is written. Connections that are all in use are no failure. Returns the reason of a failure.
    pub async fn check_writable(&self) -> Result<(), String> {
        let writes = &self.0.writes;
        let is_proven =
            || writes.is_fresh() && (self.0.pools.is_sqlite() || self.0.pools.has_answered_within(INTERVAL));
        if is_proven() {
            return Ok(());
        }
        let mut last_test = writes.last_test.lock().await;
        if is_proven() {
            return Ok(());
        }
        if let Some((at, result)) = &*last_test
            && at.elapsed() < INTERVAL
        {
            return result.clone();
        }
        let result = match self.0.pools.is_sqlite() {
            true => self.test_sqlite().await,
            false => self.test_postgres(writes.is_fresh()).await,
        };
        *last_test = Some((Instant::now(), result.clone()));
        result
    }

    /// SQLite has one writer, and a sync may hold it for long.
    async fn test_sqlite(&self) -> Result<(), String> {
        match timeout(2 * DEADLINE, self.write_test_row()).await {
            Ok(Err(error)) if !error.is_busy() && !matches!(error, Error::NoConnection { .. }) => {
                Err(error.to_string())
            }
            _ => Ok(()),
        }
    }

    /// Asks on a connection of the pool. If that fails, a new connection tells whether the server can be reached.
    async fn test_postgres(&self, is_write_fresh: bool) -> Result<(), String> {
        let test = async {
            if is_write_fresh {
                self.ping().await
            } else {
                self.write_test_row().await
            }
        };
        let tested = timeout(DEADLINE, test).await;
        if matches!(tested, Ok(Ok(()))) {
            return Ok(());
        }
        let is_busy = self.0.pools.is_busy();
        let asked = timeout(DEADLINE, self.0.pools.ask_server()).await;
        let unreachable = |reason: String| {
            self.0.writes.failed();
            format!("the database can't be reached: {reason}")
        };
        match (asked, tested) {
            (Err(_), _) => Err(unreachable(format!("no response within {DEADLINE:?}"))),
            (Ok(Err(error)), _) => Err(unreachable(error.database_message())),
            (Ok(Ok(())), _) if is_write_fresh || is_busy => Ok(()),
            (Ok(Ok(())), Ok(Err(error))) => Err(error.to_string()),
            (Ok(Ok(())), _) => Err(format!("no response to a write within {DEADLINE:?}")),
        }
    }

    /// Writes a row and removes it in the same transaction. No repository has an empty name.
    pub(in crate::catalog) async fn write_test_row(&self) -> Result<(), Error> {
        const INSERT: &str = "INSERT INTO portolan_index_cache (namespace, name, cache_key, digest_key)
            VALUES ($1, $2, '', '') ON CONFLICT DO NOTHING";
        const DELETE: &str = "DELETE FROM portolan_index_cache WHERE namespace = $1 AND name = $2";
        let no_repository = NamespacedName::new("", "");
        self.write_with("write a test row", Usage::Reserved, "", SHORT_DEADLINE, async |tx| {
            execute!(tx, INSERT, no_repository);
            execute!(tx, DELETE, no_repository);
            Ok(())
        })
        .await
    }
}
