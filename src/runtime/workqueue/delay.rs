//! Keys that are to be looked at later, without waiting and without a clock.
//!
//! ```text
//!  add_after ─────────────► timer ──────────────────────────────────────► ready
//!  add_rate_limited ──────► timer ──► line ──(a token of the bucket)──────► ready
//! ```
//!
//! A key has at most one timer of either sort; a second call keeps the earlier time. The first of the two that is over makes
//! the key ready and takes the other away: a look at a key answers everything that was asked of it before.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use super::order::{Order, Ticket};
use super::{Item, Priority};

/// What holds a key back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    /// Its time alone.
    Time,
    /// Its time, and a token of the bucket after that.
    TimeThenBucket,
}

/// When a timer is over, and a number that tells apart those of one instant, in the order in which they were set.
type Timer = (Instant, u64);

pub(super) struct Delays<K> {
    waiting: HashMap<Arc<K>, Waiting>,
    timers: BTreeMap<Timer, (Arc<K>, Hold)>,
    next_timer: u64,
    /// Retries whose own delay is over. In order of priority, so that a user's is not behind ten thousand of a bad night.
    line: Order<(), K>,
}

struct Waiting {
    priority: Priority,
    plain: Option<Timer>,
    retry: Option<Retry>,
}

enum Retry {
    Timed(Timer),
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

    /// Holds a key back until `at`, or until the earlier time that it already has. It keeps the higher priority.
    pub(super) fn hold(&mut self, key: Arc<K>, at: Instant, hold: Hold, priority: Priority) {
        let waiting = self.waiting.entry(Arc::clone(&key)).or_insert(Waiting {
            priority,
            plain: None,
            retry: None,
        });
        if waiting.priority < priority {
            if let Some(Retry::InLine(ticket)) = waiting.retry {
                self.line.raise((), ticket, waiting.priority, priority);
            }
            waiting.priority = priority;
        }
        let set = match (hold, &waiting.retry) {
            (Hold::Time, _) => waiting.plain,
            // Its own delay is over: there is nothing earlier to be had.
            (Hold::TimeThenBucket, Some(Retry::InLine(_))) => return,
            (Hold::TimeThenBucket, Some(Retry::Timed(timer))) => Some(*timer),
            (Hold::TimeThenBucket, None) => None,
        };
        if set.is_some_and(|(earlier, _)| earlier <= at) {
            return;
        }
        if let Some(later) = set {
            self.timers.remove(&later);
        }
        let timer = (at, self.next_timer);
        self.next_timer += 1;
        match hold {
            Hold::Time => waiting.plain = Some(timer),
            Hold::TimeThenBucket => waiting.retry = Some(Retry::Timed(timer)),
        }
        self.timers.insert(timer, (key, hold));
    }

    /// Lets go of a key at once. Gives back its priority if it was held.
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
                self.line.remove((), ticket, waiting.priority);
            }
            None => {}
        }
        Some(waiting.priority)
    }

    /// The next key whose time is over and that needs no token. Retries whose time is over go to the line.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Arc<K>, Priority)> {
        while let Some(first) = self.timers.first_entry().filter(|first| first.key().0 <= now) {
            let (key, hold) = first.remove();
            match hold {
                Hold::Time => {
                    if let Some(priority) = self.release(&key) {
                        return Some((key, priority));
                    }
                }
                Hold::TimeThenBucket => {
                    if let Some(waiting) = self.waiting.get_mut(&*key) {
                        waiting.retry = Some(Retry::InLine(self.line.push((), key, waiting.priority)));
                    }
                }
            }
        }
        None
    }

    /// True if a retry waits for nothing but a token.
    pub(super) fn needs_token(&self) -> bool {
        self.line.len() > 0
    }

    /// Spends a token: the next retry in line.
    pub(super) fn pop_line(&mut self) -> Option<(Arc<K>, Priority)> {
        let (key, priority) = self.line.pop(|()| true)?;
        self.release(&key);
        Some((key, priority))
    }

    /// When the next timer is over.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Drops everything that is held.
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
        type Lane = ();
        fn lane(&self) {}
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
        fn hold(&mut self, name: &'static str, second: u64, hold: Hold, priority: Priority) {
            let at = self.at(second);
            self.delays.hold(Arc::new(Name(name)), at, hold, priority);
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
    fn keys_are_due_in_order_of_their_times_and_never_before() {
        let mut bench = Bench::new();
        bench.hold("late", 3, Hold::Time, Priority::USER);
        bench.hold("early", 1, Hold::Time, Priority::LOW);
        bench.hold("early too", 1, Hold::Time, Priority::USER);
        assert_eq!(bench.due(0), Vec::<&str>::new());
        assert_eq!(bench.due(2), ["early", "early too"]);
        assert_eq!(bench.delays.next_at(), Some(bench.at(3)));
        assert_eq!(bench.due(3), ["late"]);
        assert!(bench.is_empty());
    }

    #[test]
    fn a_second_call_keeps_the_earlier_time_and_the_higher_priority() {
        let mut bench = Bench::new();
        bench.hold("a", 2, Hold::Time, Priority::LOW);
        bench.hold("a", 9, Hold::Time, Priority::USER);
        let now = bench.at(2);
        assert_eq!(
            bench.delays.pop_due(now).map(|(_, priority)| priority),
            Some(Priority::USER)
        );
        bench.hold("a", 9, Hold::Time, Priority::LOW);
        bench.hold("a", 5, Hold::Time, Priority::LOW);
        assert_eq!(bench.due(5), ["a"]);
        assert_eq!(bench.due(9), Vec::<&str>::new());
        assert!(bench.is_empty());
    }

    #[test]
    fn a_retry_waits_in_line_once_its_own_delay_is_over() {
        let mut bench = Bench::new();
        bench.hold("low", 1, Hold::TimeThenBucket, Priority::LOW);
        bench.hold("user", 1, Hold::TimeThenBucket, Priority::USER);
        assert!(!bench.delays.needs_token());
        assert_eq!(bench.due(1), Vec::<&str>::new());
        assert!(bench.delays.needs_token());
        assert_eq!(bench.line(), ["user", "low"]);
        assert!(bench.is_empty());
    }

    #[test]
    fn a_key_in_line_is_raised_and_stands_there_once() {
        let mut bench = Bench::new();
        bench.hold("a", 1, Hold::TimeThenBucket, Priority::LOW);
        bench.hold("b", 1, Hold::TimeThenBucket, Priority::LOW);
        bench.due(1);
        bench.hold("b", 8, Hold::TimeThenBucket, Priority::USER);
        assert_eq!(bench.line(), ["b", "a"]);
        assert!(bench.is_empty());
    }

    #[test]
    fn a_plain_delay_is_not_held_up_by_a_retry_of_the_same_key_that_waits_for_a_token() {
        let mut bench = Bench::new();
        bench.hold("a", 1, Hold::TimeThenBucket, Priority::USER);
        bench.due(1);
        bench.hold("a", 2, Hold::Time, Priority::LOW);
        assert_eq!(bench.due(2), ["a"]);
        assert!(bench.is_empty());
    }

    #[test]
    fn a_released_key_leaves_no_timer_and_no_place_in_line_behind() {
        let mut bench = Bench::new();
        bench.hold("a", 1, Hold::TimeThenBucket, Priority::USER);
        bench.hold("a", 2, Hold::Time, Priority::LOW);
        bench.hold("b", 1, Hold::TimeThenBucket, Priority::LOW);
        assert_eq!(bench.delays.release(&Name("a")), Some(Priority::USER));
        bench.due(1);
        assert_eq!(bench.delays.release(&Name("b")), Some(Priority::LOW));
        assert_eq!(bench.delays.release(&Name("b")), None);
        assert!(bench.is_empty());
    }
}
