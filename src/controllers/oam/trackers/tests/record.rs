use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

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

fn with_creator(entry: ManagedResource) -> ManagedResource {
    ManagedResource {
        creator: "workflow".to_owned(),
        ..entry
    }
}

#[test]
fn an_entry_with_a_creator_is_rewritten_in_place_and_never_added_beside() {
    let recorded = [with_creator(entry("Pod", "a")), with_creator(entry("Pod", "b"))];
    let written = record(&recorded, &[entry("Pod", "a")]).unwrap();
    assert_eq!(written, [entry("Pod", "a"), with_creator(entry("Pod", "b"))]);
    let written = without_creators(&recorded).unwrap();
    assert_eq!(written, [entry("Pod", "a"), entry("Pod", "b")]);
    assert_eq!(without_creators(&written), None);
}

#[test]
fn of_two_entries_of_an_object_the_one_that_kubevela_keeps_stays() {
    let recorded = [
        with_creator(with_component(entry("Pod", "a"))),
        entry("Pod", "b"),
        entry("Pod", "a"),
    ];
    let written = without_creators(&recorded).unwrap();
    assert_eq!(written, [entry("Pod", "a"), entry("Pod", "b")]);
}

#[test]
fn entries_of_objects_that_are_gone_are_removed() {
    let recorded = [with_manifest("a", 10), entry("ConfigMap", "b")];
    assert_eq!(remove(&recorded, &recorded[..1]).unwrap(), recorded[1..]);
    assert_eq!(remove(&recorded, &[entry("Pod", "x")]), None);
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
        let written = record(&recorded, &second);
        let mut expected = map(&recorded);
        expected.extend(map(&second));
        let is_equal = expected == map(&recorded);
        let result = written.clone().unwrap_or_else(|| recorded.clone());
        prop_assert_eq!(map(&result), expected);
        prop_assert!(written.is_some() || is_equal);
        prop_assert!(record(&result, &result).is_none());

        let kept = remove(&result, &second).unwrap_or_else(|| result.clone());
        let mut expected = map(&result);
        expected.retain(|name, _| second.iter().all(|entry| entry.name != *name));
        prop_assert_eq!(map(&kept), expected);
    }
}
