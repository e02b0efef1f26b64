//! One turn of a workflow.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::backoff;
use super::interface::{StepTask, TooManySteps, TurnOutcome, WorkflowSettings};
use super::phase::{State, StepPhase, StepReason};
use super::plan::WorkflowPlan;
use super::round::{Level, Visit};
use super::statuses::Statuses;
use super::store::{Attempts, ValueStore};
use crate::api::oam::{StepStatus, WorkflowStatus, WorkflowStep};
use crate::controllers::oam::context::Context;

const SUSPENDED_AFTER_FAILURES: &str =
    "The workflow suspends automatically because the failed times of steps have reached the limit";

/// A turn of a workflow.
#[derive(Debug)]
pub struct WorkflowTurn<'a> {
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
    attempts_before: Attempts,
    pub(super) has_removed_values: bool,
    /// The steps without a group, then the steps of the groups that were visited.
    pub(super) levels: Vec<Level>,
    /// States of the steps in this turn.
    pub(super) visits: Vec<Visit>,
    /// Numbers of dependencies and inputs of each step that are there: they are not looked at again.
    pub(super) fulfilled: Vec<usize>,
    /// Steps that have succeeded, and all that they depend on.
    pub(super) succeeded: Vec<bool>,
    /// Steps that could not run yet.
    pub(super) pending: BTreeSet<usize>,
    pub(super) tasks: Vec<StepTask>,
    /// False if nothing can run: the workflow has ended, or a user has suspended it.
    is_active: bool,
    pub(super) has_run: bool,
}

impl<'a> WorkflowTurn<'a> {
    /// Begins a turn at `now`. `mode` is as in the status, such as `StepByStep-DAG`. `new_id` returns the id of a step
    /// that has none.
    ///
    /// # Errors
    /// The workflow has too many steps.
    #[expect(clippy::too_many_arguments, reason = "all that a turn depends on")]
    pub fn begin(
        steps: &'a [WorkflowStep],
        mode: &str,
        mut status: WorkflowStatus,
        mut store: ValueStore,
        context: &'a Context,
        settings: WorkflowSettings,
        now: Timestamp,
        new_id: impl FnMut() -> String,
    ) -> Result<Self, TooManySteps> {
        let plan = WorkflowPlan::new(steps, mode)?;
        // Times in a status are in whole seconds.
        let second = Timestamp::from_second(now.as_second()).unwrap_or(now);
        if status.start_time.is_none() && status.steps.is_empty() {
            status.start_time = Some(Time(second));
        }
        let statuses = Statuses::new(&plan, std::mem::take(&mut status.steps), second, new_id);
        store.retain(statuses.ids());
        let longest_wait = settings.max_wait_backoff.max(settings.max_failed_backoff);
        let mut turn = Self {
            is_due: store.attempts.is_due(now, longest_wait),
            visits: vec![Visit::Outstanding; plan.len()],
            fulfilled: vec![0; plan.len()],
            succeeded: vec![false; plan.len()],
            levels: vec![Level::new(None, plan.top.clone())],
            plan,
            settings,
            now,
            context,
            status,
            statuses,
            attempts_before: store.attempts.clone(),
            has_removed_values: false,
            store,
            pending: BTreeSet::new(),
            tasks: Vec::new(),
            is_active: false,
            has_run: false,
        };
        turn.remove_unrecorded_values();
        turn.is_active = match turn.state() {
            State::Executing => true,
            State::Suspending => turn.leaves().any(StepStatus::is_suspended),
            State::Terminated | State::Failed | State::Succeeded => false,
        };
        turn.note_resumed();
        Ok(turn)
    }

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

    /// Returns what can be done now, in order; the tasks don't depend on each other. Empty when the turn is over.
    pub fn next_round(&mut self) -> Vec<StepTask> {
        // If failures suspend, no step is skipped: those after the end of the workflow would run.
        let has_ended = self.status.terminated && self.settings.suspend_on_failure;
        if self.is_active && !has_ended {
            self.run_level(0);
        }
        let mut tasks = std::mem::take(&mut self.tasks);
        tasks.sort_unstable_by_key(|task| match task {
            StepTask::Check(index) | StepTask::Run(index) => *index,
        });
        tasks
    }

    /// Ends the turn. Steps that were returned and not recorded keep their state.
    #[must_use]
    pub fn end(mut self) -> TurnOutcome {
        self.update_open_groups();
        if self.has_run {
            self.status.message = String::new();
        }
        if self.is_active {
            let is_suspended = self.leaves().any(|status| status.is(StepPhase::Suspending));
            self.status.suspend = is_suspended;
        }
        if self.has_run && self.is_at_limit() {
            self.status.suspend = true;
            SUSPENDED_AFTER_FAILURES.clone_into(&mut self.status.message);
        }
        let state = self.state();
        state.as_str().clone_into(&mut self.status.phase);
        let retry_in = match state {
            State::Executing => {
                let scheduled = self.schedule();
                Some(self.next_timer().map_or(scheduled, |timer| timer.min(scheduled)))
            }
            State::Suspending if self.leaves().any(StepStatus::is_suspended) => {
                let is_active = backoff::has_active(self.leaves(), |status| self.has_finished(status));
                let scheduled = is_active.then(|| self.schedule());
                [scheduled, self.next_timer()].into_iter().flatten().min()
            }
            State::Suspending => {
                // A workflow that is resumed has all attempts again.
                self.store.attempts = Attempts::default();
                None
            }
            State::Terminated | State::Failed | State::Succeeded => {
                self.store.forget_all();
                None
            }
        };
        TurnOutcome {
            state,
            status: WorkflowStatus {
                steps: self.statuses.into_steps(),
                ..self.status
            },
            store: self.store,
            retry_in,
        }
    }

    /// Schedules the next turn, and returns the time until then.
    fn schedule(&mut self) -> Duration {
        let is_finished = |status: &StepStatus| self.has_finished(status);
        let interval = backoff::interval(self.leaves(), is_finished, &self.store.attempts, &self.settings);
        let next = self.now.checked_add(interval).unwrap_or(Timestamp::MAX);
        self.store.attempts.schedule(next, self.is_due, &self.attempts_before);
        let next_in = self.store.attempts.next_in(self.now);
        next_in.map_or(interval, |next_in| next_in.min(interval))
    }

    fn state(&self) -> State {
        let top = || self.plan.top.iter().map(|index| self.statuses.get(*index));
        let is_done = |status: Option<&StepStatus>| status.is_some_and(|status| self.has_finished(status));
        let succeeded = |status: Option<&StepStatus>| {
            status.is_some_and(|status| status.is(StepPhase::Succeeded) || status.is(StepPhase::Skipped))
        };
        let all_done = top().all(is_done);
        // If failures suspend, a step that was terminated would run again.
        if self.status.terminated && (all_done || self.settings.suspend_on_failure) {
            if self.is_terminated_by_user() {
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

    /// Returns true if all failed steps were terminated. Without a failed step, none had begun, or a step has ended the
    /// workflow.
    fn is_terminated_by_user(&self) -> bool {
        let steps = self.statuses.top().iter();
        let mut failed = steps.filter(|step| step.is(StepPhase::Failed));
        failed.all(|step| step.has_reason(StepReason::Terminate))
    }

    /// Returns true if a step has failed as often as it may, no other waits, and the workflow is suspended then.
    fn is_at_limit(&self) -> bool {
        let has = |phase, reason| self.leaves().any(|step| step.is(phase) && step.has_reason(reason));
        self.settings.suspend_on_failure
            && has(StepPhase::Failed, StepReason::FailedAfterRetries)
            && !has(StepPhase::Running, StepReason::Wait)
            && !has(StepPhase::Failed, StepReason::Execute)
    }

    /// Returns the statuses of the steps that are no groups, but for steps in groups that have ended.
    pub(super) fn leaves(&self) -> impl Iterator<Item = &StepStatus> + Clone {
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
