use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::GroupKind;

pub(super) struct Subscriptions<U> {
    by_user: BTreeMap<U, (String, Box<[GroupKind]>)>,
    by_kind: BTreeMap<GroupKind, BTreeMap<String, usize>>,
    /// Kinds and namespaces that lost their last user, and until when they stay subscribed.
    unused: BTreeMap<(GroupKind, String), Instant>,
    linger: Duration,
    /// Number of kinds above which kinds without a user are dropped: they would keep others from being watched.
    limit: usize,
}

impl<U: Ord> Subscriptions<U> {
    pub(super) fn new(linger: Duration, limit: usize) -> Self {
        Self {
            by_user: BTreeMap::new(),
            by_kind: BTreeMap::new(),
            unused: BTreeMap::new(),
            linger,
            limit,
        }
    }

    pub(super) fn set(&mut self, user: U, namespace: &str, kinds: BTreeSet<GroupKind>) -> bool {
        if self
            .by_user
            .get(&user)
            .is_some_and(|(old, old_kinds)| old == namespace && old_kinds.iter().eq(&kinds))
        {
            return false;
        }
        for kind in &kinds {
            self.unused.remove(&(kind.clone(), namespace.to_owned()));
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
                    if !self.linger.is_zero() {
                        let key = (kind.clone(), namespace.to_owned());
                        self.unused.insert(key, Instant::now() + self.linger);
                    }
                }
            }
            if namespaces.is_empty() {
                self.by_kind.remove(kind);
            }
        }
    }

    pub(super) fn namespaces(&mut self) -> BTreeMap<GroupKind, BTreeSet<String>> {
        let now = Instant::now();
        self.unused.retain(|_, end| *end > now);
        let kinds = self.by_kind.iter();
        let mut subscribed: BTreeMap<GroupKind, BTreeSet<String>> = kinds
            .map(|(kind, namespaces)| (kind.clone(), namespaces.keys().cloned().collect()))
            .collect();
        let unused = self.unused.keys().map(|(kind, _)| kind);
        let all: BTreeSet<_> = unused.chain(self.by_kind.keys()).collect();
        if all.len() > self.limit {
            self.unused.clear();
        }
        for (kind, namespace) in self.unused.keys() {
            subscribed.entry(kind.clone()).or_default().insert(namespace.clone());
        }
        subscribed
    }

    pub(super) fn next_end(&self) -> Option<Instant> {
        self.unused.values().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(names: &[&str]) -> BTreeSet<GroupKind> {
        names.iter().map(|name| GroupKind::new("", *name)).collect()
    }

    fn summary(subscriptions: &mut Subscriptions<&str>) -> Vec<String> {
        let namespaces = subscriptions.namespaces();
        let format = |(kind, namespaces): (GroupKind, BTreeSet<String>)| {
            format!("{kind}: {}", namespaces.into_iter().collect::<Vec<_>>().join(" "))
        };
        namespaces.into_iter().map(format).collect()
    }

    #[test]
    fn a_kind_stays_subscribed_until_its_last_user_leaves() {
        let mut subscriptions = Subscriptions::new(Duration::ZERO, 10);
        assert!(subscriptions.set("a", "shop", kinds(&["Pod", "Service"])));
        assert!(subscriptions.set("b", "shop", kinds(&["Pod"])));
        assert!(subscriptions.set("c", "bank", kinds(&["Pod"])));
        assert_eq!(summary(&mut subscriptions), ["Pod: bank shop", "Service: shop"]);
        assert!(subscriptions.remove(&"a"));
        assert_eq!(summary(&mut subscriptions), ["Pod: bank shop"]);
        assert!(subscriptions.remove(&"b") && subscriptions.remove(&"c") && !subscriptions.remove(&"c"));
        assert!(summary(&mut subscriptions).is_empty());
    }

    #[test]
    fn a_subscription_replaces_the_previous_one() {
        let mut subscriptions = Subscriptions::new(Duration::ZERO, 10);
        subscriptions.set("a", "shop", kinds(&["Pod"]));
        assert!(!subscriptions.set("a", "shop", kinds(&["Pod"])));
        assert!(subscriptions.set("a", "shop", kinds(&["Service"])));
        assert_eq!(summary(&mut subscriptions), ["Service: shop"]);
        assert!(subscriptions.set("a", "shop", kinds(&[])));
        assert!(summary(&mut subscriptions).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_without_users_lingers_unless_others_need_its_place() {
        let minute = Duration::from_mins(1);
        let mut subscriptions = Subscriptions::new(10 * minute, 2);
        subscriptions.set("a", "shop", kinds(&["Pod", "Service"]));
        subscriptions.set("a", "shop", kinds(&["Pod"]));
        tokio::time::advance(9 * minute).await;
        assert_eq!(summary(&mut subscriptions), ["Pod: shop", "Service: shop"]);
        assert_eq!(subscriptions.next_end(), Some(Instant::now() + minute));
        // A user that comes back in time.
        subscriptions.set("b", "shop", kinds(&["Service"]));
        subscriptions.remove(&"b");
        tokio::time::advance(9 * minute).await;
        assert_eq!(summary(&mut subscriptions), ["Pod: shop", "Service: shop"]);
        subscriptions.set("b", "shop", kinds(&["Secret"]));
        assert_eq!(summary(&mut subscriptions), ["Pod: shop", "Secret: shop"]);
        subscriptions.remove(&"b");
        tokio::time::advance(10 * minute).await;
        assert_eq!(summary(&mut subscriptions), ["Pod: shop"]);
        assert_eq!(subscriptions.next_end(), None);
    }
}
