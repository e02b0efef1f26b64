use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use crate::api::NamespacedName;
use crate::api::jobs::{NOT_STARTED, REPOSITORY_GENERATION, REPOSITORY_UID, START_DELAY, repository_name};
use crate::runtime::cron::MAX_JITTER;

/// The annotation of `kubectl create job --from`.
const INSTANTIATE: &str = "cronjob.kubernetes.io/instantiate";
/// Reasons of a waiting container that need a change by a user.
const NEVER_STARTS: [&str; 6] = [
    "ImagePullBackOff",
    "ErrImagePull",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    Succeeded,
    Failed { reason: String, message: String },
}

impl JobOutcome {
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Succeeded)
    }
}

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
    pub is_scheduled: bool,
    /// Set once the Job was suspended because its pod did not start.
    pub not_started: Option<NotStarted>,
    /// `None` while the Job is unfinished.
    pub outcome: Option<JobOutcome>,
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
        let delay = annotation(START_DELAY)
            .filter(|_| is_scheduled && annotation(INSTANTIATE).is_none())
            .and_then(|seconds| seconds.parse().ok())
            .unwrap_or_default();
        Self {
            name: job.name_any(),
            uid: job.uid().unwrap_or_default(),
            repository: repository_name(&job.metadata),
            repository_uid: annotation(REPOSITORY_UID),
            generation: annotation(REPOSITORY_GENERATION).and_then(|text| text.parse().ok()),
            created,
            not_before: created + MAX_JITTER.min(Duration::from_secs(delay)),
            // Reset with this condition: until the Job controller has seen a release, the time is the start of an earlier run.
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

    pub fn is_waiting(&self) -> bool {
        self.is_suspended && self.is_unfinished() && !self.is_deleted
    }
}

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
}

fn outcome(condition: &JobCondition) -> Option<JobOutcome> {
    match condition.type_.as_str() {
        "Complete" => Some(JobOutcome::Succeeded),
        "Failed" => Some(JobOutcome::Failed {
            reason: condition.reason.clone().unwrap_or_else(|| "Failed".to_owned()),
            message: condition.message.clone().unwrap_or_default(),
        }),
        _ => None,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    pub name: String,
    pub job: String,
    pub is_pending: bool,
    pub problem: Option<PodProblem>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodProblem {
    pub reason: String,
    pub message: String,
    pub kind: ProblemKind,
    pub since: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
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
