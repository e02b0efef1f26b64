//! Suspends, resumes and terminates.

use super::{OperationEffect, OperationError, SUSPENDING, all_steps, find, for_each, other_phase, unfinished};
use crate::api::oam::{ApplicationStatus, StepStatus, WorkflowStatus};
use crate::controllers::oam::workflow::{StepPhase, StepReason};

/// Reason of a step that has exceeded its timeout.
const TIMEOUT: &str = "Timeout";

/// Suspends the workflow with all running steps, or with one step.
///
/// # Errors
/// If the workflow has not started or has ended, or the step is not running.
pub fn suspend(status: &mut ApplicationStatus, step: Option<&str>) -> Result<OperationEffect, OperationError> {
    let workflow = running(status)?;
    let before = workflow.clone();
    match step {
        None => for_each(workflow, |step| replace(step, StepPhase::Running.as_str(), SUSPENDING)),
        Some(name) => change_phase(find(workflow, name)?, StepPhase::Running.as_str(), SUSPENDING)?,
    }
    workflow.suspend = true;
    Ok(OperationEffect::of(&before, workflow))
}

/// Resumes the workflow with all suspended steps, or with one step.
///
/// # Errors
/// If the workflow has not started or has ended, or the step is not suspended.
pub fn resume(status: &mut ApplicationStatus, step: Option<&str>) -> Result<OperationEffect, OperationError> {
    let workflow = running(status)?;
    if !is_suspended(workflow) {
        return Ok(OperationEffect::Unchanged);
    }
    let before = workflow.clone();
    match step {
        None => for_each(workflow, |step| replace(step, SUSPENDING, StepPhase::Running.as_str())),
        Some(name) => change_phase(find(workflow, name)?, SUSPENDING, StepPhase::Running.as_str())?,
    }
    // Other suspended steps suspend the workflow again in its next turn.
    workflow.suspend = false;
    Ok(OperationEffect::of(&before, workflow))
}

/// Ends the workflow: steps that run, are suspended or would be tried again fail.
///
/// # Errors
/// If the workflow has not started or has ended.
pub fn terminate(status: &mut ApplicationStatus) -> Result<OperationEffect, OperationError> {
    let workflow = unfinished(status)?;
    let before = workflow.clone();
    workflow.terminated = true;
    workflow.suspend = false;
    for_each(workflow, fail);
    Ok(OperationEffect::of(&before, workflow))
}

fn fail(step: &mut StepStatus) {
    let is_final = step.has_reason(StepReason::FailedAfterRetries) || step.reason == TIMEOUT;
    let is_active = step.is(StepPhase::Running) || step.phase == SUSPENDING;
    if is_active || (step.is(StepPhase::Failed) && !is_final) {
        StepPhase::Failed.as_str().clone_into(&mut step.phase);
        StepReason::Terminate.as_str().clone_into(&mut step.reason);
    }
}

/// Returns the workflow, unless it has ended or will end.
fn running(status: &mut ApplicationStatus) -> Result<&mut WorkflowStatus, OperationError> {
    let workflow = unfinished(status)?;
    if workflow.terminated {
        return Err(OperationError::Terminated);
    }
    Ok(workflow)
}

fn is_suspended(workflow: &WorkflowStatus) -> bool {
    workflow.suspend || all_steps(workflow).any(|step| step.phase == SUSPENDING)
}

fn replace(step: &mut StepStatus, from: &str, to: &str) {
    if step.phase == from {
        to.clone_into(&mut step.phase);
    }
}

/// Changes the phase of a step, if it does not have it yet.
fn change_phase(step: &mut StepStatus, from: &'static str, to: &str) -> Result<(), OperationError> {
    if step.phase != from && step.phase != to {
        return Err(other_phase(step, from));
    }
    replace(step, from, to);
    Ok(())
}
