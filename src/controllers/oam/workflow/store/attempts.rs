//! Counters of waits and failures, and the time of the next attempt. A restart of the process keeps them.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::controllers::oam::workflow::backoff::{MAX_WAITS, MIN_WAIT};
use crate::text::truncate;

/// Bytes of a message that are compared. The messages of all steps fit into the ConfigMap.
const MAX_MESSAGE: usize = 128;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Attempts {
    /// Time of the next turn, unless an event comes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Timestamp>,
    /// By id of the step.
    steps: BTreeMap<String, StepAttempts>,
    /// Times of the last runs of steps that have waited then and may have effects. Only in memory: they change with each run.
    #[serde(skip)]
    last_runs: BTreeMap<String, Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StepAttempts {
    failures: u32,
    waits: u32,
    message: String,
}

impl Attempts {
    /// Returns the counters of steps that have failed. Waits alone are not stored: after a restart, steps that wait are looked
    /// at sooner, which costs less than writes while nothing happens.
    pub fn worth_storing(&self) -> Option<Self> {
        let mut attempts = self.clone();
        attempts.steps.retain(|_, step| step.failures > 0);
        (!attempts.steps.is_empty()).then_some(attempts)
    }

    pub fn non_empty(&self) -> Option<Self> {
        (!self.steps.is_empty()).then(|| self.clone())
    }

    pub fn waits(&self, id: &str) -> u32 {
        self.steps.get(id).map_or(0, |step| step.waits)
    }

    /// Returns true if the scheduled time has come. No turn has set a time further away than `longest`, or the clock
    /// was changed.
    pub fn is_due(&self, now: Timestamp, longest: Duration) -> bool {
        let next = self.next.map(|next| until(next, now));
        next.is_none_or(|wait| wait.is_zero() || wait > longest)
    }

    /// Returns the time left until the next turn, if one is scheduled in the future.
    pub fn next_in(&self, now: Timestamp) -> Option<Duration> {
        let wait = until(self.next?, now);
        (!wait.is_zero()).then_some(wait)
    }

    /// Counts a wait or failed attempt, from zero if the message differs from the message before. Turns that an event
    /// has started early, which are not due, are not counted.
    pub fn count_wait(&mut self, id: &str, message: &str, is_due: bool) {
        let message = truncate(message, MAX_MESSAGE);
        match self.steps.get_mut(id) {
            Some(step) if step.message == message => {
                if is_due {
                    step.waits = step.waits.saturating_add(1).min(MAX_WAITS);
                }
            }
            Some(step) => {
                step.waits = 0;
                step.message = message;
            }
            None => {
                let step = StepAttempts {
                    message,
                    ..StepAttempts::default()
                };
                self.steps.insert(id.to_owned(), step);
            }
        }
    }

    /// Counts a failure and returns the number of failures so far.
    pub fn count_failure(&mut self, id: &str) -> u32 {
        let step = self.steps.entry(id.to_owned()).or_default();
        step.failures = step.failures.saturating_add(1);
        step.failures
    }

    pub fn note_run(&mut self, id: &str, now: Timestamp) {
        self.last_runs.insert(id.to_owned(), now);
    }

    /// Returns the time before which a step must not run again, if that is in the future.
    pub fn next_run(&self, id: &str, now: Timestamp) -> Option<Timestamp> {
        let next = self.last_runs.get(id)?.checked_add(MIN_WAIT).ok()?;
        let wait = until(next, now);
        // A longer wait means that the clock was changed.
        (!wait.is_zero() && wait <= MIN_WAIT).then_some(next)
    }

    pub fn forget(&mut self, id: &str) {
        self.steps.remove(id);
        self.last_runs.remove(id);
    }

    pub fn retain(&mut self, ids: &HashSet<&str>) {
        self.steps.retain(|id, _| ids.contains(id.as_str()));
        self.last_runs.retain(|id, _| ids.contains(id.as_str()));
    }

    /// Sets the time of the next turn. It changes only with the counters, so that a turn without news writes nothing. A turn
    /// that is not due doesn't put it off: events of one step must not delay the attempts of another.
    pub fn schedule(&mut self, next: Timestamp, is_due: bool, before: &Self) {
        if self.steps.is_empty() {
            self.next = None;
        } else if self.steps != before.steps || self.next.is_none() {
            let scheduled = self.next.filter(|_| !is_due);
            self.next = Some(scheduled.map_or(next, |scheduled| scheduled.min(next)));
        }
    }
}

/// Returns the time from `now` to `next`, zero if it has passed.
pub fn until(next: Timestamp, now: Timestamp) -> Duration {
    next.duration_since(now).try_into().unwrap_or_default()
}
