use rstest::rstest;
use serde_json::json;

use super::super::{FailureReason, State, StepResult};
use super::{
    Run, START, failed, group, output, step, succeeded, suspend, waiting, when, with_input, with_output, with_timeout,
};
use crate::api::oam::WorkflowStep;

fn names(run: &Run, group: &str) -> Vec<String> {
    let sub_steps = run.step(group).sub_steps.iter();
    sub_steps.map(|step| step.name.clone()).collect()
}

#[test]
fn sub_steps_have_their_status_in_that_of_their_group() {
    let mut run = Run::new([group("g", [step("a", &[]), step("b", &["a"])]), step("c", &["g"])]);
    run.turn(|name| if name == "a" { waiting() } else { succeeded() });
    assert_eq!(run.state("a"), ("running", "Wait", "wait healthy"));
    assert_eq!(run.state("b"), ("pending", "", "Pending on DependsOn: a"));
    assert_eq!(run.state("g"), ("running", "", ""));
    assert_eq!(run.state("c"), ("pending", "", "Pending on DependsOn: g"));
    assert_eq!(run.names(), ["g", "c"]);
    assert_eq!(names(&run, "g"), ["a", "b"]);
    let ids: Vec<String> = ["g", "a", "b", "c"].map(|name| run.step(name).id.clone()).into();
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
    assert_eq!(run.state("g"), ("succeeded", "", ""));
    assert_eq!(run.ran, ["a", "b", "c"]);
    assert_eq!(ids, ["g", "a", "b", "c"].map(|name| run.step(name).id.clone()));
    assert_eq!(run.step("g").first_execute_time, run.step("c").first_execute_time);
}

#[test]
fn steps_depend_on_sub_steps_of_any_group() {
    let steps = [
        group("g", [step("a", &["b"])]),
        group("h", [step("b", &[])]),
        step("c", &["a"]),
    ];
    let mut run = Run::new(steps);
    run.turn(|_| succeeded());
    assert_eq!(run.ran, ["b"]);
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
    assert_eq!(run.ran, ["a", "c"]);
}

#[rstest]
#[case::running(["a", "b"], "running", "")]
#[case::waiting_beside_success(["succeed", "b"], "running", "")]
#[case::suspended_before_running(["suspend", "b"], "suspending", "")]
#[case::running_before_failure(["fail", "b"], "running", "")]
#[case::retried(["retry", "succeed"], "failed", "")]
#[case::retried_before_failure(["retry", "fail"], "failed", "")]
#[case::failed(["fail", "succeed"], "failed", "Action")]
#[case::rendering(["render", "succeed"], "failed", "Rendering")]
#[case::first_reason(["render", "fail"], "failed", "Action")]
#[case::skipped_and_succeeded(["skip", "succeed"], "succeeded", "")]
#[case::skipped(["skip", "skip2"], "skipped", "Skip")]
#[case::pending(["pend", "succeed"], "pending", "")]
fn a_group_takes_the_state_of_its_sub_steps(#[case] names: [&str; 2], #[case] phase: &str, #[case] reason: &str) {
    let sub_step = |name: &str| match name {
        "skip" | "skip2" => when("no", step(name, &[])),
        "pend" => step(name, &["missing"]),
        _ => step(name, &[]),
    };
    let mut run = Run::new([group("g", names.map(sub_step))]);
    run.conditions.insert("no", false);
    run.turn(|name| match name {
        "succeed" => succeeded(),
        "retry" => failed(FailureReason::Execute),
        "fail" => failed(FailureReason::Action),
        "render" => failed(FailureReason::Rendering),
        "suspend" => StepResult::Suspended {
            message: String::new(),
            duration: None,
        },
        _ => waiting(),
    });
    assert_eq!(run.state("g"), (phase, reason, ""));
}

#[test]
fn a_group_with_steps_to_come_runs() {
    let mut steps = group("g", [suspend("a", json!({})), step("b", &[])]);
    "StepByStep".clone_into(&mut steps.mode);
    let mut run = Run::new([steps]);
    assert_eq!(run.turn(|_| succeeded()).state, State::Suspending);
    assert_eq!(run.state("a").0, "suspending");
    assert_eq!(run.state("g"), ("running", "", ""), "as in KubeVela");
}

#[test]
fn an_empty_group_succeeds() {
    assert_eq!(Run::new([group("g", [])]).turn(|_| waiting()).state, State::Succeeded);
}

#[test]
fn a_workflow_fails_with_a_sub_step() {
    let mut run = Run::new([group("g", [step("a", &[]), step("b", &[])]), step("c", &["g"])]);
    let outcome = run.turn(|name| match name {
        "a" => failed(FailureReason::Input),
        _ => succeeded(),
    });
    assert_eq!(outcome.state, State::Failed);
    assert_eq!(run.state("g"), ("failed", "Input", ""));
    assert_eq!(run.state("c").0, "skipped");
}

#[test]
fn sub_steps_of_a_skipped_group_are_skipped() {
    let sub_steps = [
        when("always", with_output(step("a", &[]), "x")),
        with_input(step("b", &["missing"]), "never"),
        group("nested", []),
    ];
    let mut run = Run::new([when("no", with_output(group("g", sub_steps), "y")), step("c", &["g"])]);
    run.conditions.insert("no", false);
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
    assert_eq!(run.ran, [""; 0]);
    for name in ["g", "a", "b", "nested", "c"] {
        assert_eq!(run.state(name), ("skipped", "Skip", ""), "{name}");
    }
    assert_eq!(run.store.get("x"), Some(&json!(null)), "others do not wait for it");
    assert_eq!(run.store.get("y"), Some(&json!(null)));
}

#[test]
fn the_error_of_a_condition_is_that_of_the_group() {
    let mut run = Run::new([when("x", group("g", [step("a", &[])]))]);
    run.turn(|_| succeeded());
    assert_eq!(run.state("g"), ("skipped", "Skip", "pre check error: undefined"));
    assert_eq!(run.state("a"), ("skipped", "Skip", ""));
}

#[test]
fn a_group_waits_for_dependencies_and_inputs() {
    let mut first = group("g", [step("a", &[])]);
    first.depends_on.push("b".to_owned());
    let second = with_input(group("h", [step("c", &[])]), "x");
    let mut run = Run::new([first, second, with_output(step("b", &[]), "x")]);
    run.turn(|_| waiting());
    assert_eq!(run.ran, ["b"]);
    assert_eq!(run.state("g"), ("pending", "", "Pending on DependsOn: b"));
    assert_eq!(run.state("h"), ("pending", "", "Pending on Input: x"));
    assert_eq!(run.turn(|_| output(json!(1))).state, State::Succeeded);
    assert_eq!(run.ran, ["b", "a", "c"]);
}

/// A group with a step that succeeds, one that waits, and `others`.
fn slow_group(mode: &str, others: impl IntoIterator<Item = WorkflowStep>) -> Run {
    let first = [step("done", &[]), with_output(step("slow", &[]), "x")];
    let mut steps = with_timeout("1m", group("g", first.into_iter().chain(others)));
    mode.clone_into(&mut steps.mode);
    Run::new([steps, when("always", step("after", &["g"]))])
}

fn slow(name: &str) -> StepResult {
    if name == "slow" { waiting() } else { succeeded() }
}

#[test]
fn a_timeout_of_a_group_fails_its_sub_steps() {
    let others = [step("b", &["slow"]), when("always", step("c", &["b"]))];
    let mut run = slow_group("", others);
    run.turn(slow);
    assert_eq!(run.state("g").0, "running");
    run.now += 60;
    assert_eq!(run.turn(slow).state, State::Failed);
    assert_eq!(run.state("g"), ("failed", "Timeout", ""));
    assert_eq!(run.state("done").0, "succeeded");
    assert_eq!(run.state("slow"), ("failed", "Timeout", "wait healthy"));
    assert_eq!(run.state("b").0, "skipped", "as after any failure");
    assert_eq!(run.state("c"), ("failed", "Timeout", ""));
    assert_eq!(run.state("after").0, "succeeded");
    assert_eq!(run.ran, ["after"]);
    assert_eq!(run.store.get("x"), Some(&json!(null)));
}

#[test]
fn a_timeout_of_a_group_fails_steps_that_were_not_reached() {
    let others = [
        step("b", &[]),
        when("always", step("c", &[])),
        when("no", step("d", &[])),
    ];
    let mut run = slow_group("StepByStep", others);
    run.conditions.insert("no", false);
    run.turn(slow);
    run.now += 60;
    assert_eq!(run.turn(slow).state, State::Failed);
    assert_eq!(run.state("slow").1, "Timeout");
    assert_eq!((run.state("b").0, run.state("c").1), ("skipped", "Timeout"));
    assert_eq!(run.state("d").0, "skipped");
}

#[test]
fn a_failing_sub_step_that_is_not_due_meets_the_timeout_of_its_group() {
    let mut run = Run::new([with_timeout("1s", group("g", [step("a", &[])]))]);
    run.settings.max_retries = 100;
    for _ in 0..20 {
        run.turn(|_| failed(FailureReason::Execute));
        run.step_mut("g").first_execute_time = None;
        run.now += 1_000;
    }
    run.turn(|_| failed(FailureReason::Execute));
    let time = jiff::Timestamp::from_second(START).unwrap();
    run.step_mut("g").first_execute_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time));
    assert_eq!(run.turn(|_| failed(FailureReason::Execute)).state, State::Failed);
    assert_eq!(run.ran, [""; 0]);
    assert_eq!(run.state("a").1, "Timeout");
}

#[test]
fn sub_steps_of_other_types_are_ignored() {
    let mut plain = step("a", &[]);
    plain.sub_steps.push(step("b", &[]));
    let mut run = Run::new([plain, step("c", &[])]);
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
    assert_eq!(run.ran, ["a", "c"]);
}
