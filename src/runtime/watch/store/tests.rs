//! Events, changes and assumed writes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;
use crate::runtime::watch::Object;

fn object(name: &str, projection: u32) -> Object<u32> {
    let meta = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("shop".to_owned()),
        uid: Some(format!("uid-{name}")),
        ..ObjectMeta::default()
    };
    Object::new(meta, projection)
}

fn changes(store: &Store<Arc<Object<u32>>>, events: Vec<Event<Arc<Object<u32>>>>) -> Vec<String> {
    events
        .into_iter()
        .flat_map(|event| store.apply(event))
        .map(|change| match change {
            Change::Applied { old: None, new, .. } => format!(">{}", new.projection),
            Change::Applied {
                old: Some(old), new, ..
            } => format!("{}>{}", old.projection, new.projection),
            Change::Deleted(old) | Change::MissingFromList(old) => format!("{}>", old.projection),
            Change::Synced { is_first } => if is_first { "first" } else { "listed" }.to_owned(),
        })
        .collect()
}

fn list(objects: Vec<Object<u32>>) -> Vec<Event<Arc<Object<u32>>>> {
    let objects = objects.into_iter().map(|object| Event::InitApply(object.into()));
    [Event::Init]
        .into_iter()
        .chain(objects)
        .chain([Event::InitDone])
        .collect()
}

#[test]
fn the_first_list_is_reported_once() {
    let store = Store::default();
    assert_eq!(changes(&store, list(vec![object("b", 2), object("a", 1)])), ["first"]);
    let names: Vec<_> = store.objects("shop").iter().map(|o| o.name.to_string()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!((store.len(), store.objects("other").len()), (2, 0));
}

#[test]
fn neighboring_objects_share_equal_parts() {
    let labeled = |name: &str, app: &str, owner: &str| {
        let meta = serde_json::json!({
            "name": name, "namespace": "shop", "labels": { "app": app },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "X", "name": owner, "uid": owner }],
        });
        Object::new(serde_json::from_value(meta).unwrap(), 1)
    };
    let store = Store::default();
    let objects = vec![
        labeled("c", "x", "u"),
        labeled("a", "x", "u"),
        labeled("b", "y", "u"),
        labeled("b", "x", "v"),
    ];
    changes(&store, list(objects));
    let seen = store.objects("shop");
    let text = |at: usize| seen[at].labels.get("app").map(str::as_ptr);
    assert_eq!((text(0), text(1)), (text(2), text(2)), "the same text");
    let namespace = |at: usize| seen[at].namespace.as_deref().map(str::as_ptr);
    assert_eq!((namespace(0), namespace(1)), (namespace(2), namespace(2)));
    let owners: Vec<_> = seen.iter().map(|object| object.owner_references.has("u")).collect();
    assert_eq!(owners, [true, false, true], "different parts stay different");
    changes(&store, vec![Event::Apply(labeled("b", "x", "u").into())]);
    let seen = store.objects("shop");
    for other in &seen[1..] {
        assert!(seen[0].owner_references.ptr_eq(&other.owner_references));
    }
}

#[test]
fn unchanged_objects_are_not_reported() {
    let store = Store::default();
    changes(&store, list(vec![object("a", 1)]));
    let events = vec![
        Event::Apply(object("a", 1).into()),
        Event::Apply(object("a", 2).into()),
        Event::Delete(object("a", 2).into()),
    ];
    assert_eq!(changes(&store, events), ["1>2", "2>"]);
}

#[test]
fn a_later_list_reports_missed_changes() {
    let store = Store::default();
    changes(&store, list(vec![object("a", 1), object("b", 1)]));
    assert_eq!(
        changes(&store, list(vec![object("b", 2), object("c", 1)])),
        ["1>2", ">1", "1>", "listed"]
    );
}

#[test]
fn an_interrupted_list_removes_nothing() {
    let store = Store::default();
    changes(&store, list(vec![object("a", 1), object("b", 1)]));
    let broken = vec![Event::Init, Event::InitApply(object("a", 1).into()), Event::Init];
    assert!(changes(&store, broken).is_empty());
    assert_eq!(
        changes(&store, vec![Event::InitApply(object("b", 1).into()), Event::InitDone]),
        ["1>", "listed"]
    );
}

fn versioned(version: &str, projection: u32) -> Object<u32> {
    Object {
        version: version.into(),
        ..object("a", projection)
    }
}

/// The result of a write that adds an owner.
fn written(version: &str) -> Object<u32> {
    let owner = serde_json::json!([{ "apiVersion": "v1", "kind": "X", "name": "x", "uid": "u" }]);
    let owners: Vec<_> = serde_json::from_value(owner).unwrap();
    Object {
        owner_references: owners.into(),
        ..versioned(version, 1)
    }
}

fn is_owned(store: &Store<Arc<Object<u32>>>) -> bool {
    store
        .get(&NamespacedName::new("shop", "a"))
        .unwrap()
        .owner_references
        .has("u")
}

/// A store with an object of version 5 and an assumed write of version 7.
fn assumed() -> Store<Arc<Object<u32>>> {
    let store = Store::default();
    changes(&store, list(vec![versioned("5", 1)]));
    assert!(store.assume(written("7").into()).is_some() && is_owned(&store));
    store
}

#[test]
fn an_assumed_write_is_reported_once_and_older_events_are_ignored_until_it_is_delivered() {
    let store = assumed();
    assert!(changes(&store, vec![Event::Apply(versioned("6", 2).into())]).is_empty());
    assert!(is_owned(&store));
    assert!(changes(&store, vec![Event::Apply(written("7").into())]).is_empty());
    assert_eq!(
        changes(&store, vec![Event::Apply(versioned("6", 2).into())]),
        ["1>2"],
        "it was shown"
    );
    assert!(!is_owned(&store));
}

#[test]
fn newer_versions_deletions_and_recreated_objects_replace_an_assumed_write() {
    assert_eq!(
        changes(&assumed(), vec![Event::Apply(versioned("8", 2).into())]),
        ["1>2"]
    );
    let store = assumed();
    assert_eq!(changes(&store, vec![Event::Delete(versioned("6", 2).into())]), ["1>"]);
    assert!(store.assume(written("9").into()).is_none(), "it is removed");
    let another = || Object {
        uid: "another".into(),
        ..versioned("6", 2)
    };
    let store = assumed();
    assert_eq!(changes(&store, vec![Event::Apply(another().into())]), ["1>2"]);
    assert!(store.assume(written("9").into()).is_none());
}

#[test]
fn a_delivered_or_incomparable_version_is_not_assumed() {
    let store = Store::default();
    changes(&store, list(vec![versioned("7", 1)]));
    for version in ["6", "7", "odd", ""] {
        assert!(
            store.assume(written(version).into()).is_none() && !is_owned(&store),
            "{version}"
        );
    }
}

#[test]
fn only_a_list_that_began_after_the_write_may_restore_an_older_version() {
    let store = Store::default();
    changes(&store, list(vec![versioned("5", 1)]));
    changes(&store, vec![Event::Init]);
    assert!(store.assume(written("7").into()).is_some());
    let rest = vec![Event::InitApply(versioned("5", 1).into()), Event::InitDone];
    assert_eq!(changes(&store, rest), ["listed"]);
    assert!(is_owned(&store));
    assert_eq!(changes(&store, list(vec![versioned("5", 1)])), ["1>1", "listed"]);
    assert!(!is_owned(&store), "the API server was restored from a backup");
}

#[test]
fn a_list_removes_an_object_with_an_assumed_write() {
    let store = assumed();
    changes(&store, vec![Event::Init]);
    assert!(
        store.assume(written("9").into()).is_none(),
        "nothing but the version is new"
    );
    assert_eq!(changes(&store, vec![Event::InitDone]), ["1>", "listed"]);
}

#[test]
fn the_first_list_does_not_revert_a_write_made_during_it() {
    let store = Store::default();
    changes(&store, vec![Event::Init]);
    assert!(
        store.assume(written("7").into()).is_none(),
        "nothing is reported before the first list"
    );
    changes(
        &store,
        vec![Event::InitApply(versioned("5", 1).into()), Event::InitDone],
    );
    assert!(is_owned(&store));
}

#[test]
fn the_deletion_of_an_unknown_object_is_not_a_change() {
    assert!(changes(&Store::default(), vec![Event::Delete(object("a", 1).into())]).is_empty());
}

#[test]
fn a_created_object_is_assumed_unless_the_watch_has_delivered_its_creation() {
    let created = |version: &str| {
        let object = Object {
            name: "created".into(),
            ..versioned(version, 1)
        };
        Arc::new(object)
    };
    let store = Store::default();
    changes(&store, list(vec![versioned("5", 1)]));
    assert!(store.assume_created(created("7")).is_some());
    assert!(store.assume_created(created("8")).is_none(), "it exists");
    changes(&store, vec![Event::Apply(created("7")), Event::Delete(created("9"))]);
    assert_eq!(store.len(), 1);
    for version in ["7", "9", "odd", ""] {
        assert!(store.assume_created(created(version)).is_none(), "{version}");
    }
    assert!(store.assume_created(created("10")).is_some(), "it was created again");
    assert!(
        changes(&store, vec![Event::Apply(created("10"))]).is_empty(),
        "it was reported"
    );
    changes(&store, vec![Event::Init, Event::InitApply(versioned("5", 1).into())]);
    assert_eq!(changes(&store, vec![Event::InitDone]).len(), 2);
    assert_eq!(store.len(), 1, "a list without it proves that it is gone");
}
