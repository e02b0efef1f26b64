//! The readiness of the database: true while its server answers and writes succeed.

use std::future::ready;
use std::pin::pin;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, RemoteHandle, select};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Usage;
use crate::api::NamespacedName;
use crate::catalog::engine::execute;
use crate::catalog::{Catalog, Error, SHORT_DEADLINE};

/// Age up to which a successful write shows that the database is writable.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Age up to which an answer shows that the server can be reached, and interval of tests: anyone may ask for readiness.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time of a test through the pool, and of the question beside it: below the kubelet's default probe timeout of one
/// second. A distant server needs most of it for either.
const DEADLINE: Duration = Duration::from_millis(700);
/// Time after which the server is asked beside the test.
const HEAD_START: Duration = Duration::from_millis(100);

/// Times of writes by this process.
#[derive(Debug, Default)]
pub(in crate::catalog) struct WriteHistory {
    /// `None` after a failed call.
    last_success: Mutex<Option<Instant>>,
    /// Locked during a test, so that concurrent requests share it.
    tests: tokio::sync::Mutex<Tests>,
}

/// Canceled when it is dropped.
type WriteTest = RemoteHandle<Result<(), String>>;

#[derive(Debug, Default)]
struct Tests {
    last: Option<(Instant, Result<(), String>)>,
    /// The next test continues with it: a distant server answers each statement, and not all of them in time.
    unfinished: Option<WriteTest>,
}

impl WriteHistory {
    pub(in crate::catalog) fn record_success(&self) {
        *self.last_success.lock() = Some(Instant::now());
    }

    pub(in crate::catalog) fn record_failure(&self) {
        *self.last_success.lock() = None;
    }

    fn is_fresh(&self) -> bool {
        let last = *self.last_success.lock();
        last.is_some_and(|last| last.elapsed() < MAX_AGE)
    }
}

impl Catalog {
    /// Succeeds if the server answers, and the last write did succeed, is recent, and no fault of the database occurred
    /// since; otherwise writes a row. Connections that are all in use are no failure. Returns the reason of a failure.
    pub async fn check_writable(&self) -> Result<(), String> {
        let writes = &self.0.writes;
        let is_proven =
            || writes.is_fresh() && (self.0.pools.is_sqlite() || self.0.pools.has_answered_within(INTERVAL));
        if is_proven() {
            return Ok(());
        }
        let mut tests = writes.tests.lock().await;
        if is_proven() {
            return Ok(());
        }
        if let Some((at, result)) = &tests.last
            && at.elapsed() < INTERVAL
        {
            return result.clone();
        }
        let result = if self.0.pools.is_sqlite() {
            self.test_sqlite().await
        } else {
            self.test_postgres(&mut tests.unfinished).await
        };
        tests.last = Some((Instant::now(), result.clone()));
        result
    }

    /// SQLite has one writer, and a sync may hold it for long.
    async fn test_sqlite(&self) -> Result<(), String> {
        match timeout(DEADLINE, self.write_test_row()).await {
            Ok(Err(error)) if !error.is_busy() && !error.is_busy_pool() => Err(error.to_string()),
            _ => Ok(()),
        }
    }

    /// Asks on a connection of the pool, and soon beside it on a new one. Any answer shows that the server can be reached.
    async fn test_postgres(&self, unfinished: &mut Option<WriteTest>) -> Result<(), String> {
        let is_write_fresh = self.0.writes.is_fresh();
        let start = Instant::now();
        let mut running = unfinished.take().unwrap_or_else(|| self.start_test(is_write_fresh));
        let question = pin!(async {
            sleep(HEAD_START).await;
            timeout_at(start + DEADLINE, self.0.pools.ask_server()).await
        });
        let test = timeout_at(start + DEADLINE, &mut running);
        let (tested, question) = match select(pin!(test), question).await {
            Either::Left((tested, question)) => (tested, question.left_future()),
            Either::Right((asked, test)) => (test.await, ready(asked).right_future()),
        };
        if matches!(tested, Ok(Ok(()))) {
            return Ok(());
        }
        let is_busy = self.0.pools.is_busy();
        if self.0.pools.has_answered_within(start.elapsed()) {
            return tested.unwrap_or_else(|_| {
                *unfinished = Some(running);
                Ok(())
            });
        }
        let asked = question.await;
        let unreachable = |reason: String| {
            self.0.writes.record_failure();
            format!("the database can't be reached: {reason}")
        };
        match (asked, tested) {
            (Err(_), tested) => {
                // It may still be connecting.
                *unfinished = tested.is_err().then_some(running);
                Err(unreachable(format!("no response within {DEADLINE:?}")))
            }
            (Ok(Err(error)), _) => Err(unreachable(error.database_message())),
            (Ok(Ok(())), _) if is_write_fresh || is_busy => Ok(()),
            (Ok(Ok(())), Ok(tested)) => tested,
            (Ok(Ok(())), Err(_)) => Err(format!("no response to a write within {DEADLINE:?}")),
        }
    }

    fn start_test(&self, is_write_fresh: bool) -> WriteTest {
        let catalog = self.clone();
        let test = async move {
            let tested = if is_write_fresh {
                catalog.ping().await
            } else {
                catalog.write_test_row().await
            };
            tested.map_err(|error| error.to_string())
        };
        let (test, running) = test.remote_handle();
        tokio::spawn(test);
        running
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
