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
use super::{Action, Class, Key, Metrics, ObjectKey, Reconcile, ReconcileError};
use crate::runtime::workqueue::{Backoff, Claim, Item, Priority, Queue};
use crate::text::{printable, truncate};

/// After a panic: the same input is likely to panic again, so there is no hurry, but the world may have changed.
const AFTER_PANIC: Backoff = Backoff {
    base: Duration::from_secs(5),
    cap: Duration::from_secs(15 * 60),
};

/// Bytes of an error in a log line. It may hold what a server sent.
const LONGEST_MESSAGE: usize = 1024;

/// A pool of workers over a queue.
pub struct WorkerPool<K: Item = Key> {
    pool: Arc<Pool<K>>,
    workers: usize,
}

struct Pool<K: Item> {
    queue: Queue<K>,
    classes: HashMap<&'static str, Workers<K>>,
    metrics: Metrics,
}

/// The workers of one class.
struct Workers<K> {
    reconciler: Arc<dyn Reconcile<K>>,
    metrics: ControllerMetrics,
}

type Panic = Box<dyn Any + Send>;

impl<K: ObjectKey> WorkerPool<K> {
    /// Creates a pool with the workers of all classes, at least one. The lanes of the queue (see
    /// [`crate::runtime::workqueue::Settings`]) keep one class from taking the workers of another.
    #[must_use]
    pub fn new(queue: Queue<K>, classes: Vec<Class<K>>, metrics: Metrics) -> Self {
        let workers = classes.iter().map(|class| class.workers).sum::<usize>().max(1);
        let classes = classes.into_iter().map(|class| {
            let metrics = metrics.of_controller(class.name);
            let max = i64::try_from(class.workers).unwrap_or(i64::MAX);
            metrics.max_concurrent.set(max);
            let reconciler = class.reconciler;
            (class.name, Workers { reconciler, metrics })
        });
        let classes = classes.collect();
        Self {
            pool: Arc::new(Pool {
                queue,
                classes,
                metrics,
            }),
            workers,
        }
    }

    /// Works until the queue is shut down and empty and every reconcile has come to its end. Dropping the future ends the
    /// workers where they stand.
    pub async fn run(self) {
        let Self { pool, workers } = self;
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            tasks.spawn(Arc::clone(&pool).work());
        }
        while let Some(ended) = tasks.join_next().await {
            // Panics of reconcilers don't come here; but whatever does must not leave the pool a worker short.
            if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
                let error = panic_message(&*panic);
                tracing::error!(error, "worker panicked, starting another");
                tasks.spawn(Arc::clone(&pool).work());
            }
        }
    }
}

impl<K: Item> fmt::Debug for WorkerPool<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerPool").finish_non_exhaustive()
    }
}

impl<K: ObjectKey> Pool<K> {
    async fn work(self: Arc<Self>) {
        while let Some(claim) = self.queue.get().await {
            // Of the highest level, so that no filter takes the key off an error.
            let span = tracing::error_span!(
                "reconcile",
                controller = %claim.key().lane(),
                namespace = %claim.key().namespace(),
                name = %claim.key().name(),
                priority = claim.priority().0
            );
            self.handle(claim).instrument(span).await;
        }
    }

    async fn handle(&self, claim: Claim<K>) {
        let Some(class) = self.classes.get(claim.key().lane()) else {
            return self.unhandled(&claim);
        };
        let metrics = &class.metrics;
        let _active = metrics.active_worker();
        let start = Instant::now();
        let reconcile = async { class.reconciler.reconcile(claim.key(), claim.priority()).await };
        let result = AssertUnwindSafe(reconcile).catch_unwind().await;
        let duration = start.elapsed();
        metrics.time.observe(duration.as_secs_f64());
        // The panic is dropped after the key has been seen to: it may panic once more.
        match &result {
            Ok(Ok(outcome)) => self.succeeded(metrics, &claim, *outcome, duration),
            Ok(Err(failure)) => self.failed(metrics, &claim, failure, duration),
            Err(panic) => self.panicked(metrics, &claim, panic),
        }
    }

    fn unhandled(&self, claim: &Claim<K>) {
        let metrics = self.metrics.of_controller(claim.key().lane());
        metrics.ended(Ended::Error);
        metrics.terminal_errors.inc();
        self.queue.forget(claim.key());
        tracing::error!("no reconciler for this class of keys; please report this bug");
    }

    fn succeeded(&self, metrics: &ControllerMetrics, claim: &Claim<K>, outcome: Action, duration: Duration) {
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
        metrics.ended(ended);
    }

    fn failed(&self, metrics: &ControllerMetrics, claim: &Claim<K>, failure: &ReconcileError, duration: Duration) {
        metrics.ended(Ended::Error);
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
                metrics.terminal_errors.inc();
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

    fn panicked(&self, metrics: &ControllerMetrics, claim: &Claim<K>, panic: &Panic) {
        metrics.panics.inc();
        metrics.ended(Ended::Error);
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
