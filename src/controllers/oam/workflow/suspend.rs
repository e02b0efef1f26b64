//! Steps that suspend the workflow: steps of the type `suspend`, and steps whose template does.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::interface::{FailureReason, StepResult};
use super::phase::{StepPhase, StepReason};
use super::timers::{MAX_DURATION, parse_duration};
use super::turn::WorkflowTurn;
use crate::api::oam::StepStatus;
use crate::text::truncate;

/// Message of a suspension that has none, as KubeVela writes it.
const DEFAULT_MESSAGE: &str = "Suspended by field suspend";

impl WorkflowTurn<'_> {
    /// Returns the number of suspensions of a step that are over. Its template goes on after as many.
    #[must_use]
    pub fn resumptions(&self, step: usize) -> u32 {
        self.store.suspensions.resumptions(self.statuses.id(step))
    }

    /// Counts the steps that a user has resumed: these run, and have the reason of their suspension.
    pub(super) fn note_resumed(&mut self) {
        for (index, _) in self.plan.steps() {
            let status = self.statuses.get(index);
            let is_resumed =
                status.is_some_and(|status| status.is(StepPhase::Running) && status.has_reason(StepReason::Suspend));
            if is_resumed {
                let since = status.and_then(StepStatus::last_execution);
                self.store.suspensions.note_resumed(self.statuses.id(index), since);
            }
        }
    }

    pub(super) fn suspend(&mut self, step: usize, message: &str, duration: Option<Duration>) {
        let id = self.statuses.id(step).to_owned();
        // Only the status knows the suspension if the process has died after the step went on, and before it recorded that.
        let is_known = self.store.suspensions.contains(&id);
        let shown = self
            .statuses
            .get(step)
            .filter(|status| !is_known && status.is_suspended());
        let shown = shown.and_then(StepStatus::last_execution);
        let begin = shown.unwrap_or(self.now);
        let until = duration.map(|duration| begin.checked_add(duration).unwrap_or(Timestamp::MAX));
        let message = if message.is_empty() { DEFAULT_MESSAGE } else { message };
        let state = (StepPhase::Suspending, Some(StepReason::Suspend));
        self.set(step, state, message, shown.is_none());
        let since = self.statuses.get(step).and_then(StepStatus::last_execution);
        self.store.attempts.forget(&id);
        self.store.suspensions.suspend(&id, since, until);
    }

    /// Returns true if a step stays suspended. Resumes it if its time has come.
    pub(super) fn hold_or_resume(&mut self, step: usize) -> bool {
        if !self.statuses.get(step).is_some_and(|status| status.is_suspended()) {
            return false;
        }
        let id = self.statuses.id(step);
        let lasts = self.store.suspensions.lasts(id, self.now);
        if !lasts {
            self.store.suspensions.note_end(id);
        }
        lasts
    }

    /// Runs a step of the type `suspend`.
    pub(super) fn run_suspend(&mut self, step: usize) {
        let result = if self.resumptions(step) > 0 {
            StepResult::Succeeded {
                outputs: Vec::new(),
                message: String::new(),
            }
        } else {
            self.suspension(step).unwrap_or_else(|message| StepResult::Failed {
                reason: FailureReason::Execute,
                message,
            })
        };
        self.apply(step, result);
    }

    /// Returns the suspension that the properties and inputs of a step ask for.
    fn suspension(&self, step: usize) -> Result<StepResult, String> {
        let inputs = self.inputs(step).map_err(|error| error.to_string())?;
        let properties = self.step(step).and_then(|step| step.properties.as_ref());
        let text = |field: &str| {
            let input = inputs
                .iter()
                .rev()
                .find(|(key, _)| *key == field)
                .map(|(_, value)| value);
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
}
