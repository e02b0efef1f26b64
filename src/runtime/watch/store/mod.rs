use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use kube::runtime::watcher::Event;
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::api::{NamespacedName, is_older};

/// An object in a [`Store`]. Clones are cheap.
pub trait Stored: Clone {
    /// If false, the store reports objects only after the first complete list.
    const REPORTS_FIRST_LIST: bool;

    /// Empty for cluster-scoped objects.
    fn namespace(&self) -> &str;
    fn name(&self) -> &str;
    fn uid(&self) -> &str;
    fn version(&self) -> &str;

    /// Returns true if the replacement of `old` need not be reported.
    fn is_unchanged(&self, old: &Self, source: ChangeSource) -> bool;

    /// Shares equal parts with another object in the store, to save memory.
    fn share(&mut self, _neighbor: &Self) {}

    fn key(&self) -> NamespacedName {
        NamespacedName::new(self.namespace(), self.name())
    }
}

/// The last known state of all objects of a kind. Clones share the store.
#[derive(Clone, Debug)]
pub struct Store<T> {
    state: Arc<RwLock<State<T>>>,
    progress: Arc<watch::Sender<ListProgress>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ListProgress {
    #[default]
    Listing,
    /// The kind is not installed (yet).
    NotServed,
    Synced,
}

#[derive(Debug)]
struct State<T> {
    /// By namespace, sorted by name.
    objects: HashMap<Box<str>, Vec<Entry<T>>>,
    lists: u32,
    /// The newest version that a list or the watch has delivered.
    latest: u64,
    health: WatchHealth,
}

#[derive(Debug)]
struct Entry<T> {
    object: T,
    /// Value of `lists` when the object was last seen.
    list: u32,
    /// Value of `lists` at our own write; set until the watch confirms the write.
    assumed: Option<NonZeroU32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeSource {
    List,
    Watch,
    Write,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum WatchHealth {
    #[default]
    Healthy,
    Failed {
        message: String,
        /// The API server refuses the list.
        is_denied: bool,
    },
    /// Watching fails but listing works; objects are as old as the last list.
    Polled {
        reason: String,
        /// The API server refuses to watch.
        is_denied: bool,
    },
}

/// A change. The store already contains it.
#[derive(Debug)]
pub enum Change<T> {
    Applied {
        old: Option<T>,
        new: T,
        /// Part of a complete list instead of a separate event.
        is_listed: bool,
    },
    Deleted(T),
    /// Missing from a complete list, without a deletion event: the watch was interrupted.
    MissingFromList(T),
    /// A list is complete.
    Synced {
        is_first: bool,
    },
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        let state = State {
            objects: HashMap::new(),
            lists: 0,
            latest: 0,
            health: WatchHealth::Healthy,
        };
        Self {
            state: Arc::new(RwLock::new(state)),
            progress: Arc::default(),
        }
    }
}

impl<T: Stored> Store<T> {
    /// Applies an event; returns the changes. Of a repeated list, only changed objects are reported.
    pub fn apply(&self, event: Event<T>) -> Vec<Change<T>> {
        let mut state = self.state.write();
        match event {
            Event::Init => {
                state.lists = state.lists.wrapping_add(1);
                Vec::new()
            }
            Event::InitApply(object) => {
                let change = state.put(object, ChangeSource::List);
                change.filter(|_| self.is_reporting()).into_iter().collect()
            }
            Event::Apply(object) => state.put(object, ChangeSource::Watch).into_iter().collect(),
            Event::Delete(object) => {
                state.record_version(&object);
                state.remove(&object).map(Change::Deleted).into_iter().collect()
            }
            Event::InitDone => {
                let mut changes = state.remove_unlisted();
                let synced = |progress: &mut ListProgress| {
                    std::mem::replace(progress, ListProgress::Synced) != ListProgress::Synced
                };
                let is_first = self.progress.send_if_modified(synced);
                changes.push(Change::Synced { is_first });
                changes
            }
        }
    }

    /// Ignored if the store has a newer version, a deletion, or a recreated object. Older versions are ignored until
    /// the watch delivers the write or a list that began after it. Versions that cannot be compared are not stored; the
    /// next write then fails its version test.
    pub fn assume(&self, object: T) -> Option<Change<T>> {
        let mut state = self.state.write();
        match state.find(object.namespace(), object.name()) {
            Some(stored) if stored.uid() != object.uid() || !is_older(stored.version(), object.version()) => {
                return None;
            }
            // Deleted since. Before the first list is complete, the object may just not be listed yet.
            None if self.is_synced() => return None,
            _ => {}
        }
        let change = state.put(object, ChangeSource::Write);
        change.filter(|_| self.is_reporting())
    }

    /// Ignored if the store has an object of this name, or the watch has delivered the creation: then the object has
    /// been deleted since. A watch delivers in the order of versions: all that is older than its newest version, and
    /// nothing that is newer.
    ///
    /// A list does not tell its version. An object that is created, deleted and missed by a repeated list, all before
    /// this call, stays until the next list.
    pub fn assume_created(&self, object: T) -> Option<Change<T>> {
        let mut state = self.state.write();
        let is_known = state.find(object.namespace(), object.name()).is_some();
        if is_known || version_number(&object).is_none_or(|version| version <= state.latest) {
            return None;
        }
        let change = state.put(object, ChangeSource::Write);
        change.filter(|_| self.is_reporting())
    }

    fn is_reporting(&self) -> bool {
        T::REPORTS_FIRST_LIST || self.is_synced()
    }

    #[must_use]
    pub fn get(&self, name: &NamespacedName) -> Option<T> {
        self.find(&name.namespace, &name.name)
    }

    pub(super) fn find(&self, namespace: &str, name: &str) -> Option<T> {
        self.state.read().find(namespace, name).cloned()
    }

    /// Returns the objects of a namespace, sorted by name; the empty namespace has the cluster-scoped objects.
    #[must_use]
    pub fn objects(&self, namespace: &str) -> Vec<T> {
        let state = self.state.read();
        let objects = state.objects.get(namespace).into_iter().flatten();
        objects.map(|entry| entry.object.clone()).collect()
    }

    #[must_use]
    pub fn names(&self) -> Vec<NamespacedName> {
        let state = self.state.read();
        let entries = state.objects.values().flatten();
        entries.map(|entry| entry.object.key()).collect()
    }
}

impl<T> Store<T> {
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.read().objects.values().map(Vec::len).sum()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true after the first complete list; before, objects may be missing.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        *self.progress.borrow() == ListProgress::Synced
    }

    /// Returns true after the first complete list, and if there is none because the kind is not installed.
    #[must_use]
    pub fn is_synced_or_not_served(&self) -> bool {
        *self.progress.borrow() != ListProgress::Listing
    }

    pub async fn wait_until_synced(&self) {
        // Fails only without a sender, which `self` owns.
        let _ = (self.progress.subscribe())
            .wait_for(|progress| *progress == ListProgress::Synced)
            .await;
    }

    pub async fn wait_until_synced_or_not_served(&self) {
        // As above.
        let _ = (self.progress.subscribe())
            .wait_for(|progress| *progress != ListProgress::Listing)
            .await;
    }

    pub(super) fn set_not_served(&self) {
        self.progress.send_if_modified(|progress| {
            let is_first = *progress == ListProgress::Listing;
            if is_first {
                *progress = ListProgress::NotServed;
            }
            is_first
        });
    }

    /// Returns true if the first list is complete or has failed.
    pub(super) fn is_settled(&self) -> bool {
        self.is_synced() || self.has_failed()
    }

    /// Returns true if the objects are complete and current.
    pub(super) fn is_healthy(&self) -> bool {
        self.is_synced() && !self.has_failed()
    }

    pub(super) fn has_failed(&self) -> bool {
        matches!(self.state.read().health, WatchHealth::Failed { .. })
    }

    /// Returns true if objects may not be listed, or may not be watched.
    pub(super) fn is_denied(&self) -> bool {
        let health = &self.state.read().health;
        matches!(
            health,
            WatchHealth::Failed { is_denied: true, .. } | WatchHealth::Polled { is_denied: true, .. }
        )
    }

    pub(super) fn is_polled(&self) -> bool {
        matches!(self.state.read().health, WatchHealth::Polled { .. })
    }

    pub(super) fn health(&self) -> WatchHealth {
        self.state.read().health.clone()
    }

    pub(super) fn set_health(&self, health: WatchHealth) -> bool {
        let mut state = self.state.write();
        let has_changed = state.health != health;
        state.health = health;
        has_changed
    }
}

impl<T: Stored> State<T> {
    fn put(&mut self, mut object: T, source: ChangeSource) -> Option<Change<T>> {
        if object.name().is_empty() {
            tracing::warn!(namespace = object.namespace(), "skipping object without a name");
            return None;
        }
        if source != ChangeSource::Write {
            self.record_version(&object);
        }
        // Copies the namespace once, not for each object.
        if !self.objects.contains_key(object.namespace()) {
            self.objects.insert(object.namespace().into(), Vec::new());
        }
        let lists = self.lists;
        let entries = self.objects.get_mut(object.namespace())?;
        let place = position(entries, object.name());
        let (Ok(at) | Err(at)) = place;
        let list = match (source, place) {
            // Only a list or a watch proves that the object still exists.
            (ChangeSource::Write, Ok(at)) => entries[at].list,
            (ChangeSource::Write, Err(_)) => lists.wrapping_sub(1),
            _ => lists,
        };
        if source != ChangeSource::Write
            && let Ok(at) = place
            && entries[at].is_newer_than(&object, source, lists)
        {
            entries[at].list = list;
            return None;
        }
        // The replaced or next object, and the previous object. The previous object counts, since a replaced object may
        // be our own write, which shares nothing yet.
        for neighbor in [at, at.wrapping_sub(1)] {
            if let Some(neighbor) = entries.get(neighbor) {
                object.share(&neighbor.object);
            }
        }
        let entry = Entry {
            object: object.clone(),
            list,
            assumed: NonZeroU32::new(lists).filter(|_| source == ChangeSource::Write),
        };
        let old = if place.is_ok() {
            Some(std::mem::replace(&mut entries[at], entry).object)
        } else {
            entries.insert(at, entry);
            None
        };
        let is_unchanged = old.as_ref().is_some_and(|old| object.is_unchanged(old, source));
        (!is_unchanged).then_some(Change::Applied {
            old,
            new: object,
            is_listed: source == ChangeSource::List,
        })
    }

    fn record_version(&mut self, object: &T) {
        self.latest = self.latest.max(version_number(object).unwrap_or_default());
    }

    fn remove(&mut self, object: &T) -> Option<T> {
        let entries = self.objects.get_mut(object.namespace())?;
        let at = position(entries, object.name()).ok()?;
        let old = entries.remove(at);
        if entries.is_empty() {
            self.objects.remove(object.namespace());
        }
        Some(old.object)
    }

    fn remove_unlisted(&mut self) -> Vec<Change<T>> {
        let mut removed = Vec::new();
        let current = self.lists;
        self.objects.retain(|_, entries| {
            let unlisted = entries.extract_if(.., |entry| entry.list != current);
            removed.extend(unlisted.map(|entry| Change::MissingFromList(entry.object)));
            entries.shrink_to_fit();
            !entries.is_empty()
        });
        removed
    }

    fn find(&self, namespace: &str, name: &str) -> Option<&T> {
        let entries = self.objects.get(namespace)?;
        let at = position(entries, name).ok()?;
        Some(&entries[at].object)
    }
}

impl<T: Stored> Entry<T> {
    /// Returns true if `seen` predates our own write.
    fn is_newer_than(&self, seen: &T, source: ChangeSource, lists: u32) -> bool {
        let Some(assumed) = self.assumed else { return false };
        let began_after_write = source == ChangeSource::List && assumed.get() != lists;
        !began_after_write && self.object.uid() == seen.uid() && is_older(seen.version(), self.object.version())
    }
}

fn version_number<T: Stored>(object: &T) -> Option<u64> {
    object.version().parse().ok()
}

fn position<T: Stored>(entries: &[Entry<T>], name: &str) -> Result<usize, usize> {
    entries.binary_search_by(|entry| entry.object.name().cmp(name))
}

#[cfg(test)]
mod tests;
