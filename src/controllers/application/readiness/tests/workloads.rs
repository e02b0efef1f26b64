//! Workload controllers: each part of each rule broken in turn.

use rstest::rstest;
use serde_json::{Value, json};

use super::{check, in_progress, unknown, with, without};
use crate::controllers::application::readiness::*;

/// The first condition satisfies kubernetes-sigs' controller; the second is an alternative.
fn deployment() -> Value {
    json!({
        "observedGeneration": 4, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3,
        "conditions": [
            { "type": "Available", "status": "True", "reason": "MinimumReplicasAvailable" },
            { "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable" },
        ],
    })
}

fn stateful_set() -> Value {
    json!({ "observedGeneration": 4, "replicas": 3, "readyReplicas": 3, "currentReplicas": 3, "availableReplicas": 0 })
}

fn replica_set() -> Value {
    json!({ "observedGeneration": 4, "replicas": 3, "readyReplicas": 3, "availableReplicas": 3 })
}

fn daemon_set() -> Value {
    json!({ "observedGeneration": 4, "desiredNumberScheduled": 3, "numberReady": 3, "numberAvailable": 3 })
}

fn spec() -> Value {
    json!({ "replicas": 3 })
}

#[test]
fn workloads_with_all_desired_pods_are_ready() {
    assert_eq!(check::<Deployment>(4, &spec(), &deployment()), Readiness::READY);
    assert_eq!(check::<StatefulSet>(4, &spec(), &stateful_set()), Readiness::READY);
    assert_eq!(check::<ReplicaSet>(4, &spec(), &replica_set()), Readiness::READY);
    assert_eq!(
        check::<ReplicationController>(4, &spec(), &replica_set()),
        Readiness::READY
    );
    assert_eq!(check::<DaemonSet>(4, &json!({}), &daemon_set()), Readiness::READY);
}

#[rstest]
#[case::old_generation("/observedGeneration", json!(3), "generation 4 not observed yet")]
#[case::generation_ahead("/observedGeneration", json!(5), "generation 4 not observed yet")]
#[case::no_generation("/observedGeneration", Value::Null, "generation 4 not observed yet")]
#[case::rolling("/updatedReplicas", json!(1), "1 of 3 replicas updated")]
#[case::nothing_updated("/updatedReplicas", Value::Null, "0 of 3 replicas updated")]
#[case::scaled_down("/updatedReplicas", json!(4), "4 replicas updated, expected 3")]
#[case::not_ready("/readyReplicas", json!(2), "2 of 3 replicas ready")]
#[case::too_many_ready("/readyReplicas", json!(4), "4 replicas ready, expected 3")]
#[case::not_available("/availableReplicas", json!(2), "2 of 3 replicas available")]
#[case::surge("/replicas", json!(4), "4 replicas present, expected 3")]
#[case::too_few("/replicas", json!(2), "2 of 3 replicas present")]
#[case::no_conditions("/conditions", json!([]), "no conditions yet")]
#[case::null_conditions("/conditions", Value::Null, "no conditions yet")]
#[case::other_conditions("/conditions", json!([{ "type": "Other", "status": "True" }]), "neither available nor rolled out")]
fn a_deployment_is_in_progress_if_one_thing_is_missing(
    #[case] field: &str,
    #[case] value: Value,
    #[case] message: &str,
) {
    let status = with(&deployment(), field, value);
    assert_eq!(check::<Deployment>(4, &spec(), &status), in_progress(message));
}

#[rstest]
#[case::available_alone(json!([{ "type": "Available", "status": "True" }]), true)]
#[case::rolled_out_alone(json!([{ "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable" }]), true)]
#[case::rolled_out_but_not_available(json!([
    { "type": "Available", "status": "False" }, { "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable" },
]), true)]
#[case::available_past_its_deadline(json!([
    { "type": "Available", "status": "True" }, { "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded" },
]), true)]
#[case::past_failure(json!([
    { "type": "Available", "status": "True" }, { "type": "ReplicaFailure", "status": "False", "reason": "FailedCreate" },
]), true)]
#[case::one_of_two_of_a_type(json!([{ "type": "Available", "status": "False" }, { "type": "Available", "status": "True" }]), true)]
#[case::not_available(json!([{ "type": "Available", "status": "False" }]), false)]
#[case::available_is_unknown(json!([{ "type": "Available", "status": "Unknown" }]), false)]
#[case::available_in_lower_case(json!([{ "type": "Available", "status": "true" }]), false)]
#[case::still_progressing(json!([{ "type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated" }]), false)]
#[case::progressing_without_a_reason(json!([{ "type": "Progressing", "status": "True" }]), false)]
#[case::rolled_out_but_false(json!([{ "type": "Progressing", "status": "False", "reason": "NewReplicaSetAvailable" }]), false)]
#[case::a_null_condition(json!([null]), false)]
fn a_deployment_needs_one_of_two_conditions(#[case] conditions: Value, #[case] ready: bool) {
    let status = with(&deployment(), "/conditions", conditions);
    let readiness = check::<Deployment>(4, &spec(), &status);
    if ready {
        assert_eq!(readiness, Readiness::READY);
    } else {
        assert_eq!(readiness, in_progress("neither available nor rolled out"));
    }
}

#[rstest]
#[case(json!({ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota" }), "condition ReplicaFailure is True: FailedCreate")]
#[case(json!({ "type": "ReplicaFailure", "status": "True" }), "condition ReplicaFailure is True")]
fn refused_pods_keep_the_workload_in_progress(#[case] failure: Value, #[case] message: &str) {
    let mut status = deployment();
    status["conditions"].as_array_mut().unwrap().push(failure.clone());
    assert_eq!(check::<Deployment>(4, &spec(), &status), in_progress(message));

    let mut status = replica_set();
    status["conditions"] = json!([failure]);
    assert_eq!(check::<ReplicaSet>(4, &spec(), &status), in_progress(message));
    // The kubernetes-sigs controller does not check this for a ReplicationController.
    assert_eq!(check::<ReplicationController>(4, &spec(), &status), Readiness::READY);
}

#[test]
fn a_replica_set_ignores_a_past_failure() {
    let mut status = replica_set();
    status["conditions"] =
        json!([{ "type": "ReplicaFailure", "status": "False" }, { "type": "Other", "status": "True" }]);
    assert_eq!(check::<ReplicaSet>(4, &spec(), &status), Readiness::READY);
}

#[rstest]
#[case::old_generation("/observedGeneration", json!(3), "generation 4 not observed yet")]
#[case::not_ready("/readyReplicas", json!(2), "2 of 3 replicas ready")]
#[case::not_available("/availableReplicas", json!(1), "1 of 3 replicas available")]
#[case::too_many("/replicas", json!(5), "5 replicas present, expected 3")]
#[case::too_few("/replicas", Value::Null, "0 of 3 replicas present")]
fn a_replica_set_and_a_replication_controller_are_in_progress_if_one_thing_is_missing(
    #[case] field: &str,
    #[case] value: Value,
    #[case] message: &str,
) {
    let status = with(&replica_set(), field, value);
    assert_eq!(check::<ReplicaSet>(4, &spec(), &status), in_progress(message));
    assert_eq!(
        check::<ReplicationController>(4, &spec(), &status),
        in_progress(message)
    );
}

#[rstest]
#[case::old_generation("/observedGeneration", json!(3), "generation 4 not observed yet")]
#[case::not_ready("/readyReplicas", json!(2), "2 of 3 replicas ready")]
#[case::updated_in_part("/currentReplicas", json!(2), "2 of 3 replicas at the current revision")]
#[case::too_many("/replicas", json!(4), "4 replicas present, expected 3")]
#[case::too_few("/replicas", json!(2), "2 of 3 replicas present")]
fn a_stateful_set_is_in_progress_if_one_thing_is_missing(
    #[case] field: &str,
    #[case] value: Value,
    #[case] message: &str,
) {
    let status = with(&stateful_set(), field, value);
    assert_eq!(check::<StatefulSet>(4, &spec(), &status), in_progress(message));
}

#[rstest]
#[case::old_generation("/observedGeneration", json!(3), "generation 4 not observed yet")]
#[case::not_ready("/numberReady", json!(2), "2 of 3 pods ready")]
#[case::not_available("/numberAvailable", json!(2), "2 of 3 pods available")]
#[case::one_node_less("/desiredNumberScheduled", json!(2), "3 pods ready, expected 2")]
fn a_daemon_set_is_in_progress_if_one_thing_is_missing(
    #[case] field: &str,
    #[case] value: Value,
    #[case] message: &str,
) {
    let status = with(&daemon_set(), field, value);
    assert_eq!(check::<DaemonSet>(4, &Value::Null, &status), in_progress(message));
}

#[test]
fn a_daemon_set_without_matching_nodes_is_ready() {
    let status = json!({ "observedGeneration": 1, "desiredNumberScheduled": 0, "numberReady": 0 });
    assert_eq!(check::<DaemonSet>(1, &Value::Null, &status), Readiness::READY);
}

#[test]
fn zero_replicas_are_ready_for_a_deployment_only_with_a_condition() {
    let none = json!({ "replicas": 0 });
    let status = json!({ "observedGeneration": 4, "conditions": [{ "type": "Available", "status": "True" }] });
    assert_eq!(check::<Deployment>(4, &none, &status), Readiness::READY);
    let status = json!({ "observedGeneration": 4 });
    assert_eq!(check::<Deployment>(4, &none, &status), in_progress("no conditions yet"));
    assert_eq!(check::<StatefulSet>(4, &none, &status), Readiness::READY);
    assert_eq!(check::<ReplicaSet>(4, &none, &status), Readiness::READY);
    assert_eq!(check::<ReplicationController>(4, &none, &status), Readiness::READY);
}

#[rstest]
#[case(Value::Null)]
#[case(json!({}))]
#[case(json!({ "replicas": null }))]
#[case(json!({ "replicas": 1 }))]
#[case(json!({ "replicas": 1.0 }))]
fn one_replica_is_the_default(#[case] spec: Value) {
    let one = json!({
        "observedGeneration": 4, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        "currentReplicas": 1, "conditions": [{ "type": "Available", "status": "True" }],
    });
    assert_eq!(check::<Deployment>(4, &spec, &one), Readiness::READY);
    assert_eq!(check::<StatefulSet>(4, &spec, &one), Readiness::READY);
    assert_eq!(check::<ReplicaSet>(4, &spec, &one), Readiness::READY);
    assert_eq!(check::<ReplicationController>(4, &spec, &one), Readiness::READY);
    let none = with(&one, "/readyReplicas", json!(0));
    assert_eq!(
        check::<Deployment>(4, &spec, &none),
        in_progress("0 of 1 replicas ready")
    );
}

#[test]
fn without_a_status_no_generation_is_observed() {
    let unobserved = in_progress("generation 1 not observed yet");
    for status in [Value::Null, json!({})] {
        assert_eq!(check::<Deployment>(1, &spec(), &status), unobserved);
        assert_eq!(check::<StatefulSet>(1, &spec(), &status), unobserved);
        assert_eq!(check::<ReplicaSet>(1, &spec(), &status), unobserved);
        assert_eq!(check::<ReplicationController>(1, &spec(), &status), unobserved);
        assert_eq!(check::<DaemonSet>(1, &spec(), &status), unobserved);
    }
    assert_eq!(Deployment::readiness(1, None, None), unobserved);
    assert_eq!(DaemonSet::readiness(1, None, None), unobserved);
}

#[rstest]
#[case("observedGeneration")]
#[case("replicas")]
#[case("updatedReplicas")]
#[case("readyReplicas")]
#[case("availableReplicas")]
#[case("conditions")]
fn absent_and_null_fields_of_a_deployment_are_equal(#[case] field: &str) {
    let absent = check::<Deployment>(4, &spec(), &without(&deployment(), field));
    assert_eq!(absent.state, ComponentState::InProgress);
    assert_eq!(
        absent,
        check::<Deployment>(4, &spec(), &with(&deployment(), &format!("/{field}"), Value::Null))
    );
}

#[rstest]
#[case(json!("3"), json!({}), "failed to decode spec: invalid type: string \"3\", expected an object")]
#[case(json!({ "replicas": "3" }), json!({}), "failed to decode spec.replicas: invalid type: string \"3\", expected a JSON number")]
#[case(json!({ "replicas": 2.5 }), json!({}), "failed to decode spec.replicas: 2.5 is not an integer")]
#[case(json!({ "replicas": [3] }), json!({}), "failed to decode spec.replicas: invalid type: sequence, expected a JSON number")]
#[case(json!({}), json!("broken"), "failed to decode status: invalid type: string \"broken\", expected an object")]
#[case(json!({}), json!([4, 3, 3]), "failed to decode status: invalid type: sequence, expected an object")]
#[case(json!({}), json!({ "replicas": "3" }), "failed to decode status.replicas: invalid type: string \"3\", expected a JSON number")]
#[case(json!({}), json!({ "readyReplicas": true }), "failed to decode status.readyReplicas: invalid type: boolean `true`, expected a JSON number")]
#[case(json!({}), json!({ "conditions": { "Ready": true } }), "failed to decode status.conditions: invalid type: map, expected a sequence")]
#[case(json!({}), json!({ "conditions": [null, "Ready"] }), "failed to decode status.conditions[1]: invalid type: string \"Ready\", expected an object")]
#[case(json!({}), json!({ "conditions": [["Available", "True"]] }), "failed to decode status.conditions[0]: invalid type: sequence, expected an object")]
#[case(json!({}), json!({ "conditions": [{ "type": "Available", "status": true }] }), "failed to decode status.conditions[0].status: invalid type: boolean `true`, expected a string")]
fn a_field_of_the_wrong_type_is_named(#[case] spec: Value, #[case] status: Value, #[case] message: &str) {
    assert_eq!(check::<Deployment>(4, &spec, &status), unknown(message));
}
