//! Tracks the running syncs, to list and to cancel them.

mod preemption;

use std::collections::BTreeMap;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::api::NamespacedName;
use crate::http::RequestTracker;

pub use preemption::preempt;

#[derive(Clone, Debug, Default)]
pub struct SyncAttempt {
    /// Canceled when the repository is deleted: nothing is written.
    pub canceled: CancellationToken,
    /// Aborted when other namespaces need the worker: the sync fails, and its repository counts as slow.
    pub requests: RequestTracker,
    /// Has a worker of the class of slow repositories.
    pub is_slow: bool,
}

#[derive(Clone, Debug)]
pub struct RunningSyncs(watch::Sender<RunningAttempts>);

type RunningAttempts = BTreeMap<NamespacedName, SyncAttempt>;

impl Default for RunningSyncs {
    fn default() -> Self {
        Self(watch::Sender::new(BTreeMap::new()))
    }
}

impl RunningSyncs {
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<BTreeMap<NamespacedName, SyncAttempt>> {
        self.0.subscribe()
    }

    pub fn cancel(&self, name: &NamespacedName) {
        if let Some(attempt) = self.0.borrow().get(name) {
            attempt.canceled.cancel();
        }
    }

    /// Cancels the sync of `name` and waits until it has ended.
    pub async fn end(&self, name: &NamespacedName) {
        self.cancel(name);
        // Fails only without a sender, which `self` owns.
        let _ = self.subscribe().wait_for(|running| !running.contains_key(name)).await;
    }

    /// Registers a sync of `name` until the guard is dropped.
    #[must_use]
    pub fn begin(&self, name: &NamespacedName) -> RunningSync {
        self.register(name, SyncAttempt::default())
    }

    #[must_use]
    pub fn begin_slow(&self, name: &NamespacedName) -> RunningSync {
        let is_slow = true;
        self.register(
            name,
            SyncAttempt {
                is_slow,
                ..SyncAttempt::default()
            },
        )
    }

    fn register(&self, name: &NamespacedName, attempt: SyncAttempt) -> RunningSync {
        self.0
            .send_modify(|running| drop(running.insert(name.clone(), attempt.clone())));
        RunningSync {
            syncs: self.clone(),
            name: name.clone(),
            attempt,
        }
    }
}

/// A running sync; dropping it ends the registration.
pub struct RunningSync {
    syncs: RunningSyncs,
    name: NamespacedName,
    attempt: SyncAttempt,
}

impl RunningSync {
    #[must_use]
    pub fn attempt(&self) -> &SyncAttempt {
        &self.attempt
    }
}

impl Drop for RunningSync {
    fn drop(&mut self) {
        // A repository that becomes slow, or is no longer, may have two workers for a moment.
        self.syncs.0.send_if_modified(|running| {
            let is_registered = running
                .get(&self.name)
                .is_some_and(|running| running.requests.is_same(&self.attempt.requests));
            is_registered && running.remove(&self.name).is_some()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_sync_of_that_name_is_canceled() {
        let syncs = RunningSyncs::default();
        let [a, b] = ["a", "b"].map(|name| NamespacedName::new("default", name));
        let (first, second) = (syncs.begin(&a), syncs.begin(&b));
        syncs.cancel(&a);
        assert!(first.attempt().canceled.is_cancelled());
        assert!(!second.attempt().canceled.is_cancelled());
    }

    #[tokio::test]
    async fn ending_a_sync_waits_for_its_guard() {
        let syncs = RunningSyncs::default();
        let name = NamespacedName::new("default", "a");
        let running = syncs.begin(&name);
        let mut ended = Box::pin(syncs.end(&name));
        assert!(futures::poll!(&mut ended).is_pending());
        assert!(running.attempt().canceled.is_cancelled());
        drop(running);
        ended.await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn concurrent_syncs_leave_no_name_behind() {
        let syncs = RunningSyncs::default();
        let tasks = (0..8).map(|number| {
            let syncs = syncs.clone();
            let name = NamespacedName::new("default", number.to_string());
            tokio::spawn(async move {
                for _ in 0..500 {
                    drop(syncs.begin(&name));
                }
            })
        });
        futures::future::join_all(tasks).await;
        assert!(syncs.subscribe().borrow().is_empty());
    }

    #[test]
    fn a_running_sync_is_listed_until_it_ends() {
        let syncs = RunningSyncs::default();
        let all = syncs.subscribe();
        let name = NamespacedName::new("default", "a");
        let running = syncs.begin(&name);
        assert!(all.borrow().keys().eq([&name]));
        drop(running);
        assert!(all.borrow().is_empty());
        syncs.cancel(&name);
    }
}
