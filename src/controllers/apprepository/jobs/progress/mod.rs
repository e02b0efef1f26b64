//! Derives the state of a repository from its Jobs, pods and record. Pure.
//!
//! A pod that never started, was evicted, or met its deadline wrote no record: the Job and the pod say why. Nothing is
//! remembered, so that a problem disappears with its cause.

pub(super) mod view;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::catalog::{Record, RecordState};
use crate::text::{printable, truncate};
use view::{JobOutcome, JobView, NotStarted, PodProblem, PodView, ProblemKind};

/// Time for which a pod may be unschedulable or missing: a cluster adds nodes, a scheduler has a backlog.
const GRACE: Duration = Duration::from_secs(60);
/// Time for which a Job whose pod does not start holds a slot that another Job waits for.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for which a suspended Job counts as running.
const RELEASE_GRACE: Duration = Duration::from_secs(3);
/// Difference of the clocks of the API server and of a node.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(5);
const MAX_MESSAGE: usize = 512;

#[derive(Clone, Debug, PartialEq)]
pub enum JobProgress {
    /// No Job runs. The record says the rest.
    Idle,
    Waiting,
    Running,
    /// A Job failed, or does not start, and wrote no record.
    Problem(RecordState),
}

/// The present state, and the time after which it may change without an event.
#[derive(Clone, Debug, PartialEq)]
pub struct JobAssessment {
    pub progress: JobProgress,
    pub recheck: Option<Duration>,
}

/// Assesses the sync Jobs of a repository, oldest first. `namespace` is the namespace of the Jobs.
pub fn assess(
    jobs: &[JobView],
    pods: &[PodView],
    record: Option<&Record>,
    namespace: &str,
    now: Timestamp,
) -> JobAssessment {
    let jobs: Vec<&JobView> = jobs.iter().filter(|job| !job.is_deleted).collect();
    let finished = jobs.iter().rev().find(|job| !job.is_unfinished());
    let failure = finished.and_then(|job| failure(job, pods, record, namespace));
    let idle = |progress| JobAssessment {
        progress,
        recheck: None,
    };
    let Some(current) = jobs.last().filter(|job| job.is_unfinished()) else {
        return idle(failure.map_or(JobProgress::Idle, JobProgress::Problem));
    };
    if let Some(reason) = current.not_started.as_ref().filter(|_| current.is_suspended) {
        return idle(JobProgress::Problem(suspended_state(reason)));
    }
    if current.is_suspended {
        // Most Jobs are released at once, which is not worth a status.
        let age = Duration::try_from(now.duration_since(current.created)).unwrap_or_default();
        return match RELEASE_GRACE.checked_sub(age).filter(|left| !left.is_zero()) {
            Some(left) => JobAssessment {
                progress: JobProgress::Running,
                recheck: Some(left),
            },
            None => idle(JobProgress::Waiting),
        };
    }
    let (problem, recheck) = start_problem(current, pods, record, namespace, now);
    // While the next Job runs, the last failure stays, and is no longer stalled.
    let earlier = failure.map(|state| RecordState {
        stalled: false,
        ..state
    });
    // Also the reason of an earlier start stays, until a pod runs.
    let before = current
        .not_started
        .as_ref()
        .filter(|_| has_only_pending(current, pods))
        .map(suspended_state);
    JobAssessment {
        progress: problem
            .or(before)
            .or(earlier)
            .map_or(JobProgress::Running, JobProgress::Problem),
        recheck,
    }
}

pub fn not_started(job: &JobView, pods: &[PodView], namespace: &str, now: Timestamp) -> Option<NotStarted> {
    // A cleanup Job has no generation, and a short deadline of its own.
    if job.is_suspended || job.is_deleted || job.generation.is_none() || !has_only_pending(job, pods) {
        return None;
    }
    let mut pods_of_job = pods.iter().filter(|pod| pod.job == job.name);
    let unschedulable = pods_of_job.clone().find_map(|pod| pod.problem.as_ref()?.since);
    let since = unschedulable.unwrap_or(job.started?);
    if Duration::try_from(now.duration_since(since)).unwrap_or_default() < START_TIMEOUT {
        return None;
    }
    let (reason, message) = match start_problem(job, pods, None, namespace, now).0 {
        Some(state) => (state.reason, state.message),
        None => {
            let pod = pods_of_job.next_back().map_or("", |pod| pod.name.as_str());
            let message = format!("pod {namespace}/{pod} does not start; look at its events by `kubectl describe pod`");
            ("PodPending".to_owned(), message)
        }
    };
    let at = now;
    Some(NotStarted { at, reason, message })
}

fn has_only_pending(job: &JobView, pods: &[PodView]) -> bool {
    let mut pods_of_job = pods.iter().filter(|pod| pod.job == job.name);
    pods_of_job.all(|pod| pod.is_pending)
}

/// Returns the problem of an unfinished Job, or the time after which it may be one.
fn start_problem(
    job: &JobView,
    pods: &[PodView],
    record: Option<&Record>,
    namespace: &str,
    now: Timestamp,
) -> (Option<RecordState>, Option<Duration>) {
    let mut pods_of_job = pods.iter().filter(|pod| pod.job == job.name).peekable();
    // Released, but the Job controller has not seen that.
    let Some(since_start) = job.started else {
        return (None, Some(GRACE));
    };
    if pods_of_job.peek().is_none() {
        let message = format!(
            "Job {namespace}/{} has no pod: look at its events by `kubectl describe job`; a quota or an admission \
             webhook may refuse the pod",
            job.name
        );
        return after_grace(since_start, now, || problem("PodNotCreated", message, true));
    }
    for pod in pods_of_job {
        let Some(pod_problem) = &pod.problem else { continue };
        let text = describe(pod_problem, &pod.name, namespace);
        match pod_problem.kind {
            ProblemKind::NeverStarts => return (Some(problem(&pod_problem.reason, text, true)), None),
            ProblemKind::Unschedulable => {
                let since = pod_problem.since.unwrap_or(since_start);
                return after_grace(since, now, || problem(&pod_problem.reason, text, true));
            }
            ProblemKind::Evicted => return (Some(problem(&pod_problem.reason, text, false)), None),
            ProblemKind::Ended if !has_record_of(job, record) => {
                return (Some(problem(&pod_problem.reason, text, false)), None);
            }
            ProblemKind::Ended => {}
        }
    }
    (None, None)
}

fn after_grace(
    since: Timestamp,
    now: Timestamp,
    problem: impl FnOnce() -> RecordState,
) -> (Option<RecordState>, Option<Duration>) {
    let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    match GRACE.checked_sub(age) {
        None | Some(Duration::ZERO) => (Some(problem()), None),
        Some(left) => (None, Some(left)),
    }
}

/// Returns the failure of a finished Job, unless its pod recorded it.
fn failure(job: &JobView, pods: &[PodView], record: Option<&Record>, namespace: &str) -> Option<RecordState> {
    let Some(JobOutcome::Failed { reason, message }) = &job.outcome else {
        return None;
    };
    if has_record_of(job, record) {
        return None;
    }
    let of_job = pods.iter().filter(|pod| pod.job == job.name);
    let last = of_job.rev().find_map(|pod| Some((pod, pod.problem.as_ref()?)));
    if let Some((pod, pod_problem)) = last.filter(|_| reason != "DeadlineExceeded") {
        let is_transient = matches!(pod_problem.kind, ProblemKind::Evicted);
        return Some(problem(
            &pod_problem.reason,
            describe(pod_problem, &pod.name, namespace),
            !is_transient,
        ));
    }
    let advice = match reason.as_str() {
        "DeadlineExceeded" => "raise --job-deadline, or find out why the sync takes so long",
        _ => "look at the log of its pods",
    };
    let text = format!("Job {namespace}/{} failed: {}; {advice}", job.name, short(message));
    Some(problem(reason, text, false))
}

/// Returns true if a sync that began with or after the Job was recorded.
fn has_record_of(job: &JobView, record: Option<&Record>) -> bool {
    let attempt = record.and_then(|record| record.last_attempt);
    attempt.is_some_and(|attempt| attempt + CLOCK_SKEW >= job.started.unwrap_or(job.created))
}

fn suspended_state(reason: &NotStarted) -> RecordState {
    let message = format!(
        "{}; others waited, so the Job was suspended and runs again in turn",
        reason.message
    );
    problem(&reason.reason, short(&message), true)
}

fn describe(problem: &PodProblem, pod: &str, namespace: &str) -> String {
    let advice = match problem.kind {
        ProblemKind::NeverStarts if problem.reason.contains("Image") => "check --job-image and --job-pull-secrets",
        ProblemKind::NeverStarts => "check the Secrets that it names",
        ProblemKind::Unschedulable => "check the capacity of the nodes, and the node selector of the repository",
        ProblemKind::Ended if problem.reason == "OOMKilled" => "raise the memory in --job-limits",
        ProblemKind::Ended => "look at its log",
        ProblemKind::Evicted => "the next Job retries",
    };
    let message = short(&problem.message);
    let message = if message.is_empty() {
        String::new()
    } else {
        format!(": {message}")
    };
    format!(
        "pod {namespace}/{pod} does not run ({}){message}; {advice}",
        problem.reason
    )
}

fn short(message: &str) -> String {
    truncate(&printable(message), MAX_MESSAGE)
        .trim_end_matches('.')
        .to_owned()
}

fn problem(reason: &str, message: String, stalled: bool) -> RecordState {
    RecordState {
        ready: Some(false),
        stalled,
        reason: condition_reason(reason),
        message,
        failures: 1,
        ..RecordState::default()
    }
}

/// Returns a valid reason of a condition: a node may report any text.
fn condition_reason(reason: &str) -> String {
    let valid: String = reason.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
    if valid.starts_with(|first: char| first.is_ascii_alphabetic()) {
        valid
    } else {
        "JobFailed".to_owned()
    }
}

#[cfg(test)]
mod tests;
