use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::api::NamespacedName;
use crate::api::oam::compression::{Compressed, Format};
use crate::api::oam::{ManagedResource, RawManifest, ResourceTracker, ResourceTrackerSpec};

fn entry(kind: &str, name: &str) -> ManagedResource {
    entry_of(&json!({ "apiVersion": "v1", "kind": kind, "namespace": "shop", "name": name, "creator": "workflow" }))
}

fn entry_of(fields: &Value) -> ManagedResource {
    serde_json::from_value(fields.clone()).unwrap()
}

fn with_manifest(name: &str, bytes: usize) -> ManagedResource {
    // Random-like text, so that compression doesn't hide the size.
    let mut state = name.bytes().fold(7_u64, |state, byte| state * 31 + u64::from(byte));
    let text: String = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'!' + ((state >> 33) % 90) as u8)
    })
    .filter(|character| !matches!(character, '"' | '\\'))
    .take(bytes)
    .collect();
    ManagedResource {
        raw: Some(RawManifest::of(&json!({ "data": { "text": text } })).unwrap()),
        ..entry("ConfigMap", name)
    }
}

fn spec_of(encoded: Encoded) -> ResourceTrackerSpec {
    let spec = ResourceTrackerSpec {
        managed_resources: encoded.managed_resources,
        compression: encoded.compression,
        ..ResourceTrackerSpec::default()
    };
    // As the API server stores and returns it.
    serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap()
}

#[rstest]
#[case::plain(None, "", 1)]
#[case::gzip(Some(Format::Gzip), "gzip", 1)]
#[case::zstd(Some(Format::Zstd), "zstd", 1)]
#[case::zstd_by_size(None, "zstd", 40)]
fn entries_survive_a_round_trip(#[case] format: Option<Format>, #[case] type_: &str, #[case] count: usize) {
    let entries: Vec<_> = (0..count)
        .map(|number| with_manifest(&format!("c{number}"), 8 << 10))
        .collect();
    let encoded = encode(entries.clone(), format).unwrap();
    assert_eq!(encoded.compression.type_, type_);
    assert_eq!(encoded.managed_resources.is_empty(), !type_.is_empty());
    assert!(encoded.omitted_manifests.is_empty());
    assert_eq!(decode(&spec_of(encoded)).unwrap(), entries);
}

#[test]
fn large_manifests_are_left_out_of_a_tracker_that_is_too_large() {
    let mut entries = vec![with_manifest("small", 1 << 10)];
    entries.extend((0..20).map(|number| with_manifest(&format!("large{number}"), 100 << 10)));
    let encoded = encode(entries, None).unwrap();
    assert_eq!(encoded.omitted_manifests.len(), 20);
    assert!(encoded.compression.data.len() < 1_400_000);
    let decoded = decode(&spec_of(encoded)).unwrap();
    let kept: Vec<_> = decoded.iter().filter(|entry| entry.raw.is_some()).collect();
    assert_eq!((decoded.len(), kept.len()), (21, 1));
    assert_eq!(kept[0].name, "small");
}

#[test]
fn all_manifests_are_left_out_if_many_small_ones_do_not_fit() {
    let entries: Vec<_> = (0..60)
        .map(|number| with_manifest(&format!("c{number}"), 50 << 10))
        .collect();
    let encoded = encode(entries, None).unwrap();
    assert_eq!(encoded.omitted_manifests.len(), 60);
    assert_eq!(decode(&spec_of(encoded)).unwrap().len(), 60);
}

#[test]
fn too_many_entries_are_neither_written_nor_read() {
    let entries = vec![entry("Pod", "p"); 20_001];
    let json = serde_json::to_vec(&entries).unwrap();
    let error = encode(entries, None).unwrap_err().to_string();
    assert!(error.starts_with("20001 objects exceed the limit of 20000"), "{error}");
    let spec = ResourceTrackerSpec {
        compression: Compressed::encode(Format::Zstd, &json).unwrap(),
        ..ResourceTrackerSpec::default()
    };
    let error = decode(&spec).unwrap_err().to_string();
    assert!(error.contains("a list of at most 20000 managed resources"), "{error}");
}

/// An entry with a manifest that hardly takes space when it is compressed.
fn with_compressible_manifest(number: usize, bytes: usize) -> ManagedResource {
    ManagedResource {
        raw: Some(RawManifest::of(&json!({ "text": "x".repeat(bytes) })).unwrap()),
        ..entry("ConfigMap", &number.to_string())
    }
}

#[rstest]
#[case::fits(31, 1 << 20, 0)]
#[case::large_manifests(33, 1 << 20, 33)]
#[case::many_small_manifests(700, 50 << 10, 700)]
fn a_list_is_encoded_only_if_it_can_be_decoded(#[case] count: usize, #[case] bytes: usize, #[case] omitted: usize) {
    let entries: Vec<_> = (0..count)
        .map(|number| with_compressible_manifest(number, bytes))
        .collect();
    let encoded = encode(entries, None).unwrap();
    assert_eq!(encoded.omitted_manifests.len(), omitted);
    assert_eq!(decode(&spec_of(encoded)).unwrap().len(), count);
}

#[test]
fn a_list_that_is_too_large_without_manifests_is_refused() {
    let large = ManagedResource {
        component: "x".repeat(1 << 20),
        ..with_compressible_manifest(0, 1)
    };
    let error = encode(vec![large; 33], None).unwrap_err().to_string();
    assert!(error.starts_with("33 objects take 346"), "{error}");
}

#[rstest]
#[case::of_go(b"null", Ok(0))]
#[case::empty(b"[]", Ok(0))]
#[case::null_entries(br#"[null, {"kind":"Pod","name":"p"}]"#, Ok(1))]
#[case::unknown_fields(br#"[{"kind":"Pod","name":"p","fieldPath":"x","resourceVersion":"7"}]"#, Ok(1))]
#[case::another_type(br#"{"kind":"Pod"}"#, Err("managed resources are invalid: "))]
#[case::broken(br#"[{"kind":"#, Err("managed resources are invalid: "))]
fn compressed_lists_of_kubevela_are_read(#[case] json: &[u8], #[case] expected: Result<usize, &str>) {
    for format in [Format::Gzip, Format::Zstd] {
        let spec = ResourceTrackerSpec {
            compression: Compressed::encode(format, json).unwrap(),
            ..ResourceTrackerSpec::default()
        };
        match (decode(&spec), expected) {
            (Ok(entries), Ok(count)) => assert_eq!(entries.len(), count),
            (Err(error), Err(text)) => assert!(error.to_string().starts_with(text), "{error}"),
            (decoded, _) => panic!("{decoded:?} instead of {expected:?}"),
        }
    }
}

/// Two Deployments with manifests, compressed by the packages that KubeVela uses: Go's gzip, and zstd of klauspost.
const OF_GO: [(&str, &str); 2] = [
    (
        "gzip",
        "H4sIAAAAAAAA/6yPwQrCMBBE/2XOAek1Z7/Bi3hY0xVjm+ySBIuU/LuE6kFU6KHX5c3MvuMMl5iKJFhMkobLKBMMBh97WOxZR3kEjgUGkQJnJcew\
         yFfR16kF+QwDUn/glL1EWJBq3t07GDgJKrFVvMFEE+z8j/81HbhQT4Va7GPz66dqkJVdAxPr6B1l2K7WajYxvclK0wXcxHSpWm96egYAAP//G+Go\
         IdUBAAA=",
    ),
    (
        "zstd",
        "KLUv/UQA1QCdBAAyiRsbgDFsAOTzv10Qkb1u7Ww6uUaLpseNU1n9eScCBU5ca63ApyTFtKIzPNFOv8bwqdJIpYfhVyK1utyHye8FQCB15/HLJSEd\
         lM7fDbqOb0ak45VkJz25v6vVE8CmVXC8seX4fbE5HIjX8YhVKiJnhAwAAYITBhCAgCkMgBIrbUPnYrO9Q3Y/0GEqUMKULmzZ3AO2Q3M4",
    ),
];

#[test]
fn trackers_that_go_compressed_are_read() {
    for (type_, data) in OF_GO {
        let spec =
            json!({ "type": "versioned", "applicationGeneration": 1, "compression": { "type": type_, "data": data } });
        let entries = decode(&serde_json::from_value(spec).unwrap()).unwrap();
        let names: Vec<_> = entries.iter().map(display_name).collect();
        assert_eq!(
            names,
            ["Deployment web (Namespace: shop)", "Deployment job (Namespace: shop)"]
        );
        let manifest = entries[1].raw.as_ref().unwrap().parse().unwrap();
        assert_eq!(manifest["metadata"], json!({ "name": "job", "namespace": "shop" }));
    }
}

#[test]
fn a_bomb_makes_its_tracker_undecodable_by_name() {
    let bomb = Compressed::encode(Format::Zstd, &vec![b' '; 64 << 20]).unwrap();
    assert!(bomb.data.len() < 1 << 20);
    let mut object = ResourceTracker::new("shop-v1-team", ResourceTrackerSpec::default());
    object.spec.compression = bomb;
    let error = Tracker::decode(Arc::new(object)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "resourcetracker shop-v1-team can't be decoded: decompressed data exceeds 32 MiB"
    );
}

#[test]
fn manifests_are_compared_by_content_and_never_printed() {
    let one: RawManifest = serde_json::from_str(r#"{"a": 1, "b": {"c": "secret"}}"#).unwrap();
    let two: RawManifest = serde_json::from_str(r#"{"b":{"c":"secret"},"a":1}"#).unwrap();
    let other: RawManifest = serde_json::from_str(r#"{"a":2}"#).unwrap();
    assert_eq!(one, two);
    assert_ne!(one, other);
    assert!(!format!("{one:?}").contains("secret"));
}

#[test]
fn a_diff_compares_by_key_and_contents() {
    let recorded = [entry("Pod", "a"), entry("Pod", "b"), entry("Pod", "c")];
    let by_policy = ManagedResource {
        creator: "policy".to_owned(),
        ..entry("Pod", "a")
    };
    let wanted = [with_component(entry("Pod", "b")), entry("Pod", "c"), by_policy];
    let diff = diff(&recorded, &wanted);
    let names = |entries: &[&ManagedResource]| -> Vec<String> {
        entries
            .iter()
            .map(|entry| format!("{}/{}", entry.creator, entry.name))
            .collect()
    };
    assert_eq!(names(&diff.added), ["policy/a"]);
    assert_eq!(names(&diff.changed), ["workflow/b"]);
    assert_eq!(names(&diff.unchanged), ["workflow/c"]);
    assert_eq!(names(&diff.removed), ["workflow/a"]);
}

fn with_component(entry: ManagedResource) -> ManagedResource {
    ManagedResource {
        component: "web".to_owned(),
        ..entry
    }
}

#[test]
fn recorded_entries_are_replaced_in_place_and_nothing_is_written_without_a_change() {
    let recorded = [entry("Pod", "a"), entry("Pod", "b")];
    assert_eq!(record(&recorded, &recorded[1..]), None);
    let changed = with_component(entry("Pod", "a"));
    let written = record(&recorded, &[changed.clone(), entry("Pod", "c"), entry("Pod", "c")]).unwrap();
    assert_eq!(written, [changed, entry("Pod", "b"), entry("Pod", "c")]);
}

#[test]
fn deleted_objects_are_marked_and_gone_ones_removed() {
    let recorded = [with_manifest("a", 10), entry("ConfigMap", "b")];
    let marked = mark_deleted(&recorded, &recorded[..1]).unwrap();
    assert!(marked[0].deleted && marked[0].raw.is_none() && !marked[1].deleted);
    assert_eq!(mark_deleted(&marked, &marked[..1]), None);
    assert_eq!(remove(&marked, &recorded[..1]).unwrap(), recorded[1..]);
    assert_eq!(remove(&recorded, &[entry("Pod", "x")]), None);
}

fn identity(publish_version: Option<&str>) -> AppIdentity {
    AppIdentity {
        name: NamespacedName::new("team", "shop"),
        uid: "u1".to_owned(),
        generation: 3,
        publish_version: publish_version.map(str::to_owned),
    }
}

fn tracker(type_: &str, generation: i64, entries: &[ManagedResource]) -> Tracker {
    tracker_of(type_, generation, entries, &json!({}))
}

fn tracker_of(type_: &str, generation: i64, entries: &[ManagedResource], metadata: &Value) -> Tracker {
    let mut object = json!({
        "metadata": {
            "name": format!("shop-{type_}-{generation}"), "labels": { "app.oam.dev/uid": "u1" },
        },
        "spec": { "type": type_, "applicationGeneration": generation, "managedResources": entries },
    });
    for (name, value) in metadata.as_object().unwrap() {
        object["metadata"][name] = value.clone();
    }
    Tracker::decode(Arc::new(serde_json::from_value(object).unwrap())).unwrap()
}

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

#[test]
fn older_trackers_are_kept_until_the_current_one_is_complete() {
    let (pod, service) = (entry("Pod", "p"), entry("Service", "s"));
    let applied: HashSet<_> = [&pod, &service].map(ResourceKey::of).into();
    let old = tracker("versioned", 1, &[pod.clone(), service.clone()]);
    let inventory = |trackers: &[Tracker]| {
        let trackers = trackers.iter().chain([&old]).cloned().collect();
        Inventory::of(&identity(None), trackers).unwrap()
    };
    let current = |entries: &[ManagedResource]| tracker("versioned", 3, entries);
    let check = |trackers: &[Tracker], applied: &HashSet<ResourceKey>| check_mark(&inventory(trackers), applied, false);

    let complete = current(&[pod.clone(), service.clone()]);
    assert_eq!(check(std::slice::from_ref(&complete), &applied), Ok(()));
    assert!(matches!(
        check(&[], &applied),
        Err(Refusal::Incomplete { missing: 2, .. })
    ));
    let incomplete = check(&[current(std::slice::from_ref(&pod))], &applied).unwrap_err();
    assert_eq!(
        incomplete.to_string(),
        "the current resourcetracker lacks 1 of the applied objects, the first is Service s"
    );
    // Objects that live as long as the application are recorded in the root tracker.
    let root = tracker("root", 0, &[service.clone(), pod.clone()]);
    assert_eq!(check(std::slice::from_ref(&root), &applied), Ok(()));
    assert_eq!(check(&[root, current(&[])], &applied), Ok(()));

    // A confirmation allows an empty tracker, but never an incomplete one.
    let nothing = HashSet::new();
    let empty = inventory(&[current(&[])]);
    let refusal = check_mark(&empty, &nothing, false).unwrap_err();
    assert!(refusal.to_string().contains("confirm with `portolan app gc --confirm`"));
    assert_eq!(check_mark(&empty, &nothing, true), Ok(()));
    assert_eq!(
        check_mark(&inventory(&[]), &nothing, false),
        Err(Refusal::NoCurrentTracker)
    );
    assert_eq!(check_mark(&inventory(&[]), &nothing, true), Ok(()));
    assert!(check_mark(&inventory(&[current(&[pod])]), &applied, true).is_err());
}

#[test]
fn older_trackers_are_kept_while_the_current_one_is_being_deleted() {
    let (pod, service) = (entry("Pod", "p"), entry("Service", "s"));
    let old = tracker("versioned", 1, std::slice::from_ref(&pod));
    let metadata = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
    let current = tracker_of("versioned", 3, std::slice::from_ref(&pod), &metadata);
    let mut inventory = Inventory {
        history: vec![old],
        current: Some(current),
        ..Inventory::default()
    };
    let applied: HashSet<_> = [ResourceKey::of(&pod)].into();
    let check = |inventory: &Inventory, applied: &HashSet<_>| check_mark(inventory, applied, false);
    assert!(matches!(
        check(&inventory, &applied),
        Err(Refusal::Incomplete { missing: 1, .. })
    ));
    assert_eq!(check(&inventory, &HashSet::new()), Err(Refusal::NoCurrentTracker));
    // The objects that are in use stand in the root tracker, all of them.
    inventory.root = Some(tracker("root", 0, std::slice::from_ref(&pod)));
    assert_eq!(check(&inventory, &applied), Ok(()));
    let more: HashSet<_> = [&pod, &service].map(ResourceKey::of).into();
    assert!(check(&inventory, &more).is_err());
}

#[test]
fn nothing_is_refused_without_older_trackers() {
    let inventory = Inventory::of(&identity(None), vec![]).unwrap();
    assert_eq!(check_mark(&inventory, &HashSet::new(), false), Ok(()));
}

#[rstest]
#[case(json!({ "kind": "Pod", "name": "p" }), "Pod p")]
#[case(json!({ "kind": "Pod", "name": "p", "namespace": "n" }), "Pod p (Namespace: n)")]
#[case(json!({ "kind": "Pod", "name": "p", "namespace": "n", "cluster": "c" }), "Pod p (Cluster: c, Namespace: n)")]
fn display_names_tell_where_an_object_is(#[case] fields: Value, #[case] expected: &str) {
    assert_eq!(display_name(&entry_of(&fields)), expected);
}

#[test]
fn new_trackers_have_the_metadata_of_kubevela() {
    let app = identity(Some("beta"));
    let objects = || encode(vec![entry("Pod", "p")], None).unwrap();
    let versioned = create(&app, TrackerType::Versioned, Some("shop-v2"), Some("s1"), objects());
    assert_eq!(
        serde_json::to_value(versioned).unwrap(),
        json!({
            "apiVersion": "core.oam.dev/v1beta1", "kind": "ResourceTracker",
            "metadata": {
                "name": "shop-beta-team", "finalizers": ["resourcetracker.core.oam.dev/finalizer"],
                "annotations": { "app.oam.dev/publishVersion": "beta" },
                "labels": {
                    "app.oam.dev/name": "shop", "app.oam.dev/namespace": "team", "app.oam.dev/uid": "u1",
                    "app.oam.dev/appRevision": "shop-v2", "controller.core.oam.dev/scheduled-shard-id": "s1",
                },
            },
            "spec": { "type": "versioned", "applicationGeneration": 3, "managedResources": [
                { "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "p", "creator": "workflow" },
            ] },
        })
    );
    let root = create(&app, TrackerType::Root, None, None, objects());
    assert_eq!(
        (root.metadata.name.as_deref(), root.spec.application_generation),
        (Some("shop-team"), 0)
    );
    assert_eq!(root.metadata.annotations, None);
}

/// Entries that differ in a few keys and contents.
fn entries() -> impl Strategy<Value = Vec<ManagedResource>> {
    let entry = (0..4_u8, 0..3_u8).prop_map(|(name, component)| ManagedResource {
        component: component.to_string(),
        ..entry("Pod", &name.to_string())
    });
    proptest::collection::vec(entry, 0..6)
}

proptest! {
    #[test]
    fn records_behave_like_a_map(first in entries(), second in entries()) {
        let map = |entries: &[ManagedResource]| -> BTreeMap<String, ManagedResource> {
            entries.iter().map(|entry| (entry.name.clone(), entry.clone())).collect()
        };
        let recorded = record(&[], &first).unwrap_or_default();
        prop_assert_eq!(recorded.len(), map(&first).len());
        let changes = diff(&recorded, &second);
        let is_changed = !changes.added.is_empty() || !changes.changed.is_empty();
        prop_assert_eq!(changes.added.len() + changes.changed.len() + changes.unchanged.len(), second.len());

        let written = record(&recorded, &second);
        let mut expected = map(&recorded);
        expected.extend(map(&second));
        let is_equal = expected == map(&recorded);
        let result = written.clone().unwrap_or_else(|| recorded.clone());
        prop_assert_eq!(map(&result), expected);
        prop_assert!(is_changed || is_equal && written.is_none());
        prop_assert!(record(&result, &result).is_none());

        let kept = remove(&result, &second).unwrap_or_else(|| result.clone());
        prop_assert_eq!(kept.len(), changes.removed.len());
        prop_assert!(diff(&kept, &second).unchanged.is_empty());
    }
}
