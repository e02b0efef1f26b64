//! Results of steps, and the outputs of steps that have ended.

use std::collections::BTreeSet;

use serde_json::Value;

use super::interface::StepResult;
use super::phase::{StepPhase, StepReason};
use super::run::WorkflowRun;
use super::store::VALUES_TOO_LARGE;
use super::suspend::suspend_step;
use crate::text::{MAX_TEXT, truncate};

/// Bytes of a path or an expression in a message.
const MAX_NAMED: usize = 256;

/// Removes values of steps that have not ended: a user restarts them, or the process ended before it recorded their end.
/// They run again, and a value that is there can't change. KubeVela's command removes values only after the statuses.
/// Returns true if there are such values.
pub(super) fn remove_unrecorded_values(run: &mut WorkflowRun<'_>) -> bool {
    let (mut recorded, mut unrecorded) = (BTreeSet::new(), BTreeSet::new());
    for (index, planned) in run.plan.steps() {
        let is_recorded = run.is_finished(index);
        let paths = if is_recorded { &mut recorded } else { &mut unrecorded };
        paths.extend(planned.step.outputs.iter().map(|output| output.name.as_str()));
    }
    unrecorded.retain(|path| run.store.get(path).is_some() && !overlaps_any(path, &recorded));
    let has_values = !unrecorded.is_empty();
    run.store.remove(unrecorded);
    has_values
}

/// Records the result of a step.
pub(super) fn apply_result(run: &mut WorkflowRun<'_>, step: usize, result: StepResult) {
    match result {
        StepResult::Succeeded { outputs, message } => {
            let errors = end_step(run, step, outputs);
            let message = if errors.is_empty() { message } else { errors };
            run.update(step, (StepPhase::Succeeded, None), &message, false);
        }
        StepResult::Waiting { message } => {
            let id = run.statuses.id(step);
            run.store.attempts.count_wait(id, &message, run.is_due);
            if run.plan.has_effects(step) {
                run.store.attempts.note_run(id, run.now);
            }
            let state = (StepPhase::Running, Some(StepReason::Wait));
            run.update(step, state, &message, false);
        }
        StepResult::Suspended { message, duration } => suspend_step(run, step, &message, duration),
        StepResult::Terminated { message } => {
            run.status.terminated = true;
            end_step(run, step, Vec::new());
            let state = (StepPhase::Succeeded, Some(StepReason::Terminate));
            run.update(step, state, &message, false);
        }
        StepResult::Failed { reason, message } => fail_step(run, step, reason.step_reason(), &message),
    }
}

/// Fails a step. Without a message, it keeps the message of its last run.
pub(super) fn fail_step(run: &mut WorkflowRun<'_>, step: usize, reason: StepReason, message: &str) {
    let id = run.statuses.id(step);
    let last = run.statuses.get(step).filter(|status| !status.is(StepPhase::Pending));
    let last = last.map(|status| status.message.clone()).unwrap_or_default();
    let message = if message.is_empty() { last.as_str() } else { message };
    let has_retries = run.store.attempts.count_failure(id) <= run.settings.max_retries;
    let is_definite = matches!(reason, StepReason::Timeout | StepReason::Action);
    let reason = match reason {
        _ if has_retries => reason,
        _ if is_definite && !run.settings.suspend_on_failure => reason,
        _ => StepReason::FailedAfterRetries,
    };
    let is_final = reason != StepReason::Execute;
    if is_final && !run.settings.suspend_on_failure {
        run.status.terminated = true;
        end_step(run, step, Vec::new());
    } else {
        run.store.attempts.count_wait(id, message, run.is_due);
    }
    run.update(step, (StepPhase::Failed, Some(reason)), message, true);
}

pub(super) fn skip_step(run: &mut WorkflowRun<'_>, step: usize, message: &str) {
    end_step(run, step, Vec::new());
    run.update(step, (StepPhase::Skipped, Some(StepReason::Skip)), message, false);
}

/// Stores the outputs of a step that has ended, null for outputs without a value. Returns the errors.
pub(super) fn end_step(run: &mut WorkflowRun<'_>, step: usize, values: Vec<Result<Value, String>>) -> String {
    run.store.forget(run.statuses.id(step));
    let outputs = run.step(step).map(|step| step.outputs.as_slice());
    let mut errors = String::new();
    let mut add_error = |error: String| {
        // The status shows no more.
        if errors.len() < MAX_TEXT {
            errors.push_str(&error);
        }
    };
    let mut values = values.into_iter();
    for output in outputs.unwrap_or_default() {
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
        if let Err(error) = value.and_then(|value| run.store.add(&output.name, &value)) {
            let name = truncate(&output.name, MAX_NAMED);
            add_error(format!("failed to set output {name}: {error}\n"));
        }
    }
    errors
}

/// Returns true if a dotted path overlaps one of the others.
fn overlaps_any(path: &str, others: &BTreeSet<&str>) -> bool {
    let outer = path.match_indices('.').filter_map(|(at, _)| path.get(..at));
    let inner = format!("{path}.");
    let mut is_outer = outer.chain([path]);
    let mut from_inner = others.range(inner.as_str()..);
    is_outer.any(|outer| others.contains(outer)) || from_inner.next().is_some_and(|next| next.starts_with(&inner))
}
