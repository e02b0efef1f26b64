use std::time::Duration;

use super::conditions::{self, phase};
use crate::controllers::oam::parse::Unsupported;
use crate::cue;
use crate::runtime::kube_client::ApiError;
use crate::text::sanitize;

/// The end of a pass before all is done.
pub(super) enum Stop {
    Failed(Failure),
    /// An object or the Application has changed since it was read.
    Stale,
    /// The Application is left as it is.
    Unsupported(Vec<Unsupported>),
    /// A pass that holds memory never waits for more: the next one reserves these bytes at once.
    NeedsMemory(u64),
    /// The worker is needed by Applications with fast templates.
    NeedsEvaluator,
    /// Other passes use a joined cluster.
    NeedsCluster,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The evaluator is missing or failed. Nothing is applied or deleted because of it.
impl From<cue::Error> for Stop {
    fn from(error: cue::Error) -> Self {
        match error {
            cue::Error::Deferred => Self::NeedsEvaluator,
            cue::Error::Missing => Failure::parse(error.to_string()).into(),
            error => Failure::new(FailureKind::Workflow, error.to_string()).into(),
        }
    }
}

impl Stop {
    pub(super) fn of_write(error: &ApiError) -> Self {
        if error.is_conflict() {
            return Self::Stale;
        }
        Failure::new(FailureKind::Apply, error.to_string()).into()
    }

    /// Returns a failure as a value, and any other end as an error.
    pub(super) fn split<T>(result: Result<T, Self>) -> Result<Result<T, Failure>, Self> {
        match result {
            Ok(value) => Ok(Ok(value)),
            Err(Self::Failed(failure)) => Ok(Err(failure)),
            Err(stop) => Err(stop),
        }
    }

    /// Returns the value of the label `result` of the metric of passes.
    pub(super) const fn label(&self) -> &'static str {
        match self {
            Self::Failed(_) => "error",
            Self::Stale => "conflict",
            Self::Unsupported(_) => "unsupported",
            Self::NeedsMemory(_) => "memory",
            Self::NeedsEvaluator => "evaluator",
            Self::NeedsCluster => "cluster",
        }
    }
}

/// The kind of a failure. It decides which condition becomes false, besides Ready, and the reason of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    Parse,
    Revision,
    Policies,
    /// The workflow itself, and not one of its steps.
    Workflow,
    StateKeep,
    /// A write of the Application, of its trackers or of its objects.
    Apply,
    /// A read of trackers, or garbage collection.
    Collect,
    RecordRun,
    Timeout,
}

impl FailureKind {
    const ALL: [Self; 9] = [
        Self::Parse,
        Self::Revision,
        Self::Policies,
        Self::Workflow,
        Self::StateKeep,
        Self::Apply,
        Self::Collect,
        Self::RecordRun,
        Self::Timeout,
    ];

    pub(super) const fn condition(self) -> &'static str {
        match self {
            Self::Parse => conditions::PARSED,
            Self::Revision => conditions::REVISION,
            Self::Policies => conditions::POLICY,
            Self::Workflow => conditions::WORKFLOW,
            Self::StateKeep => conditions::STATE_KEEP,
            Self::Apply | Self::Collect | Self::RecordRun => conditions::SYNCED,
            Self::Timeout => conditions::READY,
        }
    }

    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Parse => "FailedParse",
            Self::Revision => "FailedRevision",
            Self::Workflow | Self::RecordRun => "FailedWorkflow",
            Self::StateKeep => "FailedStateKeep",
            Self::Policies | Self::Apply | Self::Timeout => "FailedApply",
            Self::Collect => "FailedGC",
        }
    }
}

/// Returns the conditions of an Application that failures make false, each with the reason of an event.
pub fn failure_reasons() -> impl Iterator<Item = (&'static str, &'static str)> {
    let kinds = FailureKind::ALL.into_iter();
    kinds.map(|kind| (kind.condition(), kind.reason()))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    /// The new phase, if it changes.
    pub(super) phase: Option<&'static str>,
    pub(super) message: String,
    /// The time until the next attempt if it can't succeed earlier; with backoff if `None`.
    pub(super) retry_after: Option<Duration>,
}

impl Failure {
    pub(super) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            phase: None,
            message: sanitize(&message.into()),
            retry_after: None,
        }
    }

    pub(super) fn parse(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Parse, message).in_phase(phase::RENDERING)
    }

    pub(super) fn workflow(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Workflow, message).in_phase(phase::RUNNING_WORKFLOW)
    }

    pub(super) fn in_phase(mut self, phase: &'static str) -> Self {
        self.phase = Some(phase);
        self
    }

    pub(super) fn retried_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }
}
