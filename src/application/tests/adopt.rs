//! Who is to own what.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::*;
use crate::api::ComponentStatus;
use crate::application::adopt::{Plan, left_behind, plan};
use crate::application::index::Index;
use crate::objects::owners::Change;

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

fn owned(mut object: Object<Judgement>, owners: &[&str]) -> Object<Judgement> {
    object.owner_references = owners.iter().map(|name| owner(name)).collect();
    object
}

fn changes(plan: &Plan) -> Vec<String> {
    let change = |(target, change): &(crate::objects::owners::Target, Change)| match change {
        Change::Set(owner) => format!("{} +{}", target.name, owner.uid),
        Change::Remove(uid) => format!("{} -{uid}", target.name),
    };
    plan.changes.iter().map(change).collect()
}

fn adopting() -> Declared {
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
    assert_eq!(plan.changes[0].1, Change::Set(owner("shop")));
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
    let Look::Objects(mut view) = look else {
        panic!("it was made so")
    };
    view.resource.is_namespaced = false;
    let plan = plan(&adopting(), &[(kind, Look::Objects(view))], &Index::default());
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

fn of_applications(name: &str, adopts: bool) -> Declared {
    named(
        name,
        json!({ "addOwnerRef": adopts, "componentKinds": [{ "group": "app.k8s.io", "kind": "Application" }] }),
    )
}

fn applications(names: &[&str]) -> [(GroupKind, Look<Judgement>); 1] {
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

#[test]
fn what_the_status_names_of_kinds_that_are_not_looked_at_any_more_is_let_go() {
    let component = |kind: &str, name: &str| ComponentStatus {
        kind: Some(kind.to_owned()),
        name: Some(name.to_owned()),
        ..ComponentStatus::default()
    };
    let before = [component("Pod", "a"), component("Service", "b"), component("Gone", "c")];
    let resource = |kind: &GroupKind| (kind.kind != "Gone").then(|| view(kind, Vec::new()).resource);
    let left = left_behind(&adopting(), &before, resource);
    let names: Vec<_> = left
        .iter()
        .map(|(target, _)| (target.name.as_str(), target.namespace.as_deref()))
        .collect();
    assert_eq!(names, [("b", Some("team"))]);
    // Without a selector nothing is looked at.
    let nothing = declared(json!({ "selector": null, "componentKinds": [{ "group": "", "kind": "Pod" }] }));
    assert_eq!(left_behind(&nothing, &before, resource).len(), 2);
}
