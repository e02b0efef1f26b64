//! What one watch has seen.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kube::runtime::watcher::Event;

use super::Object;

/// The objects of a watch, and how the watch stands.
#[derive(Debug)]
pub(super) struct Store<K> {
    state: RwLock<State<K>>,
}

type ByName<K> = BTreeMap<Box<str>, Arc<Object<K>>>;

#[derive(Debug)]
struct State<K> {
    /// By namespace; objects without one are in the one without a name.
    objects: HashMap<Box<str>, ByName<K>>,
    /// Those of a list that has begun and not ended.
    listed: HashSet<(Box<str>, Box<str>)>,
    is_complete: bool,
    trouble: Trouble,
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
                listed: HashSet::new(),
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
                state.listed.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                let key = key(&object);
                state.listed.insert(key);
                let change = state.put(object);
                change.filter(|_| state.is_complete).into_iter().collect()
            }
            Event::Apply(object) => state.put(object).into_iter().collect(),
            Event::Delete(object) => {
                let (namespace, name) = key(&object);
                let old = state.remove(&namespace, &name);
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
            .map(|objects| objects.values().cloned().collect())
            .unwrap_or_default()
    }

    /// The number of all objects.
    pub(super) fn len(&self) -> usize {
        self.read().objects.values().map(BTreeMap::len).sum()
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
    fn put(&mut self, object: Object<K>) -> Option<Change<K>> {
        let (namespace, name) = key(&object);
        let objects = self.objects.entry(namespace).or_default();
        let is_news = objects.get(&name).is_none_or(|old| **old != object);
        let new = Arc::new(object);
        let old = objects.insert(name, Arc::clone(&new));
        is_news.then_some(Change::Object { old, new: Some(new) })
    }

    fn remove_unlisted(&mut self) -> Vec<Change<K>> {
        let listed = std::mem::take(&mut self.listed);
        let gone: Vec<_> = self
            .objects
            .values()
            .flat_map(BTreeMap::values)
            .map(|object| key(object))
            .filter(|key| !listed.contains(key))
            .collect();
        gone.into_iter()
            .filter_map(|(namespace, name)| self.remove(&namespace, &name))
            .map(|old| Change::Object {
                old: Some(old),
                new: None,
            })
            .collect()
    }
}

impl<K> State<K> {
    fn remove(&mut self, namespace: &str, name: &str) -> Option<Arc<Object<K>>> {
        let objects = self.objects.get_mut(namespace)?;
        let old = objects.remove(name);
        if objects.is_empty() {
            self.objects.remove(namespace);
        }
        old
    }
}

fn key<K>(object: &Object<K>) -> (Box<str>, Box<str>) {
    (object.namespace.clone().unwrap_or_default(), object.name.clone())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn object(name: &str, kept: u32) -> Object<u32> {
        let meta = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("shop".to_owned()),
            uid: Some(format!("uid-{name}")),
            ..ObjectMeta::default()
        };
        Object::new(meta, kept)
    }

    fn told(store: &Store<u32>, events: Vec<Event<Object<u32>>>) -> Vec<String> {
        let kept = |object: &Option<Arc<Object<u32>>>| object.as_ref().map_or(String::new(), |o| o.kept.to_string());
        events
            .into_iter()
            .flat_map(|event| store.take(event))
            .map(|change| match change {
                Change::Object { old, new } => format!("{}>{}", kept(&old), kept(&new)),
                Change::Listed { first } => if first { "first" } else { "listed" }.to_owned(),
            })
            .collect()
    }

    fn list(objects: Vec<Object<u32>>) -> Vec<Event<Object<u32>>> {
        let objects = objects.into_iter().map(Event::InitApply);
        [Event::Init]
            .into_iter()
            .chain(objects)
            .chain([Event::InitDone])
            .collect()
    }

    #[test]
    fn the_first_list_is_told_as_a_whole() {
        let store = Store::default();
        assert_eq!(told(&store, list(vec![object("b", 2), object("a", 1)])), ["first"]);
        let names: Vec<_> = store.objects("shop").iter().map(|o| o.name.to_string()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!((store.len(), store.objects("other").len()), (2, 0));
    }

    #[test]
    fn an_object_that_is_as_before_is_not_told() {
        let store = Store::default();
        told(&store, list(vec![object("a", 1)]));
        let events = vec![
            Event::Apply(object("a", 1)),
            Event::Apply(object("a", 2)),
            Event::Delete(object("a", 2)),
        ];
        assert_eq!(told(&store, events), ["1>2", "2>"]);
    }

    #[test]
    fn a_later_list_tells_what_was_missed() {
        let store = Store::default();
        told(&store, list(vec![object("a", 1), object("b", 1)]));
        assert_eq!(
            told(&store, list(vec![object("b", 2), object("c", 1)])),
            ["1>2", ">1", "1>", "listed"]
        );
    }

    #[test]
    fn a_list_that_is_broken_off_removes_nothing() {
        let store = Store::default();
        told(&store, list(vec![object("a", 1), object("b", 1)]));
        let broken = vec![Event::Init, Event::InitApply(object("a", 1)), Event::Init];
        assert!(told(&store, broken).is_empty());
        assert_eq!(
            told(&store, vec![Event::InitApply(object("b", 1)), Event::InitDone]),
            ["1>", "listed"]
        );
    }

    #[test]
    fn a_deletion_of_what_was_never_seen_is_no_news() {
        assert!(told(&Store::default(), vec![Event::Delete(object("a", 1))]).is_empty());
    }
}
