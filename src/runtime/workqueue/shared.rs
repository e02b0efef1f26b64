use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::delay::{DelayKind, Delays};
use super::metrics::{QueueMetrics, Working};
use super::rate_limit::{Bucket, Failures};
use super::ready::{Added, InProgress, Ready};
use super::{Item, Priority};

/// Longer delays never expire in practice; tokio's timers have the same bound.
const LONGEST_DELAY: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

pub(super) struct Shared<K: Item> {
    state: Mutex<State<K>>,
    bucket: Bucket,
    /// Wakes one worker per key, and all of them on shutdown. No wakeup is lost: a worker that takes a key while
    /// another is available wakes the next, although `Notify` stores one permit. A dropped `get` passes its permit on.
    pub(super) available: Notify,
    /// Wakes the timer task for an earlier time or the shutdown.
    pub(super) timer: Arc<Notify>,
}

pub(super) struct State<K: Item> {
    pub(super) ready: Ready<K>,
    delays: Delays<K>,
    pub(super) failures: Failures<K>,
    metrics: QueueMetrics,
    pub(super) paused: bool,
    pub(super) shutting_down: bool,
}

pub(super) enum DequeueResult<K> {
    Key(Arc<K>, Priority),
    Wait,
    End,
}

#[derive(PartialEq, Eq, Debug)]
pub(super) enum Next {
    SleepUntil(Instant),
    WaitForWakeup,
    End,
}

impl<K: Item> Shared<K> {
    pub(super) fn new(ready: Ready<K>, bucket: Bucket, metrics: QueueMetrics) -> Self {
        let state = State {
            ready,
            delays: Delays::new(),
            failures: Failures::new(),
            metrics,
            paused: false,
            shutting_down: false,
        };
        Self {
            state: Mutex::new(state),
            bucket,
            available: Notify::new(),
            timer: Arc::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock()
    }

    pub(super) fn add(&self, key: K, priority: Priority) {
        let mut state = self.lock();
        if state.shutting_down || state.paused {
            return;
        }
        let delayed = state.delays.release(&key);
        state.make_ready(
            Arc::new(key),
            delayed.map_or(priority, |delayed| delayed.max(priority)),
            Instant::now(),
        );
        self.wake(&state);
    }

    pub(super) fn add_later(&self, key: Arc<K>, delay: Duration, kind: DelayKind, priority: Priority) {
        let mut state = self.lock();
        if state.shutting_down || state.paused {
            return;
        }
        if delay > Duration::ZERO {
            state.metrics.class_of(&*key).record_delay();
        }
        let now = Instant::now();
        if state.ready.is_dirty(&key) {
            // The key is about to be processed, earlier than any delay.
            state.make_ready(key, priority, now);
            return;
        }
        let before = state.delays.next_at();
        state
            .delays
            .schedule(key, now + delay.min(LONGEST_DELAY), kind, priority);
        if state.delays.next_at() != before {
            self.timer.notify_one();
        }
    }

    pub(super) fn dequeue(&self) -> DequeueResult<K> {
        let mut state = self.lock();
        let Some(taken) = state.ready.take(Instant::now()) else {
            let ended = state.shutting_down && state.ready.len() == 0;
            return if ended { DequeueResult::End } else { DequeueResult::Wait };
        };
        let metrics = state.metrics.class_of(&*taken.key);
        metrics.record_take(taken.priority, taken.waited);
        self.wake(&state);
        DequeueResult::Key(taken.key, taken.priority)
    }

    pub(super) fn done(&self, key: &Arc<K>) {
        let mut state = self.lock();
        let worked = state.ready.done(key, Instant::now());
        state.metrics.class_of(&**key).record_done(worked);
        self.wake(&state);
    }

    pub(super) fn shut_down(&self) {
        let mut state = self.lock();
        state.shutting_down = true;
        state.delays.clear();
        self.wake(&state);
        self.timer.notify_one();
    }

    /// Makes expired keys ready; returns the next step.
    pub(super) fn fire(&self) -> Next {
        let mut state = self.lock();
        if state.shutting_down {
            return Next::End;
        }
        let now = Instant::now();
        while let Some((key, priority)) = state.delays.pop_due(now) {
            state.make_ready(key, priority, now);
        }
        let mut next = state.delays.next_at();
        while state.delays.needs_token() {
            if let Err(refilled) = self.bucket.take() {
                next = Some(next.map_or(refilled, |next| next.min(refilled)));
                break;
            }
            if let Some((key, priority)) = state.delays.pop_line() {
                state.make_ready(key, priority, now);
            }
        }
        self.wake(&state);
        // A key that got a token may have canceled its timer; the task then wakes up once for nothing.
        next.map_or(Next::WaitForWakeup, Next::SleepUntil)
    }

    fn wake(&self, state: &State<K>) {
        if state.ready.can_take() {
            self.available.notify_one();
        } else if state.shutting_down && state.ready.len() == 0 {
            self.available.notify_waiters();
        }
    }
}

impl<K: Item> State<K> {
    fn make_ready(&mut self, key: Arc<K>, priority: Priority, now: Instant) {
        let metrics = self.metrics.class_of(&*key);
        match self.ready.add(key, priority, now) {
            Added::New => metrics.record_add(priority),
            Added::Raised { from } => metrics.record_raise(from, priority),
            Added::Unchanged => {}
        }
    }
}

impl<K: Item> Working for Shared<K> {
    fn in_progress(&self) -> Vec<(&'static str, InProgress)> {
        let (state, now) = (self.lock(), Instant::now());
        let classes = state.metrics.classes();
        classes
            .map(|class| (class, state.ready.in_progress(class, now)))
            .collect()
    }
}

impl<K: Item> Drop for Shared<K> {
    /// Wakes the timer task, which ends when the last handle is dropped.
    fn drop(&mut self) {
        self.timer.notify_one();
    }
}
