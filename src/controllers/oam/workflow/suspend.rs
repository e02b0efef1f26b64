//! Steps that suspend the workflow: steps of the type `suspend`, and steps whose template does.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::interface::{FailureReason, StepResult};
use super::phase::{StepPhase, StepReason};
use super::run::WorkflowRun;
use super::timers::{MAX_DURATION, parse_duration};
use crate::api::oam::StepStatus;
use crate::text::truncate;

/// Message of a suspension that has none, as KubeVela writes it.
const DEFAULT_MESSAGE: &str = "Suspended by field suspend";

/// Counts the steps that a user has resumed: these run, and have the reason of their suspension.
pub(super) fn note_resumed(run: &mut WorkflowRun<'_>) {
    let is_resumed = |status: &&StepStatus| status.is(StepPhase::Running) && status.has_reason(StepReason::Suspend);
    for index in 0..run.plan.len() {
        if let Some(status) = run.statuses.get(index).filter(is_resumed) {
            let id = run.statuses.id(index);
            run.store.suspensions.note_resumed(id, status.last_execution());
        }
    }
}

pub(super) fn suspend_step(run: &mut WorkflowRun<'_>, step: usize, message: &str, duration: Option<Duration>) {
    let id = run.id(step).to_owned();
    // Only the status knows the suspension if the process has died after the step went on, and before it recorded that.
    let is_known = run.store.suspensions.contains(&id);
    let shown = run
        .statuses
        .get(step)
        .filter(|status| !is_known && status.is_suspended());
    let shown = shown.and_then(StepStatus::last_execution);
    let begin = shown.unwrap_or(run.now);
    let until = duration.map(|duration| begin.checked_add(duration).unwrap_or(Timestamp::MAX));
    let message = if message.is_empty() { DEFAULT_MESSAGE } else { message };
    let state = (StepPhase::Suspending, Some(StepReason::Suspend));
    run.update(step, state, message, shown.is_none());
    let since = run.statuses.get(step).and_then(StepStatus::last_execution);
    run.store.attempts.forget(&id);
    run.store.suspensions.suspend(&id, since, until);
}

/// Returns true if a step stays suspended. Resumes it if its time has come.
pub(super) fn hold_or_resume(run: &mut WorkflowRun<'_>, step: usize) -> bool {
    if !run.statuses.get(step).is_some_and(StepStatus::is_suspended) {
        return false;
    }
    let id = run.statuses.id(step);
    let suspensions = &mut run.store.suspensions;
    let lasts = suspensions.lasts(id, run.now);
    if !lasts {
        suspensions.note_end(id);
    }
    lasts
}

/// Returns the result of a step of the type `suspend`.
pub(super) fn suspend_result(run: &WorkflowRun<'_>, step: usize) -> StepResult {
    if run.resumptions(step) > 0 {
        return StepResult::Succeeded {
            outputs: Vec::new(),
            message: String::new(),
        };
    }
    suspension(run, step).unwrap_or_else(|message| StepResult::Failed {
        reason: FailureReason::Execute,
        message,
    })
}

/// Returns the suspension that the properties and inputs of a step ask for.
fn suspension(run: &WorkflowRun<'_>, step: usize) -> Result<StepResult, String> {
    let inputs = run.inputs(step).map_err(|error| error.to_string())?;
    let properties = run.step(step).and_then(|step| step.properties.as_ref());
    let text = |field: &str| {
        let mut inputs = inputs.iter().rev();
        let input = inputs.find(|(key, _)| *key == field).map(|(_, value)| value);
        match input.or_else(|| properties?.get(field)) {
            None => Ok(""),
            Some(Value::String(text)) => Ok(text.as_str()),
            Some(_) => Err(format!("{field} of the suspension is not a text")),
        }
    };
    let duration = match text("duration")? {
        "" => None,
        duration => {
            let parsed = parse_duration(duration);
            let named = || truncate(duration, MAX_DURATION);
            Some(parsed.map_err(|error| format!("failed to parse duration {}: {error}", named()))?)
        }
    };
    Ok(StepResult::Suspended {
        message: text("message")?.to_owned(),
        duration,
    })
}
