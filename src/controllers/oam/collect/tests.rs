use rstest::rstest;
use serde_json::{Value, json};

use super::decide::{GarbageDecision, decide, is_managed};
use super::*;
use crate::api::NamespacedName;
use crate::api::oam::RawManifest;

fn app() -> AppIdentity {
    AppIdentity {
        name: NamespacedName {
            namespace: "team".to_owned(),
            name: "shop".to_owned(),
        },
        uid: "uid-1".to_owned(),
        generation: 3,
        publish_version: None,
    }
}

fn live(owner: Option<(&str, &str)>, sharers: &str) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "web", "uid": "u", "resourceVersion": "7", "annotations": {}, "labels": {
            "app.oam.dev/component": "web",
        }},
    });
    if let Some((namespace, name)) = owner {
        object["metadata"]["labels"]["app.oam.dev/namespace"] = namespace.into();
        object["metadata"]["labels"]["app.oam.dev/name"] = name.into();
    }
    if !sharers.is_empty() {
        object["metadata"]["annotations"]["app.oam.dev/shared-by"] = sharers.into();
    }
    object
}

#[rstest]
#[case::owned(Some(("team", "shop")), "", true)]
#[case::unlabeled(None, "", false)]
#[case::of_another_application(Some(("team", "site")), "", false)]
#[case::of_another_namespace(Some(("prod", "shop")), "", false)]
#[case::shared(Some(("team", "site")), "team/site, team/shop", true)]
#[case::shared_by_others(Some(("team", "site")), "team/site,team/shop-2", false)]
#[case::shared_by_a_name_in_the_default_namespace(None, "shop", false)]
fn an_application_manages_what_it_owns_or_shares(
    #[case] owner: Option<(&str, &str)>,
    #[case] sharers: &str,
    #[case] expected: bool,
) {
    assert_eq!(is_managed(&live(owner, sharers), &app().name), expected);
}

/// Decides about an owned object.
fn decision(rules: &Value, read_only: &Value, entry: &ManagedResource, live: &Value) -> GarbageDecision {
    let subject = Subject {
        app: &app(),
        rules: &serde_json::from_value(rules.clone()).unwrap(),
        read_only: &serde_json::from_value(read_only.clone()).unwrap(),
        orphans_all: false,
        is_deleting: false,
        dependents: &BTreeMap::new(),
    };
    decide(&subject, entry, live)
}

fn owned(sharers: &str) -> Value {
    live(Some(("team", "shop")), sharers)
}

#[test]
fn an_object_is_deleted_by_its_uid_and_only_once() {
    let delete = GarbageDecision::Delete { uid: "u".to_owned() };
    let entry = ManagedResource::default();
    assert_eq!(decision(&json!({}), &json!({}), &entry, &owned("")), delete);
    assert_eq!(decision(&json!({}), &json!({}), &entry, &owned("team/shop")), delete);
    let mut deleting = owned("");
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(
        decision(&json!({}), &json!({}), &entry, &deleting),
        GarbageDecision::Wait
    );
}

#[rstest]
#[case::never(json!({ "strategy": "never" }))]
#[case::orphan(json!({ "propagation": "orphan" }))]
fn rules_about_the_recorded_manifest_keep_an_object(#[case] rule: Value) {
    let mut rule = rule;
    rule["selector"] = json!({ "traitTypes": ["storage"] });
    let rules = json!({ "rules": [rule] });
    let recorded = json!({ "metadata": { "labels": { "trait.oam.dev/type": "storage" } } });
    let entry = ManagedResource {
        raw: Some(RawManifest::of(&recorded).unwrap()),
        ..ManagedResource::default()
    };
    let patch = json!({ "metadata": {
        "resourceVersion": "7",
        "labels": { "app.oam.dev/name": null, "app.oam.dev/namespace": null },
    }});
    assert_eq!(
        decision(&rules, &json!({}), &entry, &owned("")),
        GarbageDecision::Release(patch.clone())
    );
    let mut last_sharer = patch;
    last_sharer["metadata"]["annotations"] = json!({ "app.oam.dev/shared-by": null });
    assert_eq!(
        decision(&rules, &json!({}), &entry, &owned("team/shop")),
        GarbageDecision::Release(last_sharer)
    );
    let other = ManagedResource::default();
    assert!(matches!(
        decision(&rules, &json!({}), &other, &owned("")),
        GarbageDecision::Delete { .. }
    ));
}

#[test]
fn a_rule_about_an_object_without_a_recorded_manifest_reads_the_live_one() {
    let read_only = json!({ "rules": [{ "selector": { "componentNames": ["web"] } }] });
    let entry = ManagedResource::default();
    assert_eq!(
        decision(&json!({}), &read_only, &entry, &owned("")),
        GarbageDecision::Leave
    );
}

#[test]
fn a_skipped_object_that_others_share_is_handed_over() {
    let entry = ManagedResource {
        skip_gc: true,
        ..ManagedResource::default()
    };
    let GarbageDecision::Release(patch) = decision(&json!({}), &json!({}), &entry, &owned("team/shop,site")) else {
        panic!("expected a patch");
    };
    let expected = json!({
        "resourceVersion": "7",
        "annotations": { "app.oam.dev/shared-by": "default/site" },
        "labels": { "app.oam.dev/name": "site", "app.oam.dev/namespace": "default" },
    });
    assert_eq!(patch["metadata"], expected);
}

#[rstest]
#[case::alone(Some(("team", "site")), "team/shop", json!(null))]
#[case::with_the_owner(Some(("team", "site")), "team/site,team/shop", json!("team/site"))]
#[case::of_another_namespace(Some(("prod", "shop")), "team/shop", json!(null))]
#[case::without_labels(None, "team/shop", json!(null))]
fn an_application_that_is_not_the_owner_only_leaves_the_sharers(
    #[case] owner: Option<(&str, &str)>,
    #[case] sharers: &str,
    #[case] remaining: Value,
) {
    let patch = json!({ "metadata": {
        "resourceVersion": "7", "annotations": { "app.oam.dev/shared-by": remaining },
    }});
    let orphan = json!({ "rules": [{ "selector": { "componentNames": ["web"] }, "propagation": "orphan" }] });
    let skipped = ManagedResource {
        skip_gc: true,
        ..ManagedResource::default()
    };
    for (rules, entry) in [
        (json!({}), ManagedResource::default()),
        (json!({}), skipped),
        (orphan, ManagedResource::default()),
    ] {
        let decided = decision(&rules, &json!({}), &entry, &live(owner, sharers));
        assert_eq!(decided, GarbageDecision::Release(patch.clone()));
    }
}

#[test]
fn an_object_of_another_application_is_left() {
    let entry = ManagedResource::default();
    let foreign = live(Some(("team", "site")), "team/site");
    assert_eq!(
        decision(&json!({}), &json!({}), &entry, &foreign),
        GarbageDecision::Leave
    );
    assert_eq!(
        decision(&json!({}), &json!({}), &entry, &live(None, "")),
        GarbageDecision::Leave
    );
}

#[test]
fn a_pass_can_run_on_any_thread() {
    fn is_send<T: Send>(_: impl FnOnce(&'static Collector, &'static Subject<'static>, &'static mut Inventory) -> T) {}
    is_send(|collector, subject, inventory| collector.collect(subject, inventory, Mark::All));
    is_send(|collector, _, _| collector.delete_revisions("team", &["shop-v1"]));
}

#[test]
fn an_error_names_few_of_many_failures() {
    let mut failures = CollectFailures::default();
    for number in 0..7 {
        failures.push(format!("failure {number}"));
    }
    let error = failures.result().unwrap_err().to_string();
    assert!(error.starts_with("error encountered during garbage collection: failure 0; failure 1; "));
    assert!(error.ends_with("failure 4; and 2 more"), "{error}");
    assert_eq!(CollectFailures::default().result(), Ok(()));
}

/// A tracker with objects of components `db` and `web`, of which the second is in the cluster `east`.
fn tracker() -> Tracker {
    let entry = |component: &str, cluster: &str| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": component, "namespace": "team",
            "component": component, "cluster": cluster })
    };
    let object = json!({
        "metadata": { "name": "shop-v3" },
        "spec": { "type": "versioned", "applicationGeneration": 3,
            "managedResources": [entry("db", ""), entry("web", "east")] },
    });
    Tracker::decode(Arc::new(serde_json::from_value(object).unwrap())).unwrap()
}

fn unreachable() -> EntryState {
    EntryState::Unreachable(ClusterError::NotJoined {
        cluster: "east".to_owned(),
    })
}

#[rstest]
#[case::in_a_dead_cluster(EntryState::Gone, unreachable(), Some(true))]
#[case::without_known_clusters(
    EntryState::Gone,
    EntryState::Unreachable(ClusterError::Unknown("forbidden".to_owned())),
    Some(false)
)]
#[case::held_back_by_a_dead_cluster(EntryState::HeldBack, unreachable(), Some(true))]
#[case::deleting_beside_a_dead_cluster(EntryState::Waiting, unreachable(), Some(false))]
#[case::held_back_by_a_deletion(EntryState::HeldBack, EntryState::Waiting, Some(false))]
#[case::held_back_by_what_is_gone(EntryState::HeldBack, EntryState::Gone, Some(false))]
#[case::gone(EntryState::Gone, EntryState::Gone, None)]
fn a_collection_that_only_waits_for_a_cluster_needs_no_other_look(
    #[case] db: EntryState,
    #[case] web: EntryState,
    #[case] expected: Option<bool>,
) {
    let tracker = tracker();
    let candidates: Vec<_> = std::iter::zip(&tracker.entries, [db, web])
        .map(|(entry, state)| GarbageCandidate {
            tracker: &tracker,
            entry,
            state,
        })
        .collect();
    let is_unreachable = match progress(&candidates) {
        CollectProgress::Waiting { is_unreachable, .. } => Some(is_unreachable),
        CollectProgress::Done => None,
    };
    assert_eq!(is_unreachable, expected);
}

#[test]
fn objects_of_a_cluster_that_does_not_tell_their_keys_stay() {
    let tracker = tracker();
    let delete = EntryState::Delete { uid: "u".to_owned() };
    let mut candidates: Vec<_> = (tracker.entries.iter())
        .map(|entry| GarbageCandidate {
            tracker: &tracker,
            entry,
            state: delete.clone(),
        })
        .collect();
    set_unresolved(&mut candidates, &Unresolved::from([("east".to_owned(), unreachable())]));
    assert_eq!(candidates[0].state, delete);
    assert_eq!(candidates[1].state, unreachable());
}
