//! The run of a workflow as it is recorded, and the state that follows from it.

use jiff::Timestamp;

use super::interface::WorkflowSettings;
use super::phase::{State, StepPhase, StepReason, StepState};
use super::plan::WorkflowPlan;
use super::statuses::Statuses;
use super::store::ValueStore;
use crate::api::oam::{StepStatus, WorkflowStatus, WorkflowStep};
use crate::controllers::oam::context::Context;

/// A run of a workflow at the time of a turn: its steps, their statuses and their values.
#[derive(Debug)]
pub struct WorkflowRun<'a> {
    pub(super) plan: WorkflowPlan<'a>,
    pub(super) settings: WorkflowSettings,
    pub(super) now: Timestamp,
    /// False if an event has started the turn early.
    pub(super) is_due: bool,
    /// Without the fields of one step.
    pub(super) context: &'a Context,
    /// Without the steps.
    pub(super) status: WorkflowStatus,
    pub(super) statuses: Statuses,
    pub(super) store: ValueStore,
}

impl<'a> WorkflowRun<'a> {
    /// Returns the id of a step by its number.
    #[must_use]
    pub fn id(&self, index: usize) -> &str {
        self.statuses.id(index)
    }

    /// Returns a step by its number: a step, then its sub-steps, then the next step.
    #[must_use]
    pub fn step(&self, index: usize) -> Option<&'a WorkflowStep> {
        self.plan.get(index).map(|planned| planned.step)
    }

    /// Returns the values, for a step that reads and writes them while it runs.
    pub fn values_mut(&mut self) -> &mut ValueStore {
        &mut self.store
    }

    /// Returns the number of suspensions of a step that are over. Its template goes on after as many.
    #[must_use]
    pub fn resumptions(&self, step: usize) -> u32 {
        self.store.suspensions.resumptions(self.id(step))
    }

    pub(super) fn update(&mut self, step: usize, state: StepState, message: &str, is_attempt: bool) {
        self.statuses.update(&self.plan, step, state, message, is_attempt);
    }

    pub(super) fn state(&self) -> State {
        let top = || self.plan.top.iter().map(|index| self.statuses.get(*index));
        let is_done = |status: Option<&StepStatus>| status.is_some_and(|status| self.has_finished(status));
        let succeeded = |status: Option<&StepStatus>| {
            status.is_some_and(|status| status.is(StepPhase::Succeeded) || status.is(StepPhase::Skipped))
        };
        let all_done = top().all(is_done);
        // If failures suspend, a step that was terminated would run again.
        if self.status.terminated && (all_done || self.settings.suspend_on_failure) {
            if is_terminated_by_user(self.statuses.top()) {
                State::Terminated
            } else {
                State::Failed
            }
        } else if self.status.suspend {
            State::Suspending
        } else if all_done && top().all(succeeded) {
            State::Succeeded
        } else {
            State::Executing
        }
    }

    /// Returns the statuses of the steps that are no groups, but for steps in groups that have ended.
    pub(super) fn leaves(&self) -> impl Iterator<Item = &StepStatus> {
        let steps = self.plan.steps().filter(|(index, _)| !self.plan.is_group(*index));
        let leaves = steps.filter(|(_, planned)| !planned.group.is_some_and(|group| self.is_finished(group)));
        leaves.filter_map(|(index, _)| self.statuses.get(index))
    }

    pub(super) fn has_finished(&self, status: &StepStatus) -> bool {
        if self.settings.suspend_on_failure {
            return status.is(StepPhase::Succeeded);
        }
        let is_retried = status.reason.is_empty() || status.has_reason(StepReason::Execute);
        status.is(StepPhase::Succeeded)
            || status.is(StepPhase::Skipped)
            || (status.is(StepPhase::Failed) && !is_retried)
    }

    pub(super) fn is_finished(&self, step: usize) -> bool {
        self.statuses.get(step).is_some_and(|status| self.has_finished(status))
    }
}

/// Returns true if all failed steps were terminated. Without a failed step, none had begun, or a step has ended the
/// workflow.
fn is_terminated_by_user(steps: &[StepStatus]) -> bool {
    let mut failed = steps.iter().filter(|step| step.is(StepPhase::Failed));
    failed.all(|step| step.has_reason(StepReason::Terminate))
}
