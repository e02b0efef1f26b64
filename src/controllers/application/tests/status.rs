//! Status computed from components.

use jiff::Timestamp;

use super::*;
use crate::api::{ApplicationCondition, ApplicationStatus};
use crate::controllers::application::index::Index;
use crate::controllers::application::status::{Problem, assess};

const NOW: &str = "2026-05-01T12:00:00Z";
const LATER: &str = "2026-05-01T13:00:00Z";

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

fn status_of(kinds: &[(GroupKind, KindState<Readiness>)]) -> ApplicationStatus {
    assess(&app_spec(json!({})), kinds, &Index::default()).status(Some(3), 0, &[], at(NOW))
}

fn condition<'a>(status: &'a ApplicationStatus, type_: &str) -> &'a ApplicationCondition {
    status
        .conditions
        .iter()
        .find(|condition| condition.type_ == type_)
        .unwrap()
}

fn summary(status: &ApplicationStatus, type_: &str) -> String {
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
fn an_application_without_components_is_ready() {
    let status = status_of(&[]);
    assert_eq!(summary(&status, "Ready"), "True ComponentsReady: all components ready");
    assert_eq!(summary(&status, "Error"), NO_ERROR);
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
fn components_are_sorted_by_kind_and_unready_ones_are_named() {
    let status = status_of(&[
        listed(
            "apps",
            "Deployment",
            vec![
                object("api", readiness(ComponentState::InProgress, "1 of 2 replicas ready")),
                object("web", ready()),
            ],
        ),
        listed(
            "",
            "Service",
            vec![object("web", ready()), labeled("other", "other", ready())],
        ),
        listed(
            "batch",
            "Job",
            vec![object(
                "load",
                readiness(ComponentState::InProgress, "failed: BackoffLimitExceeded"),
            )],
        ),
    ]);
    assert_eq!(
        summary(&status, "Ready"),
        "False ComponentsNotReady: 2 components not ready: Deployment/api, Job/load (failed: BackoffLimitExceeded)"
    );
    assert_eq!(summary(&status, "Error"), NO_ERROR);
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
fn an_unknown_component_makes_readiness_unknown() {
    let broken = readiness(ComponentState::Unknown, "status.replicas is a string");
    let status = status_of(&[listed(
        "example.com",
        "Widget",
        vec![object("w", broken), object("x", ready())],
    )]);
    assert_eq!(summary(&status, "Ready"), UNKNOWN);
    assert_eq!(
        summary(&status, "Error"),
        "True ErrorSeen: Widget/w: status.replicas is a string"
    );
    assert_eq!(status.components_ready.as_deref(), Some("1/2"));
    assert_eq!(status.components[0].status.as_deref(), Some("Unknown"));
}

#[test]
fn an_unknown_kind_is_an_error_but_keeps_readiness() {
    let status = status_of(&[(GroupKind::new("core", "Pod"), KindState::Unknown)]);
    assert_eq!(summary(&status, "Ready"), "True ComponentsReady: all components ready");
    assert!(summary(&status, "Error").starts_with("True ErrorSeen: kind Pod.core not found:"));
}

#[test]
fn an_excluded_kind_is_an_error_that_names_the_setting_but_keeps_readiness() {
    let role = GroupKind::new("rbac.authorization.k8s.io", "Role");
    let pod = listed("", "Pod", vec![object("p", ready())]);
    let status = status_of(&[(role, KindState::Excluded), pod]);
    assert_eq!(summary(&status, "Ready"), "True ComponentsReady: all components ready");
    assert_eq!(
        summary(&status, "Error"),
        "True ErrorSeen: kind Role.rbac.authorization.k8s.io is not watched: if it exists, add +rbac.authorization.k8s.io/Role to \
         --application-kinds"
    );
    assert_eq!(status.components_ready.as_deref(), Some("1/1"));
}

#[test]
fn a_polled_kind_is_an_error_but_keeps_readiness() {
    let kind = GroupKind::new("", "Secret");
    let mut view = view(&kind, vec![object("s", ready())]);
    view.polled = Some("can't watch secrets: forbidden".to_owned());
    let status = status_of(&[(kind, KindState::Objects(view))]);
    assert_eq!(summary(&status, "Ready"), "True ComponentsReady: all components ready");
    assert_eq!(
        summary(&status, "Error"),
        "True ErrorSeen: can't watch secrets: forbidden"
    );
    assert_eq!(status.components_ready.as_deref(), Some("1/1"));
}

#[test]
fn a_kind_that_cannot_be_listed_makes_readiness_unknown_and_others_are_counted() {
    let failed = KindState::Failed("can't list pods: forbidden".to_owned());
    let status = status_of(&[
        (GroupKind::new("", "Pod"), failed),
        listed("", "Service", vec![object("web", ready())]),
    ]);
    assert_eq!(summary(&status, "Ready"), UNKNOWN);
    assert_eq!(summary(&status, "Error"), "True ErrorSeen: can't list pods: forbidden");
    assert_eq!(status.components_ready.as_deref(), Some("1/1"));
}

#[test]
fn an_invalid_selector_makes_readiness_unknown_with_a_reason() {
    let selector = json!({ "matchExpressions": [{ "key": "app", "operator": "Like", "values": ["a"] }] });
    let spec = app_spec(json!({ "selector": selector }));
    let status = assess(
        &spec,
        &[listed("", "Service", vec![object("web", ready())])],
        &Index::default(),
    )
    .status(None, 0, &[], at(NOW));
    assert_eq!(summary(&status, "Ready"), UNKNOWN);
    assert!(
        summary(&status, "Error").contains("operator Like"),
        "{}",
        summary(&status, "Error")
    );
    assert_eq!(status.components_ready.as_deref(), Some("0/0"));
}

#[test]
fn kinds_beyond_the_limit_make_readiness_unknown() {
    let kinds: Vec<_> = (0..101)
        .map(|number| json!({ "group": "x.example", "kind": format!("K{number}") }))
        .collect();
    let status =
        assess(&app_spec(json!({ "componentKinds": kinds })), &[], &Index::default()).status(None, 0, &[], at(NOW));
    assert_eq!(summary(&status, "Ready"), UNKNOWN);
    assert!(
        summary(&status, "Error").contains("the last 1 are ignored"),
        "{}",
        summary(&status, "Error")
    );
}

#[test]
fn an_application_does_not_wait_for_itself() {
    let not_ready = readiness(ComponentState::InProgress, "condition Ready is False");
    let status = status_of(&[listed(
        "app.k8s.io",
        "Application",
        vec![object("shop", not_ready.clone())],
    )]);
    assert_eq!(status.components_ready.as_deref(), Some("1/1"));
    let status = status_of(&[listed("app.k8s.io", "Application", vec![object("other", not_ready)])]);
    assert_eq!(status.components_ready.as_deref(), Some("0/1"));
}

#[test]
fn applications_that_select_each_other_are_judged_by_their_other_components() {
    let index = Index::default();
    let spec = app_spec_named("a", json!({}));
    index.insert(spec.clone());
    index.insert(app_spec_named("b", json!({})));
    let not_ready = || readiness(ComponentState::InProgress, "");
    let applications = vec![
        object("a", not_ready()),
        object("b", not_ready()),
        object("c", not_ready()),
    ];
    let assessment = assess(&spec, &[listed("app.k8s.io", "Application", applications)], &index);
    assert_eq!((assessment.ready, assessment.components.len()), (2, 3));
    assert_eq!(assessment.not_ready, ["Application/c"], "it selects nothing");
    let texts: Vec<_> = assessment
        .problems
        .iter()
        .map(|problem| problem.text.as_str())
        .collect();
    assert_eq!(
        texts,
        ["counted as ready, as they select this Application themselves: b"]
    );
    assert!(!assessment.problems[0].hides_readiness);
}

#[test]
fn an_unchanged_condition_keeps_its_times_and_an_unchanged_status_its_transition_time() {
    let not_ready = |name| {
        assess(
            &app_spec(json!({})),
            &[listed(
                "",
                "Pod",
                vec![object(name, readiness(ComponentState::InProgress, ""))],
            )],
            &Index::default(),
        )
    };
    let first = not_ready("a").status(Some(1), 0, &[], at(NOW));
    let same = not_ready("a").status(Some(1), 0, &first.conditions, at(LATER));
    assert_eq!(same, first);
    let other = not_ready("b").status(Some(1), 0, &first.conditions, at(LATER));
    let (before, after) = (condition(&first, "Ready"), condition(&other, "Ready"));
    assert_eq!(after.last_transition_time, before.last_transition_time);
    assert_eq!(after.last_update_time.as_ref().unwrap().0, at(LATER));
    let ready = assess(&app_spec(json!({})), &[], &Index::default()).status(Some(1), 0, &first.conditions, at(LATER));
    assert_eq!(
        condition(&ready, "Ready").last_transition_time.as_ref().unwrap().0,
        at(LATER)
    );
    assert_eq!(condition(&ready, "Error"), condition(&first, "Error"));
}

#[test]
fn conditions_of_other_writers_are_kept() {
    let before = ApplicationStatus {
        conditions: vec![ApplicationCondition {
            type_: "Settled".to_owned(),
            status: "True".to_owned(),
            ..ApplicationCondition::default()
        }],
        ..ApplicationStatus::default()
    };
    let status = assess(&app_spec(json!({})), &[], &Index::default()).status(None, 0, &before.conditions, at(NOW));
    let types: Vec<_> = status
        .conditions
        .iter()
        .map(|condition| condition.type_.as_str())
        .collect();
    assert_eq!(types, ["Ready", "Error", "Settled"]);
}

#[test]
fn a_limited_number_of_unready_components_is_named() {
    let objects = (0..25)
        .map(|number| object(&format!("p{number:02}"), readiness(ComponentState::InProgress, "")))
        .collect();
    let status = status_of(&[listed("", "Pod", objects)]);
    let ready = summary(&status, "Ready");
    assert!(ready.contains("25 components not ready: Pod/p00, "), "{ready}");
    assert!(ready.ends_with("Pod/p19 and 5 more"), "{ready}");
}

#[test]
fn a_large_status_is_truncated_to_the_size_limit() {
    let name = |number: usize| format!("{}{number}", "n".repeat(240));
    let objects = (0..6000).map(|number| object(&name(number), ready())).collect();
    let status = status_of(&[listed("", "ConfigMap", objects)]);
    assert_eq!(status.components_ready.as_deref(), Some("6000/6000"));
    assert!(serde_json::to_string(&status).unwrap().len() < 1_200_000);
    assert!(summary(&status, "Error").contains("components omitted from status"));
    assert_eq!(summary(&status, "Ready"), "True ComponentsReady: all components ready");
}

#[test]
fn components_are_cut_to_fit_beside_the_rest_of_the_object() {
    let objects = (0..6_000)
        .map(|number| object(&format!("{number:060}"), ready()))
        .collect();
    let assessment = assess(
        &app_spec(json!({})),
        &[listed("", "ConfigMap", objects)],
        &Index::default(),
    );
    let other = ApplicationCondition {
        type_: "Other".to_owned(),
        message: Some("x".repeat(200_000)),
        ..ApplicationCondition::default()
    };
    for (size, others) in [(800_000, vec![]), (1_000_000, vec![other]), (1_570_000, vec![])] {
        let status = assessment.status(Some(3), size, &others, at(NOW));
        let total = size + serde_json::to_string(&status).unwrap().len();
        assert!(total <= 1_500_000 || status.components.is_empty(), "{total}");
        assert_eq!(status.components_ready.as_deref(), Some("6000/6000"));
        let omitted = 6_000 - status.components.len();
        let message = format!("{omitted} components omitted from status");
        assert!(summary(&status, "Error").contains(&message));
    }
}

#[test]
fn a_hostile_problem_is_cut_and_loses_control_and_invisible_characters() {
    let mut assessment = assess(&app_spec(json!({})), &[], &Index::default());
    let hostile = "\u{202e}x\u{200b}\u{1b}[31m\n".repeat(40_000);
    assessment.problems.push(Problem::minor(hostile));
    let status = assessment.status(Some(3), 0, &[], at(NOW));
    let message = condition(&status, "Error").message.clone().unwrap();
    assert!(
        message.contains('x') && message.len() <= crate::text::MAX_TEXT,
        "{}",
        message.len()
    );
    let is_hidden = |c: char| crate::text::is_control(c) || crate::text::is_invisible(c);
    assert!(!message.contains(is_hidden), "{message:?}");
}
