//! A rate-limited work queue with the semantics of client-go and the priorities of controller-runtime.
//!
//! ```text
//!                                      ┌────────────────────────────────────────┐
//!  add ──────────────────────────────► │ ready: one line per lane               │ ──get──► Claim (processing)
//!  add_after ────────► timer ────────► │ highest priority first, then first in; │             │
//!  add_rate_limited ─► timer ► bucket ►│ every tenth turn to a lower priority   │ ◄───────────┤ added meanwhile
//!                                      └────────────────────────────────────────┘             ▼ dropped: done
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
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

pub use claim::Claim;
pub use metrics::Metrics;
pub use rate_limit::Backoff;

use delay::DelayKind;
use rate_limit::Bucket;
use ready::Ready;
use shared::{DequeueResult, Shared};

pub trait Item: Clone + Eq + Hash + Debug + Send + Sync + 'static {
    /// Limits the number of concurrent workers.
    type Lane: Copy + Eq + Hash + Debug + Send + Sync + 'static;

    fn lane(&self) -> Self::Lane;

    /// Returns the labels `name` and `controller` of a lane's metrics; those of the queue if `None`.
    fn label(_lane: &Self::Lane) -> Option<&'static str> {
        None
    }
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
}

#[derive(Clone, Debug)]
pub struct Settings<L> {
    pub name: String,
    /// Maximum number of workers by lane, at least one. Other lanes are not limited.
    pub lanes: Vec<(L, usize)>,
    pub rate_per_second: NonZeroU32,
    pub burst: NonZeroU32,
}

impl<L> Settings<L> {
    /// Returns the defaults of client-go: ten retries per second, a burst of 100, no lane limits.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        // Evaluated at compile time.
        let rate_per_second = const { NonZeroU32::new(10).unwrap() };
        let burst = const { NonZeroU32::new(100).unwrap() };
        Self {
            name: name.into(),
            lanes: Vec::new(),
            rate_per_second,
            burst,
        }
    }
}

pub struct Queue<K: Item> {
    shared: Arc<Shared<K>>,
}

impl<K: Item> Queue<K> {
    /// Creates a queue and starts its timer task, which ends on shutdown or with the last handle and claim.
    ///
    /// # Panics
    /// Outside a tokio runtime with a clock.
    #[must_use]
    pub fn new(settings: Settings<K::Lane>, metrics: &Metrics) -> Self {
        let Settings {
            name,
            lanes,
            rate_per_second,
            burst,
        } = settings;
        let bucket = Bucket::new(rate_per_second, burst);
        let labels = lanes.iter().map(|(lane, _)| K::label(lane));
        let queue_metrics = metrics.of_queue(&name, labels);
        let shared = Arc::new(Shared::new(Ready::new(lanes), bucket, queue_metrics));
        let weak = Arc::downgrade(&shared);
        metrics.watch(&name, weak.clone());
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
        self.add_rate_limited_within(key, backoff, Duration::ZERO..=Duration::MAX, priority)
    }

    /// Same as [`Self::add_rate_limited`] with bounds for the delay, such as Retry-After and the next scheduled run.
    /// The upper bound wins.
    pub fn add_rate_limited_within(
        &self,
        key: K,
        backoff: Backoff,
        bounds: RangeInclusive<Duration>,
        priority: Priority,
    ) -> Duration {
        let key = Arc::new(key);
        let earned = self.shared.lock().failures.next_delay(&key, backoff);
        let delay = earned.max(*bounds.start()).min(*bounds.end());
        self.shared.add_later(key, delay, DelayKind::TimeThenBucket, priority);
        delay
    }

    pub fn forget(&self, key: &K) {
        self.shared.lock().failures.forget(key);
    }

    /// Waits for a key: highest priority first, then first in, from lanes with capacity. Returns `None` once the queue
    /// is shut down and empty. Cancel safe.
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

    /// Returns the number of ready keys; delayed and processing ones are not counted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.lock().ready.len()
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
