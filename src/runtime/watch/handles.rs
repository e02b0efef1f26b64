//! The watches of one kind, as they run and follow one another.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;

use super::GroupKind;
use super::discovery::Resource;
use super::kind_watch::{Events, News, Scope, Watch};
use super::planner::Need;
use super::store::{Store, Trouble};

/// The watches of one kind.
pub(super) struct Running<K> {
    pub(super) resource: Resource,
    pub(super) watches: BTreeMap<Scope, WatchHandle<K>>,
    /// Where it would have to be watched too, if there were not so many watches already.
    pub(super) left_out: BTreeSet<Scope>,
}

pub(super) struct WatchHandle<K> {
    pub(super) store: Arc<Store<K>>,
    task: AbortHandle,
}

impl<K> Drop for WatchHandle<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What is needed of the kinds that can be watched, for the plan.
pub(super) fn needs<K>(
    needed: &BTreeMap<GroupKind, BTreeSet<String>>,
    served: &HashMap<GroupKind, Resource>,
    running: &HashMap<GroupKind, Running<K>>,
) -> BTreeMap<GroupKind, Need> {
    let need = |(kind, namespaces): (&GroupKind, &BTreeSet<String>)| {
        let resource = served.get(kind).filter(|resource| resource.can_list)?;
        let watches = running.get(kind).map(|running| &running.watches);
        let wide = watches.and_then(|watches| watches.get(&Scope::All));
        let need = Need {
            namespaces: namespaces.clone(),
            is_namespaced: resource.is_namespaced,
            is_refused: wide.is_some_and(|watch| watch.store.trouble().failed.is_some()),
            running: watches.into_iter().flat_map(BTreeMap::keys).cloned().collect(),
        };
        Some((kind.clone(), need))
    };
    needed.iter().filter_map(need).collect()
}

impl<K> Running<K> {
    pub(super) fn of(resource: &Resource) -> Self {
        Self {
            resource: resource.clone(),
            watches: BTreeMap::new(),
            left_out: BTreeSet::new(),
        }
    }

    /// Stops the watches that are not wanted, as soon as those that are hold what there is, or know no less. Whether somebody has
    /// to look again: what a watch has not told yet is never told once it is stopped, and how its successor stands was told
    /// before anybody looked at that.
    pub(super) fn settle(&mut self, wanted: &BTreeSet<Scope>, namespaces: &BTreeSet<String>) -> bool {
        let is_needed = |scope: &Scope| match scope {
            Scope::All => true,
            Scope::Namespace(namespace) => namespaces.contains(namespace),
        };
        let all = |is_so: fn(&Store<K>) -> bool| {
            let mut watches = wanted.iter().map(|scope| self.watches.get(scope));
            watches.all(|watch| watch.is_some_and(|watch| is_so(&watch.store)))
        };
        let (are_sound, are_settled) = (all(Store::is_sound), all(Store::is_settled));
        let mut is_news = false;
        self.watches.retain(|scope, watch| {
            if wanted.contains(scope) || !is_needed(scope) {
                return wanted.contains(scope);
            }
            let has_failed = watch.store.trouble().failed.is_some();
            let is_replaced = are_sound || has_failed && are_settled;
            is_news |= is_replaced;
            !is_replaced
        });
        let left_out = namespaces.iter().cloned().map(Scope::Namespace);
        let left_out: BTreeSet<_> = left_out
            .filter(|scope| !wanted.contains(scope) && !wanted.contains(&Scope::All))
            .collect();
        is_news |= left_out != self.left_out;
        self.left_out = left_out;
        is_news
    }
}

impl<K: PartialEq + Send + Sync + 'static> WatchHandle<K> {
    pub(super) fn begin(
        what: String,
        sync_period: Duration,
        open: impl Fn() -> Events<K> + Send + Sync + 'static,
        told: impl Fn(News<K>) + Send + Sync + 'static,
    ) -> Self {
        tracing::debug!(what, "a watch begins");
        let store = Arc::new(Store::default());
        let watch = Watch {
            what,
            open: Box::new(open),
            store: Arc::clone(&store),
            sync_period,
            told: Box::new(told),
        };
        let task = tokio::spawn(watch.run()).abort_handle();
        Self { store, task }
    }

    /// Whether all changes are told.
    pub(super) fn is_followed(&self) -> bool {
        self.store.is_complete() && self.store.trouble() == Trouble::default()
    }
}
