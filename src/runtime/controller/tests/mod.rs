//! The pool at work, with time paused and reconcilers that do as they are told.

mod metrics;
mod outcomes;
mod panics;
mod workers;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::*;
use crate::runtime::workqueue::{self as queue, Queue, Settings};

const SECOND: Duration = Duration::from_secs(1);
const BACKOFF: Backoff = Backoff {
    base: SECOND,
    cap: Duration::from_secs(8),
};

const REPOSITORY: &str = "repository";
const APPLICATION: &str = "application";

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct TestKey(&'static str, usize);

impl Item for TestKey {
    type Lane = &'static str;
    fn lane(&self) -> &'static str {
        self.0
    }
}

impl ObjectKey for TestKey {
    fn namespace(&self) -> impl Display {
        "test"
    }

    fn name(&self) -> impl Display {
        self.1
    }
}

/// Two classes with the same reconciler; the first has `workers` of its own if there are no lanes.
fn classes(
    workers: usize,
    lanes: &[(&'static str, usize)],
    reconciler: &Arc<dyn Reconcile<TestKey>>,
) -> Vec<Class<TestKey>> {
    let unlimited = [(REPOSITORY, workers), (APPLICATION, 0)];
    let lanes = if lanes.is_empty() { &unlimited } else { lanes };
    let class = |&(name, workers): &(&'static str, usize)| Class {
        name,
        workers,
        reconciler: Arc::clone(reconciler),
    };
    lanes.iter().map(class).collect()
}

fn repository(number: usize) -> TestKey {
    TestKey(REPOSITORY, number)
}

fn application(number: usize) -> TestKey {
    TestKey(APPLICATION, number)
}

/// One reconcile as it was seen: when, after the start, and at which priority.
type Turn = (TestKey, Duration, Priority);

type Play = dyn Fn(usize) -> BoxFuture<'static, Result<Action, ReconcileError>> + Send + Sync;

/// Does what `play` says for the turn of this number, counted over all keys.
struct Puppet {
    start: Instant,
    turns: Arc<Mutex<Vec<Turn>>>,
    play: Box<Play>,
}

impl Reconcile<TestKey> for Puppet {
    fn reconcile<'a>(&'a self, key: &'a TestKey, priority: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>> {
        let number = {
            let mut turns = self.turns.lock();
            turns.push((key.clone(), self.start.elapsed(), priority));
            turns.len() - 1
        };
        (self.play)(number)
    }
}

struct Bench {
    queue: Queue<TestKey>,
    turns: Arc<Mutex<Vec<Turn>>>,
    registry: Registry,
    pool: JoinHandle<()>,
}

impl Bench {
    fn start<F>(
        workers: usize,
        lanes: &[(&'static str, usize)],
        play: impl Fn(usize) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Action, ReconcileError>> + Send + 'static,
    {
        let mut registry = Registry::default();
        let settings = Settings {
            lanes: lanes.to_vec(),
            burst: NonZeroU32::new(1000).unwrap(),
            ..Settings::new("test")
        };
        let queue = Queue::new(settings, &queue::Metrics::register(&mut registry));
        let turns = Arc::<Mutex<Vec<Turn>>>::default();
        let puppet: Arc<dyn Reconcile<TestKey>> = Arc::new(Puppet {
            start: Instant::now(),
            turns: Arc::clone(&turns),
            play: Box::new(move |number| Box::pin(play(number))),
        });
        let classes = classes(workers, lanes, &puppet);
        let controller = WorkerPool::new(queue.clone(), classes, Metrics::register(&mut registry));
        Self {
            queue,
            turns,
            registry,
            pool: tokio::spawn(controller.run()),
        }
    }

    fn turns(&self) -> Vec<Turn> {
        self.turns.lock().clone()
    }

    /// When each turn was, in whole seconds.
    fn seconds(&self) -> Vec<u64> {
        self.turns().iter().map(|(_, at, _)| at.as_secs()).collect()
    }

    /// Returns true if the key has no failures: its next retry would wait for the base of its backoff. The queue must be shut
    /// down, or the retry would take place.
    fn has_no_failures(&self, key: TestKey) -> bool {
        self.queue.add_rate_limited(key, BACKOFF, Priority::LOW) == BACKOFF.base
    }

    async fn end(&mut self) {
        self.queue.shut_down();
        (&mut self.pool).await.unwrap();
    }

    /// The samples of a scrape whose value is not zero, without their controller and summed over controllers.
    fn counted(&self) -> BTreeMap<String, f64> {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let samples = text
            .lines()
            .filter_map(|line| line.strip_prefix("controller_runtime_")?.rsplit_once(' '))
            .map(|(sample, value)| {
                let sample = sample.replace(r#"controller="repository""#, "");
                let sample = sample.replace(r#"controller="application""#, "");
                (sample, value.parse::<f64>().unwrap())
            })
            .filter(|(sample, value)| *value != 0.0 && !sample.contains("_bucket"));
        samples.fold(BTreeMap::new(), |mut sums, (sample, value)| {
            *sums.entry(sample).or_default() += value;
            sums
        })
    }
}

fn counts<const N: usize>(counts: [(&str, f64); N]) -> BTreeMap<String, f64> {
    counts.map(|(sample, value)| (sample.to_owned(), value)).into()
}

fn transient() -> ReconcileError {
    ReconcileError::Transient {
        message: "the server is away".to_owned(),
        backoff: BACKOFF,
        at_least: Duration::ZERO,
        at_most: Duration::MAX,
    }
}
