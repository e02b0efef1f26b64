//! Owner plans.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::*;
use crate::controllers::application::index::Index;
use crate::controllers::application::kinds::ComponentKinds;
use crate::controllers::application::owners::plan::{self, OwnersPlan, PlannedChange};
use crate::runtime::owner_refs::OwnerChange;

fn owner(name: &str) -> OwnerReference {
    OwnerReference {
        api_version: "app.k8s.io/v1beta1".to_owned(),
        kind: "Application".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        controller: Some(false),
        block_owner_deletion: Some(true),
    }
}

fn owned(mut object: Object<Readiness>, owners: &[&str]) -> Object<Readiness> {
    object.owner_references = owners.iter().map(|name| owner(name)).collect::<Vec<_>>().into();
    object
}

fn plan(spec: &AppSpec, kinds: &[(GroupKind, KindState<Readiness>)], index: &Index) -> OwnersPlan {
    let all: ComponentKinds = "*".parse().unwrap();
    plan::plan(spec, kinds, index, &all)
}

fn changes(plan: &OwnersPlan) -> Vec<String> {
    let change = |planned: &PlannedChange| match &planned.change {
        OwnerChange::Set(owner) => format!("{} +{}", planned.target.name, owner.uid),
        OwnerChange::Remove(uid) => format!("{} -{uid}", planned.target.name),
    };
    plan.changes.iter().map(change).collect()
}

fn adopting() -> AppSpec {
    app_spec(json!({ "addOwnerRef": true, "componentKinds": [{ "group": "", "kind": "Pod" }] }))
}

#[test]
fn components_are_adopted_once() {
    let kinds = [listed(
        "",
        "Pod",
        vec![
            object("a", ready()),
            owned(object("b", ready()), &["shop"]),
            labeled("c", "other", ready()),
            owned(object("d", ready()), &["another"]),
        ],
    )];
    let plan = plan(&adopting(), &kinds, &Index::default());
    assert_eq!(changes(&plan), ["a +uid-shop", "d +uid-shop"]);
    assert_eq!(plan.changes[0].change, OwnerChange::Set(owner("shop")));
    assert!(plan.problems.is_empty());
}

#[test]
fn owner_references_are_removed_from_non_components_and_without_add_owner_ref() {
    let kinds = [listed(
        "",
        "Pod",
        vec![
            owned(object("a", ready()), &["shop", "another"]),
            owned(labeled("b", "other", ready()), &["shop"]),
        ],
    )];
    assert_eq!(changes(&plan(&adopting(), &kinds, &Index::default())), ["b -uid-shop"]);
    let not_adopting = app_spec(json!({ "componentKinds": [{ "group": "", "kind": "Pod" }] }));
    assert_eq!(
        changes(&plan(&not_adopting, &kinds, &Index::default())),
        ["a -uid-shop", "b -uid-shop"]
    );
}

#[test]
fn objects_being_deleted_are_not_changed() {
    let mut deleted = object("a", ready());
    deleted.is_being_deleted = true;
    let kinds = [listed("", "Pod", vec![deleted])];
    assert!(changes(&plan(&adopting(), &kinds, &Index::default())).is_empty());
}

#[test]
fn cluster_scoped_objects_are_never_adopted_and_stale_references_are_removed() {
    let (kind, state) = listed(
        "",
        "Pod",
        vec![object("a", ready()), owned(object("b", ready()), &["shop"])],
    );
    let KindState::Objects(mut view) = state else {
        panic!("listed above")
    };
    view.resource.is_namespaced = false;
    let plan = plan(&adopting(), &[(kind, KindState::Objects(view))], &Index::default());
    assert_eq!(changes(&plan), ["b -uid-shop"]);
    assert!(
        plan.problems[0].text.contains("2 Pod objects not adopted"),
        "{:?}",
        plan.problems
    );
    assert!(!plan.problems[0].hides_readiness);
}

#[test]
fn protected_kinds_are_not_adopted_and_stale_references_are_removed() {
    let objects = vec![object("a", ready()), owned(object("b", ready()), &["shop"])];
    let kinds = [listed("", "ResourceQuota", objects)];
    let spec = app_spec(json!({ "addOwnerRef": true, "componentKinds": [{ "group": "", "kind": "ResourceQuota" }] }));
    let not_named = plan(&spec, &kinds, &Index::default());
    assert_eq!(changes(&not_named), ["b -uid-shop"]);
    let text = &not_named.problems[0].text;
    assert!(
        text.contains("2 ResourceQuota objects not adopted") && text.contains("+/ResourceQuota"),
        "{text}"
    );
    assert!(!not_named.problems[0].hides_readiness);
    let named = "+/ResourceQuota".parse().unwrap();
    let plan = plan::plan(&spec, &kinds, &Index::default(), &named);
    assert_eq!(
        (changes(&plan), plan.problems.len()),
        (vec!["a +uid-shop".to_owned()], 0)
    );
}

#[test]
fn an_invalid_selector_changes_no_owners() {
    let selector = json!({ "matchExpressions": [{ "key": "app", "operator": "Like" }] });
    let spec = app_spec(json!({ "addOwnerRef": false, "selector": selector }));
    let kinds = [listed("", "Pod", vec![owned(object("a", ready()), &["shop"])])];
    assert!(changes(&plan(&spec, &kinds, &Index::default())).is_empty());
}

fn app_of_apps(name: &str, adopts: bool) -> AppSpec {
    app_spec_named(
        name,
        json!({ "addOwnerRef": adopts, "componentKinds": [{ "group": "app.k8s.io", "kind": "Application" }] }),
    )
}

fn applications(names: &[&str]) -> [(GroupKind, KindState<Readiness>); 1] {
    [listed(
        "app.k8s.io",
        "Application",
        names.iter().map(|name| object(name, ready())).collect(),
    )]
}

#[test]
fn an_application_never_adopts_itself() {
    let spec = app_of_apps("shop", true);
    assert!(changes(&plan(&spec, &applications(&["shop"]), &Index::default())).is_empty());
}

#[test]
fn applications_never_adopt_each_other() {
    let (shop, other) = (app_of_apps("shop", true), app_of_apps("other", true));
    let index = Index::default();
    index.insert(shop.clone());
    index.insert(other.clone());
    for spec in [shop, other] {
        let plan = plan(&spec, &applications(&["shop", "other"]), &index);
        assert!(changes(&plan).is_empty(), "{}", spec.name);
        assert!(
            plan.problems[0].text.contains("ownership cycle: "),
            "{:?}",
            plan.problems
        );
    }
}

#[test]
fn an_application_without_add_owner_ref_may_be_adopted() {
    let index = Index::default();
    index.insert(app_of_apps("shop", true));
    index.insert(app_of_apps("other", false));
    let plan = plan(&app_of_apps("shop", true), &applications(&["shop", "other"]), &index);
    assert_eq!(changes(&plan), ["other +uid-shop"]);
}

#[test]
fn cycles_of_three_applications_are_avoided() {
    // Each adopts the next one by labels.
    let next = |name: &str, next: &str| {
        app_spec_named(
            name,
            json!({
                "addOwnerRef": true, "componentKinds": [{ "group": "app.k8s.io", "kind": "Application" }],
                "selector": { "matchLabels": { "app": next } }
            }),
        )
    };
    let index = Index::default();
    let cycle = [next("a", "b"), next("b", "c"), next("c", "a")];
    cycle.iter().for_each(|spec| index.insert(spec.clone()));
    let kinds = || {
        [listed(
            "app.k8s.io",
            "Application",
            ["a", "b", "c"].map(|name| labeled(name, name, ready())).into(),
        )]
    };
    for spec in &cycle {
        assert!(changes(&plan(spec, &kinds(), &index)).is_empty(), "{}", spec.name);
    }
    index.insert(next("c", "none"));
    assert_eq!(changes(&plan(&cycle[0], &kinds(), &index)), ["b +uid-a"]);
}

fn kinds(names: &[&str]) -> BTreeSet<GroupKind> {
    names.iter().map(|name| GroupKind::new("", *name)).collect()
}

/// An Application of Pods with these recorded kinds.
fn recording(names: &[&str]) -> AppSpec {
    AppSpec {
        recorded_kinds: kinds(names).into_iter().collect(),
        ..adopting()
    }
}

fn record(spec: &AppSpec, states: &[(GroupKind, KindState<Readiness>)]) -> Vec<String> {
    let plan = plan(spec, states, &Index::default());
    let record = plan.record(spec);
    record.iter().map(ToString::to_string).collect()
}

#[test]
fn a_kind_is_recorded_from_before_the_first_adoption_until_nothing_is_owned() {
    assert_eq!(
        record(&adopting(), &[listed("", "Pod", vec![object("a", ready())])]),
        ["Pod"]
    );
    let owned = [listed("", "Service", vec![owned(object("a", ready()), &["shop"])])];
    assert_eq!(record(&recording(&["Service"]), &owned), ["Service"]);
}

#[test]
fn a_kind_leaves_the_record_once_certainly_nothing_is_owned() {
    let none = || listed("", "Service", vec![object("a", ready())]);
    assert!(record(&recording(&["Service"]), &[none()]).is_empty());
    // Polled objects may be stale.
    let (kind, state) = none();
    let KindState::Objects(mut view) = state else {
        panic!("listed above")
    };
    view.polled = Some("can't watch services".to_owned());
    assert_eq!(
        record(&recording(&["Service"]), &[(kind, KindState::Objects(view))]),
        ["Service"]
    );
    for state in [
        KindState::Pending,
        KindState::Unknown,
        KindState::Failed("away".to_owned()),
    ] {
        let service = GroupKind::new("", "Service");
        assert_eq!(record(&recording(&["Service"]), &[(service, state)]), ["Service"]);
    }
}

#[test]
fn objects_of_a_recorded_kind_outside_the_spec_are_released_and_not_adopted() {
    let states = [listed(
        "",
        "Service",
        vec![object("a", ready()), owned(object("b", ready()), &["shop"])],
    )];
    assert_eq!(
        changes(&plan(&recording(&["Service"]), &states, &Index::default())),
        ["b -uid-shop"]
    );
}

#[test]
fn an_invalid_selector_keeps_the_record() {
    let selector = json!({ "matchExpressions": [{ "key": "app", "operator": "Like" }] });
    let spec = AppSpec {
        recorded_kinds: kinds(&["Service"]).into_iter().collect(),
        ..app_spec(json!({ "selector": selector }))
    };
    assert_eq!(
        record(&spec, &[listed("", "Service", vec![object("a", ready())])]),
        ["Service"]
    );
}
