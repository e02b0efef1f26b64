use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use crate::api::NamespacedName;
use crate::runtime::watch::GroupKind;

#[derive(Default)]
pub(super) struct Subscribers(Mutex<BTreeMap<NamespacedName, BTreeSet<GroupKind>>>);

impl Subscribers {
    pub(super) fn set(&self, application: &NamespacedName, kinds: BTreeSet<GroupKind>) {
        self.0.lock().insert(application.clone(), kinds);
    }

    pub(super) fn remove(&self, application: &NamespacedName) {
        self.0.lock().remove(application);
    }

    pub(super) fn applications_of(&self, kind: &GroupKind) -> Vec<NamespacedName> {
        let applications = self.0.lock();
        let subscribed = applications.iter().filter(|(_, kinds)| kinds.contains(kind));
        subscribed.map(|(application, _)| application.clone()).collect()
    }
}
