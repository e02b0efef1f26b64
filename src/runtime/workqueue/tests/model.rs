//! Random adds, gets, dones, delays and retries, judged by a list of everything that was asked for.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

const KEYS: usize = 12;
const CAPS: [(char, usize); 2] = [('a', 2), ('b', 1)];
const PRIORITIES: [Priority; 4] = [Priority::USER, Priority::LOW, Priority(-50), Priority(10)];
/// No delay in a test is longer, with all doublings and the bucket.
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

/// What has been asked for a key since it was last handed out.
#[derive(Clone, Debug)]
struct Asked {
    priority: Priority,
    /// When it may be handed out at the earliest.
    at: Instant,
    /// When it has to be ready at the latest: retries wait for a token besides, however long.
    by: Option<Instant>,
    /// The step at which it was first seen to be ready and in nobody's hands.
    ready_since: Option<usize>,
}

struct Model {
    queue: Queue<Name>,
    asked: HashMap<String, Asked>,
    claims: Vec<Claim<Name>>,
    step: usize,
    /// Turns since a lower priority last had one, in which one was passed over: altogether, and for each lane.
    passed: usize,
    passed_in: HashMap<char, usize>,
    /// The bucket never runs dry: retries have to be on time too, and it is known of each key since when it is ready.
    is_bucket_full: bool,
}

const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(3),
    cap: Duration::from_millis(50),
};

fn key(number: usize) -> Name {
    Name(format!("{}{number}", ['a', 'b', 'c'][number % 3]))
}

impl Model {
    fn new(burst: u32) -> Self {
        let settings = Settings {
            burst: NonZeroU32::new(burst).unwrap(),
            ..settings(&CAPS)
        };
        Self {
            queue: Queue::new(settings, &Metrics::register(&mut Registry::default())),
            asked: HashMap::new(),
            claims: Vec::new(),
            step: 0,
            passed: 0,
            passed_in: HashMap::new(),
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
            self.see_who_is_ready();
        }
    }

    fn ask(&mut self, number: usize, delay: Duration, needs_token: bool, priority: Priority) {
        let at = Instant::now() + delay;
        let by = (!needs_token).then_some(at);
        let asked = Asked {
            priority,
            at,
            by,
            ready_since: None,
        };
        let merged = self.asked.entry(key(number).0).or_insert_with(|| asked.clone());
        merged.priority = merged.priority.max(priority);
        merged.at = merged.at.min(at);
        merged.by = [merged.by, by].into_iter().flatten().min();
    }

    fn see_who_is_ready(&mut self) {
        let (now, step) = (Instant::now(), self.step);
        let claims = &self.claims;
        for (name, asked) in &mut self.asked {
            let is_ready = asked.by.is_some_and(|by| by <= now);
            if is_ready && !claims.iter().any(|claim| claim.key().0 == *name) {
                asked.ready_since.get_or_insert(step);
            }
        }
    }

    fn has_room(&self, lane: char) -> bool {
        let busy = self.claims.iter().filter(|claim| claim.key().lane() == lane).count();
        CAPS.iter().all(|(capped, cap)| *capped != lane || busy < *cap)
    }

    /// Those that could be handed out now, for certain.
    fn candidates(&self) -> Vec<(Name, Asked)> {
        self.asked
            .iter()
            .filter(|(_, asked)| asked.ready_since.is_some())
            .map(|(name, asked)| (Name(name.clone()), asked.clone()))
            .filter(|(name, _)| self.has_room(name.lane()))
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
        assert!(self.has_room(name.lane()), "the lane of {name:?} was full");
        let asked = self
            .asked
            .remove(&name.0)
            .unwrap_or_else(|| panic!("nobody asked for {name:?}"));
        assert!(asked.at <= Instant::now(), "{name:?} came too early");
        assert_eq!(claim.priority(), asked.priority, "{name:?}");
        if self.is_bucket_full {
            self.judge_turn(&name, &asked, &candidates);
        }
        self.claims.push(claim);
    }

    /// The highest priority has the turn, but for one in ten; among equals the first in.
    fn judge_turn(&mut self, name: &Name, asked: &Asked, candidates: &[(Name, Asked)]) {
        if let Some(since) = asked.ready_since {
            let equals = candidates.iter().filter(|(other, equal)| {
                *other != *name && other.lane() == name.lane() && equal.priority == asked.priority
            });
            for (other, equal) in equals {
                assert!(equal.ready_since >= Some(since), "{other:?} was there before {name:?}");
            }
        }
        let best = candidates
            .iter()
            .map(|(_, other)| other.priority)
            .max()
            .unwrap_or(asked.priority);
        let behind: HashSet<char> = candidates
            .iter()
            .filter(|(_, other)| other.priority < best)
            .map(|(other, _)| other.lane())
            .collect();
        if asked.priority < best {
            let passed = self.passed_in.insert(name.lane(), 0).unwrap_or_default();
            assert!(
                self.passed.max(passed) >= 9,
                "{name:?} at {:?} went before {best:?}",
                asked.priority
            );
            self.passed = 0;
        } else if !behind.is_empty() {
            self.passed += 1;
            assert!(
                self.passed <= 9,
                "a lower priority was passed over more than nine times in a row"
            );
            for lane in behind {
                *self.passed_in.entry(lane).or_default() += 1;
            }
        }
    }

    /// Whatever was asked for comes in the end, and nothing else.
    async fn finish(&mut self) {
        self.claims.clear();
        settle().await;
        tokio::time::advance(LONG).await;
        settle().await;
        while let Ok(claim) = timeout(LONG, self.queue.get()).await {
            let name = claim.expect("an open queue").key().0.clone();
            assert!(self.asked.remove(&name).is_some(), "nobody asked for {name:?}");
        }
        assert!(self.asked.is_empty(), "lost: {:?}", self.asked);
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
    fn every_key_comes_once_in_its_turn_and_on_time_whatever_happens(steps in prop::collection::vec(step(), 1..300)) {
        check(1_000_000, steps);
    }

    #[test]
    fn nothing_is_lost_or_handed_out_twice_while_the_bucket_is_dry(steps in prop::collection::vec(step(), 1..300)) {
        check(1, steps);
    }
}
