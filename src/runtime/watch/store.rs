use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use kube::runtime::watcher::Event;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::Object;
use crate::api::is_older;

#[derive(Debug)]
pub(super) struct Store<K> {
    state: RwLock<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    /// By namespace, sorted by name; cluster-scoped objects have an empty namespace.
    objects: HashMap<Box<str>, Vec<Stored<K>>>,
    lists: u32,
    is_complete: bool,
    health: Health,
}

#[derive(Debug)]
struct Stored<K> {
    object: Arc<Object<K>>,
    /// Value of `lists` when the object was last seen.
    list: u32,
    /// Value of `lists` at our own write; set until the watch confirms the write.
    assumed: Option<NonZeroU32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    List,
    Watch,
    Write,
}

/// The errors of a watch; none if it is healthy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Health {
    pub(super) failed: Option<String>,
    /// Watching fails but listing works; objects are as old as the last list.
    pub(super) polled: Option<String>,
}

#[derive(Debug)]
pub(super) enum Change<K> {
    Object {
        old: Option<Arc<Object<K>>>,
        new: Option<Arc<Object<K>>>,
    },
    Listed {
        first: bool,
    },
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self {
            state: RwLock::new(State {
                objects: HashMap::new(),
                lists: 0,
                is_complete: false,
                health: Health::default(),
            }),
        }
    }
}

impl<K: PartialEq> Store<K> {
    /// Applies an event; returns the changes. Objects are not reported before the first list is complete.
    pub(super) fn apply(&self, event: Event<Object<K>>) -> Vec<Change<K>> {
        let mut state = self.write();
        match event {
            Event::Init => {
                state.lists = state.lists.wrapping_add(1);
                Vec::new()
            }
            Event::InitApply(object) => {
                let change = state.put(object, Source::List);
                change.filter(|_| state.is_complete).into_iter().collect()
            }
            Event::Apply(object) => state.put(object, Source::Watch).into_iter().collect(),
            Event::Delete(object) => {
                let old = state.remove(&object);
                old.map(|old| Change::Object {
                    old: Some(old),
                    new: None,
                })
                .into_iter()
                .collect()
            }
            Event::InitDone => {
                let mut changes = state.remove_unlisted();
                let first = !std::mem::replace(&mut state.is_complete, true);
                changes.push(Change::Listed { first });
                changes
            }
        }
    }

    /// Stores the result of our own write unless the store has a newer version, a deletion, or a recreated object.
    /// Older versions are ignored until the watch delivers the write or a list that began after it.
    ///
    /// Versions that cannot be compared are not stored; the next write then fails its version test.
    pub(super) fn assume(&self, object: Object<K>) -> Option<Change<K>> {
        let mut state = self.write();
        match state.find(namespace(&object), &object.name) {
            Some(stored) if stored.uid != object.uid || !is_older(&stored.version, &object.version) => return None,
            // Deleted since. Before the first list is complete, the object may just not be listed yet.
            None if state.is_complete => return None,
            _ => {}
        }
        let change = state.put(object, Source::Write);
        change.filter(|_| state.is_complete)
    }
}

impl<K> Store<K> {
    pub(super) fn is_complete(&self) -> bool {
        self.read().is_complete
    }

    /// Returns true if the first list is complete or has failed.
    pub(super) fn is_settled(&self) -> bool {
        let state = self.read();
        state.is_complete || state.health.failed.is_some()
    }

    /// Returns true if the objects are complete and current.
    pub(super) fn is_healthy(&self) -> bool {
        let state = self.read();
        state.is_complete && state.health.failed.is_none()
    }

    pub(super) fn health(&self) -> Health {
        self.read().health.clone()
    }

    pub(super) fn set_health(&self, health: Health) -> bool {
        let mut state = self.write();
        let has_changed = state.health != health;
        state.health = health;
        has_changed
    }

    /// Returns the objects of a namespace, sorted by name; the empty namespace has the cluster-scoped ones.
    pub(super) fn objects(&self, namespace: &str) -> Vec<Arc<Object<K>>> {
        let state = self.read();
        let objects = state.objects.get(namespace);
        objects
            .map(|objects| objects.iter().map(|stored| Arc::clone(&stored.object)).collect())
            .unwrap_or_default()
    }

    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<Arc<Object<K>>> {
        self.read().find(namespace, name).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.read().objects.values().map(Vec::len).sum()
    }

    fn read(&self) -> RwLockReadGuard<'_, State<K>> {
        self.state.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<K>> {
        self.state.write()
    }
}

impl<K: PartialEq> State<K> {
    fn put(&mut self, mut object: Object<K>, source: Source) -> Option<Change<K>> {
        // Copies the namespace once, not for each object.
        if !self.objects.contains_key(namespace(&object)) {
            self.objects.insert(namespace(&object).into(), Vec::new());
        }
        let lists = self.lists;
        let objects = self.objects.get_mut(namespace(&object))?;
        let found = position(objects, &object.name);
        let (Ok(at) | Err(at)) = found;
        let list = match (source, found) {
            // Only a list or a watch proves that the object still exists.
            (Source::Write, Ok(at)) => objects[at].list,
            (Source::Write, Err(_)) => lists.wrapping_sub(1),
            _ => lists,
        };
        if source != Source::Write
            && let Ok(at) = found
            && objects[at].is_newer_than(&object, source, lists)
        {
            objects[at].list = list;
            return None;
        }
        // The neighbors are the previous object, and the replaced or next one.
        for neighbor in [at.wrapping_sub(1), at] {
            if let Some(neighbor) = objects.get(neighbor) {
                object.share(&neighbor.object);
            }
        }
        let new_object = Arc::new(object);
        let new = Stored {
            object: Arc::clone(&new_object),
            list,
            assumed: NonZeroU32::new(lists).filter(|_| source == Source::Write),
        };
        let old = if found.is_ok() {
            Some(std::mem::replace(&mut objects[at], new).object)
        } else {
            objects.insert(at, new);
            None
        };
        let has_changed = old.as_ref().is_none_or(|old| **old != *new_object);
        has_changed.then_some(Change::Object {
            old,
            new: Some(new_object),
        })
    }

    fn remove_unlisted(&mut self) -> Vec<Change<K>> {
        let mut removed = Vec::new();
        let current = self.lists;
        self.objects.retain(|_, objects| {
            removed.extend(
                objects
                    .extract_if(.., |stored| stored.list != current)
                    .map(|stored| stored.object),
            );
            objects.shrink_to_fit();
            !objects.is_empty()
        });
        removed
            .into_iter()
            .map(|old| Change::Object {
                old: Some(old),
                new: None,
            })
            .collect()
    }
}

impl<K> Stored<K> {
    /// Returns true if `seen` predates our own write.
    fn is_newer_than(&self, seen: &Object<K>, source: Source, lists: u32) -> bool {
        let Some(assumed) = self.assumed else { return false };
        let began_after_write = source == Source::List && assumed.get() != lists;
        !began_after_write && self.object.uid == seen.uid && is_older(&seen.version, &self.object.version)
    }
}

impl<K> State<K> {
    fn find(&self, namespace: &str, name: &str) -> Option<&Arc<Object<K>>> {
        let objects = self.objects.get(namespace)?;
        let at = position(objects, name).ok()?;
        Some(&objects[at].object)
    }

    fn remove(&mut self, object: &Object<K>) -> Option<Arc<Object<K>>> {
        let objects = self.objects.get_mut(namespace(object))?;
        let at = position(objects, &object.name).ok()?;
        let old = objects.remove(at);
        if objects.is_empty() {
            self.objects.remove(namespace(object));
        }
        Some(old.object)
    }
}

fn namespace<K>(object: &Object<K>) -> &str {
    object.namespace.as_deref().unwrap_or_default()
}

fn position<K>(objects: &[Stored<K>], name: &str) -> Result<usize, usize> {
    objects.binary_search_by(|stored| (*stored.object.name).cmp(name))
}

#[cfg(test)]
mod tests;
