use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, field};

use super::metrics::ControllerMetrics;
use super::{Action, Class, Key, Reconcile, ReconcileError, WorkerMetrics};
use crate::budget::Budgets;
use crate::runtime::kube_client::is_api_server_unreachable;
use crate::runtime::workqueue::{Backoff, Claim, Priority, Queue};
use crate::text::sanitize;
use crate::trace::trace_span;

/// Retries after a panic, in case that the input has changed.
const PANIC_BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(5),
    cap: Duration::from_secs(15 * 60),
};

pub struct WorkerPool {
    pool: Arc<Pool>,
    workers: usize,
}

struct Pool {
    queue: Queue<Key>,
    classes: HashMap<&'static str, ClassState>,
    /// Threads for reconciles that leave the runtime.
    budgets: Budgets,
    metrics: WorkerMetrics,
}

struct ClassState {
    reconciler: Arc<dyn Reconcile>,
    metrics: ControllerMetrics,
}

type Panic = Box<dyn Any + Send>;

impl WorkerPool {
    /// Creates a pool with the workers of all classes, at least one. The limits of the queue
    /// ([`crate::runtime::workqueue::ClassLimits`]) keep one class from taking the workers of another.
    #[must_use]
    pub fn new(queue: Queue<Key>, classes: Vec<Class>, budgets: Budgets, metrics: WorkerMetrics) -> Self {
        let workers = classes.iter().map(|class| class.workers).sum::<usize>().max(1);
        let classes = classes.into_iter().map(|class| {
            let metrics = metrics.of_controller(class.name);
            let max = i64::try_from(class.workers).unwrap_or(i64::MAX);
            metrics.max_concurrent.set(max);
            let reconciler = class.reconciler;
            (class.name, ClassState { reconciler, metrics })
        });
        let classes = classes.collect();
        Self {
            pool: Arc::new(Pool {
                queue,
                classes,
                budgets,
                metrics,
            }),
            workers,
        }
    }

    /// Ends when the queue is drained, or when `canceled`, which cancels reconciles in progress. None is left.
    pub async fn run(self, canceled: CancellationToken) {
        let Self { pool, workers } = self;
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            tasks.spawn(Arc::clone(&pool).work());
        }
        while let Some(ended) = canceled.run_until_cancelled(tasks.join_next()).await.flatten() {
            // Panics of reconcilers are caught earlier.
            if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
                let error = panic_message(&*panic);
                tracing::error!(error, "worker panicked, starting another");
                tasks.spawn(Arc::clone(&pool).work());
            }
        }
        tasks.shutdown().await;
    }
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerPool").finish_non_exhaustive()
    }
}

impl Pool {
    async fn work(self: Arc<Self>) {
        while let Some(claim) = self.queue.get().await {
            // At the highest level, so that no log filter removes the key from an error.
            let span = tracing::error_span!(
                "reconcile",
                controller = %claim.key().class,
                namespace = %claim.key().name.namespace,
                name = %claim.key().name.name,
                priority = claim.priority().0
            );
            self.handle(claim).instrument(span).await;
        }
    }

    async fn handle(&self, claim: Claim<Key>) {
        let Some(class) = self.classes.get(claim.key().class) else {
            return self.on_unknown_class(&claim);
        };
        let metrics = &class.metrics;
        let _active = metrics.active_worker();
        let start = Instant::now();
        let span = trace_span!(
            "reconcile",
            controller = %claim.key().class,
            namespace = %claim.key().name.namespace,
            name = %claim.key().name.name,
            otel.status_code = field::Empty
        );
        let reconcile = async { class.reconciler.reconcile(claim.key(), claim.priority()).await };
        let reconcile = self.budgets.offloadable(&claim.key().name.namespace, reconcile);
        let reconcile = reconcile.instrument(span.clone());
        let result = AssertUnwindSafe(reconcile).catch_unwind().await;
        if !matches!(result, Ok(Ok(_))) {
            span.record("otel.status_code", "ERROR");
        }
        drop(span);
        let duration = start.elapsed();
        metrics.time.observe(duration.as_secs_f64());
        // Dropped only after the key is requeued, since dropping a panic may panic again.
        match &result {
            Ok(Ok(outcome)) => self.on_success(metrics, &claim, *outcome, duration),
            Ok(Err(failure)) => self.on_error(metrics, &claim, failure, duration),
            Err(panic) => self.on_panic(metrics, &claim, panic),
        }
    }

    fn on_unknown_class(&self, claim: &Claim<Key>) {
        let metrics = self.metrics.of_controller(claim.key().class);
        metrics.count("error");
        metrics.terminal_errors.inc();
        self.queue.forget(claim.key());
        tracing::error!("no reconciler for this class of keys; please report this bug");
    }

    fn on_success(&self, metrics: &ControllerMetrics, claim: &Claim<Key>, outcome: Action, duration: Duration) {
        tracing::debug!(?outcome, ?duration, "reconciled");
        let key = claim.key();
        let result = match outcome {
            Action::Done => {
                self.queue.forget(key);
                "success"
            }
            Action::Requeue => {
                self.queue
                    .add_rate_limited(key.clone(), Backoff::CONFLICT, claim.priority());
                "requeue"
            }
            Action::RequeueAfter { delay, priority } => {
                self.queue.forget(key);
                self.queue
                    .add_after(key.clone(), delay, priority.unwrap_or(claim.priority()));
                "requeue_after"
            }
        };
        metrics.count(result);
    }

    fn on_error(&self, metrics: &ControllerMetrics, claim: &Claim<Key>, failure: &ReconcileError, duration: Duration) {
        let is_conflict = matches!(failure, ReconcileError::Conflict { .. });
        metrics.count(if is_conflict { "requeue" } else { "error" });
        let key = claim.key();
        match failure {
            ReconcileError::Conflict { message } => {
                self.queue
                    .add_rate_limited(key.clone(), Backoff::CONFLICT, claim.priority());
                tracing::debug!(error = sanitize(message), ?duration, "reconcile conflicted, retrying");
            }
            ReconcileError::Transient {
                message,
                backoff,
                at_least,
            } => {
                let priority = claim.priority();
                let retry_in = self
                    .queue
                    .add_rate_limited_after(key.clone(), *backoff, *at_least, priority);
                let error = sanitize(message);
                if is_api_server_unreachable() {
                    tracing::debug!(error, ?retry_in, ?duration, "reconcile failed, retrying");
                } else {
                    tracing::warn!(error, ?retry_in, ?duration, "reconcile failed, retrying");
                }
            }
            ReconcileError::Outage { message, at_most } => {
                self.queue.add_after(key.clone(), *at_most, claim.priority());
                tracing::debug!(
                    error = sanitize(message),
                    ?duration,
                    "reconcile failed by an outage, waiting for its end"
                );
            }
            ReconcileError::Terminal { message, retry_after } => {
                metrics.terminal_errors.inc();
                self.queue.forget(key);
                if let Some(delay) = retry_after {
                    self.queue.add_after(key.clone(), *delay, Priority::LOW);
                }
                tracing::debug!(
                    error = sanitize(message),
                    ?retry_after,
                    ?duration,
                    "reconcile failed, not retrying"
                );
            }
        }
    }

    fn on_panic(&self, metrics: &ControllerMetrics, claim: &Claim<Key>, panic: &Panic) {
        metrics.panics.inc();
        metrics.count("error");
        let retry_in = self
            .queue
            .add_rate_limited(claim.key().clone(), PANIC_BACKOFF, claim.priority());
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
    sanitize(message.unwrap_or("panic without a message"))
}
