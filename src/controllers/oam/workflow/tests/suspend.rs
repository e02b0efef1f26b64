use std::collections::BTreeMap;
use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};

use super::super::{State, StepResult, ValueStore, WorkflowTurn};
use super::{Run, group, step, succeeded, suspend, waiting, when, with_input, with_output};
use crate::api::oam::{StepInput, WorkflowStatus};

const MESSAGE: &str = "Suspended by field suspend";

fn step_by_step(properties: Value) -> Run {
    Run {
        mode: "StepByStep-DAG",
        ..Run::new([suspend("a", properties), step("b", &[])])
    }
}

#[test]
fn a_suspended_workflow_goes_on_when_a_user_resumes_it() {
    let mut run = step_by_step(json!({}));
    let outcome = run.turn(|_| succeeded());
    assert_eq!(outcome.state, State::Suspending);
    assert_eq!(outcome.retry_in, None, "only a user resumes it");
    assert_eq!(run.state("a"), ("suspending", "Suspend", MESSAGE));
    assert!(run.status.suspend && !run.status.terminated);
    assert_eq!(run.status.phase, "suspending");
    assert_eq!(run.names(), ["a"]);
    let before = (run.status.clone(), run.store.clone());
    run.restart();
    run.now += 86_400;
    run.turn(|_| succeeded());
    assert_eq!((&run.status, &run.store), (&before.0, &before.1), "nothing is written");
    run.resume();
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
    assert_eq!(run.state("a"), ("succeeded", "", ""));
    assert_eq!(run.ran, ["b"]);
    assert_eq!(run.store, ValueStore::default());
}

#[test]
fn the_message_of_a_suspension_is_shown() {
    let mut run = step_by_step(json!({"message": "Waiting for approval"}));
    run.turn(|_| succeeded());
    assert_eq!(run.state("a"), ("suspending", "Suspend", "Waiting for approval"));
}

#[test]
fn a_suspension_ends_after_its_duration() {
    let mut run = step_by_step(json!({"duration": "90s"}));
    assert_eq!(run.turn(|_| succeeded()).retry_in, Some(Duration::from_secs(90)));
    run.now += 30;
    run.restart();
    assert_eq!(run.turn(|_| succeeded()).retry_in, Some(Duration::from_mins(1)));
    let key = format!("{}.resumeTimeStamp", run.step("a").id);
    assert_eq!(run.store.to_data()[&key], "2023-11-14T22:14:50Z", "as in KubeVela");
    run.now += 60;
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
    assert!(!run.status.suspend);
    assert_eq!(run.store.to_data(), ValueStore::default().to_data());
}

#[test]
fn a_user_can_resume_a_step_before_its_time() {
    let mut run = step_by_step(json!({"duration": "10h"}));
    run.turn(|_| succeeded());
    run.resume();
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
}

#[rstest]
#[case(json!({"duration": "soon"}), "failed to parse duration soon: time: invalid duration \"soon\"")]
#[case(json!({"duration": 5}), "duration of the suspension is not a text")]
#[case(json!({"message": []}), "message of the suspension is not a text")]
fn invalid_properties_are_a_failure(#[case] properties: Value, #[case] message: &str) {
    let mut run = step_by_step(properties);
    assert_eq!(run.turn(|_| succeeded()).state, State::Executing);
    assert_eq!(run.state("a"), ("failed", "Execute", message));
}

#[rstest]
#[case("0s")]
#[case("-5m")]
fn a_suspension_without_a_length_ends_in_the_next_turn(#[case] duration: &str) {
    let mut run = step_by_step(json!({"duration": duration}));
    assert_eq!(run.turn(|_| succeeded()).retry_in, Some(Duration::ZERO));
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
}

#[test]
fn inputs_set_the_duration() {
    let mut run = step_by_step(json!({"duration": "10h"}));
    run.steps[0].inputs.push(StepInput {
        from: "wait".to_owned(),
        parameter_key: "duration".to_owned(),
    });
    let data = BTreeMap::from([("vars".to_owned(), "wait: \"5m\"\n".to_owned())]);
    run.store = ValueStore::parse(&data).unwrap();
    assert_eq!(run.turn(|_| succeeded()).retry_in, Some(Duration::from_mins(5)));
}

#[test]
fn a_suspended_step_can_have_a_condition() {
    let mut run = Run::new([when("no", suspend("a", json!({}))), step("b", &[])]);
    run.conditions.insert("no", false);
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
    assert_eq!(run.state("a"), ("skipped", "Skip", ""));
}

#[test]
fn other_steps_go_on_while_a_step_is_suspended() {
    let steps = [
        suspend("a", json!({})),
        step("b", &[]),
        step("c", &["b"]),
        step("d", &["a"]),
        with_output(step("e", &["c"]), "x"),
        with_input(step("f", &["c"]), "y"),
    ];
    let mut run = Run::new(steps);
    let outcome = run.turn(|_| waiting());
    assert_eq!(outcome.state, State::Suspending);
    assert_eq!(outcome.retry_in, Some(Duration::from_secs(1)), "b is looked at again");
    assert_eq!(
        run.names(),
        ["a", "b"],
        "those that wait are not recorded, as in KubeVela"
    );
    let outcome = run.turn(|_| succeeded());
    assert_eq!(run.ran, ["b", "c", "e"]);
    assert_eq!((outcome.state, outcome.retry_in), (State::Suspending, None));
    run.resume();
    run.turn(|_| succeeded());
    assert_eq!(run.names(), ["a", "b", "c", "e", "f", "d"]);
    assert_eq!(run.state("f"), ("pending", "", "Pending on Input: y"));
}

/// A step whose template suspends twice, and waits after the first time.
fn template(turn: &WorkflowTurn<'_>, index: usize, is_ready: bool) -> StepResult {
    match turn.run.resumptions(index) {
        0 => StepResult::Suspended {
            message: "first".to_owned(),
            duration: None,
        },
        1 if !is_ready => waiting(),
        1 => StepResult::Suspended {
            message: "second".to_owned(),
            duration: Some(Duration::from_mins(1)),
        },
        _ => succeeded(),
    }
}

#[test]
fn a_template_can_suspend_more_than_once() {
    let mut run = Run::new([step("a", &[])]);
    let turn = |run: &mut Run, is_ready| {
        let mut turn = run.begin().unwrap();
        let round = turn.next_round();
        for task in &round {
            assert_eq!(*task, super::StepTask::Run(0));
            let result = template(&turn, 0, is_ready);
            turn.record(0, result);
        }
        let outcome = turn.end();
        run.status = outcome.status;
        run.store = outcome.store;
        run.restart();
        (round.len(), outcome.state, run.state("a").2.to_owned())
    };
    assert_eq!(turn(&mut run, true), (1, State::Suspending, "first".to_owned()));
    assert_eq!(
        turn(&mut run, true),
        (0, State::Suspending, "first".to_owned()),
        "it does not run meanwhile"
    );
    run.resume();
    assert_eq!(turn(&mut run, false), (1, State::Executing, "wait healthy".to_owned()));
    assert_eq!(turn(&mut run, false), (1, State::Executing, "wait healthy".to_owned()));
    assert_eq!(turn(&mut run, true), (1, State::Suspending, "second".to_owned()));
    run.now += 60;
    assert_eq!(turn(&mut run, true), (1, State::Succeeded, String::new()));
}

#[test]
fn a_resumption_counts_once_if_the_status_was_not_written() {
    let mut run = Run::new([step("a", &[])]);
    let result = StepResult::Suspended {
        message: String::new(),
        duration: None,
    };
    run.turn(|_| result.clone());
    run.resume();
    let status = run.status.clone();
    for _ in 0..3 {
        run.turn(|_| waiting());
        run.status = status.clone();
        run.restart();
    }
    let turn = run.begin();
    assert_eq!(turn.unwrap().run.resumptions(0), 1);
}

#[test]
fn a_step_that_kubevela_has_suspended_is_resumed() {
    let status: WorkflowStatus = serde_json::from_value(json!({
        "mode": "StepByStep-DAG", "suspend": true, "terminated": false, "finished": false,
        "steps": [{ "id": "x1", "name": "a", "type": "suspend", "phase": "suspending", "reason": "Suspend",
                    "message": MESSAGE, "firstExecuteTime": "2023-11-14T22:13:20Z" }],
    }))
    .unwrap();
    let mut run = step_by_step(json!({"duration": "1m"}));
    run.status = status;
    let data = BTreeMap::from([
        ("vars".to_owned(), "\n".to_owned()),
        ("x1.resumeTimeStamp".to_owned(), "2023-11-15T06:14:20+08:00".to_owned()),
        (
            "x1.suspend.suspendTimeStamp".to_owned(),
            "2023-11-14T22:13:20Z".to_owned(),
        ),
    ]);
    run.store = ValueStore::parse(&data).unwrap();
    let mut resumed = Run {
        status: run.status.clone(),
        ..step_by_step(json!({}))
    };
    assert_eq!(run.turn(|_| succeeded()).retry_in, Some(Duration::from_mins(1)));
    run.now += 60;
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
    resumed.resume();
    assert_eq!(resumed.turn(|_| succeeded()).state, State::Succeeded);
}

#[test]
fn a_user_suspends_the_steps_that_run() {
    let steps = [suspend("a", json!({"duration": "1h"})), step("b", &[])];
    let mut run = Run::new(steps);
    run.turn(|_| waiting());
    run.suspend();
    assert_eq!(run.turn(|_| waiting()).state, State::Suspending);
    assert_eq!(run.ran, [""; 0]);
    assert_eq!(run.state("b"), ("suspending", "Wait", "wait healthy"));
    run.now += 3_600;
    assert_eq!(run.turn(|_| waiting()).state, State::Suspending, "b is still suspended");
    assert_eq!(run.state("a").0, "succeeded");
    assert_eq!(run.ran, [""; 0]);
    run.resume();
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
}

#[test]
fn a_group_with_a_suspended_step_is_suspended() {
    let mut run = Run::new([group("g", [suspend("a", json!({})), step("b", &[])])]);
    assert_eq!(run.turn(|_| succeeded()).state, State::Suspending);
    assert_eq!(run.state("g"), ("suspending", "", ""));
    run.resume();
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
}

#[test]
fn a_user_terminates_a_suspended_workflow() {
    let mut run = step_by_step(json!({}));
    run.turn(|_| succeeded());
    run.status.terminated = true;
    run.status.suspend = false;
    let a = run.step_mut("a");
    "failed".clone_into(&mut a.phase);
    "Terminate".clone_into(&mut a.reason);
    assert_eq!(run.turn(|_| succeeded()).state, State::Terminated);
    assert_eq!(run.state("b").0, "skipped");
    assert_eq!(run.store, ValueStore::default());
}

#[test]
fn the_state_that_old_versions_of_kubevela_wrote_is_kept() {
    let mut run = step_by_step(json!({}));
    "durationWaiting(5m)".clone_into(&mut run.status.suspend_state);
    run.turn(|_| succeeded());
    assert_eq!(run.status.suspend_state, "durationWaiting(5m)");
}
