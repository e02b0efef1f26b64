//! Tests of the pool with paused time and scripted reconcilers.

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
use tokio_util::sync::CancellationToken;

use super::*;
use crate::budget::Budgets;
use crate::runtime::workqueue::{self as queue, ClassLimits, Queue, QueueSettings};

const SECOND: Duration = Duration::from_secs(1);
const BACKOFF: Backoff = Backoff {
    base: SECOND,
    cap: Duration::from_secs(8),
};

const REPOSITORY: &str = "repository";
const APPLICATION: &str = "application";

fn limits(workers: &[(&'static str, usize)]) -> Vec<(&'static str, ClassLimits)> {
    let limits = |&(class, workers): &(&'static str, usize)| (class, ClassLimits::workers(workers));
    workers.iter().map(limits).collect()
}

/// Returns two classes with the same reconciler. Without limits, all workers belong to the first.
fn classes(workers: usize, limits: &[(&'static str, usize)], reconciler: &Arc<dyn Reconcile>) -> Vec<Class> {
    let unlimited = [(REPOSITORY, workers), (APPLICATION, 0)];
    let limits = if limits.is_empty() { &unlimited } else { limits };
    let class = |&(name, workers): &(&'static str, usize)| Class {
        name,
        workers,
        reconciler: Arc::clone(reconciler),
    };
    limits.iter().map(class).collect()
}

fn key(class: &'static str, number: usize) -> Key {
    let name = NamespacedName::new("test", number.to_string());
    Key { class, name }
}

fn number(key: &Key) -> usize {
    key.name.name.parse().unwrap()
}

fn repository(number: usize) -> Key {
    key(REPOSITORY, number)
}

fn application(number: usize) -> Key {
    key(APPLICATION, number)
}

/// One reconcile: key, time since the start, and priority.
type Turn = (Key, Duration, Priority);

type Play = dyn Fn(usize) -> BoxFuture<'static, Result<Action, ReconcileError>> + Send + Sync;

/// Calls `play` with the number of the reconcile, counted over all keys.
struct Puppet {
    start: Instant,
    turns: Arc<Mutex<Vec<Turn>>>,
    play: Box<Play>,
}

impl Reconcile for Puppet {
    fn reconcile<'a>(&'a self, key: &'a Key, priority: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>> {
        let number = {
            let mut turns = self.turns.lock();
            turns.push((key.clone(), self.start.elapsed(), priority));
            turns.len() - 1
        };
        (self.play)(number)
    }
}

struct Bench {
    queue: Queue<Key>,
    turns: Arc<Mutex<Vec<Turn>>>,
    registry: Registry,
    pool: JoinHandle<()>,
}

impl Bench {
    fn start<F>(
        workers: usize,
        by_class: &[(&'static str, usize)],
        play: impl Fn(usize) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Action, ReconcileError>> + Send + 'static,
    {
        let mut registry = Registry::default();
        let settings = QueueSettings {
            classes: limits(by_class),
            burst: NonZeroU32::new(1000).unwrap(),
            ..QueueSettings::default()
        };
        let queue = Queue::new(settings, &queue::WorkqueueMetrics::register(&mut registry));
        let turns = Arc::<Mutex<Vec<Turn>>>::default();
        let puppet: Arc<dyn Reconcile> = Arc::new(Puppet {
            start: Instant::now(),
            turns: Arc::clone(&turns),
            play: Box::new(move |number| Box::pin(play(number))),
        });
        let classes = classes(workers, by_class, &puppet);
        let controller = WorkerPool::new(
            queue.clone(),
            classes,
            Budgets::default(),
            WorkerMetrics::register(&mut registry),
        );
        Self {
            queue,
            turns,
            registry,
            pool: tokio::spawn(controller.run(CancellationToken::new())),
        }
    }

    fn turns(&self) -> Vec<Turn> {
        self.turns.lock().clone()
    }

    /// Returns the times of all reconciles, in whole seconds.
    fn seconds(&self) -> Vec<u64> {
        self.turns().iter().map(|(_, at, _)| at.as_secs()).collect()
    }

    /// Returns true if the key has no failures: its next retry would wait for the base of its backoff. The queue must be shut
    /// down, or the retry would take place.
    fn has_no_failures(&self, key: Key) -> bool {
        self.queue.add_rate_limited(key, BACKOFF, Priority::LOW) == BACKOFF.base
    }

    async fn end(&mut self) {
        self.queue.shut_down();
        (&mut self.pool).await.unwrap();
    }

    /// Returns the samples that are not zero, summed over controllers.
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
    ReconcileError::transient("the server is away", BACKOFF)
}
