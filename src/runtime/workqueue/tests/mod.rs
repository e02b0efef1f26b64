//! The public interface of the queue on paused time.

mod delays;
mod metrics;
mod model;
mod workers;

use futures::FutureExt;
use prometheus_client::registry::Registry;
use tokio::time::{Instant, timeout};

use super::*;

const CLASSES: [&str; 7] = ["a", "b", "c", "0", "1", "2", "3"];

/// The first letter is the class, the text after `@` the namespace.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Name(String);

impl Item for Name {
    fn class(&self) -> &'static str {
        let class = CLASSES.into_iter().find(|class| self.0.starts_with(class));
        class.unwrap_or("other")
    }
    fn namespace(&self) -> &str {
        self.0.split_once('@').map_or("", |(_, namespace)| namespace)
    }
}

fn name(name: &str) -> Name {
    Name(name.to_owned())
}

fn settings(workers: &[(&'static str, usize)]) -> QueueSettings {
    let limits = |&(class, workers): &(&'static str, usize)| (class, ClassLimits::workers(workers));
    QueueSettings {
        classes: workers.iter().map(limits).collect(),
        ..QueueSettings::default()
    }
}

fn queue(workers: &[(&'static str, usize)]) -> Queue<Name> {
    Queue::new(settings(workers), &WorkqueueMetrics::register(&mut Registry::default()))
}

/// Returns the next key if one is ready.
fn take(queue: &Queue<Name>) -> Option<Claim<Name>> {
    queue.get().now_or_never().flatten()
}

fn take_name(queue: &Queue<Name>) -> Option<String> {
    take(queue).map(|claim| claim.key().0.clone())
}

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

const BACKOFF: Backoff = Backoff {
    base: SECOND,
    cap: Duration::from_secs(60),
};

/// Advances time and runs everything due.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
    settle().await;
}

/// Runs all tasks until they are idle.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// Returns the next key and the time it took.
async fn next(queue: &Queue<Name>) -> (String, Duration) {
    let start = Instant::now();
    let claim = timeout(HOUR, queue.get())
        .await
        .expect("a key within the hour")
        .expect("a queue that is open");
    (claim.key().0.clone(), start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_paused_queue_ignores_adds_until_it_is_resumed() {
    let queue = queue(&[]);
    queue.pause();
    queue.add(name("a"), Priority::USER);
    queue.add_after(name("b"), SECOND, Priority::USER);
    queue.add_rate_limited(name("c"), BACKOFF, Priority::USER);
    pass(HOUR).await;
    assert_eq!(take_name(&queue), None);
    queue.resume();
    queue.add(name("d"), Priority::USER);
    assert_eq!(take_name(&queue).as_deref(), Some("d"));
}
