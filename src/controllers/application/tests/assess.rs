//! From components to a status.

use jiff::Timestamp;

use super::*;
use crate::api::{ApplicationCondition, ApplicationStatus};
use crate::controllers::application::status::assess;

const NOW: &str = "2026-05-01T12:00:00Z";
const LATER: &str = "2026-05-01T13:00:00Z";

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

fn status_of(kinds: &[(GroupKind, KindState<Readiness>)]) -> ApplicationStatus {
    assess(&declared(json!({})), kinds).status(Some(3), &[], at(NOW))
}

fn condition<'a>(status: &'a ApplicationStatus, type_: &str) -> &'a ApplicationCondition {
    status
        .conditions
        .iter()
        .find(|condition| condition.type_ == type_)
        .unwrap()
}

fn said(status: &ApplicationStatus, type_: &str) -> String {
    let condition = condition(status, type_);
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    format!(
        "{} {}: {}",
        condition.status,
        text(&condition.reason),
        text(&condition.message)
    )
}

const NO_ERROR: &str = "False NoError: No error seen";
const UNKNOWN: &str = "Unknown ComponentsReadyUnknown: failed to aggregate all components' statuses, check the Error condition for details";

#[test]
fn of_no_components_all_are_ready() {
    let status = status_of(&[]);
    assert_eq!(said(&status, "Ready"), "True ComponentsReady: all components ready");
    assert_eq!(said(&status, "Error"), NO_ERROR);
    assert_eq!(status.components_ready.as_deref(), Some("0/0"));
    assert_eq!(status.observed_generation, Some(3));
    let types: Vec<_> = status
        .conditions
        .iter()
        .map(|condition| condition.type_.as_str())
        .collect();
    assert_eq!(types, ["Ready", "Error"]);
}

#[test]
fn components_stand_in_the_order_of_their_kinds_and_those_that_are_not_ready_are_named() {
    let status = status_of(&[
        seen(
            "apps",
            "Deployment",
            vec![
                object("api", judgement(ComponentState::InProgress, "1 of 2 replicas ready")),
                object("web", ready()),
            ],
        ),
        seen(
            "",
            "Service",
            vec![object("web", ready()), labelled("other", "other", ready())],
        ),
        seen(
            "batch",
            "Job",
            vec![object(
                "load",
                judgement(ComponentState::InProgress, "failed: BackoffLimitExceeded"),
            )],
        ),
    ]);
    assert_eq!(
        said(&status, "Ready"),
        "False ComponentsNotReady: 2 components not ready: Deployment/api, Job/load (failed: BackoffLimitExceeded)"
    );
    assert_eq!(said(&status, "Error"), NO_ERROR);
    assert_eq!(status.components_ready.as_deref(), Some("2/4"));
    let components = serde_json::to_value(&status.components).unwrap();
    let expected = json!([
        { "name": "api", "kind": "Deployment", "group": "apps", "status": "InProgress" },
        { "name": "web", "kind": "Deployment", "group": "apps", "status": "Ready" },
        { "name": "web", "kind": "Service", "status": "Ready" },
        { "name": "load", "kind": "Job", "group": "batch", "status": "InProgress" }
    ]);
    assert_eq!(components, expected);
}

#[test]
fn a_component_that_cannot_be_judged_hides_the_readiness() {
    let broken = judgement(ComponentState::Unknown, "status.replicas is a string");
    let status = status_of(&[seen(
        "example.com",
        "Widget",
        vec![object("w", broken), object("x", ready())],
    )]);
    assert_eq!(said(&status, "Ready"), UNKNOWN);
    assert_eq!(
        said(&status, "Error"),
        "True ErrorSeen: Widget/w: status.replicas is a string"
    );
    assert_eq!(status.components_ready.as_deref(), Some("1/2"));
    assert_eq!(status.components[0].status.as_deref(), Some("Unknown"));
}

#[test]
fn a_kind_that_is_not_known_is_an_error_and_leaves_the_readiness() {
    let status = status_of(&[(GroupKind::new("core", "Pod"), KindState::Unknown)]);
    assert_eq!(said(&status, "Ready"), "True ComponentsReady: all components ready");
    assert!(said(&status, "Error").starts_with("True ErrorSeen: the cluster has no kind Pod.core:"));
}

#[test]
fn a_kind_that_may_not_be_watched_is_an_error_and_leaves_the_readiness() {
    let kind = GroupKind::new("", "Secret");
    let mut view = view(&kind, vec![object("s", ready())]);
    view.polled = Some("can't watch secrets: forbidden".to_owned());
    let status = status_of(&[(kind, KindState::Objects(view))]);
    assert_eq!(said(&status, "Ready"), "True ComponentsReady: all components ready");
    assert_eq!(said(&status, "Error"), "True ErrorSeen: can't watch secrets: forbidden");
    assert_eq!(status.components_ready.as_deref(), Some("1/1"));
}

#[test]
fn a_kind_that_cannot_be_listed_hides_the_readiness_and_the_others_are_counted() {
    let failed = KindState::Failed("can't list pods: forbidden".to_owned());
    let status = status_of(&[
        (GroupKind::new("", "Pod"), failed),
        seen("", "Service", vec![object("web", ready())]),
    ]);
    assert_eq!(said(&status, "Ready"), UNKNOWN);
    assert_eq!(said(&status, "Error"), "True ErrorSeen: can't list pods: forbidden");
    assert_eq!(status.components_ready.as_deref(), Some("1/1"));
}

#[test]
fn a_selector_that_cannot_be_used_hides_the_readiness_and_says_why() {
    let selector = json!({ "matchExpressions": [{ "key": "app", "operator": "Like", "values": ["a"] }] });
    let declared = declared(json!({ "selector": selector }));
    let status = assess(&declared, &[seen("", "Service", vec![object("web", ready())])]).status(None, &[], at(NOW));
    assert_eq!(said(&status, "Ready"), UNKNOWN);
    assert!(
        said(&status, "Error").contains("the operator Like"),
        "{}",
        said(&status, "Error")
    );
    assert_eq!(status.components_ready.as_deref(), Some("0/0"));
}

#[test]
fn kinds_that_were_left_out_hide_the_readiness() {
    let kinds: Vec<_> = (0..101)
        .map(|number| json!({ "group": "x.example", "kind": format!("K{number}") }))
        .collect();
    let status = assess(&declared(json!({ "componentKinds": kinds })), &[]).status(None, &[], at(NOW));
    assert_eq!(said(&status, "Ready"), UNKNOWN);
    assert!(
        said(&status, "Error").contains("the last 1 are left out"),
        "{}",
        said(&status, "Error")
    );
}

#[test]
fn an_application_does_not_wait_for_itself() {
    let not_ready = judgement(ComponentState::InProgress, "condition Ready is False");
    let status = status_of(&[seen(
        "app.k8s.io",
        "Application",
        vec![object("shop", not_ready.clone())],
    )]);
    assert_eq!(status.components_ready.as_deref(), Some("1/1"));
    let status = status_of(&[seen("app.k8s.io", "Application", vec![object("other", not_ready)])]);
    assert_eq!(status.components_ready.as_deref(), Some("0/1"));
}

#[test]
fn a_condition_that_says_the_same_keeps_its_times_and_one_of_the_same_status_its_transition() {
    let not_ready = |name| {
        assess(
            &declared(json!({})),
            &[seen(
                "",
                "Pod",
                vec![object(name, judgement(ComponentState::InProgress, ""))],
            )],
        )
    };
    let first = not_ready("a").status(Some(1), &[], at(NOW));
    let same = not_ready("a").status(Some(1), &first.conditions, at(LATER));
    assert_eq!(same, first);
    let other = not_ready("b").status(Some(1), &first.conditions, at(LATER));
    let (before, after) = (condition(&first, "Ready"), condition(&other, "Ready"));
    assert_eq!(after.last_transition_time, before.last_transition_time);
    assert_eq!(after.last_update_time.as_ref().unwrap().0, at(LATER));
    let ready = assess(&declared(json!({})), &[]).status(Some(1), &first.conditions, at(LATER));
    assert_eq!(
        condition(&ready, "Ready").last_transition_time.as_ref().unwrap().0,
        at(LATER)
    );
    assert_eq!(condition(&ready, "Error"), condition(&first, "Error"));
}

#[test]
fn conditions_of_others_stay() {
    let before = ApplicationStatus {
        conditions: vec![ApplicationCondition {
            type_: "Settled".to_owned(),
            status: "True".to_owned(),
            ..ApplicationCondition::default()
        }],
        ..ApplicationStatus::default()
    };
    let status = assess(&declared(json!({})), &[]).status(None, &before.conditions, at(NOW));
    let types: Vec<_> = status
        .conditions
        .iter()
        .map(|condition| condition.type_.as_str())
        .collect();
    assert_eq!(types, ["Ready", "Error", "Settled"]);
}

#[test]
fn of_many_that_are_not_ready_some_are_named() {
    let objects = (0..25)
        .map(|number| object(&format!("p{number:02}"), judgement(ComponentState::InProgress, "")))
        .collect();
    let status = status_of(&[seen("", "Pod", objects)]);
    let said = said(&status, "Ready");
    assert!(said.contains("25 components not ready: Pod/p00, "), "{said}");
    assert!(said.ends_with("Pod/p19 and 5 more"), "{said}");
}

#[test]
fn a_status_stays_small_enough_to_be_stored() {
    let name = |number: usize| format!("{}{number}", "n".repeat(240));
    let objects = (0..6000).map(|number| object(&name(number), ready())).collect();
    let status = status_of(&[seen("", "ConfigMap", objects)]);
    assert_eq!(status.components_ready.as_deref(), Some("6000/6000"));
    assert!(serde_json::to_string(&status).unwrap().len() < 1_200_000);
    assert!(said(&status, "Error").contains("components are counted but not listed"));
    assert_eq!(said(&status, "Ready"), "True ComponentsReady: all components ready");
}
