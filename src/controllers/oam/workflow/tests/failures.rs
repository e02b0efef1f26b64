use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::super::{FailureReason, State, StepResult, ValueStore, WorkflowSettings};
use super::{Run, failed, step, succeeded, waiting};

#[test]
fn a_failure_is_retried_to_the_limit() {
    let mut run = Run::new([step("a", &[]), step("b", &["a"])]);
    for attempt in 1..=10 {
        let outcome = run.turn(|_| failed(FailureReason::Execute));
        assert_eq!(outcome.state, State::Executing, "attempt {attempt}");
        assert_eq!(run.state("a"), ("failed", "Execute", "boom"));
        assert_eq!(run.state("b").0, "pending");
        run.now += 600;
        assert_eq!(
            run.step("a").last_execute_time,
            Some(Time(Timestamp::from_second(run.now - 600).unwrap()))
        );
    }
    let outcome = run.turn(|_| failed(FailureReason::Execute));
    assert_eq!(outcome.state, State::Failed);
    assert_eq!(run.state("a"), ("failed", "FailedAfterRetries", "boom"));
    assert_eq!(run.state("b"), ("skipped", "Skip", ""));
    assert!(run.status.terminated);
    assert_eq!((run.status.phase.as_str(), run.status.message.as_str()), ("failed", ""));
    assert_eq!(run.store, ValueStore::default(), "no attempts are left");
    let again = run.turn(|_| succeeded());
    assert_eq!(again.state, State::Failed);
    assert_eq!(run.ran, [""; 0]);
}

#[test]
fn a_success_after_failures_forgets_them() {
    let mut run = Run::new([step("a", &[])]);
    run.turn(|_| failed(FailureReason::Execute));
    run.now += 1;
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
    assert_eq!(run.state("a"), ("succeeded", "", ""));
    assert_eq!(run.store, ValueStore::default());
}

#[test]
fn events_do_not_bring_the_next_attempt_forward() {
    let mut run = Run::new([step("a", &[]), step("b", &[]), step("c", &["a"])]);
    let results = |name: &str| match name {
        "b" => waiting(),
        _ => failed(FailureReason::Execute),
    };
    let retry_in = run.turn(results).retry_in;
    assert_eq!(retry_in, Some(Duration::from_secs(1)));
    let before = (run.status.clone(), run.store.clone());
    for millis in (0..1_000).step_by(100) {
        let outcome = run.turn_after(millis, results);
        assert_eq!(run.ran, ["b"], "a step that waits goes on");
        assert_eq!(outcome.retry_in, Some(Duration::from_millis(1_000 - millis)));
        assert_eq!(
            (&run.status, &run.store),
            (&before.0, &before.1),
            "one failure is counted"
        );
    }
    run.now += 1;
    run.turn(results);
    assert_eq!(run.ran, ["a", "b"]);
    assert_ne!(run.store, before.1);
}

#[test]
fn events_do_not_put_the_next_attempt_off() {
    let mut run = Run::new([step("a", &[]), step("b", &[])]);
    run.turn(|_| failed(FailureReason::Execute));
    run.status.steps[1].phase = "running".to_owned();
    let mut attempts = 0;
    for millis in (100..=1_000).step_by(100) {
        run.turn_after(millis, |_| StepResult::Waiting {
            message: format!("message {millis}"),
        });
        attempts += run.ran.iter().filter(|name| *name == "a").count();
    }
    assert_eq!(attempts, 1);
}

#[test]
fn a_time_in_the_far_future_does_not_stop_the_attempts() {
    let mut run = Run::new([step("a", &[])]);
    run.turn(|_| failed(FailureReason::Execute));
    run.now -= 86_400;
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
}

#[test]
fn a_failure_of_inputs_is_final() {
    let mut run = Run::new([step("a", &[]), step("b", &["a"]), step("c", &["b"])]);
    let outcome = run.turn(|_| failed(FailureReason::Input));
    assert_eq!(outcome.state, State::Failed);
    assert_eq!(run.state("a"), ("failed", "Input", "boom"));
    assert_eq!((run.state("b").0, run.state("c").0), ("skipped", "skipped"));
}

#[test]
fn steps_that_do_not_depend_on_a_failed_one_go_on() {
    let mut run = Run::new([step("a", &[]), step("b", &[])]);
    let results = |name: &str| {
        if name == "a" {
            failed(FailureReason::Input)
        } else {
            waiting()
        }
    };
    assert_eq!(run.turn(results).state, State::Executing);
    assert!(run.status.terminated);
    assert_eq!(run.turn(|_| succeeded()).state, State::Failed);
    assert_eq!(run.state("b").0, "succeeded");
}

#[test]
fn a_workflow_can_be_suspended_on_failure() {
    let mut run = Run::new([step("a", &[]), step("b", &["a"])]);
    run.settings = WorkflowSettings {
        suspend_on_failure: true,
        max_retries: 1,
        ..run.settings
    };
    assert_eq!(run.turn(|_| failed(FailureReason::Execute)).state, State::Executing);
    run.now += 60;
    assert_eq!(run.turn(|_| failed(FailureReason::Execute)).state, State::Suspending);
    assert_eq!(run.state("a"), ("failed", "FailedAfterRetries", "boom"));
    assert_eq!(run.state("b").0, "pending");
    assert!(!run.status.terminated && run.status.suspend);
    assert!(run.status.has_failed_after_retries());
    assert_eq!(
        run.status.message,
        "The workflow suspends automatically because the failed times of steps have reached the limit"
    );
    assert_eq!(run.turn(|_| succeeded()).state, State::Suspending);
    assert_eq!(run.ran, [""; 0]);
    run.status.suspend = false;
    assert_eq!(
        run.turn(|_| failed(FailureReason::Execute)).state,
        State::Executing,
        "with all retries again"
    );
    assert!(!run.status.has_failed_after_retries());
    run.now += 60;
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
    assert_eq!(run.status.message, "");
}

#[test]
fn a_suspended_workflow_runs_nothing() {
    let mut run = Run::new([step("a", &[])]);
    run.turn(|_| waiting());
    run.status.suspend = true;
    run.status.steps[0].phase = "suspending".to_owned();
    assert_eq!(run.turn(|_| succeeded()).state, State::Suspending);
    assert_eq!(run.ran, [""; 0]);
    run.status.suspend = false;
    run.status.steps[0].phase = "running".to_owned();
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
}

#[test]
fn a_workflow_terminated_by_a_user_is_not_failed() {
    let mut run = Run::new([step("a", &[]), step("b", &["a"])]);
    run.turn(|_| waiting());
    run.status.terminated = true;
    run.status.steps[0].phase = "failed".to_owned();
    run.status.steps[0].reason = "Terminate".to_owned();
    assert_eq!(run.turn(|_| succeeded()).state, State::Terminated);
    assert_eq!(run.state("b"), ("skipped", "Skip", ""));
    assert_eq!(run.status.phase, "terminated");
}

#[test]
fn a_step_that_fails_without_a_message_keeps_its_last_one() {
    let mut run = Run::new([step("a", &[])]);
    run.turn(|_| waiting());
    let silent = || StepResult::Failed {
        reason: FailureReason::Action,
        message: String::new(),
    };
    assert_eq!(run.turn(|_| silent()).state, State::Failed);
    assert_eq!(run.state("a"), ("failed", "Action", "wait healthy"));
}
