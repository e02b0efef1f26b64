//! Derives the state of a repository from its Jobs, pods and record. Pure.
//!
//! A pod that ran wrote a record with its error. A pod that never started, was evicted, or met its deadline did not: the
//! Job and the pod say why. Nothing is remembered, so that a problem disappears with its cause.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::api::NamespacedName;
use crate::api::jobs::{NOT_STARTED, REPOSITORY_GENERATION, REPOSITORY_UID, START_DELAY, repository_name};
use crate::catalog::{Record, State};
use crate::runtime::cron::MAX_JITTER;
use crate::text::{printable, truncate};

/// The annotation of `kubectl create job --from`.
const INSTANTIATE: &str = "cronjob.kubernetes.io/instantiate";

/// Time for which a pod may be unschedulable or missing: a cluster adds nodes, a scheduler has a backlog.
const GRACE: Duration = Duration::from_secs(60);
/// Time for which a Job whose pod does not start holds a slot that another Job waits for.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Time for which a suspended Job counts as running.
const RELEASE_GRACE: Duration = Duration::from_secs(3);
/// Difference of the clocks of the API server and of a node.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(5);
const MAX_MESSAGE: usize = 512;
/// Reasons of a waiting container that need a change by a user.
const NEVER_STARTS: [&str; 6] = [
    "ImagePullBackOff",
    "ErrImagePull",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
];

/// The end of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Succeeded,
    Failed { reason: String, message: String },
}

impl Outcome {
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Succeeded)
    }
}

/// The part of a Job that decisions depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView {
    pub name: String,
    pub uid: String,
    pub repository: Option<NamespacedName>,
    pub repository_uid: Option<String>,
    pub generation: Option<i64>,
    pub created: Timestamp,
    /// Earliest release. Ticks are spread as in the process; a Job that a person creates from the CronJob is not.
    pub not_before: Timestamp,
    pub started: Option<Timestamp>,
    pub is_suspended: bool,
    pub is_deleted: bool,
    /// Created by a CronJob.
    pub is_scheduled: bool,
    /// Set once the Job was suspended because its pod did not start.
    pub not_started: Option<NotStarted>,
    /// `None` while the Job is unfinished.
    pub outcome: Option<Outcome>,
}

impl JobView {
    pub fn of(job: &Job) -> Self {
        let annotation = |name: &str| job.annotations().get(name).cloned();
        let status = job.status.as_ref();
        let conditions = status
            .and_then(|status| status.conditions.as_ref())
            .into_iter()
            .flatten();
        let mut suspended = conditions.clone().filter(|condition| condition.type_ == "Suspended");
        let has_suspended_pods = suspended.any(|condition| condition.status == "True");
        let created = job.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        let is_scheduled = job.owner_references().iter().any(|owner| owner.kind == "CronJob");
        let delay = annotation(START_DELAY).filter(|_| is_scheduled && annotation(INSTANTIATE).is_none());
        let delay = delay.and_then(|seconds| seconds.parse().ok()).unwrap_or_default();
        Self {
            name: job.name_any(),
            uid: job.uid().unwrap_or_default(),
            repository: repository_name(&job.metadata),
            repository_uid: annotation(REPOSITORY_UID),
            generation: annotation(REPOSITORY_GENERATION).and_then(|text| text.parse().ok()),
            created,
            not_before: created + MAX_JITTER.min(Duration::from_secs(delay)),
            // Reset with this condition: until the Job controller has seen a release, the time is that of an earlier one.
            started: status
                .and_then(|status| status.start_time.as_ref())
                .filter(|_| !has_suspended_pods)
                .map(|time| time.0),
            is_suspended: job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or_default(),
            is_deleted: job.metadata.deletion_timestamp.is_some(),
            is_scheduled,
            not_started: annotation(NOT_STARTED).and_then(|text| serde_json::from_str(&text).ok()),
            outcome: conditions
                .filter(|condition| condition.status == "True")
                .find_map(outcome),
        }
    }

    pub fn is_unfinished(&self) -> bool {
        self.outcome.is_none()
    }

    /// Returns true if the Job waits for its release.
    pub fn is_waiting(&self) -> bool {
        self.is_suspended && self.is_unfinished() && !self.is_deleted
    }
}

/// The reason why the pod of a Job did not start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotStarted {
    pub at: Timestamp,
    pub reason: String,
    pub message: String,
}

impl NotStarted {
    pub fn to_annotation(&self) -> String {
        // Texts and a time, so that JSON can't fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    fn state(&self) -> State {
        let message = format!(
            "{}; others waited, so the Job was suspended and runs again in turn",
            self.message
        );
        problem(&self.reason, short(&message), true)
    }
}

fn outcome(condition: &JobCondition) -> Option<Outcome> {
    match condition.type_.as_str() {
        "Complete" => Some(Outcome::Succeeded),
        "Failed" => Some(Outcome::Failed {
            reason: condition.reason.clone().unwrap_or_else(|| "Failed".to_owned()),
            message: condition.message.clone().unwrap_or_default(),
        }),
        _ => None,
    }
}

/// The part of a pod that decisions depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    pub name: String,
    pub job: String,
    pub is_pending: bool,
    pub problem: Option<PodProblem>,
}

/// The reason why a pod does not run to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodProblem {
    reason: String,
    message: String,
    kind: ProblemKind,
    since: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProblemKind {
    NeverStarts,
    Unschedulable,
    /// The container ended, and its record may tell more.
    Ended,
    /// The pod was removed from its node.
    Evicted,
}

impl PodView {
    pub fn of(pod: &Pod) -> Self {
        let job = pod.labels().get("batch.kubernetes.io/job-name");
        Self {
            name: pod.name_any(),
            job: job.cloned().unwrap_or_default(),
            is_pending: matches!(phase(pod), None | Some("Pending")),
            problem: pod_problem(pod),
        }
    }
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn pod_problem(pod: &Pod) -> Option<PodProblem> {
    let status = pod.status.as_ref()?;
    let message = status.message.clone().unwrap_or_default();
    if phase(pod) == Some("Failed") {
        let reason = status.reason.clone().filter(|reason| !reason.is_empty());
        if let Some(reason) = reason {
            return Some(PodProblem {
                reason,
                message,
                kind: ProblemKind::Evicted,
                since: None,
            });
        }
    }
    let containers = status.container_statuses.iter().flatten();
    if let Some(problem) = containers.clone().find_map(container_problem) {
        return Some(problem);
    }
    let mut conditions = status.conditions.iter().flatten();
    let scheduled = conditions.find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    Some(PodProblem {
        reason: scheduled.reason.clone().unwrap_or_else(|| "Unschedulable".to_owned()),
        message: scheduled.message.clone().unwrap_or_default(),
        kind: ProblemKind::Unschedulable,
        since: scheduled.last_transition_time.as_ref().map(|time| time.0),
    })
}

fn container_problem(container: &ContainerStatus) -> Option<PodProblem> {
    let state = container.state.as_ref();
    if let Some(waiting) = state.and_then(|state| state.waiting.as_ref())
        && let Some(reason) = waiting.reason.as_deref().filter(|reason| NEVER_STARTS.contains(reason))
    {
        return Some(PodProblem {
            reason: reason.to_owned(),
            message: waiting.message.clone().unwrap_or_default(),
            kind: ProblemKind::NeverStarts,
            since: None,
        });
    }
    let last = container.last_state.as_ref();
    let ended = [state, last]
        .into_iter()
        .flatten()
        .find_map(|state| state.terminated.as_ref())?;
    if ended.exit_code == 0 {
        return None;
    }
    let reason = ended.reason.clone().unwrap_or_else(|| "Error".to_owned());
    Some(PodProblem {
        message: format!("the container ended with exit code {}", ended.exit_code),
        reason,
        kind: ProblemKind::Ended,
        since: None,
    })
}

/// The present state of a repository's Jobs.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// No Job runs. The record says the rest.
    Idle,
    /// A Job waits for the limits of running Jobs.
    Waiting,
    Running,
    /// A Job failed, or does not start, and wrote no record.
    Problem(State),
}

/// The present state, and the time after which it may change without an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Assessment {
    pub progress: Progress,
    pub recheck: Option<Duration>,
}

/// Assesses the sync Jobs of a repository, oldest first. `namespace` is that of the Jobs.
pub fn assess(
    jobs: &[JobView],
    pods: &[PodView],
    record: Option<&Record>,
    namespace: &str,
    now: Timestamp,
) -> Assessment {
    let jobs: Vec<&JobView> = jobs.iter().filter(|job| !job.is_deleted).collect();
    let finished = jobs.iter().rev().find(|job| !job.is_unfinished());
    let failure = finished.and_then(|job| failure(job, pods, record, namespace));
    let idle = |progress| Assessment {
        progress,
        recheck: None,
    };
    let Some(current) = jobs.last().filter(|job| job.is_unfinished()) else {
        return idle(failure.map_or(Progress::Idle, Progress::Problem));
    };
    if let Some(reason) = current.not_started.as_ref().filter(|_| current.is_suspended) {
        return idle(Progress::Problem(reason.state()));
    }
    if current.is_suspended {
        // Most Jobs are released at once, which is not worth a status.
        let age = Duration::try_from(now.duration_since(current.created)).unwrap_or_default();
        return match RELEASE_GRACE.checked_sub(age).filter(|left| !left.is_zero()) {
            Some(left) => Assessment {
                progress: Progress::Running,
                recheck: Some(left),
            },
            None => idle(Progress::Waiting),
        };
    }
    let (problem, recheck) = start_problem(current, pods, record, namespace, now);
    // While the next Job runs, the last failure stays, and is no longer stalled.
    let earlier = failure.map(|state| State {
        stalled: false,
        ..state
    });
    // Also the reason of an earlier start stays, until a pod runs.
    let before = current.not_started.as_ref().filter(|_| has_only_pending(current, pods));
    let before = before.map(NotStarted::state);
    Assessment {
        progress: problem
            .or(before)
            .or(earlier)
            .map_or(Progress::Running, Progress::Problem),
        recheck,
    }
}

/// Returns the reason why a running Job may be suspended in favor of one that waits: its pod does not start.
pub fn not_started(job: &JobView, pods: &[PodView], namespace: &str, now: Timestamp) -> Option<NotStarted> {
    // A cleanup Job has no generation, and a short deadline of its own.
    if job.is_suspended || job.is_deleted || job.generation.is_none() || !has_only_pending(job, pods) {
        return None;
    }
    let mut own = pods.iter().filter(|pod| pod.job == job.name);
    let unschedulable = own.clone().find_map(|pod| pod.problem.as_ref()?.since);
    let since = unschedulable.unwrap_or(job.started?);
    if Duration::try_from(now.duration_since(since)).unwrap_or_default() < START_TIMEOUT {
        return None;
    }
    let (reason, message) = match start_problem(job, pods, None, namespace, now).0 {
        Some(state) => (state.reason, state.message),
        None => {
            let pod = own.next_back().map_or("", |pod| pod.name.as_str());
            let message = format!("pod {namespace}/{pod} does not start; look at its events by `kubectl describe pod`");
            ("PodPending".to_owned(), message)
        }
    };
    let at = now;
    Some(NotStarted { at, reason, message })
}

/// Returns true if no pod of a Job has started.
fn has_only_pending(job: &JobView, pods: &[PodView]) -> bool {
    let mut own = pods.iter().filter(|pod| pod.job == job.name);
    own.all(|pod| pod.is_pending)
}

/// Returns the problem of an unfinished Job, or the time after which it may be one.
fn start_problem(
    job: &JobView,
    pods: &[PodView],
    record: Option<&Record>,
    namespace: &str,
    now: Timestamp,
) -> (Option<State>, Option<Duration>) {
    let mut own = pods.iter().filter(|pod| pod.job == job.name).peekable();
    // Released, but the Job controller has not seen that.
    let Some(since_start) = job.started else {
        return (None, Some(GRACE));
    };
    if own.peek().is_none() {
        let message = format!(
            "Job {namespace}/{} has no pod: look at its events by `kubectl describe job`; a quota or an admission \
             webhook may refuse the pod",
            job.name
        );
        return after_grace(since_start, now, || problem("PodNotCreated", message, true));
    }
    for pod in own {
        let Some(found) = &pod.problem else { continue };
        let text = describe(found, &pod.name, namespace);
        match found.kind {
            ProblemKind::NeverStarts => return (Some(problem(&found.reason, text, true)), None),
            ProblemKind::Unschedulable => {
                let since = found.since.unwrap_or(since_start);
                return after_grace(since, now, || problem(&found.reason, text, true));
            }
            ProblemKind::Evicted => return (Some(problem(&found.reason, text, false)), None),
            ProblemKind::Ended if !has_record_of(job, record) => {
                return (Some(problem(&found.reason, text, false)), None);
            }
            ProblemKind::Ended => {}
        }
    }
    (None, None)
}

fn after_grace(since: Timestamp, now: Timestamp, problem: impl FnOnce() -> State) -> (Option<State>, Option<Duration>) {
    let age = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    match GRACE.checked_sub(age) {
        None | Some(Duration::ZERO) => (Some(problem()), None),
        Some(left) => (None, Some(left)),
    }
}

/// Returns the failure of a finished Job, unless its pod recorded one.
fn failure(job: &JobView, pods: &[PodView], record: Option<&Record>, namespace: &str) -> Option<State> {
    let Some(Outcome::Failed { reason, message }) = &job.outcome else {
        return None;
    };
    if has_record_of(job, record) {
        return None;
    }
    let of_job = pods.iter().filter(|pod| pod.job == job.name);
    let last = of_job.rev().find_map(|pod| Some((pod, pod.problem.as_ref()?)));
    if let Some((pod, found)) = last.filter(|_| reason != "DeadlineExceeded") {
        let is_transient = matches!(found.kind, ProblemKind::Evicted);
        return Some(problem(
            &found.reason,
            describe(found, &pod.name, namespace),
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

fn describe(found: &PodProblem, pod: &str, namespace: &str) -> String {
    let advice = match found.kind {
        ProblemKind::NeverStarts if found.reason.contains("Image") => "check --job-image and --job-pull-secrets",
        ProblemKind::NeverStarts => "check the Secrets that it names",
        ProblemKind::Unschedulable => "check the capacity of the nodes, and the node selector of the repository",
        ProblemKind::Ended if found.reason == "OOMKilled" => "raise the memory in --job-limits",
        ProblemKind::Ended => "look at its log",
        ProblemKind::Evicted => "the next Job retries",
    };
    let message = short(&found.message);
    let message = if message.is_empty() {
        String::new()
    } else {
        format!(": {message}")
    };
    format!(
        "pod {namespace}/{pod} does not run ({}){message}; {advice}",
        found.reason
    )
}

fn short(message: &str) -> String {
    truncate(&printable(message), MAX_MESSAGE)
        .trim_end_matches('.')
        .to_owned()
}

fn problem(reason: &str, message: String, stalled: bool) -> State {
    State {
        ready: Some(false),
        stalled,
        reason: condition_reason(reason),
        message,
        failures: 1,
        ..State::default()
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
