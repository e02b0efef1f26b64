//! Tracks the running syncs, to list and to cancel them.

use crate::api::NamespacedName;
use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

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

    /// Registers a sync of `name` until the guard is dropped.
    #[must_use]
    pub fn begin(&self, name: &NamespacedName) -> Running {
        let token = CancellationToken::new();
        self.running.lock().insert(name.clone(), token.clone());
        self.tell();
        Running {
            activity: self.clone(),
            name: name.clone(),
            token,
        }
    }

    fn tell(&self) {
        let names = self.running.lock().keys().cloned().collect();
        self.names.send_replace(names);
    }
}

/// A running sync; dropping it ends the registration.
pub struct Running {
    activity: RunningSyncs,
    name: NamespacedName,
    token: CancellationToken,
}

impl Running {
    #[must_use]
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.activity.running.lock().remove(&self.name);
        self.activity.tell();
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
        let activity = RunningSyncs::default();
        let (a, b) = (activity.begin(&name("a")), activity.begin(&name("b")));
        activity.cancel(&name("a"));
        assert!(a.token().is_cancelled());
        assert!(!b.token().is_cancelled());
    }

    #[test]
    fn a_running_sync_is_listed_until_it_ends() {
        let activity = RunningSyncs::default();
        let names = activity.names();
        let running = activity.begin(&name("a"));
        assert_eq!(*names.borrow(), [name("a")]);
        drop(running);
        assert!(names.borrow().is_empty());
        activity.cancel(&name("a"));
    }
}
