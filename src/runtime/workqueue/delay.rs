//! Delayed keys, without I/O or clock.
//!
//! ```text
//!  add_after ─────────────► timer ──────────────────────────────► ready
//!  add_rate_limited ──────► timer ──► line ──(token of the bucket)──► ready
//! ```
//!
//! A key has at most one timer of each kind; a second call keeps the earlier time. The first timer to expire makes the
//! key ready and cancels the other, since one reconcile serves all requests.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use super::order::{Order, Ticket};
use super::{Item, Priority};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DelayKind {
    Time,
    TimeThenBucket,
}

type TimerKey = (Instant, u64);

pub(super) struct Delays<K> {
    waiting: HashMap<Arc<K>, Waiting>,
    timers: BTreeMap<TimerKey, (Arc<K>, DelayKind)>,
    next_timer: u64,
    /// Retries waiting for a token: a user's retry must not wait behind thousands of others.
    line: Order<K>,
}

struct Waiting {
    priority: Priority,
    plain: Option<TimerKey>,
    retry: Option<Retry>,
}

enum Retry {
    Timed(TimerKey),
    InLine(Ticket),
}

impl<K: Item> Delays<K> {
    pub(super) fn new() -> Self {
        Self {
            waiting: HashMap::new(),
            timers: BTreeMap::new(),
            next_timer: 0,
            line: Order::new(),
        }
    }

    /// Delays a key until `at` or its earlier time, at the higher priority.
    pub(super) fn schedule(&mut self, key: Arc<K>, at: Instant, kind: DelayKind, priority: Priority) {
        let waiting = self.waiting.entry(Arc::clone(&key)).or_insert(Waiting {
            priority,
            plain: None,
            retry: None,
        });
        if waiting.priority < priority {
            if let Some(Retry::InLine(ticket)) = waiting.retry {
                self.line.raise(key.namespace(), ticket, waiting.priority, priority);
            }
            waiting.priority = priority;
        }
        let set = match (kind, &waiting.retry) {
            (DelayKind::Time, _) => waiting.plain,
            // It already waits for a token only.
            (DelayKind::TimeThenBucket, Some(Retry::InLine(_))) => return,
            (DelayKind::TimeThenBucket, Some(Retry::Timed(timer))) => Some(*timer),
            (DelayKind::TimeThenBucket, None) => None,
        };
        if set.is_some_and(|(earlier, _)| earlier <= at) {
            return;
        }
        if let Some(later) = set {
            self.timers.remove(&later);
        }
        let timer = (at, self.next_timer);
        self.next_timer += 1;
        match kind {
            DelayKind::Time => waiting.plain = Some(timer),
            DelayKind::TimeThenBucket => waiting.retry = Some(Retry::Timed(timer)),
        }
        self.timers.insert(timer, (key, kind));
    }

    pub(super) fn release(&mut self, key: &K) -> Option<Priority> {
        let waiting = self.waiting.remove(key)?;
        if let Some(timer) = waiting.plain {
            self.timers.remove(&timer);
        }
        match waiting.retry {
            Some(Retry::Timed(timer)) => {
                self.timers.remove(&timer);
            }
            Some(Retry::InLine(ticket)) => {
                self.line.remove(key.namespace(), ticket, waiting.priority);
            }
            None => {}
        }
        Some(waiting.priority)
    }

    /// Returns the next expired key that needs no token. Moves expired retries to the line.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Arc<K>, Priority)> {
        while let Some(first) = self.timers.first_entry().filter(|first| first.key().0 <= now) {
            let (key, kind) = first.remove();
            match kind {
                DelayKind::Time => {
                    if let Some(priority) = self.release(&key) {
                        return Some((key, priority));
                    }
                }
                DelayKind::TimeThenBucket => {
                    if let Some(waiting) = self.waiting.get_mut(&*key) {
                        let ticket = self.line.push(key.namespace(), Arc::clone(&key), waiting.priority);
                        waiting.retry = Some(Retry::InLine(ticket));
                    }
                }
            }
        }
        None
    }

    pub(super) fn needs_token(&self) -> bool {
        self.line.len() > 0
    }

    /// Returns the next retry in line; call after taking a token.
    pub(super) fn pop_line(&mut self) -> Option<(Arc<K>, Priority)> {
        let (key, priority) = self.line.pop(|_| true)?;
        self.release(&key);
        Some((key, priority))
    }

    pub(super) fn next_at(&self) -> Option<Instant> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[derive(Clone, PartialEq, Eq, Hash, Debug)]
    struct Name(&'static str);

    impl Item for Name {
        fn class(&self) -> &'static str {
            "all"
        }
        fn namespace(&self) -> &'static str {
            ""
        }
    }

    struct Bench {
        delays: Delays<Name>,
        start: Instant,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                delays: Delays::new(),
                start: Instant::now(),
            }
        }
        fn at(&self, second: u64) -> Instant {
            self.start + Duration::from_secs(second)
        }
        fn schedule(&mut self, name: &'static str, second: u64, kind: DelayKind, priority: Priority) {
            let at = self.at(second);
            self.delays.schedule(Arc::new(Name(name)), at, kind, priority);
        }
        fn due(&mut self, second: u64) -> Vec<&'static str> {
            let now = self.at(second);
            std::iter::from_fn(|| self.delays.pop_due(now))
                .map(|(key, _)| key.0)
                .collect()
        }
        fn line(&mut self) -> Vec<&'static str> {
            std::iter::from_fn(|| self.delays.pop_line())
                .map(|(key, _)| key.0)
                .collect()
        }
        fn is_empty(&self) -> bool {
            self.delays.waiting.is_empty() && self.delays.timers.is_empty() && self.delays.line.len() == 0
        }
    }

    #[test]
    fn keys_expire_in_order_of_their_times() {
        let mut bench = Bench::new();
        bench.schedule("late", 3, DelayKind::Time, Priority::USER);
        bench.schedule("early", 1, DelayKind::Time, Priority::LOW);
        bench.schedule("early too", 1, DelayKind::Time, Priority::USER);
        assert_eq!(bench.due(0), Vec::<&str>::new());
        assert_eq!(bench.due(2), ["early", "early too"]);
        assert_eq!(bench.delays.next_at(), Some(bench.at(3)));
        assert_eq!(bench.due(3), ["late"]);
        assert!(bench.is_empty());
    }

    #[test]
    fn a_second_call_keeps_the_earlier_time_and_the_higher_priority() {
        let mut bench = Bench::new();
        bench.schedule("a", 2, DelayKind::Time, Priority::LOW);
        bench.schedule("a", 9, DelayKind::Time, Priority::USER);
        let now = bench.at(2);
        assert_eq!(
            bench.delays.pop_due(now).map(|(_, priority)| priority),
            Some(Priority::USER)
        );
        bench.schedule("a", 9, DelayKind::Time, Priority::LOW);
        bench.schedule("a", 5, DelayKind::Time, Priority::LOW);
        assert_eq!(bench.due(5), ["a"]);
        assert_eq!(bench.due(9), Vec::<&str>::new());
        assert!(bench.is_empty());
    }

    #[test]
    fn a_retry_waits_in_line_after_its_backoff() {
        let mut bench = Bench::new();
        bench.schedule("low", 1, DelayKind::TimeThenBucket, Priority::LOW);
        bench.schedule("user", 1, DelayKind::TimeThenBucket, Priority::USER);
        assert!(!bench.delays.needs_token());
        assert_eq!(bench.due(1), Vec::<&str>::new());
        assert!(bench.delays.needs_token());
        assert_eq!(bench.line(), ["user", "low"]);
        assert!(bench.is_empty());
    }

    #[test]
    fn a_key_in_line_is_raised_and_not_duplicated() {
        let mut bench = Bench::new();
        bench.schedule("a", 1, DelayKind::TimeThenBucket, Priority::LOW);
        bench.schedule("b", 1, DelayKind::TimeThenBucket, Priority::LOW);
        bench.due(1);
        bench.schedule("b", 8, DelayKind::TimeThenBucket, Priority::USER);
        assert_eq!(bench.line(), ["b", "a"]);
        assert!(bench.is_empty());
    }

    #[test]
    fn a_plain_delay_expires_while_a_retry_of_the_key_waits_for_a_token() {
        let mut bench = Bench::new();
        bench.schedule("a", 1, DelayKind::TimeThenBucket, Priority::USER);
        bench.due(1);
        bench.schedule("a", 2, DelayKind::Time, Priority::LOW);
        assert_eq!(bench.due(2), ["a"]);
        assert!(bench.is_empty());
    }

    #[test]
    fn a_released_key_leaves_no_timer_and_no_retry() {
        let mut bench = Bench::new();
        bench.schedule("a", 1, DelayKind::TimeThenBucket, Priority::USER);
        bench.schedule("a", 2, DelayKind::Time, Priority::LOW);
        bench.schedule("b", 1, DelayKind::TimeThenBucket, Priority::LOW);
        assert_eq!(bench.delays.release(&Name("a")), Some(Priority::USER));
        bench.due(1);
        assert_eq!(bench.delays.release(&Name("b")), Some(Priority::LOW));
        assert_eq!(bench.delays.release(&Name("b")), None);
        assert!(bench.is_empty());
    }
}
