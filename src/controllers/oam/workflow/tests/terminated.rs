//! Workflows that a user has terminated.

use super::super::operations::terminate;
use super::super::{FailureReason, State, StepResult};
use super::{Run, failed, group, output, step, succeeded, suspend, waiting, when, with_input, with_output};
use crate::api::oam::{ApplicationStatus, WorkflowStep};

fn terminate_run(run: &mut Run) {
    let mut status = ApplicationStatus {
        workflow: Some(run.status.clone()),
        ..ApplicationStatus::default()
    };
    terminate(&mut status).unwrap();
    run.status = status.workflow.unwrap();
}

#[test]
fn an_input_that_never_comes_does_not_keep_a_terminated_workflow_from_its_end() {
    let provider = with_output(step("a", &[]), "ip");
    let suspended = with_output(suspend("a", serde_json::json!({})), "ip");
    for first in [provider, suspended] {
        for mode in ["DAG-DAG", "StepByStep-StepByStep"] {
            let mut run = Run {
                mode,
                ..Run::new([
                    first.clone(),
                    with_input(step("b", &[]), "ip.v4"),
                    group("g", [with_input(step("c", &[]), "ip")]),
                ])
            };
            run.turn(|_| waiting());
            terminate_run(&mut run);
            let outcome = run.turn(|_| succeeded());
            assert_eq!(outcome.state, State::Terminated);
            assert_eq!(run.state("a").1, "Terminate");
            assert_eq!(run.state("b"), ("skipped", "Skip", ""), "{mode}");
            // In the mode DAG, the group had begun.
            assert!(matches!(run.state("g").1, "Terminate" | "Skip"), "{mode}");
            assert_eq!(run.ran, [""; 0], "nothing runs without its input");
        }
    }
}

#[test]
fn values_that_no_step_provides_do_not_keep_a_terminated_workflow_from_its_end() {
    let steps: [Vec<WorkflowStep>; 2] = [
        vec![with_input(step("a", &[]), "nowhere")],
        vec![step("a", &["missing"]), step("b", &["a"])],
    ];
    for steps in steps {
        let mut run = Run::new(steps);
        assert_eq!(run.turn(|_| succeeded()).state, State::Executing);
        terminate_run(&mut run);
        assert_eq!(run.turn(|_| succeeded()).state, State::Terminated);
        assert_eq!(run.state("a"), ("skipped", "Skip", ""));
    }
}

#[test]
fn a_step_that_always_runs_does_so_without_its_input() {
    let mut run = Run::new([
        with_output(step("a", &[]), "ip"),
        when("always", with_input(step("b", &[]), "ip")),
    ]);
    run.turn(|_| waiting());
    terminate_run(&mut run);
    assert_eq!(run.turn(|_| succeeded()).state, State::Terminated);
    assert_eq!(
        (run.state("b").0, run.ran.as_slice()),
        ("succeeded", &["b".to_owned()][..])
    );
}

#[test]
fn a_step_waits_for_an_input_that_may_come_after_another_has_failed() {
    let mut run = Run::new([
        step("failing", &[]),
        with_output(step("a", &[]), "ip"),
        with_input(step("b", &[]), "ip"),
    ]);
    let outcome = run.turn(|name| match name {
        "failing" => failed(FailureReason::Input),
        _ => waiting(),
    });
    assert!(run.status.terminated);
    assert_eq!(outcome.state, State::Executing);
    assert_eq!(run.state("b"), ("pending", "", "Pending on Input: ip"));
    assert_eq!(run.turn(|_| output(serde_json::json!("10.0.0.1"))).state, State::Failed);
    assert_eq!(run.state("b").0, "succeeded");
}

fn terminated() -> StepResult {
    StepResult::Terminated {
        message: "enough".to_owned(),
    }
}

#[test]
fn a_step_that_ends_the_workflow_has_succeeded_and_steps_that_have_not_begun_are_skipped() {
    for mode in ["StepByStep-DAG", "DAG-DAG"] {
        let mut run = Run {
            mode,
            ..Run::new([
                step("a", &[]),
                step("b", &["a"]),
                when("always", step("c", &["a"])),
                group("g", [step("d", &["a"])]),
            ])
        };
        let mut outcome = run.turn(|name| if name == "a" { terminated() } else { succeeded() });
        assert_eq!(run.ran, ["a", "c"], "{mode}");
        if mode.starts_with("DAG") {
            // Steps of a group look at the steps before it once a turn.
            assert_eq!(outcome.state, State::Executing);
            outcome = run.turn(|_| succeeded());
        }
        assert_eq!(outcome.state, State::Terminated, "{mode}");
        assert_eq!(run.state("a"), ("succeeded", "Terminate", "enough"));
        assert_eq!(run.state("b"), ("skipped", "Skip", ""));
        assert_eq!((outcome.retry_in, outcome.status.terminated), (None, true));
    }
}

#[test]
fn no_step_runs_after_the_end_if_failures_suspend() {
    for mode in ["StepByStep-DAG", "DAG-DAG"] {
        let mut run = Run {
            mode,
            ..Run::new([step("a", &[]), step("b", &["a"])])
        };
        run.settings.suspend_on_failure = true;
        let outcome = run.turn(|name| if name == "a" { terminated() } else { succeeded() });
        assert_eq!(outcome.state, State::Terminated, "{mode}");
        assert_eq!(run.ran, ["a"], "{mode}");
        assert_eq!(outcome.retry_in, None);
    }
}

#[test]
fn a_step_that_has_begun_goes_on_after_another_has_ended_the_workflow() {
    let mut run = Run::new([step("a", &[]), step("b", &[])]);
    let outcome = run.turn(|name| if name == "a" { terminated() } else { waiting() });
    assert_eq!(outcome.state, State::Executing);
    run.now += 60;
    let outcome = run.turn(|_| succeeded());
    assert_eq!(outcome.state, State::Terminated);
    assert_eq!(run.state("b").0, "succeeded");
    assert_eq!(run.ran, ["b"]);
}

#[test]
fn a_step_that_fails_beside_one_that_ends_the_workflow_makes_it_fail() {
    let mut run = Run::new([step("a", &[]), step("b", &[])]);
    let outcome = run.turn(|name| {
        if name == "a" {
            terminated()
        } else {
            failed(FailureReason::Action)
        }
    });
    assert_eq!(outcome.state, State::Failed);
}
