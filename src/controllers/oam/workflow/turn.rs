//! One turn of a workflow.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::backoff::{has_active, schedule};
use super::groups::update_open_groups;
use super::interface::{StepResult, StepTask, TooManySteps, TurnOutcome, WorkflowSettings};
use super::phase::{State, StepPhase, StepReason};
use super::plan::WorkflowPlan;
use super::results::{apply_result, remove_unrecorded_values};
use super::round::{Visit, Visits, enter_step, leave_step, run_level};
use super::run::WorkflowRun;
use super::statuses::Statuses;
use super::store::{Attempts, ValueStore};
use super::suspend::note_resumed;
use crate::api::oam::{StepStatus, WorkflowStatus, WorkflowStep};
use crate::controllers::oam::context::Context;

const SUSPENDED_AFTER_FAILURES: &str =
    "The workflow suspends automatically because the failed times of steps have reached the limit";

/// A turn of a workflow.
#[derive(Debug)]
pub struct WorkflowTurn<'a> {
    /// Public for the caller, whose steps read it and change its values.
    pub run: WorkflowRun<'a>,
    visits: Visits,
    attempts_before: Attempts,
    has_removed_values: bool,
    /// False if nothing can run: the workflow has ended, or a user has suspended it.
    is_active: bool,
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
        let (visits, attempts_before) = (Visits::new(&plan), store.attempts.clone());
        let mut run = WorkflowRun {
            is_due: store.attempts.is_due(now, longest_wait),
            plan,
            settings,
            now,
            context,
            status,
            statuses,
            store,
        };
        let has_removed_values = remove_unrecorded_values(&mut run);
        let is_active = match run.state() {
            State::Executing => true,
            State::Suspending => run.leaves().any(StepStatus::is_suspended),
            State::Terminated | State::Failed | State::Succeeded => false,
        };
        note_resumed(&mut run);
        Ok(Self {
            run,
            visits,
            attempts_before,
            has_removed_values,
            is_active,
        })
    }

    /// Returns the store at the begin of the turn, if it lacks values that are stored. Write it before a step runs: if a step
    /// provides the same value again, the removal by another client would otherwise be overlooked.
    #[must_use]
    pub fn store_without_removed_values(&self) -> Option<&ValueStore> {
        self.has_removed_values.then_some(&self.run.store)
    }

    /// Returns what can be done now, in order; the tasks don't depend on each other. Empty when the turn is over.
    pub fn next_round(&mut self) -> Vec<StepTask> {
        let (run, visits) = (&mut self.run, &mut self.visits);
        // If failures suspend, no step is skipped: those after the end of the workflow would run.
        let has_ended = run.status.terminated && run.settings.suspend_on_failure;
        if self.is_active && !has_ended {
            run_level(run, visits, 0);
        }
        let mut tasks = std::mem::take(&mut visits.tasks);
        tasks.sort_unstable_by_key(|task| match task {
            StepTask::Check(index) | StepTask::Run(index) => *index,
        });
        tasks
    }

    /// Records the value of a step's condition, or the error of evaluating it.
    pub fn record_check(&mut self, step: usize, result: Result<bool, String>) {
        let (run, visits) = (&mut self.run, &mut self.visits);
        let Some(Visit::Checking(timeout)) = visits.get(step).cloned() else {
            return;
        };
        match result {
            Ok(true) => enter_step(run, visits, step, timeout),
            Ok(false) => leave_step(run, visits, step, String::new()),
            Err(error) => leave_step(run, visits, step, format!("pre check error: {error}")),
        }
    }

    /// Records the result of a step that was to run.
    pub fn record(&mut self, step: usize, result: StepResult) {
        if matches!(self.visits.get(step), Some(Visit::Running)) {
            self.visits.set(step, Visit::Done);
            apply_result(&mut self.run, step, result);
        }
    }

    /// Ends the turn. Steps that were returned and not recorded keep their state.
    #[must_use]
    pub fn end(mut self) -> TurnOutcome {
        update_open_groups(&mut self.run, self.visits.open_groups());
        self.update_status();
        let (mut run, mut visits, before) = (self.run, self.visits, self.attempts_before);
        let state = run.state();
        state.as_str().clone_into(&mut run.status.phase);
        let retry_in = match state {
            State::Executing => {
                let scheduled = schedule(&mut run, &before);
                Some(visits.next_timer(&run).map_or(scheduled, |timer| timer.min(scheduled)))
            }
            State::Suspending if run.leaves().any(StepStatus::is_suspended) => {
                let scheduled = has_active(&run).then(|| schedule(&mut run, &before));
                [scheduled, visits.next_timer(&run)].into_iter().flatten().min()
            }
            State::Suspending => {
                // A workflow that is resumed has all attempts again.
                run.store.attempts = Attempts::default();
                None
            }
            State::Terminated | State::Failed | State::Succeeded => {
                run.store.forget_all();
                None
            }
        };
        TurnOutcome {
            state,
            status: WorkflowStatus {
                steps: run.statuses.into_steps(),
                ..run.status
            },
            store: run.store,
            retry_in,
        }
    }

    fn update_status(&mut self) {
        let (run, visits) = (&mut self.run, &self.visits);
        if visits.has_run {
            run.status.message = String::new();
        }
        if self.is_active {
            let is_suspended = run.leaves().any(|status| status.is(StepPhase::Suspending));
            run.status.suspend = is_suspended;
        }
        if visits.has_run && is_at_limit(run) {
            run.status.suspend = true;
            SUSPENDED_AFTER_FAILURES.clone_into(&mut run.status.message);
        }
    }
}

/// Returns true if a step has failed as often as it may, no other waits, and the workflow is suspended then.
fn is_at_limit(run: &WorkflowRun<'_>) -> bool {
    let has = |phase, reason| run.leaves().any(|step| step.is(phase) && step.has_reason(reason));
    run.settings.suspend_on_failure
        && has(StepPhase::Failed, StepReason::FailedAfterRetries)
        && !has(StepPhase::Running, StepReason::Wait)
        && !has(StepPhase::Failed, StepReason::Execute)
}
