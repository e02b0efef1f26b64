use std::time::Duration;

use super::super::{FailureReason, State};
use super::{Run, failed, group, output, step, succeeded, waiting, when, with_input, with_output};

fn step_by_step(steps: impl IntoIterator<Item = crate::api::oam::WorkflowStep>) -> Run {
    Run {
        mode: "StepByStep-DAG",
        ..Run::new(steps)
    }
}

#[test]
fn steps_run_one_after_the_other() {
    let mut run = step_by_step([step("a", &[]), step("b", &[]), step("c", &[])]);
    let outcome = run.turn(|name| if name == "b" { waiting() } else { succeeded() });
    assert_eq!(outcome.state, State::Executing);
    assert_eq!(run.ran, ["a", "b"]);
    assert_eq!(run.names(), ["a", "b"], "those after it have no status");
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
    assert_eq!(run.ran, ["b", "c"]);
}

#[test]
fn a_failure_that_is_tried_again_stops_the_steps_after_it() {
    let mut run = step_by_step([step("a", &[]), when("always", step("b", &[]))]);
    run.turn(|_| failed(FailureReason::Execute));
    assert_eq!(run.names(), ["a"]);
    let outcome = run.turn(|_| succeeded());
    assert_eq!((outcome.state, run.ran.len()), (State::Executing, 0), "not due");
    run.now += 1;
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
    assert_eq!(run.ran, ["a", "b"]);
}

#[test]
fn a_step_that_is_pending_stops_the_steps_after_it() {
    let steps = [with_input(step("a", &[]), "x"), with_output(step("b", &[]), "x")];
    let mut run = step_by_step(steps);
    let outcome = run.turn(|_| succeeded());
    assert_eq!(outcome.state, State::Executing);
    assert_eq!(run.state("a"), ("pending", "", "Pending on Input: x"));
    assert_eq!(run.names(), ["a"]);
    assert_eq!(outcome.retry_in, Some(Duration::from_mins(1)), "nothing runs");
}

#[test]
fn steps_after_a_failure_are_skipped_to_the_last() {
    let steps = [
        step("a", &[]),
        step("b", &[]),
        when("always", step("c", &[])),
        step("d", &[]),
    ];
    let mut run = step_by_step(steps);
    let outcome = run.turn(|name| match name {
        "a" => failed(FailureReason::Action),
        _ => succeeded(),
    });
    assert_eq!(outcome.state, State::Failed);
    assert_eq!(run.ran, ["a", "c"]);
    assert_eq!(run.state("b"), ("skipped", "Skip", ""));
    assert_eq!(
        run.state("d"),
        ("skipped", "Skip", ""),
        "a has failed, whatever came between"
    );
}

#[test]
fn a_step_with_dependencies_looks_only_at_them() {
    let steps = [step("a", &[]), step("b", &[]), step("c", &["a"]), step("d", &["b"])];
    let mut run = step_by_step(steps);
    run.turn(|name| match name {
        "b" => failed(FailureReason::Action),
        _ => succeeded(),
    });
    assert_eq!((run.state("c").0, run.state("d").0), ("succeeded", "skipped"));
}

#[test]
fn a_skipped_step_does_not_skip_those_after_it() {
    let mut run = step_by_step([when("no", step("a", &[])), step("b", &[]), step("c", &["a"])]);
    run.conditions.insert("no", false);
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
    assert_eq!(run.state("b").0, "succeeded");
    assert_eq!(run.state("c").0, "skipped", "but those that depend on it");
}

#[test]
fn the_mode_of_sub_steps_is_that_of_the_workflow_or_of_their_group() {
    for (mode, own, ran) in [
        ("StepByStep-DAG", "", vec!["a", "b"]),
        ("StepByStep-StepByStep", "", vec!["a"]),
        ("StepByStep-DAG", "StepByStep", vec!["a"]),
        ("DAG-StepByStep", "DAG", vec!["a", "b"]),
        ("", "", vec!["a", "b"]),
    ] {
        let mut steps = group("g", [step("a", &[]), step("b", &[])]);
        own.clone_into(&mut steps.mode);
        let mut run = Run {
            mode,
            ..Run::new([steps])
        };
        run.turn(|_| waiting());
        assert_eq!(run.ran, ran, "{mode} {own}");
    }
}

#[test]
fn components_are_named_by_those_that_depend_on_them() {
    let mut deploy = step("deploy-db", &[]);
    deploy.properties = Some(serde_json::json!({"component": "db"}));
    let mut run = Run::new([step("web", &["db"]), deploy]);
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
    assert_eq!(run.ran, ["deploy-db", "web"]);
}

#[test]
fn a_step_that_becomes_ready_after_its_group_runs_at_once() {
    let steps = [
        group("g", [with_input(step("a", &[]), "x")]),
        step("b", &[]),
        with_output(step("c", &["b"]), "x"),
    ];
    let mut run = Run::new(steps);
    let outcome = run.turn(|_| output(serde_json::json!(1)));
    assert_eq!(run.ran, ["b", "c"]);
    assert_eq!(outcome.retry_in, Some(Duration::ZERO));
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
}
