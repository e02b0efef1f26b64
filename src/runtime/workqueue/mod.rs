//! The rate-limited work queue, generic over its key: the semantics of client-go's, with the priorities of controller-runtime's.
//!
//! ```text
//!                                      ┌────────────── lanes, priorities ──────────────┐
//!  add ──────────────────────────────► │ ready: one line for each lane                 │ ──get──► Claim (processing)
//!  add_after ────────► timer ────────► │ the highest priority first, then the first in │             │
//!  add_rate_limited ─► timer ► bucket ►│ a turn in ten for what is passed over         │ ◄──again────┤ added meanwhile
//!                                      └───────────────────────────────────────────────┘             ▼ dropped: done
//! ```
//!
//! A key stands in it once however often it is added, and is never in the hands of two workers at once: one that is added
//! while it is worked on is handed out again afterwards.
//!
//! **What is promised for each add**: the key is handed out after it, and as soon as possible after the time that was asked
//! for. Asks are merged: the earliest time and the highest priority win, and one look at the key answers all of them. So a
//! plain add of a key that waits in a timer makes it ready now *and takes the timer away*, and a delay for a key that is
//! already ready sets none. client-go leaves the timer, which then causes a second look for nothing, or cuts a later back-off
//! short, since the earlier time is kept; controller-runtime takes it away, and so do we. The other side of this: a look may
//! come before the time that was asked for, so whoever looks judges by the clock what is due, and says anew when to come back.
//!
//! `order`, `ready` and `delay` are plain data without waiting or clock; `shared` puts them behind a lock; `timer` is the one
//! task, for all delays.

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

use delay::Hold;
use rate_limit::Bucket;
use ready::Ready;
use shared::{Look, Shared};

/// What a queue holds.
pub trait Item: Clone + Eq + Hash + Debug + Send + Sync + 'static {
    /// What has a cap on workers at once.
    type Lane: Copy + Eq + Hash + Debug + Send + Sync + 'static;

    /// The lane of this key, always the same one.
    fn lane(&self) -> Self::Lane;

    /// Returns the labels `name` and `controller` of a lane's metrics; those of the queue if `None`.
    fn label(_lane: &Self::Lane) -> Option<&'static str> {
        None
    }
}

/// Who goes first: the higher number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Priority(pub i32);

impl Priority {
    /// What a user has just changed.
    pub const USER: Self = Self(0);
    /// After a start: what was changed while nobody was looking, and what nobody has looked at yet.
    pub const MISSED: Self = Self(-50);
    /// The rest of the initial list, resyncs by the clock and garbage collection: a restart with ten thousand repositories must
    /// not delay the one that a user has just changed. The number is controller-runtime's.
    pub const LOW: Self = Self(-100);
}

/// How a queue is set up.
#[derive(Clone, Debug)]
pub struct Settings<L> {
    /// The labels `name` and `controller` of its metrics.
    pub name: String,
    /// For each lane, how many of its keys may be worked on at once; at least one. A lane that is not named has no cap.
    pub lanes: Vec<(L, usize)>,
    /// How many retries a second, over all keys, once the burst is used up.
    pub rate_per_second: NonZeroU32,
    /// How many retries at once after a quiet time.
    pub burst: NonZeroU32,
}

impl<L> Settings<L> {
    /// As client-go has it: ten retries a second, a hundred at once; no lane has a cap.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        // Unwrapped by the compiler.
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

/// A handle of a work queue; clones are handles of the same one.
pub struct Queue<K: Item> {
    shared: Arc<Shared<K>>,
}

impl<K: Item> Queue<K> {
    /// Makes a queue, and starts the task of its delays, which ends when the queue is shut down or its last handle and claim
    /// are gone.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with a clock.
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

    /// Asks for a look at the key now. If it waits to be handed out already, its priority rises if the new one is higher.
    /// Ignored after shut-down.
    pub fn add(&self, key: K, priority: Priority) {
        self.shared.add(key, priority);
    }

    /// Asks for a look at the key after `delay`, or at the earlier time that was already asked for, at the higher priority.
    /// Ignored after shut-down.
    pub fn add_after(&self, key: K, delay: Duration, priority: Priority) {
        if delay.is_zero() {
            self.add(key, priority);
        } else {
            self.shared.add_later(Arc::new(key), delay, Hold::Time, priority);
        }
    }

    /// Asks for another look at a key that failed: after the delay that its failures have earned, and a token of the bucket
    /// after that. Counts one more failure. Gives back the key's own delay.
    pub fn add_rate_limited(&self, key: K, backoff: Backoff, priority: Priority) -> Duration {
        self.add_rate_limited_within(key, backoff, Duration::ZERO..=Duration::MAX, priority)
    }

    /// As [`Self::add_rate_limited`], with bounds for the delay: a server may have said how long to stay away, and the next
    /// turn by the clock may be nearer than the back-off. Where the two contradict each other the upper bound holds.
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
        self.shared.add_later(key, delay, Hold::TimeThenBucket, priority);
        delay
    }

    /// Clears the failures of a key: its next retry starts from the base again.
    pub fn forget(&self, key: &K) {
        self.shared.lock().failures.forget(key);
    }

    /// Waits for a key: the highest priority first, first in first out within one, from lanes that have room. `None` when the
    /// queue is shut down and empty. Dropping the future loses nothing, neither a key nor another worker's wake-up.
    pub async fn get(&self) -> Option<Claim<K>> {
        loop {
            // Made before the look: it hears of an end that comes between the look and the wait.
            let told = self.shared.available.notified();
            match self.shared.look() {
                Look::Key(key, priority) => {
                    return Some(Claim {
                        shared: Arc::clone(&self.shared),
                        key,
                        priority,
                    });
                }
                Look::End => return None,
                Look::Wait => told.await,
            }
        }
    }

    /// How many keys are ready to be handed out; those in a timer or in a worker's hands are not counted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.lock().ready.len()
    }

    /// True if no key is ready to be handed out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the queue: nothing is added any more and delays are dropped, but what is ready is still handed out.
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
