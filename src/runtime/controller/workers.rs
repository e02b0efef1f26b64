//! The workers.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument;

use super::metrics::{ControllerMetrics, Ended};
use super::{Action, Key, Metrics, ObjectKey, Reconcile, ReconcileError};
use crate::runtime::workqueue::{Backoff, Claim, Item, Priority, Queue};
use crate::text::{printable, truncate};

/// After a panic: the same input is likely to panic again, so there is no hurry, but the world may have changed.
const AFTER_PANIC: Backoff = Backoff {
    base: Duration::from_secs(5),
    cap: Duration::from_secs(15 * 60),
};

/// Bytes of an error in a log line. It may hold what a server sent.
const LONGEST_MESSAGE: usize = 1024;

/// A pool of workers over a queue. The kind of a key is its lane.
pub struct Controller<K: Item = Key> {
    pool: Arc<Pool<K>>,
    workers: usize,
}

struct Pool<K: Item> {
    name: String,
    queue: Queue<K>,
    reconcilers: HashMap<K::Lane, Arc<dyn Reconcile<K>>>,
    metrics: ControllerMetrics,
}

type Panic = Box<dyn Any + Send>;

impl<K: ObjectKey> Controller<K> {
    /// A controller of so many workers, at least one, which starts with [`Self::run`]. `name` is the label of its metrics.
    /// Lanes with caps (see [`crate::runtime::workqueue::Settings`]) keep one kind from taking all workers.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        queue: Queue<K>,
        reconcilers: HashMap<K::Lane, Arc<dyn Reconcile<K>>>,
        workers: usize,
        metrics: Metrics,
    ) -> Self {
        let name = name.into();
        let metrics = metrics.of_controller(&name);
        Self {
            pool: Arc::new(Pool {
                name,
                queue,
                reconcilers,
                metrics,
            }),
            workers: workers.max(1),
        }
    }

    /// Works until the queue is shut down and empty and every reconcile has come to its end. Dropping the future ends the
    /// workers where they stand.
    pub async fn run(self) {
        let Self { pool, workers } = self;
        pool.metrics
            .max_concurrent
            .set(i64::try_from(workers).unwrap_or(i64::MAX));
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            tasks.spawn(Arc::clone(&pool).work());
        }
        while let Some(ended) = tasks.join_next().await {
            // Panics of reconcilers don't come here; but whatever does must not leave the pool a worker short.
            if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
                let error = panic_message(&*panic);
                tracing::error!(controller = pool.name, error, "worker panicked, starting another");
                tasks.spawn(Arc::clone(&pool).work());
            }
        }
    }
}

impl<K: Item> fmt::Debug for Controller<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.pool.name)
            .finish_non_exhaustive()
    }
}

impl<K: ObjectKey> Pool<K> {
    async fn work(self: Arc<Self>) {
        while let Some(claim) = self.queue.get().await {
            // Of the highest level, so that no filter takes the key off an error.
            let span = tracing::error_span!(
                "reconcile",
                controller = %claim.key().controller(),
                namespace = %claim.key().namespace(),
                name = %claim.key().name(),
                priority = claim.priority().0
            );
            self.handle(claim).instrument(span).await;
        }
    }

    async fn handle(&self, claim: Claim<K>) {
        let _active = self.metrics.active_worker();
        let start = Instant::now();
        let result = AssertUnwindSafe(self.reconcile(&claim)).catch_unwind().await;
        let duration = start.elapsed();
        self.metrics.time.observe(duration.as_secs_f64());
        // The panic is dropped after the key has been seen to: it may panic once more.
        match &result {
            Ok(Ok(outcome)) => self.succeeded(&claim, *outcome, duration),
            Ok(Err(failure)) => self.failed(&claim, failure, duration),
            Err(panic) => self.panicked(&claim, panic),
        }
    }

    async fn reconcile(&self, claim: &Claim<K>) -> Result<Action, ReconcileError> {
        match self.reconcilers.get(&claim.key().lane()) {
            Some(reconciler) => reconciler.reconcile(claim.key(), claim.priority()).await,
            None => {
                let message = format!("there is no reconciler for {:?}", claim.key().lane());
                tracing::error!(message);
                Err(ReconcileError::Terminal {
                    message,
                    retry_after: None,
                })
            }
        }
    }

    fn succeeded(&self, claim: &Claim<K>, outcome: Action, duration: Duration) {
        tracing::debug!(?outcome, ?duration, "reconciled");
        let key = claim.key();
        let ended = match outcome {
            Action::Done => {
                self.queue.forget(key);
                Ended::Success
            }
            Action::Requeue => {
                self.queue
                    .add_rate_limited(key.clone(), Backoff::CONFLICT, claim.priority());
                Ended::Requeue
            }
            Action::RequeueAfter { delay, priority } => {
                self.queue.forget(key);
                self.queue
                    .add_after(key.clone(), delay, priority.unwrap_or(claim.priority()));
                Ended::RequeueAfter
            }
        };
        self.metrics.ended(ended);
    }

    fn failed(&self, claim: &Claim<K>, failure: &ReconcileError, duration: Duration) {
        self.metrics.ended(Ended::Error);
        let key = claim.key();
        match failure {
            ReconcileError::Transient {
                message,
                backoff,
                at_least,
                at_most,
            } => {
                let bounds = *at_least..=*at_most;
                let retry_in = self
                    .queue
                    .add_rate_limited_within(key.clone(), *backoff, bounds, claim.priority());
                tracing::warn!(
                    error = shown(message),
                    ?retry_in,
                    ?duration,
                    "reconcile failed, retrying"
                );
            }
            ReconcileError::Terminal { message, retry_after } => {
                self.metrics.terminal_errors.inc();
                self.queue.forget(key);
                if let Some(delay) = retry_after {
                    self.queue.add_after(key.clone(), *delay, Priority::LOW);
                }
                // The reconciler has told the user in its report.
                tracing::debug!(
                    error = shown(message),
                    ?retry_after,
                    ?duration,
                    "reconcile failed, not retrying"
                );
            }
        }
    }

    fn panicked(&self, claim: &Claim<K>, panic: &Panic) {
        self.metrics.panics.inc();
        self.metrics.ended(Ended::Error);
        let retry_in = self
            .queue
            .add_rate_limited(claim.key().clone(), AFTER_PANIC, claim.priority());
        tracing::error!(
            error = panic_message(&**panic),
            ?retry_in,
            "reconcile panicked, retrying; please report this bug"
        );
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    shown(message.unwrap_or("a panic without a message"))
}

fn shown(message: &str) -> String {
    truncate(&printable(message), LONGEST_MESSAGE)
}
