//! The readiness of the database: true while writes succeed.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::Usage;
use crate::api::NamespacedName;
use crate::catalog::engine::execute;
use crate::catalog::{Catalog, Error, SHORT_DEADLINE};

/// Age up to which a successful write shows that the database is writable.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Interval of test writes while they fail: anyone may ask for readiness.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Below the kubelet's default probe timeout of one second.
const DEADLINE: Duration = Duration::from_millis(700);

/// Times of writes by this process.
#[derive(Debug, Default)]
pub(in crate::catalog) struct WriteHistory {
    /// `None` after a failed call.
    last_success: Mutex<Option<Instant>>,
    /// The last test without a successful write. Locked during the test, so that concurrent requests share it.
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
    /// Succeeds if the last write of this process did, is recent, and no fault of the database occurred since; otherwise
    /// writes a row. Returns the reason of a failure.
    pub async fn check_writable(&self) -> Result<(), String> {
        let writes = &self.0.writes;
        if writes.is_fresh() {
            return Ok(());
        }
        let mut last_test = writes.last_test.lock().await;
        if writes.is_fresh() {
            return Ok(());
        }
        if let Some((at, result)) = &*last_test
            && at.elapsed() < RETRY_INTERVAL
        {
            return result.clone();
        }
        let result = match timeout(DEADLINE, self.write_test_row()).await {
            Ok(Ok(())) => {
                *last_test = None;
                return Ok(());
            }
            // All connections are in use, so the database works.
            Ok(Err(Error::NoConnection { .. })) => Ok(()),
            Ok(Err(error)) if self.0.pools.is_sqlite() && error.is_busy() => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            // SQLite has one writer, and a sync may hold it for long.
            Err(_) if self.0.pools.is_sqlite() => Ok(()),
            Err(_) => Err(format!("no response to a write within {DEADLINE:?}")),
        };
        *last_test = Some((Instant::now(), result.clone()));
        result
    }

    /// Writes a row and removes it in the same transaction. No repository has an empty name.
    async fn write_test_row(&self) -> Result<(), Error> {
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
