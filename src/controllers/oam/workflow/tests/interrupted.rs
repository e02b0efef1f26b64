//! Processes that die after they have stored the values of a turn, and before they have written its status.

use std::time::Duration;

use serde_json::json;

use super::super::{FailureReason, State, StepResult, StepTask};
use super::{Run, failed, group, output, step, succeeded, suspend, waiting, with_output};

#[test]
fn a_suspension_that_was_over_ends() {
    let steps = [suspend("a", json!({"duration": "90s"})), step("b", &["a"])];
    for result in [succeeded(), waiting(), failed(FailureReason::Execute)] {
        for inside_group in [false, true] {
            let mut run = if inside_group {
                Run::new([group("g", steps.clone())])
            } else {
                Run::new(steps.clone())
            };
            run.turn(|_| result.clone());
            run.now += 90;
            for _ in 0..3 {
                run.interrupted_turn(|_| result.clone());
                assert_eq!(run.state("a").0, "suspending");
            }
            let outcome = run.turn(|_| result.clone());
            let retried = outcome.retry_in.filter(Duration::is_zero);
            if retried.is_some() {
                run.turn(|_| result.clone());
            }
            assert_eq!(run.state("a"), ("succeeded", "", ""), "{result:?}");
            assert!(!run.status.suspend);
            assert_ne!(run.state("b").0, "pending");
        }
    }
}

#[test]
fn a_suspension_that_was_resumed_is_not_begun_again() {
    let mut run = Run::new([suspend("a", json!({})), step("b", &["a"])]);
    run.turn(|_| succeeded());
    run.resume();
    run.interrupted_turn(|_| succeeded());
    run.interrupted_turn(|_| waiting());
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
}

#[test]
fn the_duration_counts_from_the_begin_that_the_status_shows() {
    let mut run = Run::new([suspend("a", json!({"duration": "90s"}))]);
    run.turn(|_| succeeded());
    run.store = super::ValueStore::default();
    run.now += 60;
    assert_eq!(run.turn(|_| succeeded()).retry_in, Some(Duration::from_secs(30)));
    let before = (run.status.clone(), run.store.clone());
    run.now += 10;
    assert_eq!(run.turn(|_| succeeded()).retry_in, Some(Duration::from_secs(20)));
    assert_eq!((&run.status, &run.store), (&before.0, &before.1));
    run.now += 20;
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
}

/// Runs a turn of a step whose template suspends twice. Returns the state, and the number of suspensions that are over.
fn turn_of_approvals(run: &mut Run) -> (State, u32) {
    let mut turn = run.begin().unwrap();
    let resumptions = turn.run.resumptions(0);
    if turn.next_round() == [StepTask::Run(0)] {
        let result = match resumptions {
            0 | 1 => StepResult::Suspended {
                message: String::new(),
                duration: None,
            },
            _ => succeeded(),
        };
        turn.record(0, result);
    }
    let outcome = turn.end();
    run.status = outcome.status;
    run.store = outcome.store;
    (outcome.state, resumptions)
}

#[test]
fn an_approval_is_not_taken_for_that_of_the_next_suspension() {
    let mut run = Run::new([step("a", &[])]);
    assert_eq!(turn_of_approvals(&mut run), (State::Suspending, 0));
    run.now += 60;
    run.resume();
    let approved = run.status.clone();
    assert_eq!(turn_of_approvals(&mut run), (State::Suspending, 1));
    // The second suspension is stored, and the status still shows the approval of the first.
    run.status = approved;
    run.restart();
    run.now += 60;
    assert_eq!(turn_of_approvals(&mut run), (State::Suspending, 1));
    run.restart();
    run.now += 60;
    assert_eq!(turn_of_approvals(&mut run), (State::Suspending, 1));
    run.resume();
    assert_eq!(turn_of_approvals(&mut run), (State::Succeeded, 2));
}

#[test]
fn an_output_that_was_stored_is_taken_from_the_second_run() {
    let mut run = Run::new([
        with_output(step("a", &[]), "x.y"),
        with_output(step("b", &["a"]), "x.z"),
    ]);
    run.interrupted_turn(|name| if name == "a" { output(json!("first")) } else { waiting() });
    assert_eq!(run.store.get("x.y"), Some(&json!("first")));
    assert_eq!(run.turn(|name| output(json!(name))).state, State::Succeeded);
    assert_eq!(run.store.get("x"), Some(&json!({"y": "a", "z": "b"})));
    assert_eq!((run.state("a").2, run.state("b").2), ("", ""));
}

#[test]
fn an_output_does_not_replace_that_of_a_step_that_has_ended() {
    let mut run = Run::new([with_output(step("a", &[]), "x"), with_output(step("b", &["a"]), "x")]);
    run.turn(|name| if name == "a" { output(json!("a")) } else { waiting() });
    run.interrupted_turn(|_| output(json!("b")));
    run.turn(|_| output(json!("b")));
    assert_eq!(run.store.get("x"), Some(&json!("a")));
    assert_eq!(run.state("b").2, "failed to set output x: conflicting values\n");
}
