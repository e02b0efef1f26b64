use std::time::Duration;

use super::super::{FailureReason, StepResult};
use super::{Run, failed, step, waiting};

#[test]
fn a_turn_without_news_changes_nothing() {
    let mut run = Run::new([step("a", &[]), step("b", &["a"])]);
    let first = run.turn(|_| waiting());
    run.now += 0;
    let second = run.turn(|_| waiting());
    assert_eq!(second, first, "an event has started it early");
    for _ in 0..30 {
        run.now += 600;
        run.turn(|_| waiting());
    }
    let before = (run.status.clone(), run.store.clone());
    run.now += 600;
    run.turn(|_| waiting());
    assert_eq!((run.status, run.store), before, "waits are no longer counted");
}

#[test]
fn waits_grow_to_a_limit() {
    let mut run = Run::new([step("a", &[])]);
    let mut waits = Vec::new();
    for _ in 0..14 {
        let wait = run.turn(|_| waiting()).retry_in.unwrap();
        waits.push(wait.as_secs());
        run.now += 100;
    }
    assert_eq!(waits, [1, 1, 1, 1, 1, 1, 3, 6, 12, 25, 51, 60, 60, 60]);
}

#[test]
fn a_new_message_begins_the_waits_again() {
    let mut run = Run::new([step("a", &[])]);
    for _ in 0..12 {
        run.turn(|_| waiting());
        run.now += 100;
    }
    let outcome = run.turn(|_| StepResult::Waiting {
        message: "other".to_owned(),
    });
    assert_eq!(outcome.retry_in, Some(Duration::from_secs(1)));
}

#[test]
fn the_step_that_waits_least_decides() {
    let mut run = Run::new([step("a", &[]), step("b", &[])]);
    for _ in 0..12 {
        run.turn(|_| waiting());
        run.now += 100;
    }
    let mut outcome = None;
    for _ in 0..8 {
        let message = |name: &str| {
            if name == "a" {
                "new".to_owned()
            } else {
                "wait healthy".to_owned()
            }
        };
        outcome = Some(run.turn(|name| StepResult::Waiting { message: message(name) }));
        run.now += 100;
    }
    assert_eq!(outcome.unwrap().retry_in, Some(Duration::from_secs(6)));
}

#[test]
fn retries_of_a_failure_wait_longer() {
    let mut run = Run::new([step("a", &[])]);
    run.settings.max_retries = 100;
    let mut last = None;
    for _ in 0..16 {
        last = run.turn(|_| failed(FailureReason::Execute)).retry_in;
        run.now += 1_000;
    }
    assert_eq!(last, Some(Duration::from_mins(5)));
}
