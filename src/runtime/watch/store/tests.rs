//! Events in, changes out, and writes assumed in between.

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

fn versioned(version: &str, kept: u32) -> Object<u32> {
    Object {
        version: version.into(),
        ..object("a", kept)
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

fn is_owned(store: &Store<u32>) -> bool {
    store.get("shop", "a").unwrap().owner_references.has("u")
}

/// A store with an object of version 5, and a write assumed that made it version 7.
fn assumed() -> Store<u32> {
    let store = Store::default();
    told(&store, list(vec![versioned("5", 1)]));
    assert!(store.assume(written("7")).is_some() && is_owned(&store));
    store
}

#[test]
fn an_assumed_write_is_told_once_and_older_events_are_ignored_until_the_watch_shows_it() {
    let store = assumed();
    assert!(told(&store, vec![Event::Apply(versioned("6", 2))]).is_empty());
    assert!(is_owned(&store));
    assert!(told(&store, vec![Event::Apply(written("7"))]).is_empty());
    assert_eq!(
        told(&store, vec![Event::Apply(versioned("6", 2))]),
        ["1>2"],
        "it was shown"
    );
    assert!(!is_owned(&store));
}

#[test]
fn a_newer_version_a_deletion_and_another_object_win_over_an_assumed_write() {
    assert_eq!(told(&assumed(), vec![Event::Apply(versioned("8", 2))]), ["1>2"]);
    let store = assumed();
    assert_eq!(told(&store, vec![Event::Delete(versioned("6", 2))]), ["1>"]);
    assert!(store.assume(written("9")).is_none(), "it is gone");
    let another = || Object {
        uid: "another".into(),
        ..versioned("6", 2)
    };
    let store = assumed();
    assert_eq!(told(&store, vec![Event::Apply(another())]), ["1>2"]);
    assert!(store.assume(written("9")).is_none());
}

#[test]
fn a_write_that_the_watch_has_shown_already_or_that_has_no_order_is_not_assumed() {
    let store = Store::default();
    told(&store, list(vec![versioned("7", 1)]));
    for version in ["6", "7", "odd", ""] {
        assert!(
            store.assume(written(version)).is_none() && !is_owned(&store),
            "{version}"
        );
    }
}

#[test]
fn only_a_list_that_began_after_a_write_may_show_an_older_version() {
    let store = Store::default();
    told(&store, list(vec![versioned("5", 1)]));
    told(&store, vec![Event::Init]);
    assert!(store.assume(written("7")).is_some());
    let rest = vec![Event::InitApply(versioned("5", 1)), Event::InitDone];
    assert_eq!(told(&store, rest), ["listed"]);
    assert!(is_owned(&store));
    assert_eq!(told(&store, list(vec![versioned("5", 1)])), ["1>1", "listed"]);
    assert!(!is_owned(&store), "the API server was restored from a backup");
}

#[test]
fn an_assumed_write_does_not_keep_an_object_that_a_list_misses() {
    let store = assumed();
    told(&store, vec![Event::Init]);
    assert!(store.assume(written("9")).is_none(), "nothing but the version is new");
    assert_eq!(told(&store, vec![Event::InitDone]), ["1>", "listed"]);
}

#[test]
fn the_first_list_does_not_undo_a_write_that_it_was_begun_before() {
    let store = Store::default();
    told(&store, vec![Event::Init]);
    assert!(
        store.assume(written("7")).is_none(),
        "nothing is told before the first list"
    );
    told(&store, vec![Event::InitApply(versioned("5", 1)), Event::InitDone]);
    assert!(is_owned(&store));
}

#[test]
fn a_deletion_of_what_was_never_seen_is_no_news() {
    assert!(told(&Store::default(), vec![Event::Delete(object("a", 1))]).is_empty());
}
