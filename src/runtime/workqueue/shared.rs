//! The state that all handles of a queue share, behind one lock, and who is told when it changes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::delay::{Delays, Hold};
use super::metrics::{Label, QueueMetrics, Working};
use super::rate_limit::{Bucket, Failures};
use super::ready::{Added, InProgress, Ready};
use super::{Item, Priority};

/// A delay beyond what the clock can hold is as good as never; tokio's own timers have the same bound.
const LONGEST_DELAY: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

pub(super) struct Shared<K: Item> {
    state: Mutex<State<K>>,
    bucket: Bucket,
    /// Tells workers of keys, one worker for a key, and all of them of the end.
    ///
    /// No wake-up is lost: whoever takes a key and sees that another could be taken too passes the word on, so that it doesn't
    /// matter that a `Notify` remembers only one. And one that was given to a `get` that is dropped goes to another waiter.
    pub(super) available: Notify,
    /// Tells the timer task of a time earlier than the one it sleeps for, and of the end.
    pub(super) timer: Arc<Notify>,
}

pub(super) struct State<K: Item> {
    pub(super) ready: Ready<K>,
    delays: Delays<K>,
    pub(super) failures: Failures<K>,
    metrics: QueueMetrics,
    pub(super) shutting_down: bool,
}

/// What a worker finds when it looks for work.
pub(super) enum Look<K> {
    Key(Arc<K>, Priority),
    /// Nothing now, or nothing in a lane that has room.
    Wait,
    /// The queue is shut down and empty.
    End,
}

/// What the timer task has to do next.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Next {
    SleepUntil(Instant),
    SleepUntilTold,
    End,
}

impl<K: Item> Shared<K> {
    pub(super) fn new(ready: Ready<K>, bucket: Bucket, metrics: QueueMetrics) -> Self {
        let state = State {
            ready,
            delays: Delays::new(),
            failures: Failures::new(),
            metrics,
            shutting_down: false,
        };
        Self {
            state: Mutex::new(state),
            bucket,
            available: Notify::new(),
            timer: Arc::default(),
        }
    }

    /// Nothing that runs under the lock leaves it half changed, so a poisoned one is as good as any.
    pub(super) fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock()
    }

    pub(super) fn add(&self, key: K, priority: Priority) {
        let mut state = self.lock();
        if state.shutting_down {
            return;
        }
        let held = state.delays.release(&key);
        state.make_ready(
            Arc::new(key),
            held.map_or(priority, |held| held.max(priority)),
            Instant::now(),
        );
        self.tell(&state);
    }

    pub(super) fn add_later(&self, key: Arc<K>, delay: Duration, hold: Hold, priority: Priority) {
        let mut state = self.lock();
        if state.shutting_down {
            return;
        }
        if delay > Duration::ZERO {
            state.metrics.of(&*key).delayed();
        }
        let now = Instant::now();
        if state.ready.is_dirty(&key) {
            // It is about to be looked at, which is earlier than any delay.
            state.make_ready(key, priority, now);
            return;
        }
        let before = state.delays.next_at();
        state.delays.hold(key, now + delay.min(LONGEST_DELAY), hold, priority);
        if state.delays.next_at() != before {
            self.timer.notify_one();
        }
    }

    pub(super) fn look(&self) -> Look<K> {
        let mut state = self.lock();
        let Some(taken) = state.ready.take(Instant::now()) else {
            let ended = state.shutting_down && state.ready.len() == 0;
            return if ended { Look::End } else { Look::Wait };
        };
        state.metrics.of(&*taken.key).taken(taken.priority, taken.waited);
        self.tell(&state);
        Look::Key(taken.key, taken.priority)
    }

    pub(super) fn done(&self, key: &Arc<K>) {
        let mut state = self.lock();
        let worked = state.ready.done(key, Instant::now());
        state.metrics.of(&**key).done(worked);
        self.tell(&state);
    }

    pub(super) fn shut_down(&self) {
        let mut state = self.lock();
        state.shutting_down = true;
        state.delays.clear();
        self.tell(&state);
        self.timer.notify_one();
    }

    /// Makes ready what is due, and says when to come again.
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
        self.tell(&state);
        // A key let in by a token may have taken the timer with it that came next: then the task wakes once for nothing.
        next.map_or(Next::SleepUntilTold, Next::SleepUntil)
    }

    /// Wakes a worker if there is something for it, and all of them at the end.
    fn tell(&self, state: &State<K>) {
        if state.ready.can_take() {
            self.available.notify_one();
        } else if state.shutting_down && state.ready.len() == 0 {
            self.available.notify_waiters();
        }
    }
}

impl<K: Item> State<K> {
    fn make_ready(&mut self, key: Arc<K>, priority: Priority, now: Instant) {
        let metrics = self.metrics.of(&*key);
        match self.ready.add(key, priority, now) {
            Added::New => metrics.added(priority),
            Added::Raised { from } => metrics.raised(from, priority),
            Added::Known => {}
        }
    }
}

impl<K: Item> Working for Shared<K> {
    fn in_progress(&self) -> Vec<(Label, InProgress)> {
        let (state, now) = (self.lock(), Instant::now());
        let labels = state.metrics.labels();
        labels
            .map(|label| (label, state.ready.in_progress(label, now)))
            .collect()
    }
}

impl<K: Item> Drop for Shared<K> {
    /// The last handle is gone: the timer task finds that out when it is told.
    fn drop(&mut self) {
        self.timer.notify_one();
    }
}
