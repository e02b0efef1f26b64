//! Random operations checked against a simple model.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

const KEYS: usize = 12;
const CAPS: [(&str, usize); 2] = [("a", 2), ("b", 1)];
const PRIORITIES: [Priority; 4] = [Priority::USER, Priority::LOW, Priority(-50), Priority(10)];
/// Longer than any delay in a test, including backoff and bucket.
const LONG: Duration = Duration::from_secs(1000);

#[derive(Clone, Debug)]
enum Step {
    Add {
        key: usize,
        priority: Priority,
    },
    AddAfter {
        key: usize,
        milliseconds: u64,
        priority: Priority,
    },
    Retry {
        key: usize,
        priority: Priority,
    },
    Forget {
        key: usize,
    },
    Get,
    Done {
        which: usize,
    },
    Pass {
        milliseconds: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..KEYS;
    let priority = prop::sample::select(&PRIORITIES[..]);
    prop_oneof![
        6 => (key.clone(), priority.clone()).prop_map(|(key, priority)| Step::Add { key, priority }),
        3 => (key.clone(), 0..40_u64, priority.clone())
            .prop_map(|(key, milliseconds, priority)| Step::AddAfter { key, milliseconds, priority }),
        2 => (key.clone(), priority).prop_map(|(key, priority)| Step::Retry { key, priority }),
        1 => key.prop_map(|key| Step::Forget { key }),
        8 => Just(Step::Get),
        6 => any::<usize>().prop_map(|which| Step::Done { which }),
        3 => (0..30_u64).prop_map(|milliseconds| Step::Pass { milliseconds }),
    ]
}

/// Requests for a key since it was last dequeued.
#[derive(Clone, Debug)]
struct Request {
    priority: Priority,
    /// Earliest time to dequeue.
    at: Instant,
    /// Latest time to become ready; none for retries, which also wait for a token.
    by: Option<Instant>,
    /// The step at which it was first seen ready and not processing.
    ready_since: Option<usize>,
}

struct Model {
    queue: Queue<Name>,
    requested: HashMap<String, Request>,
    claims: Vec<Claim<Name>>,
    step: usize,
    /// Dequeues of a class since a waiting lower priority last had its turn.
    skipped: HashMap<(&'static str, Priority), usize>,
    /// The bucket is never empty, so retries are on time and readiness is predictable.
    is_bucket_full: bool,
}

const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(3),
    cap: Duration::from_millis(50),
};

fn key(number: usize) -> Name {
    Name(format!("{}{number}", ["a", "b", "c"][number % 3]))
}

impl Model {
    fn new(burst: u32) -> Self {
        let settings = QueueSettings {
            burst: NonZeroU32::new(burst).unwrap(),
            ..settings(&CAPS)
        };
        Self {
            queue: Queue::new(settings, &WorkqueueMetrics::register(&mut Registry::default())),
            requested: HashMap::new(),
            claims: Vec::new(),
            step: 0,
            skipped: HashMap::new(),
            is_bucket_full: burst > 1000,
        }
    }

    async fn run(&mut self, steps: Vec<Step>) {
        for step in steps {
            self.step += 1;
            match step {
                Step::Add { key: number, priority } => {
                    self.queue.add(key(number), priority);
                    self.ask(number, Duration::ZERO, false, priority);
                }
                Step::AddAfter {
                    key: number,
                    milliseconds,
                    priority,
                } => {
                    let delay = Duration::from_millis(milliseconds);
                    self.queue.add_after(key(number), delay, priority);
                    self.ask(number, delay, false, priority);
                }
                Step::Retry { key: number, priority } => {
                    let delay = self.queue.add_rate_limited(key(number), BACKOFF, priority);
                    self.ask(number, delay, !self.is_bucket_full, priority);
                }
                Step::Forget { key: number } => self.queue.forget(&key(number)),
                Step::Get => self.get(),
                Step::Done { which } if !self.claims.is_empty() => {
                    self.claims.swap_remove(which % self.claims.len());
                }
                Step::Done { .. } => {}
                Step::Pass { milliseconds } => {
                    tokio::time::advance(Duration::from_millis(milliseconds)).await;
                    settle().await;
                }
            }
            settle().await;
            self.update_readiness();
        }
    }

    fn ask(&mut self, number: usize, delay: Duration, needs_token: bool, priority: Priority) {
        let at = Instant::now() + delay;
        let by = (!needs_token).then_some(at);
        let requested = Request {
            priority,
            at,
            by,
            ready_since: None,
        };
        let merged = self.requested.entry(key(number).0).or_insert_with(|| requested.clone());
        merged.priority = merged.priority.max(priority);
        merged.at = merged.at.min(at);
        merged.by = [merged.by, by].into_iter().flatten().min();
    }

    fn update_readiness(&mut self) {
        let (now, step) = (Instant::now(), self.step);
        let claims = &self.claims;
        for (name, requested) in &mut self.requested {
            let is_ready = requested.by.is_some_and(|by| by <= now);
            if is_ready && !claims.iter().any(|claim| claim.key().0 == *name) {
                requested.ready_since.get_or_insert(step);
            }
        }
        let waiting = |class, priority| {
            let is_ready = |requested: &Request| requested.priority == priority && requested.ready_since.is_some();
            let mut requested = self.requested.iter();
            requested.any(|(name, requested)| Name(name.clone()).class() == class && is_ready(requested))
        };
        self.skipped.retain(|(class, priority), _| waiting(*class, *priority));
    }

    fn has_room(&self, class: &str) -> bool {
        let busy = self.claims.iter().filter(|claim| claim.key().class() == class).count();
        CAPS.iter().all(|(capped, cap)| *capped != class || busy < *cap)
    }

    /// Returns the keys that can certainly be dequeued now.
    fn candidates(&self) -> Vec<(Name, Request)> {
        self.requested
            .iter()
            .filter(|(_, requested)| requested.ready_since.is_some())
            .map(|(name, requested)| (Name(name.clone()), requested.clone()))
            .filter(|(name, _)| self.has_room(name.class()))
            .collect()
    }

    fn get(&mut self) {
        let candidates = self.candidates();
        let Some(claim) = take(&self.queue) else {
            assert!(candidates.is_empty(), "withheld: {candidates:?}");
            return;
        };
        let name = claim.key().clone();
        assert!(
            self.claims.iter().all(|other| *other.key() != name),
            "{name:?} is in two hands"
        );
        assert!(self.has_room(name.class()), "the class of {name:?} was full");
        let requested = self
            .requested
            .remove(&name.0)
            .unwrap_or_else(|| panic!("unexpected key {name:?}"));
        assert!(requested.at <= Instant::now(), "{name:?} came too early");
        assert_eq!(claim.priority(), requested.priority, "{name:?}");
        if self.is_bucket_full {
            self.assert_order(&name, &requested, &candidates);
        }
        self.claims.push(claim);
    }

    /// Asserts that the highest priority of the class is served, except every tenth time, and equal ones in order.
    fn assert_order(&mut self, name: &Name, requested: &Request, candidates: &[(Name, Request)]) {
        let class = name.class();
        let others: Vec<_> = candidates
            .iter()
            .filter(|(other, _)| *other != *name && other.class() == class)
            .collect();
        if let Some(since) = requested.ready_since {
            for (other, equal) in others.iter().filter(|(_, other)| other.priority == requested.priority) {
                assert!(equal.ready_since >= Some(since), "{other:?} was there before {name:?}");
            }
        }
        let skipped = self.skipped.remove(&(class, requested.priority)).unwrap_or_default();
        let best = others.iter().map(|(_, other)| other.priority).max();
        if best.is_some_and(|best| requested.priority < best) {
            assert!(
                skipped >= 9,
                "{name:?} at {:?} went before {best:?}",
                requested.priority
            );
        }
        let behind: HashSet<Priority> = others
            .iter()
            .map(|(_, other)| other.priority)
            .filter(|priority| *priority < requested.priority)
            .collect();
        for priority in behind {
            let skipped = self.skipped.entry((class, priority)).or_default();
            *skipped += 1;
            // Other priorities may have waited as long.
            assert!(
                *skipped < 9 + PRIORITIES.len(),
                "{priority:?} was skipped {skipped} times in a row"
            );
        }
    }

    /// Asserts that every requested key is served, and nothing else.
    async fn finish(&mut self) {
        self.claims.clear();
        settle().await;
        tokio::time::advance(LONG).await;
        settle().await;
        while let Ok(claim) = timeout(LONG, self.queue.get()).await {
            let name = claim.expect("an open queue").key().0.clone();
            assert!(self.requested.remove(&name).is_some(), "unexpected key {name:?}");
        }
        assert!(self.requested.is_empty(), "lost: {:?}", self.requested);
        assert_eq!(self.queue.len(), 0);
    }
}

fn check(burst: u32, steps: Vec<Step>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut model = Model::new(burst);
        model.run(steps).await;
        model.finish().await;
    });
}

proptest! {
    #[test]
    fn random_operations_match_the_model(steps in prop::collection::vec(step(), 1..300)) {
        check(1_000_000, steps);
    }

    #[test]
    fn nothing_is_lost_or_duplicated_while_the_bucket_is_empty(steps in prop::collection::vec(step(), 1..300)) {
        check(1, steps);
    }
}
