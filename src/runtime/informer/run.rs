use std::{collections::HashSet, fmt::Display};

use futures::{Stream, StreamExt};
use kube::{Resource, core::DeserializeGuard, runtime::watcher::Event};

use super::{Seen, Store};
use crate::api::NamespacedName;

/// A change. The store already contains it.
#[derive(Debug)]
pub enum Change<K> {
    Applied {
        name: NamespacedName,
        old: Option<Seen<K>>,
        new: Seen<K>,
        /// Part of a complete list instead of a separate event.
        initial: bool,
    },
    Removed {
        name: NamespacedName,
        old: Seen<K>,
        /// Missing from a complete list, without a deletion event: the watch was interrupted.
        vanished: bool,
    },
    Listed,
}

/// Applies events to `store` and calls `on_change` in order, until the events end.
///
/// Of a repeated list, only changed objects are reported. The event source handles errors.
pub async fn run<K, E>(
    events: impl Stream<Item = Result<Event<DeserializeGuard<K>>, E>>,
    store: Store<K>,
    on_change: impl FnMut(Change<K>),
) where
    K: Resource<DynamicType = ()>,
    E: Display,
{
    let mut informer = Informer {
        store,
        on_change,
        listed: HashSet::new(),
    };
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => informer.handle(event),
            Err(error) => tracing::debug!(%error, "watch returned an error"),
        }
    }
}

struct Informer<K, F> {
    store: Store<K>,
    on_change: F,
    listed: HashSet<NamespacedName>,
}

impl<K: Resource<DynamicType = ()>, F: FnMut(Change<K>)> Informer<K, F> {
    fn handle(&mut self, event: Event<DeserializeGuard<K>>) {
        match event {
            Event::Init => {
                self.listed.clear();
                self.store.begin_list();
            }
            Event::InitApply(object) => {
                if let Some(name) = self.apply(object, true) {
                    self.listed.insert(name);
                }
            }
            Event::InitDone => self.finish_list(),
            Event::Apply(object) => drop(self.apply(object, false)),
            Event::Delete(object) => {
                let old = Seen::from(object);
                if let Some(name) = NamespacedName::of(old.meta()) {
                    self.store.remove(&name);
                    (self.on_change)(Change::Removed {
                        name,
                        old,
                        vanished: false,
                    });
                }
            }
        }
    }

    fn apply(&mut self, object: DeserializeGuard<K>, initial: bool) -> Option<NamespacedName> {
        let new = Seen::from(object);
        let Some(name) = NamespacedName::of(new.meta()) else {
            tracing::warn!(kind = %K::kind(&()), "skipping object without a name");
            return None;
        };
        let Ok(old) = self.store.insert(name.clone(), new.clone()) else {
            return Some(name);
        };
        if let Seen::Undecodable { error, .. } = &new
            && !matches!(&old, Some(Seen::Undecodable { error: before, .. }) if before == error)
        {
            tracing::warn!(kind = %K::kind(&()), namespace = %name.namespace, name = %name.name, %error,
                "failed to decode object, skipping it until it changes");
        }
        if !(initial && old.as_ref().is_some_and(|old| is_same(old, &new))) {
            (self.on_change)(Change::Applied {
                name: name.clone(),
                old,
                new,
                initial,
            });
        }
        Some(name)
    }

    fn finish_list(&mut self) {
        for name in self.store.names() {
            if !self.listed.contains(&name)
                && let Some(old) = self.store.remove(&name)
            {
                (self.on_change)(Change::Removed {
                    name,
                    old,
                    vanished: true,
                });
            }
        }
        self.listed.clear();
        self.store.set_synced();
        (self.on_change)(Change::Listed);
    }
}

fn is_same<K: Resource>(old: &Seen<K>, new: &Seen<K>) -> bool {
    let (old, new) = (old.meta(), new.meta());
    new.resource_version.is_some() && old.resource_version == new.resource_version && old.uid == new.uid
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::AppRepository;

    type Events = Vec<Event<DeserializeGuard<AppRepository>>>;

    fn object(name: &str, version: &str) -> DeserializeGuard<AppRepository> {
        with_spec(
            name,
            version,
            &json!({ "type": "helm", "url": "https://charts.example.com" }),
        )
    }

    fn with_spec(name: &str, version: &str, spec: &Value) -> DeserializeGuard<AppRepository> {
        serde_json::from_value(json!({
            "metadata": { "namespace": "team-a", "name": name, "uid": format!("uid-{name}"), "resourceVersion": version },
            "spec": spec,
        }))
        .unwrap()
    }

    fn broken(name: &str, version: &str) -> DeserializeGuard<AppRepository> {
        with_spec(name, version, &json!({ "type": "helm", "url": ["no text"] }))
    }

    fn list(objects: Vec<DeserializeGuard<AppRepository>>) -> Events {
        let objects = objects.into_iter().map(Event::InitApply);
        [Event::Init]
            .into_iter()
            .chain(objects)
            .chain([Event::InitDone])
            .collect()
    }

    fn short(change: &Change<AppRepository>) -> String {
        let is = |seen: &Seen<AppRepository>| match seen {
            Seen::Object(object) => object.metadata.resource_version.clone().unwrap_or_default(),
            Seen::Undecodable { .. } => "broken".to_owned(),
        };
        match change {
            Change::Applied {
                name,
                old,
                new,
                initial,
            } => {
                let before = old.as_ref().map(is).unwrap_or_default();
                format!(
                    "{} {before}>{}{}",
                    name.name,
                    is(new),
                    if *initial { " listed" } else { "" }
                )
            }
            Change::Removed { name, old, vanished } => {
                format!("{} {}>{}", name.name, is(old), if *vanished { " vanished" } else { "" })
            }
            Change::Listed => "listed".to_owned(),
        }
    }

    async fn changes(
        events: Vec<Result<Event<DeserializeGuard<AppRepository>>, String>>,
    ) -> (Store<AppRepository>, Vec<String>) {
        let store = Store::new();
        let mut changes = Vec::new();
        run(stream::iter(events), store.clone(), |change| {
            changes.push(short(&change))
        })
        .await;
        (store, changes)
    }

    async fn changes_of(events: Events) -> (Store<AppRepository>, Vec<String>) {
        changes(events.into_iter().map(Ok).collect()).await
    }

    #[tokio::test]
    async fn a_list_is_reported_by_object_and_then_as_complete() {
        let (store, reported) = changes_of(list(vec![object("a", "1"), object("b", "2")])).await;
        assert_eq!(reported, ["a >1 listed", "b >2 listed", "listed"]);
        assert!(store.is_synced());
        assert_eq!(store.len(), 2);
        store.wait_until_synced().await;
    }

    #[tokio::test]
    async fn a_store_is_not_synced_before_a_list_is_complete() {
        let (store, reported) = changes_of(vec![Event::Init, Event::InitApply(object("a", "1"))]).await;
        assert_eq!(reported, ["a >1 listed"]);
        assert!(!store.is_synced() && !store.is_empty());
    }

    #[tokio::test]
    async fn events_are_reported_with_the_previous_state() {
        let mut events = list(vec![]);
        events.extend([
            Event::Apply(object("a", "1")),
            Event::Apply(object("a", "2")),
            Event::Delete(object("a", "3")),
        ]);
        let (store, reported) = changes_of(events).await;
        assert_eq!(reported, ["listed", "a >1", "a 1>2", "a 3>"]);
        assert!(store.is_empty());
    }

    #[tokio::test]
    async fn objects_that_vanished_during_an_interruption_are_found_by_the_next_list() {
        let mut events = list(vec![object("a", "1"), object("b", "1"), object("c", "1")]);
        events.extend(list(vec![object("a", "1"), object("c", "2")]));
        let (store, reported) = changes_of(events).await;
        assert_eq!(reported[3..], ["listed", "c 1>2 listed", "b 1> vanished", "listed"]);
        assert_eq!(store.len(), 2);
    }

    #[tokio::test]
    async fn an_interrupted_list_removes_nothing() {
        let mut events = list(vec![object("a", "1"), object("b", "1")]);
        events.extend([Event::Init, Event::InitApply(object("a", "1"))]);
        events.extend([
            Event::Init,
            Event::InitApply(object("b", "1")),
            Event::InitApply(object("a", "1")),
        ]);
        let (store, before) = changes_of(events).await;
        assert_eq!((store.len(), before.len()), (2, 3), "{before:?}");
    }

    #[tokio::test]
    async fn names_of_an_interrupted_list_are_discarded() {
        let mut events = list(vec![object("a", "1"), object("b", "1")]);
        events.extend([Event::Init, Event::InitApply(object("b", "1"))]);
        events.extend(list(vec![object("a", "1")]));
        let (_, reported) = changes_of(events).await;
        assert_eq!(reported[3..], ["b 1> vanished", "listed"]);
    }

    #[tokio::test]
    async fn a_recreated_object_of_the_same_version_is_reported() {
        let mut other = object("a", "1");
        other.0.as_mut().unwrap().metadata.uid = Some("another".to_owned());
        let mut events = list(vec![object("a", "1")]);
        events.extend(list(vec![other]));
        let (_, reported) = changes_of(events).await;
        assert_eq!(reported, ["a >1 listed", "listed", "a 1>1 listed", "listed"]);
    }

    #[tokio::test]
    async fn an_undecodable_object_does_not_block_others() {
        let mut events = list(vec![broken("a", "1"), object("b", "1")]);
        events.extend([
            Event::Apply(broken("b", "2")),
            Event::Apply(object("a", "2")),
            Event::Delete(broken("b", "3")),
        ]);
        let (store, reported) = changes_of(events).await;
        assert_eq!(
            reported,
            [
                "a >broken listed",
                "b >1 listed",
                "listed",
                "b 1>broken",
                "a broken>2",
                "b broken>"
            ]
        );
        let name = NamespacedName {
            namespace: "team-a".to_owned(),
            name: "a".to_owned(),
        };
        assert!(store.get(&name).unwrap().object().is_some());
    }

    #[tokio::test]
    async fn an_undecodable_object_has_its_metadata_and_an_error() {
        let (store, _) = changes_of(list(vec![broken("a", "1")])).await;
        let seen = store.get(&store.names()[0]).unwrap();
        assert_eq!(seen.meta().uid.as_deref(), Some("uid-a"));
        let Seen::Undecodable { error, .. } = seen else {
            panic!("expected an undecodable object")
        };
        assert!(error.contains("string"), "{error}");
    }

    fn after_an_assumed_write(events: Events) -> (Store<AppRepository>, Vec<String>) {
        let (store, mut changes) = (Store::new(), Vec::new());
        let mut informer = Informer {
            store: store.clone(),
            on_change: |change| changes.push(short(&change)),
            listed: HashSet::new(),
        };
        for event in list(vec![object("a", "1")]) {
            informer.handle(event);
        }
        let name = NamespacedName::new("team-a", "a");
        for version in ["3", "2", "unknown"] {
            store.assume(&name, object("a", version).0.unwrap());
        }
        for event in events {
            informer.handle(event);
        }
        (store, changes.split_off(2))
    }

    fn version(store: &Store<AppRepository>) -> Option<String> {
        let seen = store.get(&store.names()[0])?;
        seen.meta().resource_version.clone()
    }

    #[test]
    fn an_assumed_write_stays_until_the_watch_delivers_it() {
        let (store, reported) = after_an_assumed_write(vec![Event::Apply(object("a", "2"))]);
        assert!(reported.is_empty(), "{reported:?}");
        assert_eq!(
            version(&store).as_deref(),
            Some("3"),
            "older and incomparable versions are not assumed"
        );
        let events = vec![Event::Apply(object("a", "3")), Event::Apply(object("a", "2"))];
        let (store, reported) = after_an_assumed_write(events);
        assert_eq!(reported, ["a 3>3", "a 3>2"]);
        assert_eq!(version(&store).as_deref(), Some("2"));
    }

    #[test]
    fn deletions_recreated_objects_and_later_lists_replace_an_assumed_write() {
        let (store, reported) = after_an_assumed_write(vec![Event::Delete(object("a", "2"))]);
        assert_eq!((reported, store.len()), (vec!["a 2>".to_owned()], 0));
        let mut other = object("a", "2");
        other.0.as_mut().unwrap().metadata.uid = Some("another".to_owned());
        assert_eq!(after_an_assumed_write(vec![Event::Apply(other)]).1, ["a 3>2"]);
        let (_, reported) = after_an_assumed_write(list(vec![object("a", "2")]));
        assert_eq!(reported, ["a 3>2 listed", "listed"]);
    }

    #[tokio::test]
    async fn errors_and_objects_without_a_name_are_skipped() {
        let unnamed = serde_json::from_value(json!({ "spec": {} })).unwrap();
        let (store, reported) = changes(vec![
            Err("interrupted".to_owned()),
            Ok(Event::Init),
            Ok(Event::InitApply(unnamed)),
            Ok(Event::InitApply(object("a", "1"))),
            Err("interrupted".to_owned()),
            Ok(Event::InitDone),
        ])
        .await;
        assert_eq!(reported, ["a >1 listed", "listed"]);
        assert_eq!(store.names()[0].to_string(), "team-a/a");
    }
}
