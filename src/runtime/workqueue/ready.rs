//! The sets of a work queue (queue, dirty, processing) and its lane limits, without I/O or clock.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::order::{Order, Ticket};
use super::{Item, Priority};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Added {
    New,
    Raised { from: Priority },
    Unchanged,
}

#[derive(Debug)]
pub(super) struct Taken<K> {
    pub(super) key: Arc<K>,
    pub(super) priority: Priority,
    pub(super) waited: Duration,
}

#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(super) struct InProgress {
    pub(super) sum: Duration,
    pub(super) longest: Duration,
}

pub(super) struct Ready<K: Item> {
    /// Keys that need processing, queued or waiting for their own `done`.
    dirty: HashMap<Arc<K>, Dirty>,
    processing: HashMap<Arc<K>, Instant>,
    queue: Order<K::Lane, K>,
    caps: HashMap<K::Lane, usize>,
    busy: HashMap<K::Lane, usize>,
}

struct Dirty {
    priority: Priority,
    since: Instant,
    /// None while the key is being processed; `done` queues it.
    ticket: Option<Ticket>,
}

impl<K: Item> Ready<K> {
    /// Lanes without a limit are unlimited. A limit of zero would block its keys forever and counts as one.
    pub(super) fn new(caps: impl IntoIterator<Item = (K::Lane, usize)>) -> Self {
        Self {
            dirty: HashMap::new(),
            processing: HashMap::new(),
            queue: Order::new(),
            caps: caps.into_iter().map(|(lane, cap)| (lane, cap.max(1))).collect(),
            busy: HashMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_dirty(&self, key: &K) -> bool {
        self.dirty.contains_key(key)
    }

    pub(super) fn in_progress(&self, now: Instant) -> InProgress {
        self.processing.values().fold(InProgress::default(), |so_far, since| {
            let running = now.saturating_duration_since(*since);
            InProgress {
                sum: so_far.sum + running,
                longest: so_far.longest.max(running),
            }
        })
    }

    pub(super) fn add(&mut self, key: Arc<K>, priority: Priority, now: Instant) -> Added {
        let lane = key.lane();
        match self.dirty.entry(key) {
            Entry::Occupied(mut entry) => {
                let dirty = entry.get_mut();
                if dirty.priority >= priority {
                    return Added::Unchanged;
                }
                let from = std::mem::replace(&mut dirty.priority, priority);
                if let Some(ticket) = dirty.ticket {
                    self.queue.raise(lane, ticket, from, priority);
                }
                Added::Raised { from }
            }
            Entry::Vacant(entry) => {
                let key = Arc::clone(entry.key());
                let ticket = (!self.processing.contains_key(&*key)).then(|| self.queue.push(lane, key, priority));
                entry.insert(Dirty {
                    priority,
                    since: now,
                    ticket,
                });
                Added::New
            }
        }
    }

    pub(super) fn can_take(&self) -> bool {
        self.queue.has_open(|lane| self.has_room(lane))
    }

    pub(super) fn take(&mut self, now: Instant) -> Option<Taken<K>> {
        let Self { queue, caps, busy, .. } = self;
        let (key, priority) = queue.pop(|lane| has_room(caps, busy, lane))?;
        let since = self.dirty.remove(&*key).map_or(now, |dirty| dirty.since);
        self.processing.insert(Arc::clone(&key), now);
        *self.busy.entry(key.lane()).or_default() += 1;
        Some(Taken {
            key,
            priority,
            waited: now.saturating_duration_since(since),
        })
    }

    /// Ends the processing of a key, and queues it if it is dirty. Returns the processing time.
    pub(super) fn done(&mut self, key: &Arc<K>, now: Instant) -> Duration {
        let Some(since) = self.processing.remove(&**key) else {
            return Duration::ZERO;
        };
        let lane = key.lane();
        if let Entry::Occupied(mut busy) = self.busy.entry(lane) {
            *busy.get_mut() -= 1;
            if *busy.get() == 0 {
                busy.remove();
            }
        }
        if let Some(dirty) = self.dirty.get_mut(&**key) {
            dirty.ticket = Some(self.queue.push(lane, Arc::clone(key), dirty.priority));
        }
        now.saturating_duration_since(since)
    }

    fn has_room(&self, lane: &K::Lane) -> bool {
        has_room(&self.caps, &self.busy, lane)
    }
}

fn has_room<L: Eq + std::hash::Hash>(caps: &HashMap<L, usize>, busy: &HashMap<L, usize>, lane: &L) -> bool {
    caps.get(lane)
        .is_none_or(|cap| busy.get(lane).is_none_or(|busy| busy < cap))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lane is the first letter.
    #[derive(Clone, PartialEq, Eq, Hash, Debug)]
    struct Name(&'static str);

    impl Item for Name {
        type Lane = char;
        fn lane(&self) -> char {
            self.0.chars().next().unwrap_or_default()
        }
    }

    struct Bench {
        ready: Ready<Name>,
        now: Instant,
    }

    impl Bench {
        fn new(caps: &[(char, usize)]) -> Self {
            Self {
                ready: Ready::new(caps.iter().copied()),
                now: Instant::now(),
            }
        }
        fn add(&mut self, name: &'static str, priority: Priority) -> Added {
            self.ready.add(Arc::new(Name(name)), priority, self.now)
        }
        fn take(&mut self) -> Option<(&'static str, Priority)> {
            self.ready.take(self.now).map(|taken| (taken.key.0, taken.priority))
        }
        fn done(&mut self, name: &'static str) -> Duration {
            self.ready.done(&Arc::new(Name(name)), self.now)
        }
    }

    #[test]
    fn a_key_added_twice_is_dequeued_once() {
        let mut bench = Bench::new(&[]);
        assert_eq!(bench.add("a", Priority::USER), Added::New);
        assert_eq!(bench.add("a", Priority::USER), Added::Unchanged);
        assert_eq!(bench.take(), Some(("a", Priority::USER)));
        assert_eq!(bench.take(), None);
    }

    #[test]
    fn a_key_added_during_processing_is_dequeued_again_afterwards() {
        let mut bench = Bench::new(&[]);
        bench.add("a", Priority::USER);
        bench.take();
        assert_eq!(bench.add("a", Priority::LOW), Added::New);
        assert_eq!(bench.add("a", Priority::USER), Added::Raised { from: Priority::LOW });
        assert_eq!((bench.ready.len(), bench.take()), (0, None));
        bench.done("a");
        assert_eq!(bench.take(), Some(("a", Priority::USER)));
        bench.done("a");
        assert_eq!(bench.take(), None);
        assert!(bench.ready.processing.is_empty());
    }

    #[test]
    fn a_queued_key_takes_the_higher_priority_of_repeated_adds() {
        let mut bench = Bench::new(&[]);
        bench.add("a1", Priority::LOW);
        bench.add("a2", Priority::LOW);
        assert_eq!(bench.add("a2", Priority::USER), Added::Raised { from: Priority::LOW });
        assert_eq!(bench.add("a2", Priority::LOW), Added::Unchanged);
        assert_eq!(bench.take(), Some(("a2", Priority::USER)));
        assert_eq!(bench.take(), Some(("a1", Priority::LOW)));
    }

    #[test]
    fn a_full_lane_is_skipped_until_a_key_is_done() {
        let mut bench = Bench::new(&[('a', 1)]);
        for name in ["a1", "a2", "b1", "b2"] {
            bench.add(name, Priority::USER);
        }
        assert_eq!(bench.take().map(|taken| taken.0), Some("a1"));
        assert_eq!(bench.take().map(|taken| taken.0), Some("b1"));
        assert_eq!(bench.take().map(|taken| taken.0), Some("b2"));
        assert!(!bench.ready.can_take());
        bench.done("a1");
        assert!(bench.ready.can_take());
        assert_eq!(bench.take().map(|taken| taken.0), Some("a2"));
    }

    #[test]
    fn a_limit_of_zero_counts_as_one() {
        let mut bench = Bench::new(&[('a', 0)]);
        bench.add("a1", Priority::USER);
        assert!(bench.take().is_some());
    }

    #[test]
    fn done_without_processing_changes_nothing() {
        let mut bench = Bench::new(&[('a', 1)]);
        bench.add("a1", Priority::USER);
        assert_eq!(bench.done("a1"), Duration::ZERO);
        assert!(bench.take().is_some());
    }

    #[test]
    fn wait_and_processing_times_are_measured_and_work_in_progress_is_summed() {
        let mut bench = Bench::new(&[]);
        bench.add("a", Priority::USER);
        bench.now += Duration::from_secs(3);
        assert_eq!(
            bench.ready.take(bench.now).map(|taken| taken.waited),
            Some(Duration::from_secs(3))
        );
        bench.add("b", Priority::USER);
        bench.now += Duration::from_secs(2);
        bench.take();
        bench.now += Duration::from_secs(1);
        let in_progress = bench.ready.in_progress(bench.now);
        assert_eq!(
            in_progress,
            InProgress {
                sum: Duration::from_secs(4),
                longest: Duration::from_secs(3)
            }
        );
        assert_eq!(bench.done("a"), Duration::from_secs(3));
    }
}
