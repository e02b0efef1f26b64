use std::collections::BTreeSet;

use super::{GroupKind, Resource};

/// The kinds that may be watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindFilter {
    /// Of any scope.
    pub named: BTreeSet<GroupKind>,
    /// Adds all namespaced kinds.
    pub has_all_namespaced: bool,
}

impl KindFilter {
    /// Returns false for a kind that is excluded in any scope, so that nothing needs to be discovered.
    pub(super) fn may_admit(&self, kind: &GroupKind) -> bool {
        self.has_all_namespaced || self.named.contains(kind)
    }

    pub(super) fn admits(&self, kind: &GroupKind, resource: &Resource) -> bool {
        self.named.contains(kind) || self.has_all_namespaced && resource.is_namespaced
    }
}
