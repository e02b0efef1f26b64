use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::super::{FailureReason, State, StepTask, TooManySteps};
use super::{Run, START, failed, step, succeeded, waiting};
use crate::api::oam::WorkflowStep;

#[test]
fn steps_run_as_soon_as_those_they_depend_on_have_succeeded() {
    let mut run = Run::new([step("c", &["b"]), step("a", &[]), step("b", &["a"])]);
    let outcome = run.turn(|_| succeeded());
    assert_eq!(outcome.state, State::Succeeded);
    assert_eq!(outcome.retry_in, None);
    assert_eq!(run.status.phase, "succeeded");
    assert_eq!(run.ran, ["a", "b", "c"], "in one turn");
}

#[test]
fn a_workflow_without_steps_succeeds() {
    assert_eq!(Run::new([]).turn(|_| succeeded()).state, State::Succeeded);
}

#[test]
fn a_step_that_waits_holds_up_only_its_dependents() {
    let mut run = Run::new([step("a", &[]), step("b", &["a"]), step("c", &[])]);
    let outcome = run.turn(|name| if name == "a" { waiting() } else { succeeded() });
    assert_eq!(outcome.state, State::Executing);
    assert_eq!(run.state("a"), ("running", "Wait", "wait healthy"));
    assert_eq!(run.state("b"), ("pending", "", "Pending on DependsOn: a"));
    assert_eq!(run.state("c"), ("succeeded", "", ""));
    assert_eq!(run.names(), ["a", "c", "b"], "as in KubeVela");
    assert_eq!(run.status.phase, "executing");
    let outcome = run.turn(|_| succeeded());
    assert_eq!(outcome.state, State::Succeeded);
    assert_eq!(run.ran, ["a", "b"], "finished steps do not run again");
    assert_eq!(run.names(), ["a", "c", "b"]);
}

#[test]
fn ids_and_the_first_execution_are_kept() {
    let mut run = Run::new([step("a", &[]), step("b", &["a"])]);
    run.turn(|_| waiting());
    let before = (run.step("a").clone(), run.step("b").clone());
    assert_eq!(
        before.0.first_execute_time,
        Some(Time(Timestamp::from_second(START).unwrap()))
    );
    assert_eq!(run.status.start_time, before.0.first_execute_time);
    run.now += 60;
    run.turn(|_| succeeded());
    for (before, name) in [(before.0, "a"), (before.1, "b")] {
        let after = run.step(name);
        assert_eq!(after.id, before.id);
        assert_eq!(after.first_execute_time, before.first_execute_time);
        assert_eq!(
            after.last_execute_time,
            Some(Time(Timestamp::from_second(START + 60).unwrap()))
        );
    }
}

#[test]
fn a_cycle_is_pending_with_its_cause() {
    let mut run = Run::new([step("a", &["b"]), step("b", &["a"])]);
    let outcome = run.turn(|_| succeeded());
    assert_eq!(outcome.state, State::Executing);
    assert_eq!(run.state("a"), ("pending", "", "Pending on DependsOn: b"));
    assert_eq!(run.state("b"), ("pending", "", "Pending on DependsOn: a"));
    assert_eq!(outcome.retry_in, Some(Duration::from_mins(1)));
}

#[test]
fn steps_that_were_not_recorded_are_not_in_the_status() {
    let run = Run::new([step("a", &[]), step("b", &[])]);
    let mut turn = run.begin().unwrap();
    assert_eq!(turn.next_round(), [StepTask::Run(0), StepTask::Run(1)]);
    turn.record(1, succeeded());
    let outcome = turn.end();
    assert_eq!(outcome.status.steps.len(), 1);
    assert_eq!(outcome.state, State::Executing);
}

#[test]
fn results_in_any_order_give_the_same_status() {
    let run = Run::new([step("a", &[]), step("b", &[])]);
    let statuses = [[0, 1], [1, 0]].map(|order| {
        let mut turn = run.begin().unwrap();
        turn.next_round();
        for step in order {
            turn.record(step, waiting());
        }
        turn.end().status
    });
    assert_eq!(statuses[0], statuses[1]);
}

#[test]
fn many_steps_are_refused() {
    let steps: Vec<WorkflowStep> = (0..2_001).map(|number| step(&number.to_string(), &[])).collect();
    let run = Run::new(steps);
    assert_eq!(run.begin().err(), Some(TooManySteps));
}

#[test]
fn the_longest_chain_is_skipped_in_one_turn() {
    let names: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
    let steps = names
        .windows(2)
        .map(|pair| step(&pair[0], &[&pair[1]]))
        .chain([step(&names[1_999], &[])]);
    let mut run = Run::new(steps);
    assert_eq!(run.turn(|_| failed(FailureReason::Input)).state, State::Failed);
    assert_eq!(run.state("0").0, "skipped");
}
