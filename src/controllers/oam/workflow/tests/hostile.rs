use std::time::Instant;

use jiff::Timestamp;
use serde_json::json;

use super::super::{FailureReason, State, StepTask, ValueStore, WorkflowSettings, WorkflowTurn};
use super::{Run, START, all, failed, group, step, succeeded, suspend, waiting, when, with_input, with_timeout};
use crate::api::oam::{StepStatus, WorkflowStatus, WorkflowStep};
use crate::controllers::oam::context::Context;

/// More than a turn over the largest workflow takes in a debug build.
const MANY_SECONDS: u64 = 20;

fn numbered(count: usize, new: impl Fn(usize) -> WorkflowStep) -> Vec<WorkflowStep> {
    (0..count).map(new).collect()
}

#[test]
fn the_largest_workflow_is_fast() {
    let name = |number: usize| format!("s{number}");
    // Each step depends on all after it, the last of which ends first.
    let dense = numbered(700, |number| {
        let others: Vec<String> = (number + 1..700).map(name).collect();
        WorkflowStep {
            name: name(number),
            depends_on: others,
            ..WorkflowStep::default()
        }
    });
    let waiting_for_input = numbered(2_000, |number| with_input(step(&name(number), &[]), "missing"));
    let in_groups = numbered(1_000, |number| {
        let sub_step = format!("sub{number}");
        group(
            &name(number),
            [with_timeout("100h", suspend(&sub_step, json!({"duration": "100h"})))],
        )
    });
    for (steps, state) in [
        (dense, State::Succeeded),
        (waiting_for_input, State::Executing),
        (in_groups, State::Suspending),
    ] {
        for mode in ["DAG-DAG", "StepByStep-StepByStep"] {
            let mut run = Run {
                mode,
                ..Run::new(steps.clone())
            };
            let begin = Instant::now();
            let outcome = run.turn(|_| succeeded());
            assert!(begin.elapsed().as_secs() < MANY_SECONDS, "{:?}", begin.elapsed());
            assert!(outcome.state == state || mode != "DAG-DAG", "{:?}", outcome.state);
        }
    }
}

#[test]
fn sub_steps_count_as_steps() {
    let steps = [group("g", numbered(2_000, |number| step(&number.to_string(), &[])))];
    let now = Timestamp::from_second(START).unwrap();
    let (status, store, context) = (WorkflowStatus::default(), ValueStore::default(), Context::default());
    let settings = WorkflowSettings::default();
    let turn = WorkflowTurn::begin(&steps, "DAG-DAG", status, store, &context, settings, now, String::new);
    assert!(turn.is_err());
}

#[test]
fn cycles_through_groups_are_pending() {
    for mode in ["DAG-DAG", "StepByStep-StepByStep"] {
        let mut first = group("g", [step("a", &["b"]), step("self", &["g"])]);
        first.depends_on.push("h".to_owned());
        let mut second = group("h", [step("b", &["a"])]);
        second.depends_on.push("g".to_owned());
        let mut run = Run {
            mode,
            ..Run::new([first, second])
        };
        assert_eq!(run.turn(|_| succeeded()).state, State::Executing);
        assert_eq!(run.state("g"), ("pending", "", "Pending on DependsOn: h"));
        assert_eq!(run.ran, [""; 0]);
    }
}

#[test]
fn a_name_used_twice_is_one_step() {
    for mode in ["DAG-DAG", "StepByStep-StepByStep"] {
        let steps = [
            step("a", &[]),
            step("a", &[]),
            group("g", [step("a", &[]), step("b", &[]), step("b", &[])]),
            group("a", [step("c", &[])]),
            suspend("g", json!({})),
        ];
        let mut run = Run {
            mode,
            ..Run::new(steps)
        };
        assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
        assert_eq!(run.ran, ["a", "b"]);
        assert_eq!(run.names(), ["a", "g"]);
    }
}

#[test]
fn edited_statuses_are_tolerated() {
    let unknown = |name: &str| StepStatus {
        name: name.to_owned(),
        phase: "dancing".to_owned(),
        reason: "Why".to_owned(),
        ..StepStatus::default()
    };
    let mut suspended = unknown("gone");
    "suspending".clone_into(&mut suspended.phase);
    "Suspend".clone_into(&mut suspended.reason);
    let mut of_group = unknown("g");
    of_group.sub_steps = vec![unknown("a"), unknown("a"), unknown("other"), suspended.clone()];
    let mut run = Run::new([group("g", [step("a", &[])]), step("b", &[])]);
    run.status.suspend = true;
    run.status.steps = vec![unknown("b"), suspended, of_group, unknown("b"), StepStatus::default()];
    assert_eq!(
        run.turn(|_| waiting()).state,
        State::Suspending,
        "no step that exists is suspended"
    );
    run.status.suspend = false;
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
    assert_eq!((run.state("a").0, run.state("b").0), ("succeeded", "succeeded"));
    assert!(!run.step("a").id.is_empty());
    assert_eq!(run.state("gone").0, "suspending", "what is not ours is kept");
    assert!(run.names().iter().all(|name| !name.is_empty()));
}

#[test]
fn edited_phases_do_not_stop_or_restart_a_workflow() {
    for phase in [
        "",
        "succeeded",
        "failed",
        "running",
        "pending",
        "suspending",
        "skipped",
        "dancing",
    ] {
        for reason in ["", "Wait", "Suspend", "Execute", "Timeout", "Why"] {
            let mut run = Run::new([
                group("g", [step("a", &[]), suspend("s", json!({"duration": "1s"}))]),
                when("always", step("b", &["g"])),
            ]);
            run.turn(|_| waiting());
            for name in ["g", "a", "s"] {
                let mut edited = Run {
                    status: run.status.clone(),
                    store: run.store.clone(),
                    ..Run::new(run.steps.clone())
                };
                phase.clone_into(&mut edited.step_mut(name).phase);
                reason.clone_into(&mut edited.step_mut(name).reason);
                // Without a suspended step, it would be a user who has suspended the workflow.
                edited.status.suspend = false;
                let mut last = None;
                for _ in 0..30 {
                    edited.now += 600;
                    last = Some(edited.turn(|_| succeeded()).state);
                }
                let last = last.unwrap();
                let has_ended = matches!(last, State::Succeeded | State::Failed);
                let is_group_edited = name == "g" && !edited.ran.is_empty();
                assert!(
                    has_ended || is_group_edited || phase == "failed",
                    "{name} {phase} {reason}: {last:?}"
                );
            }
        }
    }
}

#[test]
fn results_that_nobody_has_asked_for_are_ignored() {
    let steps = [step("a", &[]), when("x", step("b", &[])), group("g", [])];
    let now = Timestamp::from_second(START).unwrap();
    let (status, store, context) = (WorkflowStatus::default(), ValueStore::default(), Context::default());
    let settings = WorkflowSettings::default();
    let mut turn = WorkflowTurn::begin(&steps, "DAG-DAG", status, store, &context, settings, now, String::new).unwrap();
    turn.record(0, succeeded());
    assert_eq!(turn.next_round(), [StepTask::Run(0)]);
    turn.record(1, succeeded());
    turn.record(2, succeeded());
    turn.record(7, succeeded());
    turn.record_check(0, Ok(false));
    turn.record_check(9, Ok(true));
    turn.record_check(1, Ok(true));
    turn.record(0, failed(FailureReason::Action));
    turn.record(0, succeeded());
    assert_eq!(turn.next_round(), [StepTask::Check(1)]);
    turn.record(1, succeeded());
    turn.record_check(1, Ok(true));
    turn.record_check(1, Ok(false));
    assert_eq!(turn.next_round(), [StepTask::Run(1)]);
    assert_eq!(turn.next_round(), []);
    assert_eq!(
        (turn.run.step(9), turn.run.inputs(9), turn.run.resumptions(9)),
        (None, Ok(Vec::new()), 0)
    );
    assert!(turn.run.condition_scope(9).unwrap().contains_key("status"));
    let outcome = turn.end();
    let states: Vec<(&str, &str)> = all(&outcome.status.steps)
        .map(|step| (step.name.as_str(), step.phase.as_str()))
        .collect();
    assert_eq!(states, [("a", "failed"), ("g", "succeeded")]);
}

#[test]
fn times_at_the_end_of_the_calendar_are_tolerated() {
    let age = "2562047h";
    let mut run = Run::new([
        with_timeout(age, suspend("a", json!({ "duration": age }))),
        with_timeout(age, step("b", &[])),
    ]);
    run.now = Timestamp::MAX.as_second() - 1;
    assert_eq!(run.turn(|_| waiting()).state, State::Suspending);
    run.restart();
    run.now = Timestamp::MIN.as_second();
    assert_eq!(run.turn(|_| waiting()).state, State::Suspending);
}
