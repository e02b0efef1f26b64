//! Conditions and phases of the status, the failures that they show, and events: news only.

use std::collections::BTreeSet;

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::pass::Pass;
use crate::api::conditions::{find, upsert};
pub use crate::api::oam::PARSED;
use crate::api::oam::{Application, ApplicationStatus, Condition};
use crate::controllers::oam::parse::Unsupported;
use crate::runtime::events::Event;
use crate::text::sanitize;

pub const REVISION: &str = "Revision";
pub const POLICY: &str = "Policy";
pub const RENDER: &str = "Render";
pub const WORKFLOW: &str = "Workflow";
pub const STATE_KEEP: &str = "StateKeep";
pub const SYNCED: &str = "Synced";
pub const READY: &str = "Ready";

const AVAILABLE: &str = "Available";
const SUCCESS: &str = "ReconcileSuccess";
const ERROR: &str = "ReconcileError";
const DELETING: &str = "Deleting";

/// Phases of an Application.
pub mod phase {
    pub const STARTING: &str = "starting";
    pub const RENDERING: &str = "rendering";
    pub const GENERATING_POLICY: &str = "generatingPolicy";
    pub const RUNNING_WORKFLOW: &str = "runningWorkflow";
    pub const SUSPENDING: &str = "workflowSuspending";
    pub const TERMINATED: &str = "workflowTerminated";
    pub const FAILED: &str = "workflowFailed";
    pub const RUNNING: &str = "running";
    pub const UNHEALTHY: &str = "unhealthy";
    pub const DELETING: &str = "deleting";
}

/// A failure of a pass, as the status shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The condition that becomes false, besides Ready.
    pub condition: &'static str,
    /// The reason of the event.
    pub event: &'static str,
    /// The new phase, if it changes.
    pub phase: Option<&'static str>,
    pub message: String,
    /// The time until the next attempt if it can't succeed earlier; with backoff if `None`.
    pub retry_after: Option<std::time::Duration>,
}

impl Failure {
    pub fn new(condition: &'static str, event: &'static str, message: impl Into<String>) -> Self {
        Self {
            condition,
            event,
            phase: None,
            message: sanitize(&message.into()),
            retry_after: None,
        }
    }

    pub fn in_phase(mut self, phase: &'static str) -> Self {
        self.phase = Some(phase);
        self
    }

    pub fn retried_after(mut self, time: std::time::Duration) -> Self {
        self.retry_after = Some(time);
        self
    }

    /// A failure to read or write what records the state of an Application.
    pub fn synced(event: &'static str, message: impl Into<String>) -> Self {
        Self::new(SYNCED, event, message)
    }
}

/// Sets a condition to true. Returns true if it was not.
pub fn succeed(status: &mut ApplicationStatus, type_: &str, now: Timestamp) -> bool {
    let reason = if type_ == READY { SUCCESS } else { AVAILABLE };
    set(status, type_, "True", reason, "", now)
}

/// Sets the conditions of a failure.
pub fn fail(status: &mut ApplicationStatus, failure: &Failure, now: Timestamp) {
    set(status, failure.condition, "False", ERROR, &failure.message, now);
    set(status, READY, "False", ERROR, &failure.message, now);
    if let Some(phase) = failure.phase {
        phase.clone_into(&mut status.phase);
    }
    start(status);
}

/// Shows that a generation is not supported. Returns true if that is news.
pub fn refuse(status: &mut ApplicationStatus, generation: Option<i64>, found: &[Unsupported], now: Timestamp) -> bool {
    let texts: BTreeSet<String> = found.iter().map(ToString::to_string).collect();
    let texts: Vec<String> = texts.into_iter().collect();
    let message = format!("not supported by this controller: {}", texts.join(", "));
    let failure = Failure::new(PARSED, "FailedParse", message).in_phase(phase::RENDERING);
    let known = find(&status.conditions, PARSED);
    let is_known = known.is_some_and(|known| known.status == "False" && known.message == failure.message);
    if status.observed_generation == generation && !status.phase.is_empty() {
        fail_condition(status, PARSED, &failure.message, now);
    } else {
        fail(status, &failure, now);
    }
    status.observed_generation = generation;
    !is_known
}

/// Shows that the first pass has begun. Without a phase, `vela up --wait` would never end.
pub fn start(status: &mut ApplicationStatus) {
    if status.phase.is_empty() {
        phase::STARTING.clone_into(&mut status.phase);
    }
}

/// Sets a single condition to false.
pub fn fail_condition(status: &mut ApplicationStatus, type_: &str, message: &str, now: Timestamp) {
    set(status, type_, "False", ERROR, message, now);
}

/// Shows what a deletion waits for.
pub fn deleting(status: &mut ApplicationStatus, message: &str, now: Timestamp) {
    set(status, READY, "False", DELETING, message, now);
}

pub fn remove(status: &mut ApplicationStatus, type_: &str) {
    status.conditions.retain(|condition| condition.type_ != type_);
}

/// Removes the conditions that a run of the workflow sets.
pub fn remove_after_render(status: &mut ApplicationStatus) {
    status
        .conditions
        .retain(|condition| [PARSED, REVISION, POLICY, RENDER].contains(&condition.type_.as_str()));
}

fn set(status: &mut ApplicationStatus, type_: &str, value: &str, reason: &str, message: &str, now: Timestamp) -> bool {
    let condition = Condition {
        type_: type_.to_owned(),
        status: value.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: None,
    };
    upsert(&mut status.conditions, condition, Time(now))
}

impl Pass<'_> {
    /// Publishes a normal event after the status.
    pub(super) fn announce(&mut self, reason: &str, note: &str) {
        self.events.push(Event::normal(reason, note));
    }

    /// Publishes a warning after the status, unless it was published before.
    pub(super) fn warn(&mut self, reason: &str, note: &str) {
        if self.memory.lock().is_due(reason, note) {
            self.events.push(Event::warning(reason, note));
        }
    }

    pub(super) async fn publish_events(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        for (reason, note) in std::mem::take(&mut self.notices) {
            // A pass that ended earlier has published none.
            if self.memory.lock().is_news(reason, &note) {
                events.push(Event::warning(reason, note));
            }
        }
        let publisher = &self.reconciler.events;
        let metadata = &self.app.metadata;
        let published = events
            .into_iter()
            .map(|event| publisher.publish::<Application>(metadata, "Reconcile", event));
        join_all(published).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_that_is_not_supported_does_not_seem_to_run() {
        let now = Timestamp::UNIX_EPOCH;
        let found = [Unsupported::Policy {
            name: "old".to_owned(),
            type_: "env-binding".to_owned(),
        }];
        let mut status = ApplicationStatus {
            phase: phase::RUNNING.to_owned(),
            observed_generation: Some(1),
            ..ApplicationStatus::default()
        };
        succeed(&mut status, READY, now);
        let shown = |status: &ApplicationStatus| {
            let conditions = status.conditions.iter();
            let conditions = conditions.map(|one| (one.type_.clone(), one.status.clone()));
            (status.phase.clone(), conditions.collect::<Vec<_>>())
        };
        let is = |type_: &str, value: &str| (type_.to_owned(), value.to_owned());

        // Another controller runs what this one does not support.
        let mut elsewhere = status.clone();
        assert!(refuse(&mut elsewhere, Some(1), &found, now));
        let expected = vec![is(READY, "True"), is(PARSED, "False")];
        assert_eq!(shown(&elsewhere), (phase::RUNNING.to_owned(), expected));

        let refused = (
            phase::RENDERING.to_owned(),
            vec![is(READY, "False"), is(PARSED, "False")],
        );
        assert!(refuse(&mut status, Some(2), &found, now));
        assert_eq!((shown(&status), status.observed_generation), (refused.clone(), Some(2)));
        assert!(!refuse(&mut status, Some(2), &found, now));
        assert_eq!(shown(&status), refused);
    }

    #[test]
    fn an_application_whose_first_pass_fails_early_is_starting() {
        let mut status = ApplicationStatus::default();
        fail(
            &mut status,
            &Failure::synced("FailedApply", "no rights"),
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(status.phase, phase::STARTING);
        let failure = Failure::new(PARSED, "FailedParse", "no such type").in_phase(phase::RENDERING);
        fail(&mut status, &failure, Timestamp::UNIX_EPOCH);
        fail(
            &mut status,
            &Failure::synced("FailedApply", "no rights"),
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(status.phase, phase::RENDERING);
    }
}
