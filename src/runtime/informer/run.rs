//! Events in, changes out: keeps the store, and tells what has changed in it.

use std::{collections::HashSet, fmt::Display};

use futures::{Stream, StreamExt};
use kube::{Resource, core::DeserializeGuard, runtime::watcher::Event};

use super::{Seen, Store};
use crate::api::NamespacedName;

/// What has changed. The store holds the change already when it is told.
#[derive(Debug)]
pub enum Change<K> {
    /// An object is there, new or changed, whether it decodes or not.
    Applied {
        /// Its name.
        name: NamespacedName,
        /// As it was seen before, if it was.
        old: Option<Seen<K>>,
        /// As it is now.
        new: Seen<K>,
        /// Whether it came with a complete list, and not by an event of its own.
        initial: bool,
    },
    /// An object is gone.
    Removed {
        /// Its name.
        name: NamespacedName,
        /// As it was last seen.
        old: Seen<K>,
        /// Whether it was found missing in a complete list: nobody tells of what goes while the watch is cut off.
        vanished: bool,
    },
    /// A complete list has been seen: the store holds exactly what is there.
    Listed,
}

/// Follows the events until they end, keeps the store by them, and calls `on_change` for what has changed, in order.
///
/// Of a list that is seen again, only the objects that are not as before are told. Errors are left to the stream, which
/// logs them and goes on.
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
    /// The names in the list that has begun and not ended.
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

/// Whether two sights of one name are of one object in one version.
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

    async fn told(events: Events) -> (Store<AppRepository>, Vec<String>) {
        changes(events.into_iter().map(Ok).collect()).await
    }

    #[tokio::test]
    async fn a_list_is_told_object_by_object_and_then_as_complete() {
        let (store, told) = told(list(vec![object("a", "1"), object("b", "2")])).await;
        assert_eq!(told, ["a >1 listed", "b >2 listed", "listed"]);
        assert!(store.is_synced());
        assert_eq!(store.len(), 2);
        store.wait_until_synced().await;
    }

    #[tokio::test]
    async fn a_store_is_not_synced_before_a_list_is_complete() {
        let (store, told) = told(vec![Event::Init, Event::InitApply(object("a", "1"))]).await;
        assert_eq!(told, ["a >1 listed"]);
        assert!(!store.is_synced() && !store.is_empty());
    }

    #[tokio::test]
    async fn events_are_told_with_what_was_before() {
        let mut events = list(vec![]);
        events.extend([
            Event::Apply(object("a", "1")),
            Event::Apply(object("a", "2")),
            Event::Delete(object("a", "3")),
        ]);
        let (store, told) = told(events).await;
        assert_eq!(told, ["listed", "a >1", "a 1>2", "a 3>"]);
        assert!(store.is_empty());
    }

    #[tokio::test]
    async fn what_went_while_the_watch_was_cut_off_is_found_by_the_next_list() {
        let mut events = list(vec![object("a", "1"), object("b", "1"), object("c", "1")]);
        events.extend(list(vec![object("a", "1"), object("c", "2")]));
        let (store, told) = told(events).await;
        assert_eq!(told[3..], ["listed", "c 1>2 listed", "b 1> vanished", "listed"]);
        assert_eq!(store.len(), 2);
    }

    #[tokio::test]
    async fn a_list_that_is_broken_off_removes_nothing() {
        let mut events = list(vec![object("a", "1"), object("b", "1")]);
        events.extend([Event::Init, Event::InitApply(object("a", "1"))]);
        events.extend([
            Event::Init,
            Event::InitApply(object("b", "1")),
            Event::InitApply(object("a", "1")),
        ]);
        let (store, before) = told(events).await;
        assert_eq!((store.len(), before.len()), (2, 3), "{before:?}");
    }

    #[tokio::test]
    async fn names_of_a_list_that_was_broken_off_do_not_count_for_the_next() {
        let mut events = list(vec![object("a", "1"), object("b", "1")]);
        events.extend([Event::Init, Event::InitApply(object("b", "1"))]);
        events.extend(list(vec![object("a", "1")]));
        let (_, told) = told(events).await;
        assert_eq!(told[3..], ["b 1> vanished", "listed"]);
    }

    #[tokio::test]
    async fn an_object_made_anew_under_its_old_name_is_told_although_its_version_is_the_same() {
        let mut other = object("a", "1");
        other.0.as_mut().unwrap().metadata.uid = Some("another".to_owned());
        let mut events = list(vec![object("a", "1")]);
        events.extend(list(vec![other]));
        let (_, told) = told(events).await;
        assert_eq!(told, ["a >1 listed", "listed", "a 1>1 listed", "listed"]);
    }

    #[tokio::test]
    async fn an_object_that_does_not_decode_holds_up_no_other() {
        let mut events = list(vec![broken("a", "1"), object("b", "1")]);
        events.extend([
            Event::Apply(broken("b", "2")),
            Event::Apply(object("a", "2")),
            Event::Delete(broken("b", "3")),
        ]);
        let (store, told) = told(events).await;
        assert_eq!(
            told,
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
    async fn an_undecodable_object_keeps_its_metadata_and_says_what_is_wrong() {
        let (store, _) = told(list(vec![broken("a", "1")])).await;
        let seen = store.get(&store.names()[0]).unwrap();
        assert_eq!(seen.meta().uid.as_deref(), Some("uid-a"));
        let Seen::Undecodable { error, .. } = seen else {
            panic!("it decodes")
        };
        assert!(error.contains("string"), "{error}");
    }

    /// The changes that the events make after a write of `a` in version 1 was assumed to have made it version 3.
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
        for version in ["3", "2", "odd"] {
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
    fn an_assumed_write_stands_until_the_watch_shows_it() {
        let (store, told) = after_an_assumed_write(vec![Event::Apply(object("a", "2"))]);
        assert!(told.is_empty(), "{told:?}");
        assert_eq!(
            version(&store).as_deref(),
            Some("3"),
            "of one version only one write is assumed"
        );
        let shown = vec![Event::Apply(object("a", "3")), Event::Apply(object("a", "2"))];
        let (store, told) = after_an_assumed_write(shown);
        assert_eq!(told, ["a 3>3", "a 3>2"]);
        assert_eq!(version(&store).as_deref(), Some("2"));
    }

    #[test]
    fn a_deletion_another_object_and_a_later_list_win_over_an_assumed_write() {
        let (store, told) = after_an_assumed_write(vec![Event::Delete(object("a", "2"))]);
        assert_eq!((told, store.len()), (vec!["a 2>".to_owned()], 0));
        let mut other = object("a", "2");
        other.0.as_mut().unwrap().metadata.uid = Some("another".to_owned());
        assert_eq!(after_an_assumed_write(vec![Event::Apply(other)]).1, ["a 3>2"]);
        let (_, told) = after_an_assumed_write(list(vec![object("a", "2")]));
        assert_eq!(told, ["a 3>2 listed", "listed"]);
    }

    #[tokio::test]
    async fn errors_and_objects_without_a_name_are_passed_over() {
        let nameless = serde_json::from_value(json!({ "spec": {} })).unwrap();
        let (store, told) = changes(vec![
            Err("cut off".to_owned()),
            Ok(Event::Init),
            Ok(Event::InitApply(nameless)),
            Ok(Event::InitApply(object("a", "1"))),
            Err("cut off".to_owned()),
            Ok(Event::InitDone),
        ])
        .await;
        assert_eq!(told, ["a >1 listed", "listed"]);
        assert_eq!(store.names()[0].to_string(), "team-a/a");
    }
}
