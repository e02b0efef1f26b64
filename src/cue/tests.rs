//! The pool, with evaluators that are shell scripts. Those with the real one are integration tests.

use std::path::Path;
use std::process::Command;

use futures::FutureExt as _;
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;

const LONG: Duration = Duration::from_secs(60);

/// Answers each evaluation with its process ID. The word `hang` stops it. Notes the text after `note` beside the program.
const SCRIPT: &str = r#"#!/bin/sh
while read -r line; do
    id=${line#*\"id\":}
    id=${id%%,*}
    case $line in
    *version*) echo "{\"id\":$id,\"version\":4}" ;;
    *hang*) echo $$ >>"$0.hanging"; exec /bin/sleep 1000 ;;
    *note*) note=${line#*note }; echo "${note%%[!a-z]*}" >>"$0.notes"; echo "{\"id\":$id,\"result\":1}" ;;
    *crash*) echo 'fatal error: on purpose' >&2; exit 2 ;;
    *other*) echo "{\"id\":0,\"result\":1}" ;;
    *wrong*) echo "{\"id\":$id,\"errors\":[{\"text\":\"a: on purpose\",\"line\":2}],\"kind\":\"conflict\"}" ;;
    *) echo "{\"id\":$id,\"result\":$$}" ;;
    esac
done
"#;

/// Written by another process: a file that is open for writing in a thread here could not be executed by the others.
fn write_executable(path: &Path, script: &str) {
    let write = format!(
        "cat > '{0}.new' && chmod +x '{0}.new' && mv '{0}.new' '{0}'",
        path.display()
    );
    let mut shell = Command::new("/bin/sh");
    let mut shell = shell
        .args(["-c", &write])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut shell.stdin.take().unwrap(), script.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
}

struct Fixture {
    evaluator: Evaluator,
    directory: TempDir,
}

impl Fixture {
    fn new(script: &str, workers: usize, timeout: Duration) -> Self {
        let fixture = Self::without_program(workers, timeout);
        fixture.install(script);
        fixture
    }

    fn without_program(workers: usize, timeout: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = EvaluatorOptions {
            program: Some(directory.path().join(PROGRAM)),
            workers: NonZeroUsize::new(workers).unwrap(),
            timeout,
            ..EvaluatorOptions::default()
        };
        let evaluator = Evaluator::new(options, ResourceMetrics::unregistered());
        Self { evaluator, directory }
    }

    fn install(&self, script: &str) {
        write_executable(&self.directory.path().join(PROGRAM), script);
    }

    async fn evaluate(&self, namespace: &str, source: &str) -> Result<Value, Error> {
        self.evaluator.evaluate(namespace, source.to_owned()).await
    }

    /// Evaluates in the background.
    fn spawn(&self, namespace: &'static str, source: &str) -> tokio::task::JoinHandle<Result<Value, Error>> {
        let (evaluator, source) = (self.evaluator.clone(), source.to_owned());
        tokio::spawn(async move { evaluator.evaluate(namespace, source).await })
    }

    /// Returns the lines of a file that the script writes beside itself.
    fn lines(&self, extension: &str) -> Vec<String> {
        let path = self.directory.path().join(format!("{PROGRAM}.{extension}"));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    async fn until_used(&self, permits: u64) {
        while self.evaluator.0.permits.used() < permits {
            tokio::task::yield_now().await;
        }
    }

    fn restarts(&self, cause: &'static str) -> u64 {
        self.evaluator.0.metrics.restarts(cause)
    }
}

#[tokio::test]
async fn one_process_serves_evaluations_that_follow_each_other() {
    let fixture = Fixture::new(SCRIPT, 2, LONG);
    let first = fixture.evaluate("a", "x: 1").await.unwrap();
    for namespace in ["a", "b", "a"] {
        assert_eq!(fixture.evaluate(namespace, "x: 1").await, Ok(first.clone()));
    }
    let _busy = fixture.spawn("a", "hang");
    let hanging = async {
        while fixture.lines("hanging").is_empty() {
            sleep(POLL).await;
        }
    };
    timeout(LONG, hanging).await.unwrap();
    assert_eq!(fixture.lines("hanging"), [first.to_string()]);
    assert_ne!(fixture.evaluate("a", "x: 1").await.unwrap(), first);
}

#[tokio::test]
async fn a_program_is_found_as_soon_as_it_exists() {
    let fixture = Fixture::without_program(1, LONG);
    let missing = fixture.evaluate("a", "x: 1").await.unwrap_err();
    assert_eq!(
        missing.to_string(),
        "no CUE evaluator: put portolan-cue beside portolan or into PATH (make evaluator builds it), or set --cue-evaluator"
    );
    assert_eq!(fixture.evaluator.check().await, Err(Error::Missing));
    fixture.install(SCRIPT);
    assert_eq!(fixture.evaluator.check().await, Ok(()));
    assert!(fixture.evaluate("a", "x: 1").await.is_ok());
}

#[tokio::test]
async fn a_program_that_cannot_be_executed_is_an_error_of_its_own() {
    let fixture = Fixture::without_program(1, LONG);
    std::fs::write(fixture.directory.path().join(PROGRAM), "").unwrap();
    let error = fixture.evaluate("a", "x: 1").await.unwrap_err().to_string();
    assert!(
        error.starts_with("CUE evaluator failed: failed to start a child process: Permission denied"),
        "{error}"
    );
}

#[tokio::test]
async fn another_protocol_version_is_refused() {
    let fixture = Fixture::new(&SCRIPT.replace("version\\\":4", "version\\\":7"), 1, LONG);
    for _ in 0..2 {
        let error = fixture.evaluate("a", "x: 1").await.unwrap_err().to_string();
        assert_eq!(
            error,
            "CUE evaluator failed: it speaks version 7 of the protocol, expected 4"
        );
    }
}

#[tokio::test]
async fn a_process_without_an_answer_is_replaced_at_the_timeout() {
    let fixture = Fixture::new(SCRIPT, 1, Duration::from_millis(500));
    let first = fixture.evaluate("a", "x: 1").await.unwrap();
    let error = fixture.evaluate("a", "hang").await.unwrap_err();
    assert!(error.is_stopped() && error.to_string() == "more than 500ms", "{error}");
    assert_ne!(fixture.evaluate("a", "x: 1").await.unwrap(), first);
    assert_eq!(fixture.restarts("timeout"), 1);
}

#[tokio::test]
async fn a_process_that_crashes_or_breaks_the_protocol_is_replaced() {
    let fixture = Fixture::new(SCRIPT, 1, LONG);
    for (source, expected) in [
        ("crash", "exit status: 2: fatal error: on purpose"),
        ("other", "invalid response: id 0, expected"),
    ] {
        let first = fixture.evaluate("a", "x: 1").await.unwrap();
        let error = fixture.evaluate("a", source).await.unwrap_err();
        assert!(
            matches!(&error, Error::Crashed(text) if text.contains(expected)),
            "{error}"
        );
        assert_ne!(fixture.evaluate("a", "x: 1").await.unwrap(), first);
    }
    assert_eq!(fixture.restarts("crashed"), 2);
}

#[test]
fn a_process_is_replaced_for_its_use() {
    let usage = |calls, memory| ProcessUsage { calls, memory };
    for (usage, expected) in [
        (usage(19_999, Some(1000)), None),
        (usage(20_000, Some(0)), Some("evaluations")),
        (usage(1, Some(1001)), Some("memory_kept")),
    ] {
        assert_eq!(reason_to_replace(usage, 4000), expected, "{usage:?}");
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_frees_its_process() {
    let fixture = Fixture::new(SCRIPT, 1, LONG);
    let hanging = fixture.evaluate("a", "hang");
    assert!(timeout(Duration::from_millis(200), hanging).await.is_err());
    assert!(fixture.evaluate("a", "x: 1").await.is_ok());
    assert_eq!(fixture.restarts("canceled"), 1);
    // Also one that still waits for its turn.
    let busy = fixture.spawn("a", "hang");
    fixture.until_used(1).await;
    assert!(fixture.evaluate("a", "x: 1").now_or_never().is_none());
    busy.abort();
    assert!(fixture.evaluate("b", "x: 1").await.is_ok());
}

#[tokio::test]
async fn namespaces_are_served_in_turn() {
    let fixture = Fixture::new(SCRIPT, 1, LONG);
    let busy = fixture.spawn("a", "hang");
    fixture.until_used(1).await;
    let waiting: Vec<_> = ["a", "a", "a", "b", "c"]
        .into_iter()
        .map(|namespace| fixture.spawn(namespace, &format!("note {namespace}")))
        .collect();
    tokio::task::yield_now().await;
    busy.abort();
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
    assert_eq!(fixture.lines("notes"), ["a", "b", "c", "a", "a"]);
}

#[tokio::test]
async fn a_namespace_with_all_processes_yields_one_to_another() {
    let limit = Duration::from_secs(8);
    let fixture = Fixture::new(SCRIPT, 2, limit);
    let hanging: Vec<_> = (0..200).map(|_| fixture.spawn("a", "hang")).collect();
    fixture.until_used(2).await;
    let started = Instant::now();
    assert!(fixture.evaluate("b", "x: 1").await.is_ok());
    let waited = started.elapsed();
    assert!(waited < limit * 3 / 4, "{waited:?}");
    assert_eq!((fixture.restarts("timeout"), fixture.restarts("crashed")), (0, 0));
    hanging.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn an_evaluation_that_yielded_is_done_later() {
    let fixture = Fixture::new(SCRIPT, 2, Duration::from_secs(2));
    // Both of one namespace run for more than their turn. One yields and is evaluated again.
    let hanging = [fixture.spawn("a", "hang"), fixture.spawn("a", "hang")];
    fixture.until_used(2).await;
    assert!(fixture.evaluate("b", "x: 1").await.is_ok());
    for hanging in hanging {
        assert!(matches!(hanging.await.unwrap(), Err(Error::Timeout(_))));
    }
    assert_eq!(fixture.restarts("timeout"), 2);
    assert!(fixture.restarts("canceled") >= 1);
}

#[tokio::test]
async fn a_namespace_that_turns_out_to_be_slow_leaves_a_process_to_others() {
    let limit = Duration::from_secs(2);
    let fixture = Fixture::new(SCRIPT, 2, limit);
    let hanging = (0..6).map(|_| fixture.spawn("a", "hang"));
    let ended = futures::future::select_all(hanging);
    let (result, _, hanging) = timeout(LONG, ended).await.unwrap();
    assert_eq!(result.unwrap(), Err(Error::Timeout(limit)));
    while fixture.evaluator.0.permits.used() > 1 {
        sleep(POLL).await;
    }
    for _ in 0..3 {
        assert!(timeout(limit / 2, fixture.evaluate("b", "x: 1")).await.is_ok());
    }
    hanging.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn the_memory_of_all_processes_is_measured() {
    let fixture = Fixture::new(SCRIPT, 1, LONG);
    assert_eq!(fixture.evaluator.resident_bytes(), 0);
    fixture.evaluate("a", "x: 1").await.unwrap();
    assert!(fixture.evaluator.resident_bytes() > 0);
}

#[test]
fn the_program_is_looked_for_beside_the_own_executable_first() {
    let paths = default_paths();
    let beside = std::env::current_exe().unwrap().with_file_name(PROGRAM);
    assert_eq!(paths.first(), Some(&beside));
    assert!(paths.len() > 1 && paths.iter().all(|path| path.is_absolute()));
}
