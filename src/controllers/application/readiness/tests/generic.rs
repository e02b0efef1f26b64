//! Kinds without a rule of their own.

use rstest::rstest;
use serde_json::{Value, json};

use super::{check, in_progress, raw, unknown};
use crate::controllers::application::readiness::*;

fn check_conditions(conditions: &Value) -> Readiness {
    check::<Generic>(7, &json!({ "any": 1 }), &json!({ "conditions": conditions }))
}

#[rstest]
#[case::ready(json!([{ "type": "Ready", "status": "True", "reason": "Fine" }]))]
#[case::ready_is_unknown(json!([{ "type": "Ready", "status": "Unknown", "reason": "Asking" }]))]
#[case::compared_exactly(json!([{ "type": "Ready", "status": "false", "reason": "R" }]))]
#[case::compared_with_its_blanks(json!([{ "type": "Ready", "status": "False ", "reason": "R" }]))]
#[case::type_compared_exactly(json!([{ "type": "ready", "status": "False", "reason": "R" }]))]
#[case::not_in_progress(json!([{ "type": "InProgress", "status": "False", "reason": "R" }]))]
#[case::in_progress_is_unknown(json!([{ "type": "InProgress", "status": "Unknown", "reason": "R" }]))]
#[case::progress_compared_exactly(json!([{ "type": "InProgress", "status": "true", "reason": "R" }]))]
#[case::other_types(json!([{ "type": "Available", "status": "False" }, { "type": "Stalled", "status": "True" }]))]
#[case::the_first_ready_counts(json!([{ "type": "Ready", "status": "True" }, { "type": "Ready", "status": "False" }]))]
#[case::the_first_ready_counts_if_unknown(json!([{ "type": "Ready", "status": "Unknown" }, { "type": "Ready", "status": "False" }]))]
#[case::the_first_in_progress_counts(json!([{ "type": "InProgress", "status": "False" }, { "type": "InProgress", "status": "True" }]))]
#[case::no_conditions(json!([]))]
#[case::null_conditions(Value::Null)]
fn a_component_is_ready_unless_a_condition_says_otherwise(#[case] conditions: Value) {
    assert_eq!(check_conditions(&conditions), Readiness::READY);
}

#[rstest]
#[case::not_ready(json!([{ "type": "Ready", "status": "False", "reason": "Building", "message": "m" }]), "condition Ready is False: Building")]
#[case::without_a_reason(json!([{ "type": "Ready", "status": "False" }]), "condition Ready is False")]
#[case::null_reason(json!([{ "type": "Ready", "status": "False", "reason": null }]), "condition Ready is False")]
#[case::odd_reason(json!([{ "type": "Ready", "status": "False", "reason": 5 }]), "condition Ready is False")]
#[case::in_progress(json!([{ "type": "InProgress", "status": "True", "reason": "Working" }]), "condition InProgress is True: Working")]
#[case::ready_but_in_progress(json!([{ "type": "Ready", "status": "True" }, { "type": "InProgress", "status": "True" }]), "condition InProgress is True")]
#[case::both(json!([{ "type": "InProgress", "status": "True" }, { "type": "Ready", "status": "False" }]), "condition Ready is False")]
#[case::the_first_ready_counts(json!([{ "type": "Ready", "status": "False" }, { "type": "Ready", "status": "True" }]), "condition Ready is False")]
#[case::the_first_in_progress_counts(json!([{ "type": "InProgress", "status": "True" }, { "type": "InProgress", "status": "False" }]), "condition InProgress is True")]
#[case::after_others(json!([{ "type": "Synced", "status": "True" }, { "type": "Ready", "status": "False" }]), "condition Ready is False")]
fn a_component_is_in_progress_if_a_condition_says_so(#[case] conditions: Value, #[case] message: &str) {
    assert_eq!(check_conditions(&conditions), in_progress(message));
}

#[rstest]
#[case::null(Value::Null)]
#[case::text(json!("Ready"))]
#[case::number(json!(5))]
#[case::list(json!(["Ready", "True"]))]
#[case::empty(json!({}))]
#[case::no_type(json!({ "status": "True", "reason": "R" }))]
#[case::null_type(json!({ "type": null, "status": "True" }))]
#[case::type_is_a_number(json!({ "type": 1, "status": "True" }))]
#[case::no_status(json!({ "type": "Ready", "reason": "R" }))]
#[case::null_status(json!({ "type": "Ready", "status": null }))]
#[case::status_is_a_bool(json!({ "type": "Ready", "status": true }))]
#[case::status_is_an_object(json!({ "type": "Ready", "status": { "a": 1 } }))]
fn malformed_conditions_are_skipped(#[case] malformed: Value) {
    assert_eq!(check_conditions(&json!([malformed])), Readiness::READY);
    let followed = json!([malformed, { "type": "Ready", "status": "False", "reason": "R" }]);
    assert_eq!(check_conditions(&followed), in_progress("condition Ready is False: R"));
}

#[test]
fn a_component_without_a_status_is_ready() {
    assert_eq!(Generic::readiness(7, None, None), Readiness::READY);
    assert_eq!(check::<Generic>(7, &Value::Null, &Value::Null), Readiness::READY);
    assert_eq!(check::<Generic>(7, &Value::Null, &json!({})), Readiness::READY);
    assert_eq!(
        check::<Generic>(7, &Value::Null, &json!({ "phase": "Failed" })),
        Readiness::READY
    );
}

#[rstest]
#[case(json!("broken"), "broken is of the type string, expected map[string]interface{}")]
#[case(json!(""), " is of the type string, expected map[string]interface{}")]
#[case(json!(5), "5 is of the type int64, expected map[string]interface{}")]
#[case(json!(-5), "-5 is of the type int64, expected map[string]interface{}")]
#[case(json!(0.5), "0.5 is of the type float64, expected map[string]interface{}")]
#[case(json!(u64::MAX), "18446744073709551615 is of the type float64, expected map[string]interface{}")]
#[case(json!(true), "true is of the type bool, expected map[string]interface{}")]
#[case(json!(false), "false is of the type bool, expected map[string]interface{}")]
#[case(json!(["a"]), "[\"a\"] is of the type []interface {}, expected map[string]interface{}")]
#[case(json!({ "conditions": { "Ready": "True" } }), "{\"Ready\":\"True\"} is of the type map[string]interface {}, expected []interface{}")]
#[case(json!({ "conditions": "Ready" }), "Ready is of the type string, expected []interface{}")]
#[case(json!({ "conditions": 1 }), "1 is of the type int64, expected []interface{}")]
#[case(json!({ "conditions": true }), "true is of the type bool, expected []interface{}")]
fn a_status_of_the_wrong_type_is_reported_like_kubernetes_accessors_do(#[case] status: Value, #[case] error: &str) {
    let message = format!(".status.conditions accessor error: {error}");
    assert_eq!(check::<Generic>(7, &Value::Null, &status), unknown(&message));
}

#[test]
fn a_long_value_of_the_wrong_type_is_truncated_before_its_type() {
    let status = json!("é\n".repeat(100_000));
    let message = check::<Generic>(7, &Value::Null, &status).message.unwrap();
    assert!(
        message.starts_with(".status.conditions accessor error: é é é"),
        "{message}"
    );
    assert!(
        message.ends_with("… is of the type string, expected map[string]interface{}"),
        "{message}"
    );
}

#[rstest]
#[case(
    r#"{"conditions":[],"conditions":[]}"#,
    "failed to decode status: duplicate field `conditions`"
)]
#[case(r#"{"\ud800":1}"#, "failed to decode status: unexpected end of hex escape")]
fn an_undecodable_status_is_unknown(#[case] status: &str, #[case] message: &str) {
    assert_eq!(Generic::readiness(7, None, Some(&raw(status))), unknown(message));
}

#[test]
fn a_nested_application_is_evaluated_by_its_ready_condition() {
    let status = |ready: &str| {
        json!({
            "observedGeneration": 1, "componentsReady": "1/2",
            "conditions": [
                { "type": "Ready", "status": ready, "reason": "ComponentsNotReady", "message": "1 components not ready" },
                { "type": "Error", "status": "False", "reason": "NoError", "message": "No error seen" },
            ],
        })
    };
    assert_eq!(check::<Generic>(1, &Value::Null, &status("True")), Readiness::READY);
    assert_eq!(check::<Generic>(1, &Value::Null, &status("Unknown")), Readiness::READY);
    assert_eq!(
        check::<Generic>(1, &Value::Null, &status("False")),
        in_progress("condition Ready is False: ComponentsNotReady")
    );
}
