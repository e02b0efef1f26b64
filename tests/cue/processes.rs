//! Processes are started when they are needed, and replaced when they end or have leaked.

use std::num::NonZeroUsize;
use std::process::Command;
use std::time::Duration;

use portolan::cue::{Error, EvaluatorOptions};
use serde_json::json;

use super::hostile::ENDLESS;
use super::{MIB, NamedProgram, WEB_SERVICE, evaluate, evaluator, options};
use crate::support::eventually::{SOON, eventually};

#[tokio::test]
async fn a_process_is_started_for_work_and_a_second_one_only_beside_it() {
    let program = NamedProgram::new("cue-started");
    let evaluator = evaluator(EvaluatorOptions {
        workers: NonZeroUsize::new(2).unwrap(),
        ..program.options()
    });
    assert!(program.processes().is_empty());
    for _ in 0..20 {
        evaluate(&evaluator, "a: 1").await.unwrap();
    }
    assert_eq!(program.processes().len(), 1);
    let hanging = tokio::spawn({
        let evaluator = evaluator.clone();
        async move { evaluate(&evaluator, ENDLESS).await }
    });
    eventually(SOON, "a second process", async || {
        evaluate(&evaluator, "a: 1").await.unwrap();
        (program.processes().len() == 2).then_some(())
    })
    .await;
    hanging.abort();
    eventually(SOON, "the process of the aborted evaluation to end", async || {
        (program.processes().len() == 1).then_some(())
    })
    .await;
    drop(evaluator);
    assert!(program.processes().is_empty());
}

fn kill(process: u32) {
    let killed = Command::new("kill").args(["-KILL", &process.to_string()]).status();
    assert!(killed.unwrap().success());
}

#[tokio::test]
async fn a_process_that_is_killed_at_work_fails_its_evaluation_and_is_replaced() {
    let program = NamedProgram::new("cue-killed");
    let evaluator = evaluator(program.options());
    let working = tokio::spawn({
        let evaluator = evaluator.clone();
        async move { evaluate(&evaluator, ENDLESS).await }
    });
    let first = eventually(SOON, "a process", async || program.processes().first().copied()).await;
    // At work, since it has used the CPU for a while.
    eventually(SOON, "work", async || {
        let stat = std::fs::read_to_string(format!("/proc/{first}/stat")).unwrap();
        let ticks: u64 = stat.split(' ').nth(13).unwrap().parse().unwrap();
        (ticks > 20).then_some(())
    })
    .await;
    kill(first);
    let error = working.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "CUE evaluator failed: signal: 9 (SIGKILL)");
    assert!(matches!(error, Error::Crashed(_)) && !error.is_stopped());
    assert_eq!(evaluate(&evaluator, "a: 1").await, Ok(json!({"a": 1})));
    assert_ne!(program.processes(), [first]);
    // One that is killed between evaluations is replaced as soon as it has ended.
    kill(program.processes()[0]);
    let result = eventually(SOON, "another process", async || evaluate(&evaluator, "a: 1").await).await;
    assert_eq!(result, json!({"a": 1}));
}

#[tokio::test]
async fn memory_stays_flat_over_2000_evaluations() {
    let evaluator = evaluator(options());
    for _ in 0..200 {
        evaluate(&evaluator, WEB_SERVICE).await.unwrap();
    }
    let before = evaluator.resident_bytes();
    for _ in 0..2000 {
        evaluate(&evaluator, WEB_SERVICE).await.unwrap();
    }
    let after = evaluator.resident_bytes();
    assert!(after < before + 8 * MIB, "{before} {after}");
    assert!(after < 64 * MIB, "{after}");
}

#[tokio::test]
async fn failed_evaluations_leak_nothing() {
    let program = NamedProgram::new("cue-leaking");
    let evaluator = evaluator(program.options());
    let mut processes = Vec::new();
    for _ in 0..700 {
        let conflict = format!("{WEB_SERVICE}\noutput: kind: 1");
        assert!(matches!(
            evaluate(&evaluator, &conflict).await,
            Err(Error::Failed { .. })
        ));
        processes.extend(program.processes());
    }
    processes.dedup();
    assert_eq!(processes.len(), 1, "{processes:?}");
    let memory = evaluator.resident_bytes();
    assert!(memory < 64 * MIB, "{memory}");
}

#[tokio::test]
async fn a_process_ends_with_its_parent_whatever_it_does() {
    use std::io::Write as _;
    use std::process::Stdio;

    let program = NamedProgram::new("cue-orphan");
    let mut command = Command::new(program.options().program.unwrap());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let request = json!({"id": 1, "source": ENDLESS});
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{request}").unwrap();
    drop(stdin);
    let deadline = Duration::from_secs(60);
    eventually(deadline, "the program to end", async || child.try_wait().unwrap()).await;
}
