use std::collections::BTreeSet;

use super::{GroupKind, Resource};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindFilter {
    /// Of any scope.
    pub named: BTreeSet<GroupKind>,
    pub has_all_namespaced: bool,
    pub has_all_cluster_scoped: bool,
}

impl KindFilter {
    #[must_use]
    pub fn all() -> Self {
        Self {
            named: BTreeSet::new(),
            has_all_namespaced: true,
            has_all_cluster_scoped: true,
        }
    }

    /// Returns false for a kind that is excluded in any scope, so that nothing needs to be discovered.
    pub(super) fn may_admit(&self, kind: &GroupKind) -> bool {
        self.has_all_namespaced || self.has_all_cluster_scoped || self.named.contains(kind)
    }

    pub(super) fn admits(&self, kind: &GroupKind, resource: &Resource) -> bool {
        let has_all = if resource.is_namespaced {
            self.has_all_namespaced
        } else {
            self.has_all_cluster_scoped
        };
        has_all || self.named.contains(kind)
    }
}
