//! Pods, claims, services, disruption budgets and jobs.

use rstest::rstest;
use serde_json::{Value, json};

use super::{check, in_progress, unknown, with};
use crate::controllers::application::readiness::*;

#[rstest]
#[case::ready(json!([{ "type": "Ready", "status": "True" }]))]
#[case::completed(json!([{ "type": "Ready", "status": "False", "reason": "PodCompleted" }]))]
#[case::among_others(json!([
    { "type": "PodScheduled", "status": "True" }, { "type": "ContainersReady", "status": "False" }, { "type": "Ready", "status": "True" },
]))]
#[case::one_of_two(json!([{ "type": "Ready", "status": "False" }, { "type": "Ready", "status": "True" }]))]
fn a_pod_is_ready_by_its_condition(#[case] conditions: Value) {
    let status = json!({ "phase": "Pending", "conditions": conditions });
    assert_eq!(check::<Pod>(0, &Value::Null, &status), Readiness::READY);
}

#[rstest]
#[case::not_ready(json!([{ "type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "of: [web]" }]), "condition Ready is False: ContainersNotReady")]
#[case::lost(json!([{ "type": "Ready", "status": "Unknown", "reason": "NodeLost" }]), "condition Ready is Unknown: NodeLost")]
#[case::without_a_reason(json!([{ "type": "Ready", "status": "False" }]), "condition Ready is False")]
#[case::without_a_status(json!([{ "type": "Ready" }]), "condition Ready is without a status")]
#[case::another_is_completed(json!([{ "type": "ContainersReady", "status": "True", "reason": "PodCompleted" }]), "no condition Ready yet")]
#[case::lower_case(json!([{ "type": "ready", "status": "True" }]), "no condition Ready yet")]
#[case::none(json!([]), "no condition Ready yet")]
#[case::null(Value::Null, "no condition Ready yet")]
fn a_pod_is_in_progress_without_its_condition(#[case] conditions: Value, #[case] message: &str) {
    let status = json!({ "phase": "Running", "conditions": conditions });
    assert_eq!(check::<Pod>(0, &Value::Null, &status), in_progress(message));
}

#[test]
fn a_pod_without_conditions_is_in_progress_whatever_its_phase() {
    let missing = in_progress("no condition Ready yet");
    assert_eq!(check::<Pod>(0, &Value::Null, &json!({ "phase": "Succeeded" })), missing);
    assert_eq!(Pod::readiness(0, None, None), missing);
}

#[rstest]
#[case(json!({ "phase": "Bound" }), Readiness::READY)]
#[case(json!({ "phase": "Pending" }), in_progress("phase Pending"))]
#[case(json!({ "phase": "Lost" }), in_progress("phase Lost"))]
#[case(json!({ "phase": "bound" }), in_progress("phase bound"))]
#[case(json!({ "phase": "" }), in_progress("no phase yet"))]
#[case(json!({ "phase": null }), in_progress("no phase yet"))]
#[case(json!({}), in_progress("no phase yet"))]
#[case(Value::Null, in_progress("no phase yet"))]
#[case(json!({ "phase": 1 }), unknown("failed to decode status.phase: invalid type: integer `1`, expected a string"))]
fn a_claim_is_ready_once_bound(#[case] status: Value, #[case] expected: Readiness) {
    assert_eq!(check::<PersistentVolumeClaim>(0, &Value::Null, &status), expected);
}

#[rstest]
#[case(json!({ "type": "ClusterIP", "clusterIP": "10.0.0.7" }))]
#[case(json!({ "type": "ClusterIP", "clusterIP": "None" }))]
#[case(json!({ "type": "NodePort" }))]
#[case(json!({ "type": "ExternalName", "externalName": "db.example.com" }))]
#[case(json!({ "type": "" }))]
#[case(json!({ "type": null }))]
#[case(json!({}))]
#[case(Value::Null)]
fn a_service_other_than_a_load_balancer_is_always_ready(#[case] spec: Value) {
    assert_eq!(
        check::<Service>(0, &spec, &json!({ "loadBalancer": {} })),
        Readiness::READY
    );
    assert_eq!(check::<Service>(0, &spec, &Value::Null), Readiness::READY);
}

#[test]
fn a_service_of_unknown_type_is_in_progress() {
    let spec = json!({ "type": "Teleport" });
    assert_eq!(
        check::<Service>(0, &spec, &Value::Null),
        in_progress("unknown service type Teleport")
    );
}

#[rstest]
#[case::ip(json!([{ "ip": "203.0.113.9" }]), None)]
#[case::two_ips(json!([{ "ip": "203.0.113.9" }, { "ip": "2001:db8::9" }]), None)]
#[case::hostname(json!([{ "hostname": "lb.example.com" }]), None)]
#[case::ip_and_hostname(json!([{ "ip": "203.0.113.9" }, { "hostname": "lb.example.com" }]), None)]
#[case::both_in_one(json!([{ "ip": "203.0.113.9", "hostname": "lb.example.com" }]), None)]
#[case::blank_ip_and_hostname(json!([{ "ip": " ", "hostname": "lb.example.com" }]), None)]
#[case::none(json!([]), Some("no address from the load balancer"))]
#[case::null(Value::Null, Some("no address from the load balancer"))]
#[case::empty(json!([{}]), Some("no address from the load balancer"))]
#[case::null_ingress(json!([null]), Some("no address from the load balancer"))]
#[case::blank(json!([{ "ip": " \t", "hostname": "" }]), Some("no address from the load balancer"))]
#[case::one_of_two(json!([{ "ip": "203.0.113.9" }, { "ip": "" }]), Some("1 of 2 ingresses of the load balancer have an address"))]
fn a_load_balancer_needs_an_address_for_each_ingress(#[case] ingress: Value, #[case] missing: Option<&str>) {
    let spec = json!({ "type": "LoadBalancer", "clusterIP": "10.0.0.7" });
    let status = json!({ "loadBalancer": { "ingress": ingress } });
    let expected = missing.map_or(Readiness::READY, in_progress);
    assert_eq!(check::<Service>(0, &spec, &status), expected);
}

#[rstest]
#[case(json!({ "type": "LoadBalancer" }))]
#[case(json!({ "type": "LoadBalancer", "clusterIP": null }))]
#[case(json!({ "type": "LoadBalancer", "clusterIP": "" }))]
#[case(json!({ "type": "LoadBalancer", "clusterIP": "  " }))]
fn a_load_balancer_needs_a_cluster_ip(#[case] spec: Value) {
    let status = json!({ "loadBalancer": { "ingress": [{ "ip": "203.0.113.9" }] } });
    assert_eq!(check::<Service>(0, &spec, &status), in_progress("no cluster IP yet"));
}

#[rstest]
#[case(Value::Null)]
#[case(json!({}))]
#[case(json!({ "loadBalancer": null }))]
#[case(json!({ "loadBalancer": {} }))]
fn a_load_balancer_without_a_status_has_no_address(#[case] status: Value) {
    let spec = json!({ "type": "LoadBalancer", "clusterIP": "10.0.0.7" });
    assert_eq!(
        check::<Service>(0, &spec, &status),
        in_progress("no address from the load balancer")
    );
}

#[rstest]
#[case(json!({ "type": 7 }), Value::Null, "failed to decode spec.type: invalid type: integer `7`, expected a string")]
#[case(json!({}), json!({ "loadBalancer": [] }), "failed to decode status.loadBalancer: invalid type: sequence, expected an object")]
#[case(json!({}), json!({ "loadBalancer": { "ingress": [{ "ip": 7 }] } }), "failed to decode status.loadBalancer.ingress[0].ip: invalid type: integer `7`, expected a string")]
fn an_undecodable_service_names_the_field(#[case] spec: Value, #[case] status: Value, #[case] message: &str) {
    assert_eq!(check::<Service>(0, &spec, &status), unknown(message));
}

fn budget() -> Value {
    json!({ "observedGeneration": 4, "currentHealthy": 2, "desiredHealthy": 2 })
}

#[rstest]
#[case::enough("/currentHealthy", json!(2), Readiness::READY)]
#[case::more_than_enough("/currentHealthy", json!(3), Readiness::READY)]
#[case::none_desired("/desiredHealthy", Value::Null, Readiness::READY)]
#[case::too_few("/currentHealthy", json!(1), in_progress("1 of 2 pods healthy"))]
#[case::not_reported("/currentHealthy", Value::Null, in_progress("0 of 2 pods healthy"))]
#[case::old_generation("/observedGeneration", json!(3), in_progress("generation 4 not observed yet"))]
#[case::malformed("/currentHealthy", json!("2"), unknown("failed to decode status.currentHealthy: invalid type: string \"2\", expected a JSON number"))]
fn a_disruption_budget_needs_enough_healthy_pods(
    #[case] field: &str,
    #[case] value: Value,
    #[case] expected: Readiness,
) {
    assert_eq!(
        check::<PodDisruptionBudget>(4, &Value::Null, &with(&budget(), field, value)),
        expected
    );
}

#[rstest]
#[case::complete(json!({ "startTime": "2026-01-01T00:00:00Z", "conditions": [
    { "type": "SuccessCriteriaMet", "status": "True" }, { "type": "Complete", "status": "True" },
] }), Readiness::READY)]
#[case::running(json!({ "startTime": "2026-01-01T00:00:00Z", "active": 1 }), in_progress("running"))]
#[case::about_to_be_complete(json!({ "startTime": "2026-01-01T00:00:00Z", "conditions": [
    { "type": "SuccessCriteriaMet", "status": "True" },
] }), in_progress("running"))]
#[case::complete_is_false(json!({ "startTime": "2026-01-01T00:00:00Z", "conditions": [
    { "type": "Complete", "status": "False" },
] }), in_progress("running"))]
#[case::not_started(json!({}), in_progress("not started yet"))]
#[case::no_status(Value::Null, in_progress("not started yet"))]
#[case::suspended(json!({ "conditions": [{ "type": "Suspended", "status": "True", "reason": "JobSuspended" }] }), in_progress("suspended"))]
#[case::resumed(json!({ "startTime": "2026-01-01T00:00:00Z", "conditions": [
    { "type": "Suspended", "status": "False", "reason": "JobResumed" },
] }), in_progress("running"))]
#[case::failed(json!({ "startTime": "2026-01-01T00:00:00Z", "conditions": [
    { "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit" },
] }), in_progress("failed: BackoffLimitExceeded: Job has reached the specified backoff limit"))]
#[case::failed_without_a_message(json!({ "conditions": [{ "type": "Failed", "status": "True", "reason": "DeadlineExceeded" }] }), in_progress("failed: DeadlineExceeded"))]
#[case::failed_without_a_reason(json!({ "conditions": [{ "type": "Failed", "status": "True", "message": "too late" }] }), in_progress("failed: too late"))]
#[case::failed_without_reason_and_message(json!({ "conditions": [{ "type": "Failed", "status": "True" }] }), in_progress("failed"))]
#[case::failed_while_suspended(json!({ "conditions": [
    { "type": "Suspended", "status": "True" }, { "type": "Failed", "status": "True", "reason": "Gone" },
] }), in_progress("failed: Gone"))]
#[case::malformed(json!({ "conditions": [{ "type": 1 }] }), unknown("failed to decode status.conditions[0].type: invalid type: integer `1`, expected a string"))]
fn a_job_is_ready_when_it_is_complete(#[case] status: Value, #[case] expected: Readiness) {
    assert_eq!(check::<Job>(1, &json!({ "suspend": true }), &status), expected);
}

#[test]
fn the_message_of_a_failed_job_is_truncated_and_printable() {
    let message = format!("a\u{1b}[31mb\nline{}", "é".repeat(10_000));
    let status = json!({ "conditions": [{ "type": "Failed", "status": "True", "reason": "R", "message": message }] });
    let message = check::<Job>(1, &Value::Null, &status).message.unwrap();
    assert!(message.starts_with("failed: R: a [31mb lineé"), "{message}");
    assert!(
        message.ends_with("é…") && message.len() > 250 && message.len() <= MAX_MESSAGE,
        "{message}"
    );
}
