//! Controllers of pods: each part of each rule, broken in turn.

use rstest::rstest;
use serde_json::{Value, json};

use super::{in_progress, judge, unknown, with, without};
use crate::controllers::application::readiness::*;

/// The first of these is what the peer is content with, the second is another way to be ready.
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
fn controllers_of_pods_that_have_all_they_want_are_ready() {
    assert_eq!(judge::<Deployment>(4, &spec(), &deployment()), Readiness::READY);
    assert_eq!(judge::<StatefulSet>(4, &spec(), &stateful_set()), Readiness::READY);
    assert_eq!(judge::<ReplicaSet>(4, &spec(), &replica_set()), Readiness::READY);
    assert_eq!(
        judge::<ReplicationController>(4, &spec(), &replica_set()),
        Readiness::READY
    );
    assert_eq!(judge::<DaemonSet>(4, &json!({}), &daemon_set()), Readiness::READY);
}

#[rstest]
#[case::old_generation("/observedGeneration", json!(3), "the rollout of generation 4 is not observed yet")]
#[case::generation_ahead("/observedGeneration", json!(5), "the rollout of generation 4 is not observed yet")]
#[case::no_generation(
    "/observedGeneration",
    Value::Null,
    "the rollout of generation 4 is not observed yet"
)]
#[case::rolling("/updatedReplicas", json!(1), "1 of 3 replicas updated")]
#[case::nothing_updated("/updatedReplicas", Value::Null, "0 of 3 replicas updated")]
#[case::scaled_down("/updatedReplicas", json!(4), "4 replicas updated, where 3 are wanted")]
#[case::not_ready("/readyReplicas", json!(2), "2 of 3 replicas ready")]
#[case::too_many_ready("/readyReplicas", json!(4), "4 replicas ready, where 3 are wanted")]
#[case::not_available("/availableReplicas", json!(2), "2 of 3 replicas available")]
#[case::surge("/replicas", json!(4), "4 replicas there, where 3 are wanted")]
#[case::too_few("/replicas", json!(2), "2 of 3 replicas there")]
#[case::no_conditions("/conditions", json!([]), "no conditions yet")]
#[case::null_conditions("/conditions", Value::Null, "no conditions yet")]
#[case::other_conditions("/conditions", json!([{ "type": "Other", "status": "True" }]), "neither available nor rolled out by its conditions")]
fn a_deployment_is_in_progress_if_one_thing_is_missing(#[case] field: &str, #[case] value: Value, #[case] why: &str) {
    let status = with(&deployment(), field, value);
    assert_eq!(judge::<Deployment>(4, &spec(), &status), in_progress(why));
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
#[case::a_failure_that_is_over(json!([
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
    let judgement = judge::<Deployment>(4, &spec(), &status);
    if ready {
        assert_eq!(judgement, Readiness::READY);
    } else {
        assert_eq!(
            judgement,
            in_progress("neither available nor rolled out by its conditions")
        );
    }
}

#[rstest]
#[case(json!({ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota" }), "condition ReplicaFailure is True: FailedCreate")]
#[case(json!({ "type": "ReplicaFailure", "status": "True" }), "condition ReplicaFailure is True")]
fn pods_that_were_refused_keep_their_controller_in_progress(#[case] failure: Value, #[case] why: &str) {
    let mut status = deployment();
    status["conditions"].as_array_mut().unwrap().push(failure.clone());
    assert_eq!(judge::<Deployment>(4, &spec(), &status), in_progress(why));

    let mut status = replica_set();
    status["conditions"] = json!([failure]);
    assert_eq!(judge::<ReplicaSet>(4, &spec(), &status), in_progress(why));
    // The peer does not ask a replication controller for it.
    assert_eq!(judge::<ReplicationController>(4, &spec(), &status), Readiness::READY);
}

#[test]
fn a_replica_set_does_not_mind_a_failure_that_is_over() {
    let mut status = replica_set();
    status["conditions"] =
        json!([{ "type": "ReplicaFailure", "status": "False" }, { "type": "Other", "status": "True" }]);
    assert_eq!(judge::<ReplicaSet>(4, &spec(), &status), Readiness::READY);
}

#[rstest]
#[case::old_generation("/observedGeneration", json!(3), "the rollout of generation 4 is not observed yet")]
#[case::not_ready("/readyReplicas", json!(2), "2 of 3 replicas ready")]
#[case::not_available("/availableReplicas", json!(1), "1 of 3 replicas available")]
#[case::too_many("/replicas", json!(5), "5 replicas there, where 3 are wanted")]
#[case::too_few("/replicas", Value::Null, "0 of 3 replicas there")]
fn a_replica_set_and_a_replication_controller_are_in_progress_if_one_thing_is_missing(
    #[case] field: &str,
    #[case] value: Value,
    #[case] why: &str,
) {
    let status = with(&replica_set(), field, value);
    assert_eq!(judge::<ReplicaSet>(4, &spec(), &status), in_progress(why));
    assert_eq!(judge::<ReplicationController>(4, &spec(), &status), in_progress(why));
}

#[rstest]
#[case::old_generation("/observedGeneration", json!(3), "the rollout of generation 4 is not observed yet")]
#[case::not_ready("/readyReplicas", json!(2), "2 of 3 replicas ready")]
#[case::updated_in_part("/currentReplicas", json!(2), "2 of 3 replicas at the current revision")]
#[case::too_many("/replicas", json!(4), "4 replicas there, where 3 are wanted")]
#[case::too_few("/replicas", json!(2), "2 of 3 replicas there")]
fn a_stateful_set_is_in_progress_if_one_thing_is_missing(#[case] field: &str, #[case] value: Value, #[case] why: &str) {
    let status = with(&stateful_set(), field, value);
    assert_eq!(judge::<StatefulSet>(4, &spec(), &status), in_progress(why));
}

#[rstest]
#[case::old_generation("/observedGeneration", json!(3), "the rollout of generation 4 is not observed yet")]
#[case::not_ready("/numberReady", json!(2), "2 of 3 pods ready")]
#[case::not_available("/numberAvailable", json!(2), "2 of 3 pods available")]
#[case::one_node_less("/desiredNumberScheduled", json!(2), "3 pods ready, where 2 are wanted")]
fn a_daemon_set_is_in_progress_if_one_thing_is_missing(#[case] field: &str, #[case] value: Value, #[case] why: &str) {
    let status = with(&daemon_set(), field, value);
    assert_eq!(judge::<DaemonSet>(4, &Value::Null, &status), in_progress(why));
}

#[test]
fn a_daemon_set_that_no_node_wants_is_ready() {
    let status = json!({ "observedGeneration": 1, "desiredNumberScheduled": 0, "numberReady": 0 });
    assert_eq!(judge::<DaemonSet>(1, &Value::Null, &status), Readiness::READY);
}

#[test]
fn nothing_wanted_and_nothing_there_is_ready_for_a_deployment_only_with_a_condition() {
    let none = json!({ "replicas": 0 });
    let status = json!({ "observedGeneration": 4, "conditions": [{ "type": "Available", "status": "True" }] });
    assert_eq!(judge::<Deployment>(4, &none, &status), Readiness::READY);
    let status = json!({ "observedGeneration": 4 });
    assert_eq!(judge::<Deployment>(4, &none, &status), in_progress("no conditions yet"));
    assert_eq!(judge::<StatefulSet>(4, &none, &status), Readiness::READY);
    assert_eq!(judge::<ReplicaSet>(4, &none, &status), Readiness::READY);
    assert_eq!(judge::<ReplicationController>(4, &none, &status), Readiness::READY);
}

#[rstest]
#[case(Value::Null)]
#[case(json!({}))]
#[case(json!({ "replicas": null }))]
#[case(json!({ "replicas": 1 }))]
#[case(json!({ "replicas": 1.0 }))]
fn one_replica_is_wanted_where_nothing_is_said(#[case] spec: Value) {
    let one = json!({
        "observedGeneration": 4, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        "currentReplicas": 1, "conditions": [{ "type": "Available", "status": "True" }],
    });
    assert_eq!(judge::<Deployment>(4, &spec, &one), Readiness::READY);
    assert_eq!(judge::<StatefulSet>(4, &spec, &one), Readiness::READY);
    assert_eq!(judge::<ReplicaSet>(4, &spec, &one), Readiness::READY);
    assert_eq!(judge::<ReplicationController>(4, &spec, &one), Readiness::READY);
    let none = with(&one, "/readyReplicas", json!(0));
    assert_eq!(
        judge::<Deployment>(4, &spec, &none),
        in_progress("0 of 1 replicas ready")
    );
}

#[test]
fn without_a_status_nothing_is_observed() {
    let unobserved = in_progress("the rollout of generation 1 is not observed yet");
    for status in [Value::Null, json!({})] {
        assert_eq!(judge::<Deployment>(1, &spec(), &status), unobserved);
        assert_eq!(judge::<StatefulSet>(1, &spec(), &status), unobserved);
        assert_eq!(judge::<ReplicaSet>(1, &spec(), &status), unobserved);
        assert_eq!(judge::<ReplicationController>(1, &spec(), &status), unobserved);
        assert_eq!(judge::<DaemonSet>(1, &spec(), &status), unobserved);
    }
    assert_eq!(Deployment::judge(1, None, None), unobserved);
    assert_eq!(DaemonSet::judge(1, None, None), unobserved);
}

#[rstest]
#[case("observedGeneration")]
#[case("replicas")]
#[case("updatedReplicas")]
#[case("readyReplicas")]
#[case("availableReplicas")]
#[case("conditions")]
fn a_deployment_lacks_what_its_status_does_not_say(#[case] field: &str) {
    let absent = judge::<Deployment>(4, &spec(), &without(&deployment(), field));
    assert_eq!(absent.state, ComponentState::InProgress);
    assert_eq!(
        absent,
        judge::<Deployment>(4, &spec(), &with(&deployment(), &format!("/{field}"), Value::Null))
    );
}

#[rstest]
#[case(json!("3"), json!({}), "spec can't be read: invalid type: string \"3\", expected an object")]
#[case(json!({ "replicas": "3" }), json!({}), "spec.replicas can't be read: invalid type: string \"3\", expected a JSON number")]
#[case(json!({ "replicas": 2.5 }), json!({}), "spec.replicas can't be read: 2.5 is not an integer")]
#[case(json!({ "replicas": [3] }), json!({}), "spec.replicas can't be read: invalid type: sequence, expected a JSON number")]
#[case(json!({}), json!("broken"), "status can't be read: invalid type: string \"broken\", expected an object")]
#[case(json!({}), json!([4, 3, 3]), "status can't be read: invalid type: sequence, expected an object")]
#[case(json!({}), json!({ "replicas": "3" }), "status.replicas can't be read: invalid type: string \"3\", expected a JSON number")]
#[case(json!({}), json!({ "readyReplicas": true }), "status.readyReplicas can't be read: invalid type: boolean `true`, expected a JSON number")]
#[case(json!({}), json!({ "conditions": { "Ready": true } }), "status.conditions can't be read: invalid type: map, expected a sequence")]
#[case(json!({}), json!({ "conditions": [null, "Ready"] }), "status.conditions[1] can't be read: invalid type: string \"Ready\", expected an object")]
#[case(json!({}), json!({ "conditions": [["Available", "True"]] }), "status.conditions[0] can't be read: invalid type: sequence, expected an object")]
#[case(json!({}), json!({ "conditions": [{ "type": "Available", "status": true }] }), "status.conditions[0].status can't be read: invalid type: boolean `true`, expected a string")]
fn a_field_of_another_type_is_named(#[case] spec: Value, #[case] status: Value, #[case] why: &str) {
    assert_eq!(judge::<Deployment>(4, &spec, &status), unknown(why));
}
