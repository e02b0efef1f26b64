//! The sets of a work queue (queue, dirty, processing) and the limits of its classes, without I/O or clock.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::order::{Order, Ticket};
use super::{ClassLimits, Item, Priority};

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
    classes: BTreeMap<&'static str, ClassQueue<K>>,
}

/// The keys of a class, which waits for none of the others.
struct ClassQueue<K> {
    order: Order<K>,
    limits: Option<ClassLimits>,
    processing: Processing,
}

#[derive(Default)]
struct Processing {
    total: usize,
    by_namespace: HashMap<Box<str>, usize>,
}

struct Dirty {
    priority: Priority,
    since: Instant,
    /// None while the key is being processed; `done` queues it.
    ticket: Option<Ticket>,
}

impl<K: Item> Ready<K> {
    /// Classes without limits are unlimited.
    pub(super) fn new(limits: impl IntoIterator<Item = (&'static str, ClassLimits)>) -> Self {
        let class = |(name, limits)| (name, ClassQueue::new(Some(limits)));
        Self {
            dirty: HashMap::new(),
            processing: HashMap::new(),
            classes: limits.into_iter().map(class).collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.classes.values().map(|class| class.order.len()).sum()
    }

    pub(super) fn starved_namespaces(&self, class: &str) -> usize {
        self.classes.get(class).map_or(0, ClassQueue::starved_namespaces)
    }

    /// Returns true if no key of the class is queued or in processing.
    pub(super) fn is_idle(&self, class: &str) -> bool {
        let is_idle = |class: &ClassQueue<K>| class.order.len() == 0 && class.processing.total == 0;
        self.classes.get(class).is_none_or(is_idle)
    }

    pub(super) fn is_dirty(&self, key: &K) -> bool {
        self.dirty.contains_key(key)
    }

    pub(super) fn in_progress(&self, class: &str, now: Instant) -> InProgress {
        let processing = self.processing.iter().filter(|(key, _)| key.class() == class);
        processing.fold(InProgress::default(), |so_far, (_, since)| {
            let running = now.saturating_duration_since(*since);
            InProgress {
                sum: so_far.sum + running,
                longest: so_far.longest.max(running),
            }
        })
    }

    pub(super) fn add(&mut self, key: Arc<K>, priority: Priority, now: Instant) -> Added {
        let class = self.classes.entry(key.class()).or_insert_with(|| ClassQueue::new(None));
        match self.dirty.entry(key) {
            Entry::Occupied(mut entry) => {
                let namespace = entry.key().namespace().to_owned();
                let dirty = entry.get_mut();
                if dirty.priority >= priority {
                    return Added::Unchanged;
                }
                let from = std::mem::replace(&mut dirty.priority, priority);
                if let Some(ticket) = dirty.ticket {
                    class.order.raise(&namespace, ticket, from, priority);
                }
                Added::Raised { from }
            }
            Entry::Vacant(entry) => {
                let key = Arc::clone(entry.key());
                let is_processed = self.processing.contains_key(&*key);
                let ticket = (!is_processed).then(|| class.push(key, priority));
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
        self.classes.values().any(ClassQueue::can_take)
    }

    pub(super) fn take(&mut self, now: Instant) -> Option<Taken<K>> {
        let (key, priority) = self.classes.values_mut().find_map(ClassQueue::take)?;
        let since = self.dirty.remove(&*key).map_or(now, |dirty| dirty.since);
        self.processing.insert(Arc::clone(&key), now);
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
        if let Some(class) = self.classes.get_mut(key.class()) {
            class.processing.end(key.namespace());
            if let Some(dirty) = self.dirty.get_mut(&**key) {
                dirty.ticket = Some(class.push(Arc::clone(key), dirty.priority));
            }
        }
        now.saturating_duration_since(since)
    }
}

impl<K: Item> ClassQueue<K> {
    fn new(limits: Option<ClassLimits>) -> Self {
        Self {
            order: Order::new(),
            limits,
            processing: Processing::default(),
        }
    }

    fn push(&mut self, key: Arc<K>, priority: Priority) -> Ticket {
        let namespace = Arc::clone(&key);
        self.order.push(namespace.namespace(), key, priority)
    }

    fn starved_namespaces(&self) -> usize {
        let is_starved = |namespace: &&str| self.processing.count(namespace) == 0 && !self.has_room(namespace);
        self.order.namespaces().into_iter().filter(is_starved).count()
    }

    fn can_take(&self) -> bool {
        self.order.can_pop(|namespace| self.has_room(namespace))
    }

    fn has_room(&self, namespace: &str) -> bool {
        self.processing.has_room(self.limits.as_ref(), namespace)
    }

    fn take(&mut self) -> Option<(Arc<K>, Priority)> {
        let has_room = |namespace: &str| self.processing.has_room(self.limits.as_ref(), namespace);
        let (key, priority) = self.order.pop(has_room)?;
        self.processing.begin(key.namespace());
        Some((key, priority))
    }
}

impl Processing {
    fn count(&self, namespace: &str) -> usize {
        self.by_namespace.get(namespace).copied().unwrap_or_default()
    }

    fn has_room(&self, limits: Option<&ClassLimits>, namespace: &str) -> bool {
        limits.is_none_or(|limits| limits.has_room(self.total, self.count(namespace)))
    }

    fn begin(&mut self, namespace: &str) {
        self.total += 1;
        match self.by_namespace.get_mut(namespace) {
            Some(count) => *count += 1,
            None => drop(self.by_namespace.insert(namespace.into(), 1)),
        }
    }

    fn end(&mut self, namespace: &str) {
        self.total = self.total.saturating_sub(1);
        if let Some(count) = self.by_namespace.get_mut(namespace) {
            *count -= 1;
            if *count == 0 {
                self.by_namespace.remove(namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first letter is the class and the second the namespace.
    #[derive(Clone, PartialEq, Eq, Hash, Debug)]
    struct Name(&'static str);

    impl Item for Name {
        fn class(&self) -> &'static str {
            &self.0[..1]
        }
        fn namespace(&self) -> &str {
            self.0.get(1..2).unwrap_or_default()
        }
    }

    struct Bench {
        ready: Ready<Name>,
        now: Instant,
    }

    impl Bench {
        fn new(limits: &[(&'static str, ClassLimits)]) -> Self {
            Self {
                ready: Ready::new(limits.iter().copied()),
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
    fn a_full_class_is_skipped_until_a_key_is_done() {
        let mut bench = Bench::new(&[("a", ClassLimits::workers(1))]);
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
    fn a_namespace_is_limited_and_the_reserve_is_for_namespaces_that_hold_nothing() {
        let limits = ClassLimits {
            workers: 4,
            per_namespace: 2,
            reserve: 1,
        };
        let mut bench = Bench::new(&[("a", limits)]);
        for name in ["a1x", "a1y", "a1z", "a2x", "a2y"] {
            bench.add(name, Priority::USER);
        }
        let mut taken = || {
            std::iter::from_fn(|| bench.take())
                .map(|taken| taken.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(taken(), ["a1x", "a2x", "a1y"], "the fourth worker is reserved");
        bench.add("a3x", Priority::LOW);
        assert_eq!(bench.take().map(|taken| taken.0), Some("a3x"));
        bench.done("a3x");
        assert_eq!(bench.take(), None);
        bench.done("a2x");
        assert_eq!(bench.take().map(|taken| taken.0), Some("a2y"), "it has waited longest");
        bench.done("a1x");
        assert_eq!(bench.take().map(|taken| taken.0), Some("a1z"));
        for name in ["a1y", "a1z", "a2y"] {
            bench.done(name);
        }
        assert!(bench.ready.classes["a"].processing.by_namespace.is_empty());
    }

    #[test]
    fn a_limit_of_zero_counts_as_one() {
        let mut bench = Bench::new(&[("a", ClassLimits::workers(0))]);
        bench.add("a1", Priority::USER);
        assert!(bench.take().is_some());
    }

    #[test]
    fn done_without_processing_changes_nothing() {
        let mut bench = Bench::new(&[("a", ClassLimits::workers(1))]);
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
        let in_progress = |class| bench.ready.in_progress(class, bench.now);
        assert_eq!(in_progress("a").longest, Duration::from_secs(3));
        assert_eq!(in_progress("b").sum, Duration::from_secs(1));
        assert_eq!(bench.done("a"), Duration::from_secs(3));
    }
}
