//! Who needs which kinds, and where: counted, so that what nobody needs any more is known.

use std::collections::{BTreeMap, BTreeSet};

use super::GroupKind;

/// Who needs what.
pub(super) struct Subscriptions<U> {
    by_user: BTreeMap<U, (String, Box<[GroupKind]>)>,
    /// The number of users of each kind in each namespace.
    by_kind: BTreeMap<GroupKind, BTreeMap<String, usize>>,
}

impl<U> Default for Subscriptions<U> {
    fn default() -> Self {
        Self {
            by_user: BTreeMap::new(),
            by_kind: BTreeMap::new(),
        }
    }
}

impl<U: Ord> Subscriptions<U> {
    /// Sets what a user needs; whether that changes anything.
    pub(super) fn set(&mut self, user: U, namespace: &str, kinds: BTreeSet<GroupKind>) -> bool {
        if self
            .by_user
            .get(&user)
            .is_some_and(|(old, had)| old == namespace && had.iter().eq(&kinds))
        {
            return false;
        }
        for kind in &kinds {
            let namespaces = self.by_kind.entry(kind.clone()).or_default();
            *namespaces.entry(namespace.to_owned()).or_default() += 1;
        }
        let kinds = kinds.into_iter().collect();
        if let Some((namespace, kinds)) = self.by_user.insert(user, (namespace.to_owned(), kinds)) {
            self.give_back(&namespace, &kinds);
        }
        true
    }

    /// Takes away what a user needs; whether that changes anything.
    pub(super) fn remove(&mut self, user: &U) -> bool {
        let Some((namespace, kinds)) = self.by_user.remove(user) else {
            return false;
        };
        self.give_back(&namespace, &kinds);
        true
    }

    fn give_back(&mut self, namespace: &str, kinds: &[GroupKind]) {
        for kind in kinds {
            let Some(namespaces) = self.by_kind.get_mut(kind) else {
                continue;
            };
            if let Some(count) = namespaces.get_mut(namespace) {
                *count -= 1;
                if *count == 0 {
                    namespaces.remove(namespace);
                }
            }
            if namespaces.is_empty() {
                self.by_kind.remove(kind);
            }
        }
    }

    /// The namespaces in which each kind is needed.
    pub(super) fn namespaces(&self) -> BTreeMap<GroupKind, BTreeSet<String>> {
        let kinds = self.by_kind.iter();
        kinds
            .map(|(kind, namespaces)| (kind.clone(), namespaces.keys().cloned().collect()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(names: &[&str]) -> BTreeSet<GroupKind> {
        names.iter().map(|name| GroupKind::new("", *name)).collect()
    }

    fn shown(needs: &Subscriptions<&str>) -> Vec<String> {
        let namespaces = needs.namespaces();
        let show = |(kind, namespaces): (GroupKind, BTreeSet<String>)| {
            format!("{kind}: {}", namespaces.into_iter().collect::<Vec<_>>().join(" "))
        };
        namespaces.into_iter().map(show).collect()
    }

    #[test]
    fn a_kind_is_needed_as_long_as_one_user_needs_it() {
        let mut needs = Subscriptions::default();
        assert!(needs.set("a", "shop", kinds(&["Pod", "Service"])));
        assert!(needs.set("b", "shop", kinds(&["Pod"])));
        assert!(needs.set("c", "bank", kinds(&["Pod"])));
        assert_eq!(shown(&needs), ["Pod: bank shop", "Service: shop"]);
        assert!(needs.remove(&"a"));
        assert_eq!(shown(&needs), ["Pod: bank shop"]);
        assert!(needs.remove(&"b") && needs.remove(&"c") && !needs.remove(&"c"));
        assert!(shown(&needs).is_empty());
    }

    #[test]
    fn a_user_needs_what_it_said_last() {
        let mut needs = Subscriptions::default();
        needs.set("a", "shop", kinds(&["Pod"]));
        assert!(!needs.set("a", "shop", kinds(&["Pod"])));
        assert!(needs.set("a", "shop", kinds(&["Service"])));
        assert_eq!(shown(&needs), ["Service: shop"]);
        assert!(needs.set("a", "shop", kinds(&[])));
        assert!(shown(&needs).is_empty());
    }
}
