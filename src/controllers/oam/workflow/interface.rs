//! Settings of the engine, results of steps and results of turns.

use std::time::Duration;

use serde_json::Value;

use super::phase::{State, StepReason};
use super::store::ValueStore;
use crate::api::oam::WorkflowStatus;

/// Most steps of a workflow, with sub-steps.
pub(super) const MAX_STEPS: usize = 2_000;

/// The settings of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkflowSettings {
    /// Attempts after the first failure of a step.
    pub max_retries: u32,
    /// Longest time between two turns while steps wait.
    pub max_wait_backoff: Duration,
    /// Longest time between two turns after a step has failed.
    pub max_failed_backoff: Duration,
    /// Gate `EnableSuspendOnFailure`: a workflow whose step fails finally is suspended, not terminated.
    pub suspend_on_failure: bool,
}

impl Default for WorkflowSettings {
    fn default() -> Self {
        Self {
            max_retries: 10,
            max_wait_backoff: Duration::from_mins(1),
            max_failed_backoff: Duration::from_mins(5),
            suspend_on_failure: false,
        }
    }
}

/// A part of a step that the caller does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepTask {
    /// Evaluate the condition of a step, for [`super::WorkflowTurn::record_check`].
    Check(usize),
    /// Run a step, for [`super::WorkflowTurn::record`].
    Run(usize),
}

/// The result of running a step. An empty message is none.
#[derive(Clone, Debug, PartialEq)]
pub enum StepResult {
    Succeeded {
        /// The values of the step's outputs, in their order, or the errors of their expressions.
        outputs: Vec<Result<Value, String>>,
        message: String,
    },
    Waiting {
        message: String,
    },
    /// The step runs again when a user resumes it, or after the duration. [`super::WorkflowRun::resumptions`] counts it then.
    Suspended {
        message: String,
        duration: Option<Duration>,
    },
    /// The step has succeeded and ends the workflow. Steps that have not begun are skipped.
    Terminated {
        message: String,
    },
    Failed {
        reason: FailureReason,
        message: String,
    },
}

/// The cause of a failure. Only [`FailureReason::Execute`] is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureReason {
    Execute,
    Rendering,
    Input,
    ProcessParameter,
    Output,
    /// The template itself has failed the step.
    Action,
}

impl FailureReason {
    pub(super) fn step_reason(self) -> StepReason {
        match self {
            Self::Execute => StepReason::Execute,
            Self::Rendering => StepReason::Rendering,
            Self::Input => StepReason::Input,
            Self::ProcessParameter => StepReason::ProcessParameter,
            Self::Output => StepReason::Output,
            Self::Action => StepReason::Action,
        }
    }
}

/// The result of a turn.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnOutcome {
    pub state: State,
    pub status: WorkflowStatus,
    pub store: ValueStore,
    /// Longest time to the next turn. `None` if the workflow has ended, or only a user resumes it.
    pub retry_in: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("workflow has more than {MAX_STEPS} steps")]
pub struct TooManySteps;
