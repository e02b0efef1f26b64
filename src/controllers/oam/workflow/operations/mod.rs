//! Operations of users on a workflow, as edits of an Application's status and of its values.
//!
//! KubeVela's command line makes the same edits, and the controller treats them like any other change of the status. They
//! can be repeated: an operation that has nothing left to do returns [`OperationEffect::Unchanged`].

mod affected;
pub mod logs;
mod phases;
mod restart;
mod rollback;
#[cfg(test)]
mod tests;
mod values;

use super::TooManySteps;
use crate::api::oam::{ApplicationStatus, StepStatus, WorkflowStatus};

pub use phases::{resume, suspend, terminate};
pub use restart::{Removed, restart, restart_from};
pub use rollback::{RollbackTarget, choose_rollback, restore_status};
pub use values::{ValuesError, forget};

/// Phase of a step that waits to be resumed.
pub const SUSPENDING: &str = "suspending";
/// Steps that a message names.
const MAX_NAMED: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationEffect {
    Changed,
    Unchanged,
}

impl OperationEffect {
    fn of(before: &WorkflowStatus, after: &WorkflowStatus) -> Self {
        if before == after {
            Self::Unchanged
        } else {
            Self::Changed
        }
    }
}

/// A refused operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    #[error("workflow is not running: it has not started")]
    NotStarted,
    #[error("workflow is not running: it has ended ({0}); a restart runs it again")]
    Finished(String),
    #[error("workflow is terminated; a restart runs it again")]
    Terminated,
    #[error("workflow is running; suspend or terminate it first")]
    Running,
    #[error("step {step} not found; the steps are: {known}")]
    StepNotFound { step: String, known: String },
    #[error("step {step} is {phase}, not {expected}")]
    OtherPhase {
        step: String,
        phase: String,
        expected: &'static str,
    },
    #[error("no revision has succeeded; deploy another spec")]
    NoSucceededRevision,
    #[error("no published revision has succeeded; deploy another spec")]
    NoPublishedRevision,
    #[error(transparent)]
    TooManySteps(#[from] TooManySteps),
}

/// Returns the workflow, if it has started.
fn started(status: &mut ApplicationStatus) -> Result<&mut WorkflowStatus, OperationError> {
    status.workflow.as_mut().ok_or(OperationError::NotStarted)
}

/// Returns the workflow, unless it has ended.
fn unfinished(status: &mut ApplicationStatus) -> Result<&mut WorkflowStatus, OperationError> {
    let workflow = started(status)?;
    if workflow.finished {
        return Err(OperationError::Finished(workflow.phase.clone()));
    }
    Ok(workflow)
}

/// Iterates over all steps, each followed by its sub-steps.
pub fn all_steps(workflow: &WorkflowStatus) -> impl Iterator<Item = &StepStatus> {
    let steps = workflow.steps.iter();
    steps.flat_map(|step| std::iter::once(step).chain(&step.sub_steps))
}

fn for_each(workflow: &mut WorkflowStatus, change: impl Fn(&mut StepStatus)) {
    for step in &mut workflow.steps {
        step.sub_steps.iter_mut().for_each(&change);
        change(step);
    }
}

/// Returns a step or sub-step.
fn find<'a>(workflow: &'a mut WorkflowStatus, name: &str) -> Result<&'a mut StepStatus, OperationError> {
    let error = not_found(name, all_steps(workflow).map(|step| step.name.as_str()));
    let mut steps = workflow.steps.iter_mut();
    let step = steps.find_map(|step| {
        if step.name == name {
            return Some(step);
        }
        step.sub_steps.iter_mut().find(|sub| sub.name == name)
    });
    step.ok_or(error)
}

fn not_found<'a>(step: &str, names: impl Iterator<Item = &'a str>) -> OperationError {
    let mut names: Vec<&str> = names.take(MAX_NAMED + 1).collect();
    if names.len() > MAX_NAMED {
        names.truncate(MAX_NAMED);
        names.push("…");
    }
    OperationError::StepNotFound {
        step: step.to_owned(),
        known: names.join(", "),
    }
}

fn other_phase(step: &StepStatus, expected: &'static str) -> OperationError {
    OperationError::OtherPhase {
        step: step.name.clone(),
        phase: step.phase.clone(),
        expected,
    }
}
