//! Malformed objects: every rule evaluates them without a panic.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::value::to_raw_value;
use serde_json::{Map, Value, json};

use super::{ONE_OF_EACH, ReadinessVisitor, raw};
use crate::controllers::application::readiness::*;

/// Evaluates all rules and asserts the invariants of each result.
fn check_all(generation: i64, spec: &RawValue, status: &RawValue) -> Vec<Readiness> {
    let results =
        ONE_OF_EACH.map(|(group, kind)| with_rule(group, kind, ReadinessVisitor(generation, Some(spec), Some(status))));
    for ((_, kind), Readiness { state, message }) in ONE_OF_EACH.iter().zip(&results) {
        assert_eq!(message.is_none(), *state == ComponentState::Ready, "{kind}");
        let message = message.as_deref().unwrap_or("ready");
        assert!(!message.is_empty() && message.len() <= MAX_MESSAGE, "{kind}: {message}");
        assert!(!message.chars().any(char::is_control), "{kind}: {message:?}");
    }
    results.into()
}

#[rstest]
#[case::null("null")]
#[case::empty("{}")]
#[case::text("\"Ready\"")]
#[case::numbers("-0.0e-7")]
#[case::list("[[[]]]")]
#[case::a_number_out_of_range(r#"{"replicas":1e999,"observedGeneration":-1e999,"conditions":[1e999]}"#)]
#[case::a_long_number(r#"{"replicas":123456789012345678901234567890,"phase":-1}"#)]
#[case::the_least_numbers(
    r#"{"observedGeneration":-9223372036854775808,"replicas":-9223372036854775808,"readyReplicas":-1}"#
)]
#[case::the_greatest_numbers(r#"{"observedGeneration":9223372036854775807,"replicas":18446744073709551615}"#)]
#[case::half_a_character(r#"{"phase":"\ud800","conditions":[{"type":"\udc00","status":"\ud800"}],"type":"\ud800"}"#)]
#[case::twice_the_same(r#"{"conditions":[{"type":"Ready","type":"Ready","status":"False"}],"phase":"a","phase":"b"}"#)]
#[case::nul_and_escapes(
    r#"{"phase":"\u0000\u001b[2J\u009b","conditions":[{"type":"Ready","status":"False","reason":"\u0007\u0000"}]}"#
)]
fn malformed_objects_are_evaluated_without_a_panic(#[case] json: &str) {
    for generation in [i64::MIN, -1, 0, 1, i64::MAX] {
        assert_eq!(check_all(generation, &raw(json), &raw(json)).len(), ONE_OF_EACH.len());
    }
}

#[rstest]
#[case::fields(("{\"a\":", "}"), "1")]
#[case::lists(("[", "]"), "")]
#[case::conditions(("{\"conditions\":", "}"), "[]")]
#[case::elements(("{\"conditions\":[", "]}"), "")]
#[case::statuses(("{\"conditions\":[{\"type\":\"Ready\",\"status\":", "}]}"), "\"False\"")]
#[case::replicas(("{\"replicas\":", "}"), "3")]
fn deeply_nested_objects_are_evaluated_without_a_panic(#[case] around: (&str, &str), #[case] inmost: &str) {
    let (open, close) = around;
    let deep = raw(format!("{}{inmost}{}", open.repeat(10_000), close.repeat(10_000)));
    assert_eq!(check_all(1, &deep, &deep).len(), ONE_OF_EACH.len());
}

#[test]
fn ten_thousand_conditions_are_evaluated_by_the_first_decisive_one() {
    let mut conditions = vec![json!({ "type": "Other", "status": "True" }); 10_000];
    conditions.push(json!({ "type": "Ready", "status": "False", "reason": "r".repeat(100_000) }));
    let status = to_raw_value(&json!({ "observedGeneration": 1, "conditions": conditions })).unwrap();
    let results = check_all(1, &raw("{}"), &status);
    let generic = results.last().unwrap();
    assert!(
        generic
            .message
            .as_deref()
            .unwrap()
            .starts_with("condition Ready is False: rrr")
    );
}

/// Names and texts that rules look for, so that random input contains them.
const NAMES: [&str; 22] = [
    "replicas",
    "type",
    "status",
    "reason",
    "message",
    "conditions",
    "phase",
    "loadBalancer",
    "ingress",
    "ip",
    "hostname",
    "clusterIP",
    "observedGeneration",
    "readyReplicas",
    "availableReplicas",
    "updatedReplicas",
    "currentReplicas",
    "numberReady",
    "desiredNumberScheduled",
    "startTime",
    "desiredHealthy",
    "other",
];
const TEXTS: [&str; 12] = [
    "Ready",
    "InProgress",
    "True",
    "False",
    "Unknown",
    "LoadBalancer",
    "Failed",
    "Complete",
    "Bound",
    "PodCompleted",
    "",
    "\u{1b}\n",
];

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-2i64..4).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        proptest::sample::select(&TEXTS[..]).prop_map(Value::from),
        ".{0,300}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        let name = prop_oneof![proptest::sample::select(&NAMES[..]).prop_map(str::to_owned), ".{0,8}"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec((name, inner), 0..8).prop_map(|fields| Value::from(Map::from_iter(fields))),
        ]
    })
}

/// A status with mostly valid conditions and random values anywhere.
fn any_status() -> impl Strategy<Value = Value> {
    let text = || prop_oneof![4 => proptest::sample::select(&TEXTS[..]).prop_map(Value::from), 1 => any_json()];
    let condition = (text(), text(), text())
        .prop_map(|(type_, status, reason)| json!({ "type": type_, "status": status, "reason": reason }));
    let element = prop_oneof![4 => condition, 1 => any_json()];
    let conditions = proptest::collection::vec(element, 0..4);
    (any_json(), conditions).prop_map(|(mut status, conditions)| {
        if let Value::Object(fields) = &mut status {
            fields.insert("conditions".to_owned(), conditions.into());
        }
        status
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn random_objects_are_evaluated_without_a_panic(generation in any::<i64>(), spec in any_json(), status in prop_oneof![any_json(), any_status()]) {
        let (spec, status) = (to_raw_value(&spec).unwrap(), to_raw_value(&status).unwrap());
        prop_assert_eq!(check_all(generation, &spec, &status).len(), ONE_OF_EACH.len());
    }
}
