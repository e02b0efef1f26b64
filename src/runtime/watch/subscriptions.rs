use std::collections::{BTreeMap, BTreeSet};

use super::GroupKind;

/// The kinds that each user subscribes to.
pub(super) struct Subscriptions<U> {
    by_user: BTreeMap<U, (String, Box<[GroupKind]>)>,
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
    pub(super) fn set(&mut self, user: U, namespace: &str, kinds: BTreeSet<GroupKind>) -> bool {
        if self
            .by_user
            .get(&user)
            .is_some_and(|(old, old_kinds)| old == namespace && old_kinds.iter().eq(&kinds))
        {
            return false;
        }
        for kind in &kinds {
            let namespaces = self.by_kind.entry(kind.clone()).or_default();
            *namespaces.entry(namespace.to_owned()).or_default() += 1;
        }
        let kinds = kinds.into_iter().collect();
        if let Some((namespace, kinds)) = self.by_user.insert(user, (namespace.to_owned(), kinds)) {
            self.release(&namespace, &kinds);
        }
        true
    }

    pub(super) fn remove(&mut self, user: &U) -> bool {
        let Some((namespace, kinds)) = self.by_user.remove(user) else {
            return false;
        };
        self.release(&namespace, &kinds);
        true
    }

    fn release(&mut self, namespace: &str, kinds: &[GroupKind]) {
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

    fn summary(subscriptions: &Subscriptions<&str>) -> Vec<String> {
        let namespaces = subscriptions.namespaces();
        let format = |(kind, namespaces): (GroupKind, BTreeSet<String>)| {
            format!("{kind}: {}", namespaces.into_iter().collect::<Vec<_>>().join(" "))
        };
        namespaces.into_iter().map(format).collect()
    }

    #[test]
    fn a_kind_stays_subscribed_until_its_last_user_leaves() {
        let mut subscriptions = Subscriptions::default();
        assert!(subscriptions.set("a", "shop", kinds(&["Pod", "Service"])));
        assert!(subscriptions.set("b", "shop", kinds(&["Pod"])));
        assert!(subscriptions.set("c", "bank", kinds(&["Pod"])));
        assert_eq!(summary(&subscriptions), ["Pod: bank shop", "Service: shop"]);
        assert!(subscriptions.remove(&"a"));
        assert_eq!(summary(&subscriptions), ["Pod: bank shop"]);
        assert!(subscriptions.remove(&"b") && subscriptions.remove(&"c") && !subscriptions.remove(&"c"));
        assert!(summary(&subscriptions).is_empty());
    }

    #[test]
    fn a_subscription_replaces_the_previous_one() {
        let mut subscriptions = Subscriptions::default();
        subscriptions.set("a", "shop", kinds(&["Pod"]));
        assert!(!subscriptions.set("a", "shop", kinds(&["Pod"])));
        assert!(subscriptions.set("a", "shop", kinds(&["Service"])));
        assert_eq!(summary(&subscriptions), ["Service: shop"]);
        assert!(subscriptions.set("a", "shop", kinds(&[])));
        assert!(summary(&subscriptions).is_empty());
    }
}
