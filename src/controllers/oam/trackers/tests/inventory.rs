use serde_json::json;

use super::*;

fn published(generation: i64, version: &str) -> Tracker {
    let metadata = json!({ "annotations": { "app.oam.dev/publishVersion": version }, "name": version });
    tracker_of("versioned", generation, &[], &metadata)
}

#[test]
fn the_tracker_of_this_generation_is_current_and_the_others_are_history() {
    let trackers = [
        tracker("versioned", 2, &[]),
        tracker("root", 0, &[]),
        tracker("versioned", 3, &[]),
        tracker("versioned", 1, &[]),
        tracker("component-revision", 0, &[]),
        tracker("of-the-future", 9, &[]),
    ];
    let inventory = Inventory::of(&identity(None), trackers.to_vec()).unwrap();
    assert_eq!(inventory.current.as_ref().unwrap().generation(), 3);
    assert!(inventory.component_revision.is_some());
    let order: Vec<_> = inventory.in_order().map(Tracker::name).collect();
    assert_eq!(
        order,
        [
            "shop-versioned-1",
            "shop-versioned-2",
            "shop-versioned-3",
            "shop-root-0"
        ]
    );
}

#[test]
fn the_tracker_of_the_published_version_is_current() {
    let trackers = vec![published(1, "one"), published(2, "two"), tracker("versioned", 3, &[])];
    let inventory = Inventory::of(&identity(Some("two")), trackers.clone());
    let outdated = "current publish version two(gen-2) is in-use and outdated, found newer gen-3";
    assert_eq!(inventory.unwrap_err().to_string(), outdated);
    let inventory = Inventory::of(&identity(Some("two")), trackers[..2].to_vec()).unwrap();
    assert_eq!(inventory.current.unwrap().name(), "two");
    assert_eq!(inventory.history[0].name(), "one");
    let inventory = Inventory::of(&identity(Some("three")), trackers).unwrap();
    assert!(inventory.current.is_none());
    assert_eq!(inventory.history.len(), 3);
}

fn deleting(version: &str, name: &str) -> Tracker {
    let metadata = json!({
        "annotations": { "app.oam.dev/publishVersion": version }, "name": name,
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    });
    tracker_of("versioned", 1, &[], &metadata)
}

#[test]
fn a_tracker_that_is_being_deleted_is_history_and_blocks_the_new_one_of_its_name() {
    let app = identity(Some("v1"));
    let trackers = vec![deleting("v1", "shop-v1-team"), published(2, "v2")];
    let inventory = Inventory::of(&app, trackers).unwrap();
    assert!(inventory.current.is_none());
    let history: Vec<_> = inventory.history.iter().map(Tracker::name).collect();
    assert_eq!(history, ["shop-v1-team", "v2"]);
    assert_eq!(inventory.blocking(&app).map(Tracker::name), Some("shop-v1-team"));
    assert!(inventory.blocking(&identity(Some("v3"))).is_none());

    let under_another_name = Inventory::of(&app, vec![deleting("v1", "shop-v1")]).unwrap();
    assert!(under_another_name.blocking(&app).is_none());
    let other = [deleting("v1", "shop-v1-team"), published(3, "v1")];
    let replaced = Inventory::of(&app, other.to_vec()).unwrap();
    assert_eq!(replaced.current.as_ref().map(Tracker::name), Some("v1"));
    assert!(replaced.blocking(&app).is_none());
}

#[test]
fn without_a_published_version_the_tracker_of_one_is_history() {
    let published = published(3, "one");
    let inventory = Inventory::of(&identity(None), vec![published.clone()]).unwrap();
    assert!(inventory.current.is_none());
    assert_eq!(inventory.history.len(), 1);
    let inventory = Inventory::of(&identity(None), vec![tracker("versioned", 3, &[]), published]).unwrap();
    assert_eq!(inventory.current.unwrap().name(), "shop-versioned-3");
    assert_eq!(inventory.history[0].name(), "one");
}

#[test]
fn a_tracker_with_the_name_of_a_new_one_is_current() {
    let metadata = json!({ "annotations": { "app.oam.dev/publishVersion": "v3" }, "name": "shop-v3-team" });
    let inventory = Inventory::of(&identity(None), vec![tracker_of("versioned", 3, &[], &metadata)]).unwrap();
    assert!(inventory.current.is_some(), "shop-v3-team can't be created");
}

#[test]
fn no_tracker_is_lost_if_two_have_the_same_place() {
    let named = |type_: &str, name: &str| tracker_of(type_, 3, &[], &json!({ "name": name }));
    let mut trackers = vec![
        named("versioned", "shop-v3-team"),
        named("versioned", "z"),
        named("root", "shop-team"),
        named("root", "z-root"),
        named("component-revision", "shop-comp-rev-team"),
        named("component-revision", "z-comp-rev"),
    ];
    for _ in 0..2 {
        trackers.reverse();
        let inventory = Inventory::of(&identity(None), trackers.clone()).unwrap();
        let name = |tracker: &Option<Tracker>| tracker.as_ref().map(|tracker| tracker.name().to_owned());
        assert_eq!(name(&inventory.current).as_deref(), Some("shop-v3-team"));
        assert_eq!(name(&inventory.root).as_deref(), Some("shop-team"));
        assert_eq!(
            name(&inventory.component_revision).as_deref(),
            Some("shop-comp-rev-team")
        );
        let history: Vec<_> = inventory.history.iter().map(Tracker::name).collect();
        assert_eq!(history, ["z", "z-comp-rev", "z-root"]);
    }
}

#[test]
fn a_tracker_of_another_uid_is_an_error() {
    let foreign = tracker_of("versioned", 1, &[], &json!({ "labels": { "app.oam.dev/uid": "u2" } }));
    let error = Inventory::of(&identity(None), vec![foreign]).unwrap_err().to_string();
    assert!(
        error.starts_with("resourcetracker shop-versioned-1 exists but controlled by another application (uid: u2)"),
        "{error}"
    );
    for labels in [json!({}), json!({ "app.oam.dev/uid": "" })] {
        let unlabeled = tracker_of("versioned", 1, &[], &json!({ "labels": labels }));
        assert!(Inventory::of(&identity(None), vec![unlabeled]).is_ok());
    }
}

#[test]
fn the_newest_tracker_that_is_not_deleted_owns_an_object() {
    let deleting = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
    let (one, two) = (entry("Pod", "one"), entry("Pod", "two"));
    let beta =
        entry_of(&json!({ "apiVersion": "apps/v1beta1", "kind": "Deployment", "name": "d", "cluster": "local" }));
    let stable = entry_of(&json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "d" }));
    let first = tracker_of("versioned", 1, &[one.clone(), two.clone(), beta.clone()], &deleting);
    let second = tracker_of("versioned", 2, &[one.clone(), two.clone()], &deleting);
    let current = tracker("versioned", 3, &[one.clone(), stable.clone()]);
    let inventory = Inventory::of(&identity(None), vec![current, first, second]).unwrap();
    let owners = Owners::of(&inventory);
    let generation = |entry: &ManagedResource| owners.owner(&ResourceKey::of(entry)).unwrap().generation();
    assert_eq!((generation(&one), generation(&two)), (3, 2));
    // Another version of the group is the same object.
    assert_eq!((generation(&beta), generation(&stable)), (3, 3));
    let [first, second] = &inventory.history[..] else {
        panic!("two older trackers");
    };
    assert_eq!(owners.owned_by(first).count(), 0);
    assert_eq!(owners.owned_by(second).collect::<Vec<_>>(), [&two]);
    assert!(owners.owner(&ResourceKey::of(&entry("Pod", "three"))).is_none());
}
