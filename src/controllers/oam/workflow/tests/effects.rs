//! Steps whose templates may have effects, and that wait.

use std::time::Duration;

use rstest::rstest;

use super::super::{State, StepResult};
use super::{Run, START, group, step, succeeded, waiting, with_timeout};
use crate::api::oam::WorkflowStep;

fn of_type(type_: &str, step: WorkflowStep) -> WorkflowStep {
    WorkflowStep {
        type_: type_.to_owned(),
        ..step
    }
}

#[rstest]
#[case::in_a_dag("DAG-DAG")]
#[case::step_by_step("StepByStep-StepByStep")]
fn events_start_a_waiting_step_at_most_once_a_second(#[case] mode: &'static str) {
    let request = of_type("request", step("a", &[]));
    for steps in [vec![request.clone()], vec![group("g", [request])]] {
        let mut run = Run {
            mode,
            ..Run::new(steps)
        };
        run.turn(|_| waiting());
        let before = run.status.clone();
        let mut runs = 0;
        for millis in (100..=3_000).step_by(100) {
            let outcome = run.turn_after(millis, |_| waiting());
            runs += run.ran.len();
            assert_eq!(outcome.state, State::Executing);
            assert!(
                outcome
                    .retry_in
                    .is_some_and(|retry_in| retry_in <= Duration::from_secs(1))
            );
            assert_eq!(run.status, before);
        }
        assert_eq!(runs, 3);
    }
}

#[test]
fn an_event_that_comes_early_is_not_lost() {
    let mut run = Run::new([of_type("request", step("a", &[]))]);
    for _ in 0..12 {
        run.turn(|_| waiting());
        run.now += 100;
    }
    let outcome = run.turn(|_| waiting());
    assert!(outcome.retry_in.unwrap() > Duration::from_secs(30));
    let outcome = run.turn_after(300, |_| succeeded());
    assert_eq!((run.ran.len(), outcome.retry_in), (0, Some(Duration::from_millis(700))));
    assert_eq!(run.turn_after(1_000, |_| succeeded()).state, State::Succeeded);
}

#[rstest]
#[case("apply-component")]
#[case("builtin-apply-component")]
#[case("deploy")]
fn steps_that_deploy_go_on_at_once(#[case] type_: &str) {
    let mut run = Run::new([of_type(type_, step("a", &[]))]);
    run.turn(|_| waiting());
    for millis in 1..5 {
        run.turn_after(millis, |_| waiting());
        assert_eq!(run.ran, ["a"]);
    }
}

#[test]
fn the_time_of_the_last_run_is_not_stored() {
    let mut run = Run::new([of_type("request", step("a", &[]))]);
    run.turn(|_| waiting());
    let before = (run.store.to_data(), run.store.to_data_with_counters());
    run.turn_after(2_000, |_| StepResult::Waiting {
        message: "wait healthy".to_owned(),
    });
    assert_eq!((run.store.to_data(), run.ran.len()), (before.0, 1));
    assert!(!before.1["portolan.attempts"].contains("lastRuns"));
}

#[test]
fn a_timeout_ends_a_step_that_must_not_run_yet() {
    let mut run = Run::new([with_timeout("2s", of_type("request", step("a", &[])))]);
    run.turn(|_| waiting());
    run.turn_after(1_500, |_| waiting());
    assert_eq!(run.ran, ["a"]);
    let outcome = run.turn_after(2_000, |_| waiting());
    assert_eq!((run.ran.len(), outcome.state), (0, State::Failed));
    assert_eq!(run.state("a"), ("failed", "Timeout", "wait healthy"));
}

#[test]
fn a_clock_that_was_changed_does_not_stop_a_step() {
    let mut run = Run::new([of_type("request", step("a", &[]))]);
    run.turn(|_| waiting());
    run.now = START - 86_400;
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
}
