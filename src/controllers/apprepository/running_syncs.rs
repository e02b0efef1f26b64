//! Tracks the running syncs, to list and to cancel them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::api::NamespacedName;

/// The running syncs; a handle, cheap to clone.
#[derive(Clone, Debug)]
pub struct RunningSyncs {
    running: Arc<Mutex<BTreeMap<NamespacedName, CancellationToken>>>,
    names: watch::Sender<Vec<NamespacedName>>,
}

impl Default for RunningSyncs {
    fn default() -> Self {
        Self {
            running: Arc::default(),
            names: watch::Sender::new(Vec::new()),
        }
    }
}

impl RunningSyncs {
    #[must_use]
    pub fn names(&self) -> watch::Receiver<Vec<NamespacedName>> {
        self.names.subscribe()
    }

    pub fn cancel(&self, name: &NamespacedName) {
        if let Some(token) = self.running.lock().get(name) {
            token.cancel();
        }
    }

    /// Cancels the sync of `name` and waits until it has ended.
    pub async fn end(&self, name: &NamespacedName) {
        self.cancel(name);
        // Fails only without a sender, which `self` owns.
        let _ = self.names().wait_for(|names| !names.contains(name)).await;
    }

    /// Registers a sync of `name` until the guard is dropped.
    #[must_use]
    pub fn begin(&self, name: &NamespacedName) -> RunningSync {
        let token = CancellationToken::new();
        self.running.lock().insert(name.clone(), token.clone());
        self.publish_names();
        RunningSync {
            syncs: self.clone(),
            name: name.clone(),
            token,
        }
    }

    fn publish_names(&self) {
        let names = self.running.lock().keys().cloned().collect();
        self.names.send_replace(names);
    }
}

/// A running sync; dropping it ends the registration.
pub struct RunningSync {
    syncs: RunningSyncs,
    name: NamespacedName,
    token: CancellationToken,
}

impl RunningSync {
    #[must_use]
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }
}

impl Drop for RunningSync {
    fn drop(&mut self) {
        self.syncs.running.lock().remove(&self.name);
        self.syncs.publish_names();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> NamespacedName {
        NamespacedName {
            namespace: "default".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn only_the_sync_of_that_name_is_canceled() {
        let syncs = RunningSyncs::default();
        let (a, b) = (syncs.begin(&name("a")), syncs.begin(&name("b")));
        syncs.cancel(&name("a"));
        assert!(a.token().is_cancelled());
        assert!(!b.token().is_cancelled());
    }

    #[tokio::test]
    async fn ending_a_sync_waits_for_its_guard() {
        let syncs = RunningSyncs::default();
        let name = name("a");
        let running = syncs.begin(&name);
        let mut ended = Box::pin(syncs.end(&name));
        assert!(futures::poll!(&mut ended).is_pending());
        assert!(running.token().is_cancelled());
        drop(running);
        ended.await;
    }

    #[test]
    fn a_running_sync_is_listed_until_it_ends() {
        let syncs = RunningSyncs::default();
        let names = syncs.names();
        let running = syncs.begin(&name("a"));
        assert_eq!(*names.borrow(), [name("a")]);
        drop(running);
        assert!(names.borrow().is_empty());
        syncs.cancel(&name("a"));
    }
}
