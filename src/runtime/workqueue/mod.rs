//! A rate-limited work queue with the semantics of client-go and the priorities of controller-runtime.
//!
//! ```text
//!                                      ┌─────────────────────────────────────────┐
//!  add ──────────────────────────────► │ ready, by class: highest priority first,│ ──get──► Claim (processing)
//!  add_after ────────► timer ────────► │ then namespaces in turn, then first in; │             │
//!  add_rate_limited ─► timer ► bucket ►│ a turn in ten to each lower priority    │ ◄───────────┤ added meanwhile
//!                                      └─────────────────────────────────────────┘             ▼ dropped: done
//! ```
//!
//! A key is queued once however often it is added, and is never processed by two workers. A key added while it is
//! processed is queued again afterwards.
//!
//! Adds are merged: the earliest time and the highest priority win. A plain add therefore cancels the timer of a key,
//! like controller-runtime; client-go keeps the timer, which causes a redundant reconcile or shortens a later backoff.
//! A key may be dequeued before a requested time, so reconcilers decide by the clock and request the next time again.
//!
//! `order`, `ready` and `delay` are plain data; `shared` adds the lock; `timer` is the single task for all delays.

mod claim;
mod delay;
mod metrics;
mod order;
mod rate_limit;
mod ready;
mod shared;
mod timer;

#[cfg(test)]
mod tests;

use std::fmt::{self, Debug};
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

pub use claim::Claim;
pub use metrics::WorkqueueMetrics;
pub use rate_limit::Backoff;

use delay::DelayKind;
use rate_limit::Bucket;
use ready::Ready;
use shared::{DequeueResult, Shared};

pub trait Item: Clone + Eq + Hash + Debug + Send + Sync + 'static {
    /// Keys of a class share workers; the classes do not wait for each other. Labels the metrics.
    fn class(&self) -> &'static str;

    /// The tenant. Tenants take turns.
    fn namespace(&self) -> &str;
}

/// Scheduling priority. Higher values are dequeued first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Priority(pub i32);

impl Priority {
    /// Changed by a user.
    pub const USER: Self = Self(0);
    /// Changed while no instance was running, or never reconciled.
    pub const MISSED: Self = Self(-50);
    /// Initial list, resyncs and garbage collection. Same value as in controller-runtime.
    pub const LOW: Self = Self(-100);
    /// Further parts of work that takes many reconciles.
    pub const CONTINUED: Self = Self(-200);
}

/// Limits of the keys of a class that are processed at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassLimits {
    /// In total. Zero would block all keys forever and counts as one.
    pub workers: usize,
    /// Of one namespace, at any time.
    pub per_namespace: usize,
    /// The last workers take only keys of namespaces without a key in processing.
    pub reserve: usize,
}

impl ClassLimits {
    #[must_use]
    pub fn workers(workers: usize) -> Self {
        Self {
            workers,
            per_namespace: usize::MAX,
            reserve: 0,
        }
    }

    fn has_room(&self, total: usize, of_namespace: usize) -> bool {
        let workers = self.workers.max(1);
        let reserve = if of_namespace == 0 { 0 } else { self.reserve };
        total + reserve < workers && of_namespace < self.per_namespace.max(1)
    }
}

#[derive(Clone, Debug)]
pub struct QueueSettings {
    /// Classes that are not named are unlimited.
    pub classes: Vec<(&'static str, ClassLimits)>,
    pub rate_per_second: NonZeroU32,
    pub burst: NonZeroU32,
}

impl Default for QueueSettings {
    /// Returns the defaults of client-go: ten retries per second, a burst of 100, no limits.
    fn default() -> Self {
        // Evaluated at compile time.
        let rate_per_second = const { NonZeroU32::new(10).unwrap() };
        let burst = const { NonZeroU32::new(100).unwrap() };
        Self {
            classes: Vec::new(),
            rate_per_second,
            burst,
        }
    }
}

pub struct Queue<K: Item> {
    shared: Arc<Shared<K>>,
}

impl<K: Item> Queue<K> {
    /// Starts the timer task, which ends on shutdown or with the last handle and claim. Panics outside a tokio runtime.
    #[must_use]
    pub fn new(settings: QueueSettings, metrics: &WorkqueueMetrics) -> Self {
        let QueueSettings {
            classes,
            rate_per_second,
            burst,
        } = settings;
        let bucket = Bucket::new(rate_per_second, burst);
        let queue_metrics = metrics.of_queue(classes.iter().map(|(class, _)| *class));
        let shared = Arc::new(Shared::new(Ready::new(classes), bucket, queue_metrics));
        let weak = Arc::downgrade(&shared);
        metrics.watch(weak.clone());
        tokio::spawn(timer::run(weak, Arc::clone(&shared.timer)));
        Self { shared }
    }

    /// Ignores adds until [`Self::resume`]: keys of a replica that does not lead would pile up.
    pub fn pause(&self) {
        self.shared.lock().paused = true;
    }

    pub fn resume(&self) {
        self.shared.lock().paused = false;
    }

    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.shared.lock().paused
    }

    /// Adds a key. If it is already queued, the higher priority wins. Ignored after shutdown and while paused.
    pub fn add(&self, key: K, priority: Priority) {
        self.shared.add(key, priority);
    }

    /// Adds a key after `delay` or its earlier time, at the higher priority. Ignored after shutdown.
    pub fn add_after(&self, key: K, delay: Duration, priority: Priority) {
        if delay.is_zero() {
            self.add(key, priority);
        } else {
            self.shared.add_later(Arc::new(key), delay, DelayKind::Time, priority);
        }
    }

    /// Adds a failed key after its backoff and a token of the bucket. Counts one more failure. Returns the backoff.
    pub fn add_rate_limited(&self, key: K, backoff: Backoff, priority: Priority) -> Duration {
        self.add_rate_limited_after(key, backoff, Duration::ZERO, priority)
    }

    /// Same as [`Self::add_rate_limited`] with a lower bound for the delay, such as Retry-After.
    pub fn add_rate_limited_after(&self, key: K, backoff: Backoff, at_least: Duration, priority: Priority) -> Duration {
        let key = Arc::new(key);
        let earned = self.shared.lock().failures.next_delay(&key, backoff);
        let delay = earned.max(at_least);
        self.shared.add_later(key, delay, DelayKind::TimeThenBucket, priority);
        delay
    }

    pub fn forget(&self, key: &K) {
        self.shared.lock().failures.forget(key);
    }

    /// Waits for a key of a class with free workers: highest priority first, then namespaces in turn, then first in.
    /// Returns `None` once the queue is shut down and empty. Cancel safe.
    pub async fn get(&self) -> Option<Claim<K>> {
        loop {
            // Created before the check, so that a shutdown in between is not missed.
            let wakeup = self.shared.available.notified();
            match self.shared.dequeue() {
                DequeueResult::Key(key, priority) => {
                    return Some(Claim {
                        shared: Arc::clone(&self.shared),
                        key,
                        priority,
                    });
                }
                DequeueResult::End => return None,
                DequeueResult::Wait => wakeup.await,
            }
        }
    }

    /// Returns the number of ready keys; delayed and processing keys are not counted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.lock().ready.len()
    }

    /// Returns the number of namespaces of a class that have ready keys but no worker, because all workers are in use.
    #[must_use]
    pub fn starved_namespaces(&self, class: &str) -> usize {
        self.shared.lock().ready.starved_namespaces(class)
    }

    /// Returns true if no key of the class is ready or in processing; delayed keys are not counted.
    #[must_use]
    pub fn is_idle(&self, class: &str) -> bool {
        self.shared.lock().ready.is_idle(class)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Shuts the queue down: later adds and delays are dropped, ready keys are still dequeued.
    pub fn shut_down(&self) {
        self.shared.shut_down();
    }
}

impl<K: Item> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K: Item> Debug for Queue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
