//! The running watches of a kind and their replacement.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;

use super::discovery::{Resource, Served};
use super::error_policy::ErrorPolicy;
use super::events::ObjectEvents;
use super::planner::Demand;
use super::store::Store;
use super::watcher::{Notification, Watch};
use super::{GroupKind, Object, Scope, WatchSettings};

pub(super) struct KindWatches<K> {
    pub(super) resource: Resource,
    pub(super) watches: BTreeMap<Scope, WatchHandle<K>>,
    /// Scopes without a watch because of the limit.
    pub(super) omitted: BTreeSet<Scope>,
}

pub(super) struct WatchHandle<K> {
    pub(super) store: Store<Arc<Object<K>>>,
    task: AbortHandle,
}

impl<K> Drop for WatchHandle<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) fn demands<K>(
    subscribed: &BTreeMap<GroupKind, BTreeSet<String>>,
    served: &Served,
    running: &HashMap<GroupKind, KindWatches<K>>,
    settings: &WatchSettings,
) -> BTreeMap<GroupKind, Demand> {
    let demand = |(kind, namespaces): (&GroupKind, &BTreeSet<String>)| {
        let is_watched = |resource: &&Resource| resource.can_list && settings.kinds.admits(kind, resource);
        let resource = served.get(kind).filter(is_watched)?;
        let watches = running.get(kind).map(|running| &running.watches);
        let wide = watches.and_then(|watches| watches.get(&Scope::All));
        let demand = Demand {
            namespaces: namespaces.clone(),
            is_namespaced: resource.is_namespaced,
            is_wide_preferred: settings.prefers_cluster_wide,
            is_wide_refused: wide.is_some_and(|watch| watch.store.has_failed() && watch.store.is_denied()),
            running: watches.into_iter().flat_map(BTreeMap::keys).cloned().collect(),
        };
        Some((kind.clone(), demand))
    };
    subscribed.iter().filter_map(demand).collect()
}

impl<K> KindWatches<K> {
    pub(super) fn of(resource: &Resource) -> Self {
        Self {
            resource: resource.clone(),
            watches: BTreeMap::new(),
            omitted: BTreeSet::new(),
        }
    }

    /// Stops watches once their replacements are complete, or fail as well. Returns true if subscribers must check the
    /// kind again: a stopped watch loses unreported changes, and its replacement has reported before any read.
    pub(super) fn stop_unneeded(&mut self, desired: &BTreeSet<Scope>, namespaces: &BTreeSet<String>) -> bool {
        let is_needed = |scope: &Scope| match scope {
            Scope::All => true,
            Scope::Namespace(namespace) => namespaces.contains(namespace),
        };
        let all = |predicate: fn(&Store<Arc<Object<K>>>) -> bool| {
            let mut watches = desired.iter().map(|scope| self.watches.get(scope));
            watches.all(|watch| watch.is_some_and(|watch| predicate(&watch.store)))
        };
        let (are_healthy, are_settled) = (all(Store::is_healthy), all(Store::is_settled));
        let mut has_changed = false;
        self.watches.retain(|scope, watch| {
            if desired.contains(scope) || !is_needed(scope) {
                return desired.contains(scope);
            }
            let has_failed = watch.store.has_failed();
            let is_replaced = are_healthy || has_failed && are_settled;
            has_changed |= is_replaced;
            !is_replaced
        });
        let omitted = namespaces.iter().cloned().map(Scope::Namespace);
        let omitted: BTreeSet<_> = omitted
            .filter(|scope| !desired.contains(scope) && !desired.contains(&Scope::All))
            .collect();
        has_changed |= omitted != self.omitted;
        self.omitted = omitted;
        has_changed
    }
}

impl<K: PartialEq + Send + Sync + 'static> WatchHandle<K> {
    pub(super) fn start(
        description: String,
        policy: ErrorPolicy,
        relist_period: Option<Duration>,
        open: impl Fn() -> ObjectEvents<K> + Send + Sync + 'static,
        notify: impl Fn(Notification<Arc<Object<K>>>) + Send + Sync + 'static,
    ) -> Self {
        tracing::debug!(watch = description, "starting watch");
        let store = Store::default();
        let watch = Watch {
            description,
            open: Box::new(open),
            store: store.clone(),
            policy,
            relist_period,
            notify: Box::new(notify),
        };
        let task = tokio::spawn(watch.run_despite_panics()).abort_handle();
        Self { store, task }
    }

    pub(super) fn is_live(&self) -> bool {
        self.store.is_healthy() && !self.store.is_polled()
    }
}
