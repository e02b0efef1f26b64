use std::collections::HashSet;

use super::*;

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
    assert!(
        refusal
            .to_string()
            .contains("confirm with `portolan vela gc --confirm`")
    );
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
