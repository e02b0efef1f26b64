//! Who is to own what.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::*;
use crate::controllers::application::index::Index;
use crate::controllers::application::owner_plan::{Plan, Planned, plan};
use crate::runtime::owner_refs::Change;

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

fn changes(plan: &Plan) -> Vec<String> {
    let change = |planned: &Planned| match &planned.change {
        Change::Set(owner) => format!("{} +{}", planned.target.name, owner.uid),
        Change::Remove(uid) => format!("{} -{uid}", planned.target.name),
    };
    plan.changes.iter().map(change).collect()
}

fn adopting() -> AppSpec {
    declared(json!({ "addOwnerRef": true, "componentKinds": [{ "group": "", "kind": "Pod" }] }))
}

#[test]
fn components_are_adopted_once() {
    let kinds = [seen(
        "",
        "Pod",
        vec![
            object("a", ready()),
            owned(object("b", ready()), &["shop"]),
            labelled("c", "other", ready()),
            owned(object("d", ready()), &["another"]),
        ],
    )];
    let plan = plan(&adopting(), &kinds, &Index::default());
    assert_eq!(changes(&plan), ["a +uid-shop", "d +uid-shop"]);
    assert_eq!(plan.changes[0].change, Change::Set(owner("shop")));
    assert!(plan.problems.is_empty());
}

#[test]
fn what_is_no_component_or_not_to_be_owned_is_let_go() {
    let kinds = [seen(
        "",
        "Pod",
        vec![
            owned(object("a", ready()), &["shop", "another"]),
            owned(labelled("b", "other", ready()), &["shop"]),
        ],
    )];
    assert_eq!(changes(&plan(&adopting(), &kinds, &Index::default())), ["b -uid-shop"]);
    let not_adopting = declared(json!({ "componentKinds": [{ "group": "", "kind": "Pod" }] }));
    assert_eq!(
        changes(&plan(&not_adopting, &kinds, &Index::default())),
        ["a -uid-shop", "b -uid-shop"]
    );
}

#[test]
fn what_is_being_deleted_is_left_alone() {
    let mut dying = object("a", ready());
    dying.is_being_deleted = true;
    let kinds = [seen("", "Pod", vec![dying])];
    assert!(changes(&plan(&adopting(), &kinds, &Index::default())).is_empty());
}

#[test]
fn what_has_no_namespace_is_never_adopted_and_let_go_where_the_peer_has_adopted_it() {
    let (kind, look) = seen(
        "",
        "Pod",
        vec![object("a", ready()), owned(object("b", ready()), &["shop"])],
    );
    let KindState::Objects(mut view) = look else {
        panic!("it was made so")
    };
    view.resource.is_namespaced = false;
    let plan = plan(&adopting(), &[(kind, KindState::Objects(view))], &Index::default());
    assert_eq!(changes(&plan), ["b -uid-shop"]);
    assert!(
        plan.problems[0].text.contains("2 of Pod are not adopted"),
        "{:?}",
        plan.problems
    );
    assert!(!plan.problems[0].hides_readiness);
}

#[test]
fn with_a_selector_that_cannot_be_used_nothing_is_changed() {
    let selector = json!({ "matchExpressions": [{ "key": "app", "operator": "Like" }] });
    let declared = declared(json!({ "addOwnerRef": false, "selector": selector }));
    let kinds = [seen("", "Pod", vec![owned(object("a", ready()), &["shop"])])];
    assert!(changes(&plan(&declared, &kinds, &Index::default())).is_empty());
}

fn of_applications(name: &str, adopts: bool) -> AppSpec {
    named(
        name,
        json!({ "addOwnerRef": adopts, "componentKinds": [{ "group": "app.k8s.io", "kind": "Application" }] }),
    )
}

fn applications(names: &[&str]) -> [(GroupKind, KindState<Readiness>); 1] {
    [seen(
        "app.k8s.io",
        "Application",
        names.iter().map(|name| object(name, ready())).collect(),
    )]
}

#[test]
fn an_application_never_adopts_itself() {
    let declared = of_applications("shop", true);
    assert!(changes(&plan(&declared, &applications(&["shop"]), &Index::default())).is_empty());
}

#[test]
fn applications_that_would_adopt_each_other_do_not() {
    let (shop, other) = (of_applications("shop", true), of_applications("other", true));
    let index = Index::default();
    index.insert(shop.clone());
    index.insert(other.clone());
    for declared in [shop, other] {
        let plan = plan(&declared, &applications(&["shop", "other"]), &index);
        assert!(changes(&plan).is_empty(), "{}", declared.name);
        assert!(plan.problems[0].text.contains("in turn"), "{:?}", plan.problems);
    }
}

#[test]
fn an_application_that_adopts_nobody_may_be_adopted() {
    let index = Index::default();
    index.insert(of_applications("shop", true));
    index.insert(of_applications("other", false));
    let plan = plan(
        &of_applications("shop", true),
        &applications(&["shop", "other"]),
        &index,
    );
    assert_eq!(changes(&plan), ["other +uid-shop"]);
}

#[test]
fn a_circle_of_three_is_one_too() {
    // Each adopts the next, by labels.
    let next = |name: &str, next: &str| {
        named(
            name,
            json!({
                "addOwnerRef": true, "componentKinds": [{ "group": "app.k8s.io", "kind": "Application" }],
                "selector": { "matchLabels": { "app": next } }
            }),
        )
    };
    let index = Index::default();
    let circle = [next("a", "b"), next("b", "c"), next("c", "a")];
    circle.iter().for_each(|declared| index.insert(declared.clone()));
    let kinds = || {
        [seen(
            "app.k8s.io",
            "Application",
            ["a", "b", "c"].map(|name| labelled(name, name, ready())).into(),
        )]
    };
    for declared in &circle {
        assert!(
            changes(&plan(declared, &kinds(), &index)).is_empty(),
            "{}",
            declared.name
        );
    }
    index.insert(next("c", "none"));
    assert_eq!(changes(&plan(&circle[0], &kinds(), &index)), ["b +uid-a"]);
}

fn kinds(names: &[&str]) -> BTreeSet<GroupKind> {
    names.iter().map(|name| GroupKind::new("", *name)).collect()
}

/// An Application of Pods whose record holds these kinds.
fn recorded(names: &[&str]) -> AppSpec {
    AppSpec {
        recorded: kinds(names).into_iter().collect(),
        ..adopting()
    }
}

fn record(declared: &AppSpec, looks: &[(GroupKind, KindState<Readiness>)]) -> Vec<String> {
    let plan = plan(declared, looks, &Index::default());
    let record = plan.record(declared);
    record.iter().map(ToString::to_string).collect()
}

#[test]
fn a_kind_is_on_record_before_the_first_of_it_is_adopted_and_as_long_as_one_is_owned() {
    assert_eq!(
        record(&adopting(), &[seen("", "Pod", vec![object("a", ready())])]),
        ["Pod"]
    );
    let owned = [seen("", "Service", vec![owned(object("a", ready()), &["shop"])])];
    assert_eq!(record(&recorded(&["Service"]), &owned), ["Service"]);
}

#[test]
fn a_kind_leaves_the_record_when_nothing_of_it_is_owned_for_certain() {
    let none = || seen("", "Service", vec![object("a", ready())]);
    assert!(record(&recorded(&["Service"]), &[none()]).is_empty());
    // What is listed now and then may be old.
    let (kind, look) = none();
    let KindState::Objects(mut view) = look else {
        panic!("it was made so")
    };
    view.polled = Some("can't watch services".to_owned());
    assert_eq!(
        record(&recorded(&["Service"]), &[(kind, KindState::Objects(view))]),
        ["Service"]
    );
    for look in [
        KindState::Pending,
        KindState::Unknown,
        KindState::Failed("away".to_owned()),
    ] {
        let service = GroupKind::new("", "Service");
        assert_eq!(record(&recorded(&["Service"]), &[(service, look)]), ["Service"]);
    }
}

#[test]
fn what_is_owned_of_a_kind_that_is_not_declared_any_more_is_let_go_and_nothing_of_it_adopted() {
    let looks = [seen(
        "",
        "Service",
        vec![object("a", ready()), owned(object("b", ready()), &["shop"])],
    )];
    assert_eq!(
        changes(&plan(&recorded(&["Service"]), &looks, &Index::default())),
        ["b -uid-shop"]
    );
}

#[test]
fn with_a_selector_that_cannot_be_used_the_record_stays() {
    let selector = json!({ "matchExpressions": [{ "key": "app", "operator": "Like" }] });
    let declared = AppSpec {
        recorded: kinds(&["Service"]).into_iter().collect(),
        ..declared(json!({ "selector": selector }))
    };
    assert_eq!(
        record(&declared, &[seen("", "Service", vec![object("a", ready())])]),
        ["Service"]
    );
}
