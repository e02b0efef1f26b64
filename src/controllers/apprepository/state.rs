//! In-memory state of each AppRepository. A restart loses it: the database and the object decide what is due.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::api::NamespacedName;

/// States of objects by name. Missing entries have the default state, and default entries are dropped.
#[derive(Debug)]
pub struct ObjectStates<K, S>(Mutex<HashMap<K, S>>);

impl<K, S> Default for ObjectStates<K, S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash, S: Default + PartialEq> ObjectStates<K, S> {
    /// Reads a state while holding the lock.
    pub fn read<T>(&self, name: &K, read: impl FnOnce(&S) -> T) -> T {
        match self.0.lock().get(name) {
            Some(state) => read(state),
            None => read(&S::default()),
        }
    }

    /// Changes a state while holding the lock.
    pub fn update<T>(&self, name: &K, change: impl FnOnce(&mut S) -> T) -> T {
        let mut states = self.0.lock();
        let state = states.entry(name.clone()).or_default();
        let result = change(state);
        if *state == S::default() {
            states.remove(name);
        }
        result
    }
}

pub type RepositoryStates = Arc<ObjectStates<NamespacedName, RepositoryState>>;

#[derive(Debug, Default, PartialEq)]
pub struct RepositoryState {
    uid: Option<String>,
    /// Hash of the last status of an invalid object, which the cache does not hold.
    pub last_status: Option<u64>,
    /// Hash of the last event about an object that can't be reconciled, so that retries do not repeat it.
    pub last_event: Option<u64>,
    /// Requests a sync regardless of the schedule, e.g. after a referenced Secret changed.
    pub force_sync: bool,
    /// The UID of the deleted object whose charts may be removed (see [`super::garbage::orphans`]).
    pub approved_removal: Option<String>,
    /// All of Kubeapps' CronJobs are removed, or Portolan may not remove them.
    pub cron_jobs_removed: bool,
    /// Readiness and reason of the last reported result of a Job, so that only changes are events.
    pub job_result: Option<(bool, String)>,
    pub ignored_template: Option<String>,
}

impl RepositoryState {
    /// Returns true if the object is gone (no UID) or recreated. An approved removal stays: it belongs to charts.
    pub fn reset_unless_same(&mut self, uid: Option<String>) -> bool {
        // Without a UID, the state was set before the first reconcile of the object.
        let is_other = uid.is_none() || (self.uid.is_some() && self.uid != uid);
        if is_other {
            *self = Self {
                approved_removal: self.approved_removal.take(),
                ..Self::default()
            };
        }
        self.uid = uid;
        is_other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_becomes_the_default_is_dropped() {
        let states = ObjectStates::<&str, u8>::default();
        states.update(&"a", |state| *state = 7);
        states.update(&"b", |state| *state += 1);
        assert_eq!(states.read(&"a", |state| *state), 7);
        assert_eq!(states.update(&"a", std::mem::take), 7);
        assert_eq!(states.read(&"a", |state| *state), 0);
        assert_eq!(states.0.lock().len(), 1);
    }

    fn used(uid: Option<&str>, approved_removal: Option<&str>) -> RepositoryState {
        RepositoryState {
            uid: uid.map(str::to_owned),
            last_status: Some(1),
            last_event: Some(2),
            force_sync: true,
            approved_removal: approved_removal.map(str::to_owned),
            cron_jobs_removed: true,
            job_result: Some((true, "Synced".to_owned())),
            ignored_template: Some("labels".to_owned()),
        }
    }

    #[test]
    fn a_recreated_object_inherits_nothing() {
        let mut state = used(Some("first"), None);
        assert!(state.reset_unless_same(Some("second".to_owned())));
        let fresh = RepositoryState {
            uid: Some("second".to_owned()),
            ..RepositoryState::default()
        };
        assert_eq!(state, fresh);
    }

    #[test]
    fn only_an_approved_removal_survives_the_object() {
        for uid in [None, Some("first")] {
            let mut state = used(uid, None);
            assert!(state.reset_unless_same(None));
            assert_eq!(state, RepositoryState::default());
        }
        let mut state = used(Some("first"), Some("first"));
        assert!(state.reset_unless_same(None));
        let approved = RepositoryState {
            approved_removal: Some("first".to_owned()),
            ..RepositoryState::default()
        };
        assert_eq!(state, approved);
    }

    #[test]
    fn the_same_object_keeps_its_state_even_before_its_first_reconcile() {
        for uid in [None, Some("first")] {
            let mut state = used(uid, None);
            assert!(!state.reset_unless_same(Some("first".to_owned())));
            assert_eq!(state, used(Some("first"), None));
        }
    }
}
