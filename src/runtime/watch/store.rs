//! What one watch has seen.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kube::runtime::watcher::Event;

use super::Object;
use crate::api::is_older;

/// The objects of a watch, and how the watch stands.
#[derive(Debug)]
pub(super) struct Store<K> {
    state: RwLock<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    /// By namespace, and by name in each; objects without a namespace are in the one without a name.
    objects: HashMap<Box<str>, Vec<Stored<K>>>,
    /// How many lists have begun.
    lists: u32,
    is_complete: bool,
    trouble: Trouble,
}

#[derive(Debug)]
struct Stored<K> {
    object: Arc<Object<K>>,
    /// How many lists had begun when it was seen last.
    list: u32,
    /// Set while the object is the assumed result of our own write: how many lists had begun at the time of the write.
    assumed: Option<NonZeroU32>,
}

/// The origin of an object that a store accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    List,
    Watch,
    Write,
}

/// What is the matter with a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Trouble {
    /// The objects can't be listed: why.
    pub(super) failed: Option<String>,
    /// They can be listed, but not watched: why. They are as old as the last list.
    pub(super) polled: Option<String>,
}

/// What an event has changed.
#[derive(Debug)]
pub(super) enum Change<K> {
    /// One object. What is there of it now, and what was there before.
    Object {
        old: Option<Arc<Object<K>>>,
        new: Option<Arc<Object<K>>>,
    },
    /// A list is complete; whether it is the first.
    Listed { first: bool },
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self {
            state: RwLock::new(State {
                objects: HashMap::new(),
                lists: 0,
                is_complete: false,
                trouble: Trouble::default(),
            }),
        }
    }
}

impl<K: PartialEq> Store<K> {
    /// Takes an event in, and tells what is otherwise than before. Before the first list is complete nothing is told of objects.
    pub(super) fn take(&self, event: Event<Object<K>>) -> Vec<Change<K>> {
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

    /// Replaces an object by the result of our own write, unless the store has seen this version or a newer one, a deletion, or
    /// another object of the same name. Older objects are ignored until the watch shows the write, or a list that began after it.
    /// An object whose version can't be compared is not assumed: the next write then fails its test of the version.
    pub(super) fn assume(&self, object: Object<K>) -> Option<Change<K>> {
        let mut state = self.write();
        match state.find(namespace(&object), &object.name) {
            Some(stored) if stored.uid != object.uid || !is_older(&stored.version, &object.version) => return None,
            // Deleted since. The first list may have begun before the write, and not have come to the object yet.
            None if state.is_complete => return None,
            _ => {}
        }
        let change = state.put(object, Source::Write);
        change.filter(|_| state.is_complete)
    }
}

impl<K> Store<K> {
    /// Whether a complete list has been seen.
    pub(super) fn is_complete(&self) -> bool {
        self.read().is_complete
    }

    /// Whether it is known how things stand: there is a list, or it is known why there is none.
    pub(super) fn is_settled(&self) -> bool {
        let state = self.read();
        state.is_complete || state.trouble.failed.is_some()
    }

    /// Whether what it holds can be relied upon.
    pub(super) fn is_sound(&self) -> bool {
        let state = self.read();
        state.is_complete && state.trouble.failed.is_none()
    }

    pub(super) fn trouble(&self) -> Trouble {
        self.read().trouble.clone()
    }

    /// Says what is the matter; whether that is news.
    pub(super) fn set_trouble(&self, trouble: Trouble) -> bool {
        let mut state = self.write();
        let is_news = state.trouble != trouble;
        state.trouble = trouble;
        is_news
    }

    /// The objects of a namespace by their names; of kinds without namespaces, those of the empty one.
    pub(super) fn objects(&self, namespace: &str) -> Vec<Arc<Object<K>>> {
        let state = self.read();
        let objects = state.objects.get(namespace);
        objects
            .map(|objects| objects.iter().map(|stored| Arc::clone(&stored.object)).collect())
            .unwrap_or_default()
    }

    /// The object of this name.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<Arc<Object<K>>> {
        self.read().find(namespace, name).cloned()
    }

    /// The number of all objects.
    pub(super) fn len(&self) -> usize {
        self.read().objects.values().map(Vec::len).sum()
    }

    fn read(&self) -> RwLockReadGuard<'_, State<K>> {
        // Nothing that can panic runs under the lock, so what it holds is whole.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<K>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: PartialEq> State<K> {
    fn put(&mut self, mut object: Object<K>, source: Source) -> Option<Change<K>> {
        // The namespace is copied once, not for each of its objects.
        if !self.objects.contains_key(namespace(&object)) {
            self.objects.insert(namespace(&object).into(), Vec::new());
        }
        let lists = self.lists;
        let objects = self.objects.get_mut(namespace(&object))?;
        let found = place(objects, &object.name);
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
        // The one in front; what it was itself, or the one behind.
        for beside in [at.wrapping_sub(1), at] {
            if let Some(beside) = objects.get(beside) {
                object.share(&beside.object);
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
        let is_news = old.as_ref().is_none_or(|old| **old != *new_object);
        is_news.then_some(Change::Object {
            old,
            new: Some(new_object),
        })
    }

    /// Takes out what was not seen since the last list began.
    fn remove_unlisted(&mut self) -> Vec<Change<K>> {
        let mut gone = Vec::new();
        let current = self.lists;
        self.objects.retain(|_, objects| {
            gone.extend(
                objects
                    .extract_if(.., |stored| stored.list != current)
                    .map(|stored| stored.object),
            );
            objects.shrink_to_fit();
            !objects.is_empty()
        });
        gone.into_iter()
            .map(|old| Change::Object {
                old: Some(old),
                new: None,
            })
            .collect()
    }
}

impl<K> Stored<K> {
    /// Returns true if `seen` is from before our own write.
    fn is_newer_than(&self, seen: &Object<K>, source: Source, lists: u32) -> bool {
        let Some(assumed) = self.assumed else { return false };
        let began_after_write = source == Source::List && assumed.get() != lists;
        !began_after_write && self.object.uid == seen.uid && is_older(&seen.version, &self.object.version)
    }
}

impl<K> State<K> {
    fn find(&self, namespace: &str, name: &str) -> Option<&Arc<Object<K>>> {
        let objects = self.objects.get(namespace)?;
        let at = place(objects, name).ok()?;
        Some(&objects[at].object)
    }

    fn remove(&mut self, object: &Object<K>) -> Option<Arc<Object<K>>> {
        let objects = self.objects.get_mut(namespace(object))?;
        let at = place(objects, &object.name).ok()?;
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

/// Where the object of this name is, or would have to be.
fn place<K>(objects: &[Stored<K>], name: &str) -> Result<usize, usize> {
    objects.binary_search_by(|stored| (*stored.object.name).cmp(name))
}

#[cfg(test)]
mod tests;
