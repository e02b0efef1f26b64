//! What one watch has seen.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kube::runtime::watcher::Event;

use super::Object;

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
                let change = state.put(object);
                change.filter(|_| state.is_complete).into_iter().collect()
            }
            Event::Apply(object) => state.put(object).into_iter().collect(),
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
    fn put(&mut self, mut object: Object<K>) -> Option<Change<K>> {
        // The namespace is copied once, not for each of its objects.
        if !self.objects.contains_key(namespace(&object)) {
            self.objects.insert(namespace(&object).into(), Vec::new());
        }
        let objects = self.objects.get_mut(namespace(&object))?;
        let found = place(objects, &object.name);
        let (Ok(at) | Err(at)) = found;
        // The one in front; what it was itself, or the one behind.
        for beside in [at.wrapping_sub(1), at] {
            if let Some(beside) = objects.get(beside) {
                object.share(&beside.object);
            }
        }
        let new_object = Arc::new(object);
        let new = Stored {
            object: Arc::clone(&new_object),
            list: self.lists,
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

impl<K> State<K> {
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
    fn what_is_alike_of_objects_side_by_side_is_held_once() {
        let labelled = |name: &str, app: &str, owner: &str| {
            let meta = serde_json::json!({
                "name": name, "namespace": "shop", "labels": { "app": app },
                "ownerReferences": [{ "apiVersion": "v1", "kind": "X", "name": owner, "uid": owner }],
            });
            Object::new(serde_json::from_value(meta).unwrap(), 1)
        };
        let store = Store::default();
        let objects = vec![
            labelled("c", "x", "u"),
            labelled("a", "x", "u"),
            labelled("b", "y", "u"),
            labelled("b", "x", "v"),
        ];
        told(&store, list(objects));
        let seen = store.objects("shop");
        let text = |at: usize| seen[at].labels.get("app").map(str::as_ptr);
        assert_eq!((text(0), text(1)), (text(2), text(2)), "the same text");
        let namespace = |at: usize| seen[at].namespace.as_deref().map(str::as_ptr);
        assert_eq!((namespace(0), namespace(1)), (namespace(2), namespace(2)));
        let owners: Vec<_> = seen.iter().map(|object| object.owner_references.has("u")).collect();
        assert_eq!(owners, [true, false, true], "what is otherwise stays so");
        told(&store, vec![Event::Apply(labelled("b", "x", "u"))]);
        let seen = store.objects("shop");
        for other in &seen[1..] {
            assert!(seen[0].owner_references.is_one_with(&other.owner_references));
        }
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
