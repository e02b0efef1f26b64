use std::time::Duration;

use rstest::rstest;
use serde_json::json;

use super::super::{FailureReason, State, StepResult};
use super::{Run, failed, group, step, succeeded, suspend, waiting, when, with_output, with_timeout};

#[test]
fn a_step_fails_at_its_timeout() {
    let mut run = Run::new([with_output(with_timeout("5s", step("a", &[])), "x"), step("b", &["a"])]);
    for _ in 0..20 {
        run.turn(|_| waiting());
        run.now += 100;
        run.step_mut("a").first_execute_time = None;
    }
    run.status.steps.clear();
    let outcome = run.turn(|_| waiting());
    assert_eq!(
        outcome.retry_in,
        Some(Duration::from_secs(5)),
        "the timer, not the back-off"
    );
    run.now += 4;
    let outcome = run.turn_after(500, |_| waiting());
    assert_eq!(outcome.retry_in, Some(Duration::from_millis(500)));
    let outcome = run.turn_after(1_000, |_| waiting());
    assert_eq!(run.ran, [""; 0]);
    assert_eq!(outcome.state, State::Failed);
    assert_eq!(run.state("a"), ("failed", "Timeout", "wait healthy"));
    assert_eq!(run.state("b").0, "skipped");
    assert_eq!(run.store.get("x"), Some(&json!(null)));
    assert!(run.status.terminated);
}

#[test]
fn a_failing_step_meets_its_timeout_before_its_next_attempt() {
    let mut run = Run::new([with_timeout("10s", step("a", &[]))]);
    run.settings.max_retries = 100;
    let mut outcome = run.turn(|_| failed(FailureReason::Execute));
    while outcome.state == State::Executing {
        let wait = outcome.retry_in.unwrap();
        assert!(!wait.is_zero());
        run.now += i64::try_from(wait.as_secs()).unwrap();
        outcome = run.turn(|_| failed(FailureReason::Execute));
    }
    assert_eq!(run.now, super::START + 10);
    assert_eq!(run.state("a").1, "Timeout");
}

#[test]
fn a_timeout_is_not_looked_at_in_the_first_visit() {
    let mut run = Run::new([with_timeout("0s", step("a", &[]))]);
    assert_eq!(run.turn(|_| waiting()).retry_in, Some(Duration::ZERO));
    assert_eq!(run.turn(|_| waiting()).state, State::Failed);
}

#[test]
fn a_step_that_succeeds_in_time_has_no_timeout() {
    let mut run = Run::new([with_timeout("5s", step("a", &[])), step("b", &[])]);
    run.turn(|name| if name == "a" { succeeded() } else { waiting() });
    run.now += 60;
    assert_eq!(run.turn(|_| succeeded()).state, State::Succeeded);
}

#[test]
fn a_timeout_counts_from_the_time_at_which_the_step_was_pending() {
    let mut run = Run::new([step("a", &[]), with_timeout("1m", step("b", &["a"]))]);
    let outcome = run.turn(|_| waiting());
    assert_eq!(outcome.retry_in, Some(Duration::from_secs(1)));
    run.now += 61;
    assert_eq!(
        run.turn(|_| waiting()).state,
        State::Executing,
        "a step that is pending does not time out"
    );
    assert_eq!(run.state("b").0, "pending");
    assert_eq!(run.turn(|_| succeeded()).state, State::Failed);
    assert_eq!(run.state("b"), ("failed", "Timeout", ""), "it has not run");
}

#[rstest]
#[case("5", "5")]
#[case("soon", "soon")]
#[case("1d", "1d")]
#[case("--1s", "--1s")]
#[case("999999999999h", "999999999999h")]
fn an_invalid_timeout_skips_the_step_in_the_second_visit(#[case] timeout: &str, #[case] shown: &str) {
    let mut run = Run::new([with_timeout(timeout, step("a", &[]))]);
    assert_eq!(run.turn(|_| waiting()).state, State::Executing);
    assert_eq!(run.turn(|_| waiting()).state, State::Succeeded);
    let message = format!("pre check error: time: invalid duration \"{shown}\"");
    assert_eq!(run.state("a"), ("skipped", "Skip", message.as_str()));
}

#[test]
fn a_long_invalid_timeout_is_shortened() {
    let mut run = Run::new([with_timeout(&"9".repeat(100_000), step("a", &[]))]);
    run.turn(|_| waiting());
    run.turn(|_| waiting());
    assert!(run.state("a").2.len() < 200);
}

#[test]
fn a_timeout_ends_a_suspension() {
    let mut run = Run::new([
        with_timeout("1h", suspend("a", json!({}))),
        when("always", step("b", &["a"])),
    ]);
    let outcome = run.turn(|_| succeeded());
    assert_eq!(outcome.state, State::Suspending);
    assert_eq!(outcome.retry_in, Some(Duration::from_hours(1)));
    run.now += 3_600;
    assert_eq!(run.turn(|_| succeeded()).state, State::Failed);
    assert_eq!(run.state("a"), ("failed", "Timeout", "Suspended by field suspend"));
    assert!(!run.status.suspend);
    assert_eq!(run.ran, ["b"]);
}

#[test]
fn the_nearest_timer_decides() {
    let steps = [
        with_timeout("3h", suspend("a", json!({"duration": "2h"}))),
        with_timeout("90m", group("g", [with_timeout("80m", suspend("b", json!({})))])),
        suspend("c", json!({"duration": "100h"})),
    ];
    let mut run = Run::new(steps);
    assert_eq!(run.turn(|_| succeeded()).retry_in, Some(Duration::from_mins(80)));
    run.restart();
    run.now += 4_800;
    assert_eq!(run.turn(|_| succeeded()).retry_in, Some(Duration::from_mins(40)));
    assert_eq!(run.state("b").1, "Timeout");
    run.now += 2_400;
    let outcome = run.turn(|_| succeeded());
    assert_eq!(run.state("a"), ("succeeded", "", ""));
    assert_eq!(outcome.retry_in, Some(Duration::from_hours(24)), "at most a day");
}

#[test]
fn a_timeout_under_the_gate_is_counted_as_a_failure() {
    let mut run = Run::new([with_timeout("1s", step("a", &[]))]);
    run.settings.suspend_on_failure = true;
    run.settings.max_retries = 2;
    let mut states = Vec::new();
    for _ in 0..4 {
        states.push(run.turn(|_| StepResult::Waiting { message: String::new() }).state);
        run.now += 600;
    }
    assert_eq!(states[..3], [State::Executing; 3]);
    assert_eq!(states[3], State::Suspending);
    assert_eq!(run.state("a").1, "FailedAfterRetries");
}

#[test]
fn a_timeout_under_the_gate_does_not_start_turns_while_another_step_waits() {
    let mut run = Run::new([with_timeout("1s", step("a", &[])), step("b", &[])]);
    run.settings.suspend_on_failure = true;
    run.settings.max_retries = 2;
    run.turn(|_| waiting());
    run.now += 1;
    assert!(!run.turn(|_| waiting()).retry_in.unwrap().is_zero());
    let before = (run.status.clone(), run.store.clone());
    assert!(!run.turn(|_| waiting()).retry_in.unwrap().is_zero(), "an event of b");
    assert_eq!((&run.status, &run.store), (&before.0, &before.1), "is no attempt of a");
    for _ in 0..10 {
        run.now += 600;
        assert!(!run.turn(|_| waiting()).retry_in.unwrap().is_zero());
    }
    assert_eq!(run.state("a").1, "FailedAfterRetries");
    run.turn(|_| waiting());
    assert!(!run.turn(|_| waiting()).retry_in.unwrap().is_zero());
}
