//! One turn of a workflow.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::backoff;
use super::interface::{FailureReason, MAX_STEPS, Outcome, Settings, StepResult, TooManySteps};
use super::phase::{State, StepPhase, StepReason};
use super::store::Store;
use crate::api::oam::{StepStatus, WorkflowStatus, WorkflowStep};
use crate::text::{MAX_TEXT, truncate};

const SUSPENDED_AFTER_FAILURES: &str =
    "The workflow suspends automatically because the failed times of steps have reached the limit";

/// A turn of a workflow.
#[derive(Debug)]
pub struct Turn<'a> {
    steps: &'a [WorkflowStep],
    settings: Settings,
    /// In whole seconds, as times in a status are.
    now: Timestamp,
    exact_now: Timestamp,
    /// False if an event has started the turn early.
    is_due: bool,
    /// Values that inputs can name besides outputs of steps.
    context: &'a Value,
    status: WorkflowStatus,
    store: Store,
    store_before: Store,
    /// Ids of the steps, by index.
    ids: Vec<String>,
    /// Indexes of steps, by name.
    step_indexes: HashMap<&'a str, usize>,
    /// Indexes in the status, by name.
    status_indexes: HashMap<String, usize>,
    /// Steps that are pending in this turn, as far as they are known; all steps at first.
    candidates: Vec<usize>,
    has_run: bool,
    is_first_round: bool,
}

impl<'a> Turn<'a> {
    /// Begins a turn at `now`. `new_id` returns the id of a step that has none.
    ///
    /// # Errors
    /// The workflow has too many steps.
    pub fn begin(
        steps: &'a [WorkflowStep],
        mut status: WorkflowStatus,
        store: Store,
        context: &'a Value,
        settings: Settings,
        now: Timestamp,
        mut new_id: impl FnMut() -> String,
    ) -> Result<Self, TooManySteps> {
        if steps.len() > MAX_STEPS {
            return Err(TooManySteps);
        }
        let exact_now = now;
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let longest_wait = settings.max_wait_backoff.max(settings.max_failed_backoff);
        if status.start_time.is_none() && status.steps.is_empty() {
            status.start_time = Some(Time(now));
        }
        let status_indexes = index(&status.steps);
        let ids = steps.iter().map(|step| {
            let known = status_indexes.get(&step.name).and_then(|at| status.steps.get(*at));
            known
                .map(|status| status.id.clone())
                .filter(|id| !id.is_empty())
                .unwrap_or_else(&mut new_id)
        });
        let mut turn = Self {
            ids: ids.collect(),
            step_indexes: steps
                .iter()
                .enumerate()
                .map(|(at, step)| (step.name.as_str(), at))
                .collect(),
            status_indexes,
            candidates: Vec::new(),
            steps,
            settings,
            now,
            exact_now,
            is_due: store.is_due(exact_now, longest_wait),
            context,
            store_before: store.clone(),
            status,
            store,
            has_run: false,
            is_first_round: true,
        };
        if turn.state() == State::Executing {
            turn.candidates = (0..steps.len()).filter(|step| !turn.is_postponed(*step)).collect();
        }
        Ok(turn)
    }

    /// Returns the steps to run now, in order; they don't depend on each other. Empty when the turn is over.
    pub fn next_round(&mut self) -> Vec<usize> {
        loop {
            let unfinished = self.candidates.iter().copied().filter(|step| !self.is_finished(*step));
            let (pending, ready): (Vec<_>, Vec<_>) = unfinished
                .map(|step| (step, self.pending_on(step)))
                .partition(|(_, cause)| cause.is_some());
            self.candidates = pending.iter().map(|(step, _)| *step).collect();
            // As in KubeVela, steps that are pending at first come after those that run.
            if !self.is_first_round || ready.is_empty() {
                for (step, cause) in pending {
                    self.update(step, StepPhase::Pending, "", &cause.unwrap_or_default(), false);
                }
            }
            self.is_first_round = false;
            if ready.is_empty() {
                return Vec::new();
            }
            self.has_run = true;
            let mut runnable = Vec::new();
            for (step, _) in ready {
                if self.is_skipped(step) {
                    self.skip(step);
                } else {
                    // Reserves its place, since the steps may end in any order.
                    self.entry(step);
                    runnable.push(step);
                }
            }
            if !runnable.is_empty() {
                return runnable;
            }
        }
    }

    /// Returns the values of a step's inputs, with the paths of their parameters.
    #[must_use]
    pub fn inputs(&self, step: usize) -> Vec<(&'a str, Value)> {
        let inputs = self
            .steps
            .get(step)
            .map(|step| step.inputs.as_slice())
            .unwrap_or_default();
        let value = |from| self.value(from).cloned().unwrap_or_default();
        inputs
            .iter()
            .map(|input| (input.parameter_key.as_str(), value(&input.from)))
            .collect()
    }

    /// Records the result of a step.
    pub fn record(&mut self, step: usize, result: StepResult) {
        let Some(id) = self.ids.get(step).cloned() else {
            return;
        };
        match result {
            StepResult::Succeeded { outputs } => {
                let message = self.add_outputs(step, outputs);
                self.store.forget(&id);
                self.update(step, StepPhase::Succeeded, "", &message, false);
            }
            StepResult::Waiting { message } => {
                self.store.count_wait(&id, &message, self.is_due);
                self.update(step, StepPhase::Running, StepReason::Wait.as_str(), &message, false);
            }
            StepResult::Failed { reason, message } => self.fail(step, &id, reason, &message),
        }
    }

    fn fail(&mut self, step: usize, id: &str, reason: FailureReason, message: &str) {
        let has_retries = self.store.count_failure(id) <= self.settings.max_retries;
        let reason = match reason {
            _ if !has_retries => StepReason::FailedAfterRetries,
            reason => reason.step_reason(),
        };
        let is_final = reason != StepReason::Execute;
        if is_final && !self.settings.suspend_on_failure {
            self.status.terminated = true;
            self.store.forget(id);
            self.add_outputs(step, Vec::new());
        } else {
            self.store.count_wait(id, message, self.is_due);
        }
        self.update(step, StepPhase::Failed, reason.as_str(), message, true);
    }

    fn skip(&mut self, step: usize) {
        self.add_outputs(step, Vec::new());
        if let Some(id) = self.ids.get(step) {
            self.store.forget(id);
        }
        self.update(step, StepPhase::Skipped, StepReason::Skip.as_str(), "", false);
    }

    /// Stores the outputs of a finished step, null for those without a value. Returns the errors.
    fn add_outputs(&mut self, step: usize, values: Vec<Result<Value, String>>) -> String {
        let outputs = self
            .steps
            .get(step)
            .map(|step| step.outputs.as_slice())
            .unwrap_or_default();
        let mut errors = String::new();
        let mut values = values.into_iter();
        for output in outputs {
            let value = values.next().unwrap_or(Ok(Value::Null)).unwrap_or_else(|error| {
                errors.push_str(&format!("failed to get output from {}: {error}\n", output.value_from));
                Value::Null
            });
            if let Err(error) = self.store.add(&output.name, &value) {
                let name = truncate(&output.name, MAX_TEXT);
                errors.push_str(&format!("failed to set output {name}: {error}\n"));
            }
        }
        errors
    }

    /// Ends the turn. Steps that were returned and not recorded keep their state.
    #[must_use]
    pub fn end(mut self) -> Outcome {
        self.status.steps.retain(|step| !step.phase.is_empty());
        self.status_indexes = index(&self.status.steps);
        if self.has_run {
            self.status.message = String::new();
            let has = |phase, reason| {
                self.status
                    .steps
                    .iter()
                    .any(|step| step.is(phase) && step.has_reason(reason))
            };
            let is_waiting = has(StepPhase::Running, StepReason::Wait) || has(StepPhase::Failed, StepReason::Execute);
            if self.settings.suspend_on_failure && !is_waiting && has(StepPhase::Failed, StepReason::FailedAfterRetries)
            {
                self.status.suspend = true;
                SUSPENDED_AFTER_FAILURES.clone_into(&mut self.status.message);
            }
        }
        let state = self.state();
        state.as_str().clone_into(&mut self.status.phase);
        let retry_in = if state == State::Executing {
            Some(self.schedule())
        } else {
            // A workflow that is resumed has all attempts again.
            self.store.forget_all();
            None
        };
        Outcome {
            state,
            status: self.status,
            store: self.store,
            retry_in,
        }
    }

    /// Schedules the next turn, and returns the time until then.
    fn schedule(&mut self) -> Duration {
        let interval = backoff::interval(&self.status.steps, &self.store, &self.settings);
        let next = self.exact_now.checked_add(interval).unwrap_or(Timestamp::MAX);
        self.store.schedule(next, self.is_due, &self.store_before);
        let next_in = self.store.next_in(self.exact_now);
        next_in.map_or(interval, |next_in| next_in.min(interval))
    }

    fn state(&self) -> State {
        let find = |step: &WorkflowStep| self.status_of(&step.name);
        let is_done = |status: Option<&StepStatus>| status.is_some_and(|status| self.has_finished(status));
        let succeeded = |status: Option<&StepStatus>| {
            status.is_some_and(|status| status.is(StepPhase::Succeeded) || status.is(StepPhase::Skipped))
        };
        let all_done = self.steps.iter().all(|step| is_done(find(step)));
        let all_succeeded = self
            .steps
            .iter()
            .all(|step| is_done(find(step)) && succeeded(find(step)));
        match () {
            () if self.status.terminated && all_done => match self.is_terminated_by_user() {
                true => State::Terminated,
                false => State::Failed,
            },
            () if self.status.suspend => State::Suspending,
            () if all_succeeded => State::Succeeded,
            () => State::Executing,
        }
    }

    /// Returns true if all failed steps were terminated.
    fn is_terminated_by_user(&self) -> bool {
        let mut failed = self
            .status
            .steps
            .iter()
            .filter(|step| step.is(StepPhase::Failed))
            .peekable();
        failed.peek().is_some() && failed.all(|step| step.has_reason(StepReason::Terminate))
    }

    fn has_finished(&self, status: &StepStatus) -> bool {
        if self.settings.suspend_on_failure {
            return status.is(StepPhase::Succeeded);
        }
        let is_retried = status.reason.is_empty() || status.has_reason(StepReason::Execute);
        status.is(StepPhase::Succeeded)
            || status.is(StepPhase::Skipped)
            || (status.is(StepPhase::Failed) && !is_retried)
    }

    fn status_of(&self, name: &str) -> Option<&StepStatus> {
        self.status_indexes.get(name).and_then(|at| self.status.steps.get(*at))
    }

    fn is_finished(&self, step: usize) -> bool {
        let status = self.steps.get(step).and_then(|step| self.status_of(&step.name));
        status.is_some_and(|status| self.has_finished(status))
    }

    /// Returns true if the step has failed and its next attempt is not due. An event doesn't bring it forward, since a
    /// failing step may cause events itself.
    fn is_postponed(&self, step: usize) -> bool {
        let status = self.steps.get(step).and_then(|step| self.status_of(&step.name));
        !self.is_due && status.is_some_and(|status| status.is(StepPhase::Failed))
    }

    /// Returns the cause if the step can't run yet.
    fn pending_on(&self, step: usize) -> Option<String> {
        let step = self.steps.get(step)?;
        let is_finished = |name: &&String| self.status_of(name).is_some_and(|status| self.has_finished(status));
        if let Some(name) = step.depends_on.iter().find(|name| !is_finished(name)) {
            return Some(format!("Pending on DependsOn: {name}"));
        }
        let missing = step.inputs.iter().find(|input| self.value(&input.from).is_none())?;
        Some(format!("Pending on Input: {}", missing.from))
    }

    fn value(&self, path: &str) -> Option<&Value> {
        let context = || path.split('.').try_fold(self.context, |value, field| value.get(field));
        self.store.get(path).or_else(context)
    }

    /// Returns true if a step that this one depends on, directly or through others, did not succeed.
    fn is_skipped(&self, step: usize) -> bool {
        if self.settings.suspend_on_failure {
            return false;
        }
        let mut seen = vec![false; self.steps.len()];
        let mut remaining = vec![step];
        while let Some(step) = remaining.pop() {
            for name in self.steps.get(step).into_iter().flat_map(|step| &step.depends_on) {
                if !self
                    .status_of(name)
                    .is_some_and(|status| status.is(StepPhase::Succeeded))
                {
                    return true;
                }
                if let Some(next) = self.step_indexes.get(name.as_str()).copied()
                    && let Some(is_seen) = seen.get_mut(next)
                    && !std::mem::replace(is_seen, true)
                {
                    remaining.push(next);
                }
            }
        }
        false
    }

    /// Returns the status of a step; a new one has no phase.
    fn entry(&mut self, step: usize) -> Option<&mut StepStatus> {
        let (step, id) = (self.steps.get(step)?, self.ids.get(step)?);
        let at = match self.status_indexes.get(&step.name) {
            Some(at) => *at,
            None => {
                self.status_indexes.insert(step.name.clone(), self.status.steps.len());
                self.status.steps.push(StepStatus {
                    id: id.clone(),
                    name: step.name.clone(),
                    type_: step.type_.clone(),
                    first_execute_time: Some(Time(self.now)),
                    ..StepStatus::default()
                });
                self.status.steps.len() - 1
            }
        };
        self.status.steps.get_mut(at)
    }

    /// Sets the state of a step. The time of its last execution changes with it, so that a turn without news writes nothing.
    fn update(&mut self, step: usize, phase: StepPhase, reason: &str, message: &str, is_attempt: bool) {
        let now = self.now;
        let Some(status) = self.entry(step) else {
            return;
        };
        let is_same = status.is(phase) && status.reason == reason && status.message == message;
        if is_attempt || !is_same {
            status.last_execute_time = Some(Time(now));
        }
        phase.as_str().clone_into(&mut status.phase);
        reason.clone_into(&mut status.reason);
        message.clone_into(&mut status.message);
    }
}

fn index(steps: &[StepStatus]) -> HashMap<String, usize> {
    steps
        .iter()
        .enumerate()
        .map(|(at, step)| (step.name.clone(), at))
        .collect()
}
