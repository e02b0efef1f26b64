//! Restarts a workflow, or a part of it.

use std::collections::BTreeSet;

use super::affected::find_affected;
use super::{OperationEffect, OperationError, all_steps, find, not_found, other_phase, started};
use crate::api::oam::{ApplicationStatus, StepStatus, WorkflowStatus, WorkflowStep};
use crate::controllers::oam::workflow::StepPhase;

/// The steps that a restart makes the workflow run again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    pub names: BTreeSet<String>,
    /// Ids of the steps in the status.
    pub ids: Vec<String>,
    /// Paths of the values that the steps have provided.
    pub outputs: Vec<String>,
}

/// Makes the controller begin a new run.
///
/// # Errors
/// If the workflow has not started.
pub fn restart(status: &mut ApplicationStatus) -> Result<OperationEffect, OperationError> {
    started(status)?;
    status.workflow = None;
    Ok(OperationEffect::Changed)
}

/// Makes the workflow run a failed step again, with the steps that come after it or, in the mode DAG, depend on it. The
/// result names the values that [`super::forget`] removes: a step can't change a value.
///
/// `steps` are the steps of the workflow, complete with the inputs and outputs of components.
///
/// # Errors
/// If the workflow has not started or has too many steps, or the step has not failed.
pub fn restart_from(
    status: &mut ApplicationStatus,
    steps: &[WorkflowStep],
    name: &str,
) -> Result<Removed, OperationError> {
    let workflow = started(status)?;
    check_failed(workflow, steps, name)?;
    let affected = find_affected(steps, &workflow.mode, name)?;
    let mut removed = Removed {
        outputs: affected
            .iter()
            .flat_map(|step| &step.outputs)
            .map(|output| output.name.clone())
            .collect(),
        names: affected.iter().map(|step| step.name.clone()).collect(),
        ids: Vec::new(),
    };
    // The spec may have changed since, so that it lacks the step.
    removed.names.insert(name.to_owned());
    let is_removed = |step: &StepStatus| removed.names.contains(&step.name);
    removed.ids = all_steps(workflow)
        .filter(|step| is_removed(step))
        .map(|step| step.id.clone())
        .collect();
    workflow.steps.retain(|step| !is_removed(step));
    for group in &mut workflow.steps {
        let before = group.sub_steps.len();
        group.sub_steps.retain(|step| !is_removed(step));
        if group.sub_steps.len() < before {
            StepPhase::Running.as_str().clone_into(&mut group.phase);
            group.reason.clear();
            group.message.clear();
        }
    }
    workflow.terminated = false;
    workflow.suspend = false;
    workflow.finished = false;
    workflow.end_time = None;
    Ok(removed)
}

fn check_failed(workflow: &mut WorkflowStatus, steps: &[WorkflowStep], name: &str) -> Result<(), OperationError> {
    let declared = steps
        .iter()
        .flat_map(|step| std::iter::once(step).chain(&step.sub_steps))
        .map(|step| step.name.as_str());
    match find(workflow, name) {
        Ok(step) if step.is(StepPhase::Failed) => Ok(()),
        Ok(step) => Err(other_phase(step, StepPhase::Failed.as_str())),
        Err(_) if declared.clone().any(|declared| declared == name) => Err(OperationError::OtherPhase {
            step: name.to_owned(),
            phase: "not started".to_owned(),
            expected: StepPhase::Failed.as_str(),
        }),
        Err(_) => Err(not_found(name, declared)),
    }
}
