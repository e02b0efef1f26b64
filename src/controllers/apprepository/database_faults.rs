//! Repositories that wait for the end of a fault of the database.
//!
//! ```text
//!  reconcile ─► fault ─► set of its keys ◄─ probe, each second ─► over: enqueue all, spread over some seconds
//! ```
//!
//! A fault says nothing about a repository, so it does not grow its backoff.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::catalog::{self, Catalog, Fault};
use crate::runtime::controller::{Key, ReconcileError};
use crate::runtime::workqueue::{Backoff, Priority, Queue};

const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Time over which the keys are spread. With a probe and its interval, all are due within five seconds.
const SPREAD: Duration = Duration::from_secs(3);
/// Longest time to the next reconcile, in case that a probe fails for another reason than the reconcile.
const AT_MOST: Duration = Duration::from_secs(5 * 60);

pub struct DatabaseFaults {
    catalog: Catalog,
    queue: Queue<Key>,
    /// Each key at most once for each fault.
    waiting: Mutex<BTreeMap<Fault, HashSet<Key>>>,
    added: Notify,
}

impl DatabaseFaults {
    #[must_use]
    pub fn new(catalog: Catalog, queue: Queue<Key>) -> Self {
        Self {
            catalog,
            queue,
            waiting: Mutex::default(),
            added: Notify::new(),
        }
    }

    /// Returns the error of a reconcile: after a fault of the database the key is enqueued once it is over, after another
    /// error with `backoff`.
    pub(super) fn reconcile_error(&self, key: Key, error: &catalog::Error, backoff: Backoff) -> ReconcileError {
        let Some(fault) = error.fault() else {
            return ReconcileError::transient(error.to_string(), backoff);
        };
        let is_first = {
            let mut waiting = self.waiting.lock();
            let keys = waiting.entry(fault).or_default();
            keys.insert(key) && keys.len() == 1
        };
        if is_first {
            tracing::warn!(%error, "the database failed, repositories wait until it is usable");
            self.added.notify_one();
        }
        ReconcileError::Outage {
            message: error.to_string(),
            at_most: AT_MOST,
        }
    }

    /// Probes the faults that repositories wait for, and enqueues them. Never returns.
    pub async fn probe(&self) {
        self.probe_with(|fault| self.catalog.probe(fault)).await;
    }

    async fn probe_with<F>(&self, probe: impl Fn(Fault) -> F)
    where
        F: Future<Output = Result<(), catalog::Error>>,
    {
        loop {
            let faults: Vec<Fault> = self.waiting.lock().keys().copied().collect();
            if faults.is_empty() {
                self.added.notified().await;
                continue;
            }
            for fault in faults {
                match probe(fault).await {
                    // With an error of another kind each repository reports it.
                    Err(error) if error.fault().is_some() => {
                        tracing::debug!(%error, ?fault, "the database still fails")
                    }
                    Ok(()) | Err(_) => self.resume(fault),
                }
            }
            sleep(PROBE_INTERVAL).await;
        }
    }

    fn resume(&self, fault: Fault) {
        let keys = self.waiting.lock().remove(&fault).unwrap_or_default();
        tracing::info!(keys = keys.len(), "the database is usable again, retrying");
        let count = u32::try_from(keys.len()).unwrap_or(u32::MAX);
        for (number, key) in (0..).zip(keys) {
            // The priority of the failed reconcile is higher, and stays.
            self.queue.add_after(key, SPREAD * number / count, Priority::CONTINUED);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures::FutureExt;
    use prometheus_client::registry::Registry;
    use tokio::time::Instant;

    use super::*;
    use crate::api::NamespacedName;
    use crate::catalog::{Database, Login, Settings};
    use crate::controllers::apprepository::event_handler::key;
    use crate::runtime::workqueue::{self, Metrics};

    const BACKOFF: Backoff = Backoff {
        base: Duration::from_secs(5),
        cap: Duration::from_secs(60),
    };

    fn faults() -> DatabaseFaults {
        let database = Database::parse("postgres://portolan@127.0.0.1:1/none", &Login::default()).unwrap();
        let catalog = Catalog::open_lazy(&Settings::new(database)).unwrap();
        let metrics = Metrics::register(&mut Registry::default());
        DatabaseFaults::new(catalog, Queue::new(workqueue::Settings::default(), &metrics))
    }

    fn name(number: usize) -> NamespacedName {
        NamespacedName::new("sea", format!("r{number}"))
    }

    fn locked() -> catalog::Error {
        catalog::Error::ReadOnlyServer { operation: "write" }
    }

    #[tokio::test(start_paused = true)]
    async fn all_repositories_are_due_within_five_seconds_of_the_end_of_a_fault_and_spread() {
        let faults = faults();
        for number in 0..100 {
            let error = faults.reconcile_error(key(&name(number)), &locked(), BACKOFF);
            assert!(matches!(error, ReconcileError::Outage { .. }), "{error:?}");
        }
        let (start, probes) = (Instant::now(), Cell::new(0));
        let over = Duration::from_millis(100_500);
        let probe = |_| {
            probes.set(probes.get() + 1);
            let result = if start.elapsed() < over { Err(locked()) } else { Ok(()) };
            async { result }
        };
        let mut seconds = Vec::new();
        let work = async {
            while seconds.len() < 100 {
                let claim = faults.queue.get().await.unwrap();
                assert_eq!(claim.key().name.namespace, "sea");
                seconds.push(start.elapsed().as_secs_f64());
            }
        };
        tokio::select! {
            () = faults.probe_with(probe) => unreachable!("it never returns"),
            () = work => {}
        }
        assert_eq!(probes.get(), 102, "one each second for all");
        let (first, last) = (seconds[0], seconds[99]);
        assert!(
            first >= over.as_secs_f64() && last <= over.as_secs_f64() + 5.0,
            "{first} {last}"
        );
        assert!(last - first > 2.0, "{first} {last}");
        assert!(faults.queue.get().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_of_one_repository_keeps_its_backoff() {
        let faults = faults();
        let error = catalog::Error::TablesRebuilt;
        let failed = faults.reconcile_error(key(&name(0)), &error, BACKOFF);
        assert_eq!(failed, ReconcileError::transient(error.to_string(), BACKOFF));
        assert!(faults.waiting.lock().is_empty());
    }
}
