//! Results of steps, and the outputs of steps that have ended.

use std::collections::BTreeSet;

use serde_json::Value;

use super::interface::StepResult;
use super::phase::{StepPhase, StepReason};
use super::round::Visit;
use super::store::{VALUES_TOO_LARGE, ValueStore};
use super::turn::WorkflowTurn;
use crate::text::{MAX_TEXT, truncate};

/// Bytes of a path or an expression in a message.
const MAX_NAMED: usize = 256;

impl WorkflowTurn<'_> {
    /// Removes values of steps that have not ended: a user restarts them, or the process ended before it recorded their end.
    /// They run again, and a value that is there can't change. KubeVela's command removes values only after the statuses.
    pub(super) fn remove_unrecorded_values(&mut self) {
        let (mut recorded, mut unrecorded) = (BTreeSet::new(), BTreeSet::new());
        for (index, planned) in self.plan.steps() {
            let paths = if self.is_finished(index) {
                &mut recorded
            } else {
                &mut unrecorded
            };
            paths.extend(planned.step.outputs.iter().map(|output| output.name.as_str()));
        }
        unrecorded.retain(|path| self.store.get(path).is_some() && !overlaps_any(path, &recorded));
        if !unrecorded.is_empty() {
            self.store.remove(unrecorded);
            self.has_removed_values = true;
        }
    }

    /// Returns the store at the begin of the turn, if it lacks values that are stored. Write it before a step runs: if a step
    /// provides the same value again, the removal by another client would otherwise be overlooked.
    #[must_use]
    pub fn store_without_removed_values(&self) -> Option<&ValueStore> {
        self.has_removed_values.then_some(&self.store)
    }

    /// Records the result of a step that was to run.
    pub fn record(&mut self, step: usize, result: StepResult) {
        if matches!(self.visits.get(step), Some(Visit::Running)) {
            self.set_visit(step, Visit::Done);
            self.apply(step, result);
        }
    }

    pub(super) fn apply(&mut self, step: usize, result: StepResult) {
        match result {
            StepResult::Succeeded { outputs, message } => {
                let errors = self.finish(step, outputs);
                let message = if errors.is_empty() { message } else { errors };
                self.set(step, (StepPhase::Succeeded, None), &message, false);
            }
            StepResult::Waiting { message } => {
                let id = self.statuses.id(step);
                self.store.attempts.count_wait(id, &message, self.is_due);
                if self.plan.has_effects(step) {
                    self.store.attempts.note_run(id, self.now);
                }
                self.set(step, (StepPhase::Running, Some(StepReason::Wait)), &message, false);
            }
            StepResult::Suspended { message, duration } => self.suspend(step, &message, duration),
            StepResult::Terminated { message } => {
                self.status.terminated = true;
                self.finish(step, Vec::new());
                let state = (StepPhase::Succeeded, Some(StepReason::Terminate));
                self.set(step, state, &message, false);
            }
            StepResult::Failed { reason, message } => self.fail(step, reason.step_reason(), &message),
        }
    }

    /// Fails a step. Without a message, it keeps the message of its last run.
    pub(super) fn fail(&mut self, step: usize, reason: StepReason, message: &str) {
        let id = self.statuses.id(step);
        let last = self.statuses.get(step).filter(|status| !status.is(StepPhase::Pending));
        let last = last.map(|status| status.message.clone()).unwrap_or_default();
        let message = if message.is_empty() { last.as_str() } else { message };
        let has_retries = self.store.attempts.count_failure(id) <= self.settings.max_retries;
        let is_definite = matches!(reason, StepReason::Timeout | StepReason::Action);
        let reason = match reason {
            _ if has_retries => reason,
            _ if is_definite && !self.settings.suspend_on_failure => reason,
            _ => StepReason::FailedAfterRetries,
        };
        let is_final = reason != StepReason::Execute;
        if is_final && !self.settings.suspend_on_failure {
            self.status.terminated = true;
            self.finish(step, Vec::new());
        } else {
            self.store.attempts.count_wait(id, message, self.is_due);
        }
        self.set(step, (StepPhase::Failed, Some(reason)), message, true);
    }

    pub(super) fn skip(&mut self, step: usize, message: &str) {
        self.finish(step, Vec::new());
        self.set(step, (StepPhase::Skipped, Some(StepReason::Skip)), message, false);
    }

    pub(super) fn set(&mut self, step: usize, state: (StepPhase, Option<StepReason>), message: &str, is_attempt: bool) {
        self.statuses.update(&self.plan, step, state, message, is_attempt);
    }

    /// Stores the outputs of a step that has ended, null for outputs without a value. Returns the errors.
    pub(super) fn finish(&mut self, step: usize, values: Vec<Result<Value, String>>) -> String {
        self.store.forget(self.statuses.id(step));
        let outputs = self.step(step).map(|step| step.outputs.as_slice()).unwrap_or_default();
        let mut errors = String::new();
        let mut add_error = |error: String| {
            // The status shows no more.
            if errors.len() < MAX_TEXT {
                errors.push_str(&error);
            }
        };
        let mut values = values.into_iter();
        for output in outputs {
            let value = match values.next().unwrap_or(Ok(Value::Null)) {
                // There is a value, but it can't be stored.
                Err(error) if error == VALUES_TOO_LARGE => Err(error),
                Err(error) => {
                    let expression = truncate(&output.value_from, MAX_NAMED);
                    add_error(format!("failed to get output from {expression}: {error}\n"));
                    Ok(Value::Null)
                }
                value => value,
            };
            if let Err(error) = value.and_then(|value| self.store.add(&output.name, &value)) {
                let name = truncate(&output.name, MAX_NAMED);
                add_error(format!("failed to set output {name}: {error}\n"));
            }
        }
        errors
    }
}

/// Returns true if a dotted path overlaps one of the others.
fn overlaps_any(path: &str, others: &BTreeSet<&str>) -> bool {
    let outer = path.match_indices('.').filter_map(|(at, _)| path.get(..at));
    let inner = format!("{path}.");
    let mut is_outer = outer.chain([path]);
    let mut from_inner = others.range(inner.as_str()..);
    is_outer.any(|outer| others.contains(outer)) || from_inner.next().is_some_and(|next| next.starts_with(&inner))
}
