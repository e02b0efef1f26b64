//! Ends slow downloads while namespaces without a sync wait for a worker.
//!
//! A namespace has at most an eighth of the workers, and the last ones take only namespaces without a sync. Many namespaces
//! together may still hold all of them, each with a server that does not respond.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::{RunningAttempts, RunningSyncs};
use crate::api::NamespacedName;
use crate::controllers::apprepository::NAME;
use crate::runtime::controller::Key;
use crate::runtime::workqueue::Queue;

const INTERVAL: Duration = Duration::from_secs(1);

/// Aborts the slowest download for each namespace that waits. Never returns.
pub async fn preempt(syncs: RunningSyncs, queue: Queue<Key>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let starved = queue.starved_namespaces(NAME);
        if starved > 0 {
            abort_slowest(&syncs.0.borrow(), starved);
        }
    }
}

fn abort_slowest(running: &RunningAttempts, count: usize) {
    let regular = || running.iter().filter(|(_, attempt)| !attempt.is_slow);
    let mut held: HashMap<&str, usize> = HashMap::new();
    for (name, _) in regular() {
        *held.entry(&name.namespace).or_default() += 1;
    }
    let mut candidates: Vec<_> = regular()
        .filter(|(_, attempt)| !attempt.requests.is_aborted())
        .filter_map(|(name, attempt)| Some((name, attempt, attempt.requests.waiting()?.recent_bytes)))
        .collect();
    // These workers are about to be free.
    let aborted = regular().filter(|(_, attempt)| attempt.requests.is_aborted()).count();
    for _ in aborted..count {
        let of_namespace = |name: &NamespacedName| held.get(&*name.namespace).copied().unwrap_or_default();
        let slowest = (0..candidates.len()).min_by_key(|at| {
            let (name, _, bytes) = candidates[*at];
            (Reverse(of_namespace(name)), bytes)
        });
        let Some(at) = slowest else { return };
        let (name, attempt, bytes) = candidates.swap_remove(at);
        tracing::warn!(
            namespace = name.namespace,
            name = name.name,
            bytes,
            "aborting a slow download, since other namespaces wait for a sync worker"
        );
        attempt.requests.abort();
        held.entry(&name.namespace).and_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;
    use tokio::time::{advance, sleep};

    use super::*;
    use crate::controllers::apprepository::event_handler::key;
    use crate::controllers::apprepository::running_syncs::RunningSync;
    use crate::http::InFlight;
    use crate::runtime::workqueue::{Claim, ClassLimits, Priority, QueueSettings, WorkqueueMetrics};

    struct Bench {
        syncs: RunningSyncs,
        queue: Queue<Key>,
    }

    /// A sync whose request is in flight.
    type Sync = (Claim<Key>, RunningSync, InFlight);

    impl Bench {
        fn new(workers: usize) -> Self {
            let settings = QueueSettings {
                classes: vec![(NAME, ClassLimits::workers(workers))],
                ..QueueSettings::default()
            };
            let (syncs, queue) = (
                RunningSyncs::default(),
                Queue::new(settings, &WorkqueueMetrics::register(&mut Registry::default())),
            );
            tokio::spawn(preempt(syncs.clone(), queue.clone()));
            Self { syncs, queue }
        }

        async fn start(&self, namespace: &str, name: &str) -> Sync {
            let name = NamespacedName::new(namespace, name);
            self.queue.add(key(&name), Priority::USER);
            let claim = self.queue.get().await.unwrap();
            let sync = self.syncs.begin(&name);
            let request = sync.attempt().requests.begin();
            (claim, sync, request)
        }
    }

    fn aborted(syncs: &[Sync]) -> Vec<bool> {
        let is_aborted = |(_, sync, _): &Sync| sync.attempt().requests.is_aborted();
        syncs.iter().map(is_aborted).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_slowest_download_of_the_namespace_with_most_makes_room_for_one_without() {
        let bench = Bench::new(4);
        let mut syncs = Vec::new();
        for (namespace, name) in [("a", "1"), ("a", "2"), ("a", "3"), ("b", "1")] {
            syncs.push(bench.start(namespace, name).await);
        }
        for _ in 0..20 {
            advance(Duration::from_secs(1)).await;
            syncs[0].1.attempt().requests.received(2000);
            syncs[1].1.attempt().requests.received(1000);
            syncs[2].1.attempt().requests.received(3000);
        }
        // A namespace with a sync has no claim to the worker of another one.
        bench.queue.add(key(&NamespacedName::new("a", "4")), Priority::USER);
        sleep(Duration::from_secs(5)).await;
        assert_eq!(aborted(&syncs), [false; 4]);
        bench.queue.add(key(&NamespacedName::new("c", "1")), Priority::USER);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(aborted(&syncs).iter().filter(|is_aborted| **is_aborted).count(), 1);
        assert!(!aborted(&syncs)[3], "b holds fewer");
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_download_that_has_lasted_for_ten_seconds_is_aborted() {
        let bench = Bench::new(2);
        let hanging = [bench.start("a", "1").await, bench.start("b", "1").await];
        bench.queue.add(key(&NamespacedName::new("c", "1")), Priority::USER);
        sleep(Duration::from_secs(9)).await;
        assert_eq!(aborted(&hanging), [false; 2]);
        sleep(Duration::from_secs(3)).await;
        let of = aborted(&hanging);
        assert_eq!(of.iter().filter(|is_aborted| **is_aborted).count(), 1, "one is enough");
        let [first, second] = hanging;
        let (ended, other) = if of[0] { (first, second) } else { (second, first) };
        drop(ended);
        let served = bench.queue.get().await.unwrap();
        assert_eq!(served.key().name.namespace, "c");
        sleep(Duration::from_secs(60)).await;
        assert_eq!(aborted(&[other]), [false], "none waits any more");
    }
}
