//! Repositories that wait for the end of a fault of the database.
//!
//! ```text
//!  reconcile ─► fault ─► set of its keys ◄─ probe, each second ─► over: enqueue all, spread over some seconds
//! ```
//!
//! A fault says nothing about a repository, so it does not grow its backoff. A repository that fails again after the end
//! is an exception: the probe does not see everything, such as a lock on some rows.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::catalog::{self, Catalog, Fault};
use crate::runtime::controller::{Key, ReconcileError};
use crate::runtime::workqueue::{Backoff, Priority, Queue};

const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Time over which the keys are spread. With a probe and its interval, all are due within five seconds.
const SPREAD: Duration = Duration::from_secs(3);
/// Longest time to the next reconcile, in case that a probe fails for another reason than the reconcile.
const AT_MOST: Duration = Duration::from_secs(5 * 60);
/// Time after its end in which the same fault concerns the repository.
const RELAPSE: Duration = Duration::from_secs(30);

pub struct DatabaseFaults {
    catalog: Catalog,
    queue: Queue<Key>,
    state: Mutex<State>,
    added: Notify,
}

#[derive(Default)]
struct State {
    /// Each key at most once for each fault.
    waiting: BTreeMap<Fault, HashSet<Key>>,
    /// Keys whose fault is over, and the time until which it concerns the repository if it occurs again.
    resumed: HashMap<Key, (Fault, Instant)>,
}

impl State {
    /// Returns the fault that others wait for as well; `None` if the error concerns one repository.
    fn fault(&self, error: &catalog::Error) -> Option<Fault> {
        // Failed calls of others hold the connections.
        let of_others = || self.waiting.keys().next().copied().filter(|_| error.is_busy_pool());
        error.fault().or_else(of_others)
    }

    /// Returns true if the key failed by this fault again, soon after the end or the last failure.
    fn extend_relapse(&mut self, key: &Key, fault: Fault, backoff: Backoff) -> bool {
        let now = Instant::now();
        let resumed = self.resumed.get_mut(key);
        let Some((_, until)) = resumed.filter(|(before, until)| *before == fault && now < *until) else {
            return false;
        };
        *until = now + backoff.cap + RELAPSE;
        true
    }

    /// Returns true if the key is the first that waits for the end of a fault.
    fn wait(&mut self, key: Key, fault: Fault) -> bool {
        let keys = self.waiting.entry(fault).or_default();
        keys.insert(key) && keys.len() == 1
    }

    fn resume(&mut self, fault: Fault) -> HashSet<Key> {
        let now = Instant::now();
        self.resumed.retain(|_, (_, until)| now < *until);
        let keys = self.waiting.remove(&fault).unwrap_or_default();
        let until = now + RELAPSE;
        self.resumed
            .extend(keys.iter().map(|key| (key.clone(), (fault, until))));
        keys
    }
}

impl DatabaseFaults {
    #[must_use]
    pub fn new(catalog: Catalog, queue: Queue<Key>) -> Self {
        Self {
            catalog,
            queue,
            state: Mutex::default(),
            added: Notify::new(),
        }
    }

    /// After a fault of the database, enqueues the key; after other errors, and the same fault again, with `backoff`.
    pub(super) fn reconcile_error(&self, key: Key, error: &catalog::Error, backoff: Backoff) -> ReconcileError {
        let is_first = {
            let mut state = self.state.lock();
            match state.fault(error) {
                Some(fault) if !state.extend_relapse(&key, fault, backoff) => state.wait(key, fault),
                _ => return ReconcileError::transient(error.to_string(), backoff),
            }
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
            let faults: Vec<Fault> = self.state.lock().waiting.keys().copied().collect();
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
        let keys = self.state.lock().resume(fault);
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
    use tracing::Level;

    use super::*;
    use crate::api::NamespacedName;
    use crate::catalog::{CatalogSettings, Database, ErrorKind, Login};
    use crate::controllers::apprepository::event_handler::key;
    use crate::runtime::workqueue::{self, WorkqueueMetrics};
    use crate::trace::log_lines::LogLines;

    const BACKOFF: Backoff = Backoff {
        base: Duration::from_secs(5),
        cap: Duration::from_secs(60),
    };

    fn faults() -> DatabaseFaults {
        let database = Database::parse("postgres://portolan@127.0.0.1:1/none", &Login::default()).unwrap();
        let catalog = Catalog::open_lazy(&CatalogSettings::new(database)).unwrap();
        let metrics = WorkqueueMetrics::register(&mut Registry::default());
        DatabaseFaults::new(catalog, Queue::new(workqueue::QueueSettings::default(), &metrics))
    }

    fn name(number: usize) -> NamespacedName {
        NamespacedName::new("sea", format!("r{number}"))
    }

    fn locked() -> catalog::Error {
        ErrorKind::ReadOnlyServer.into()
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
        let error = catalog::Error::from(ErrorKind::TablesRebuilt);
        let failed = faults.reconcile_error(key(&name(0)), &error, BACKOFF);
        assert_eq!(failed, ReconcileError::transient(error.to_string(), BACKOFF));
        assert!(faults.state.lock().waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_that_the_probe_does_not_see_grows_the_backoff_of_its_repository() {
        let (log, _logging) = LogLines::start(Level::WARN);
        let faults = faults();
        let start = Instant::now();
        let mut attempts = 0;
        let work = async {
            let mut priority = Priority::CONTINUED;
            faults.queue.add(key(&name(0)), priority);
            loop {
                let claim = faults.queue.get().await.unwrap();
                attempts += 1;
                priority = claim.priority();
                // The lock timeout of a statement.
                sleep(Duration::from_secs(5)).await;
                match faults.reconcile_error(claim.key().clone(), &locked(), BACKOFF) {
                    ReconcileError::Transient { backoff, .. } => {
                        faults.queue.add_rate_limited(claim.key().clone(), backoff, priority);
                    }
                    error => assert!(matches!(error, ReconcileError::Outage { .. }), "{error:?}"),
                }
                if start.elapsed() >= Duration::from_secs(120) {
                    break;
                }
            }
        };
        tokio::select! {
            () = faults.probe_with(|_| async { Ok(()) }) => unreachable!("it never returns"),
            () = work => {}
        }
        assert!(attempts <= 7, "six within two minutes, and the last: {attempts}");
        let warnings = log.lines();
        assert!(
            matches!(&warnings[..], [warning] if warning.contains("the database failed")),
            "{warnings:?}"
        );
    }

    #[tokio::test]
    async fn a_busy_pool_is_a_fault_only_while_others_wait_for_one() {
        let faults = faults();
        let busy = ErrorKind::NoConnection {
            seconds: 10,
            advice: "raise --database-connections",
        };
        let busy = catalog::Error::from(busy);
        let failed = |number| faults.reconcile_error(key(&name(number)), &busy, BACKOFF);
        assert!(matches!(failed(0), ReconcileError::Transient { .. }));
        faults.reconcile_error(key(&name(1)), &locked(), BACKOFF);
        assert!(matches!(failed(0), ReconcileError::Outage { .. }));
    }
}
