pub(super) mod services;
pub(super) mod status;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::failure::Failure;
use crate::api::oam::{ApplicationStatus, AppliedResource, LatestRevision, WorkflowStatus};
use services::Services;

/// A change of conditions or phase, in the order in which stages come to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OutcomeChange {
    /// A stage has succeeded. An event says so, if it is news.
    Succeeded {
        condition: &'static str,
        reason: &'static str,
        note: &'static str,
    },
    Failed {
        condition: &'static str,
        message: String,
    },
    /// Ready says what a deletion waits for.
    Deleting(String),
    Removed(&'static str),
    /// A new run begins: the conditions that a run sets are removed.
    Restarted,
    Phase(&'static str),
}

#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) before: ApplicationStatus,
    pub(super) changes: Vec<OutcomeChange>,
    pub(super) observed_generation: Option<i64>,
    pub(super) latest_revision: Option<LatestRevision>,
    pub(super) workflow: Option<WorkflowStatus>,
    /// The time at which a workflow that has finished starts again.
    pub(super) restart_at: Option<Timestamp>,
    pub(super) services: Services,
    pub(super) applied_resources: Vec<AppliedResource>,
    /// Warnings by reason, for events.
    pub(super) warnings: Vec<(&'static str, String)>,
    /// Warnings about a spec that is deployed all the same, by reason; empty if there is none.
    pub(super) notices: BTreeMap<&'static str, String>,
    pub(super) next: Option<Duration>,
    pub(super) is_waiting_for_deletion: bool,
    /// All stages have succeeded, but for what conditions say.
    pub(super) is_complete: bool,
}

impl Outcome {
    pub(super) fn of(status: &ApplicationStatus) -> Self {
        Self {
            before: status.clone(),
            changes: Vec::new(),
            observed_generation: status.observed_generation,
            latest_revision: status.latest_revision.clone(),
            workflow: status.workflow.clone(),
            restart_at: status.workflow_restart_scheduled_at.as_ref().map(|Time(time)| *time),
            services: Services::new(status.services.clone()),
            applied_resources: status.applied_resources.clone(),
            warnings: Vec::new(),
            notices: BTreeMap::new(),
            next: None,
            is_waiting_for_deletion: false,
            is_complete: false,
        }
    }

    pub(super) fn succeeded(&mut self, condition: &'static str, reason: &'static str, note: &'static str) {
        self.changes.push(OutcomeChange::Succeeded {
            condition,
            reason,
            note,
        });
    }

    pub(super) fn in_phase(&mut self, phase: &'static str) {
        self.changes.push(OutcomeChange::Phase(phase));
    }

    pub(super) fn warn(&mut self, reason: &'static str, note: impl Into<String>) {
        self.warnings.push((reason, note.into()));
    }

    pub(super) fn warn_of(&mut self, failure: &Failure) {
        self.warn(failure.kind.reason(), failure.message.clone());
    }

    pub(super) fn look_again_in(&mut self, delay: Duration) {
        self.next = Some(self.next.map_or(delay, |next| next.min(delay)));
    }

    pub(super) fn scheduled_restart(&self) -> Option<Timestamp> {
        let time = self.restart_at?;
        let workflow = self.workflow.as_ref().filter(|workflow| workflow.finished)?;
        let is_later = workflow.end_time.as_ref().is_none_or(|Time(end)| time > *end);
        is_later.then_some(time)
    }

    pub(super) fn is_restart_due(&self, now: Timestamp) -> bool {
        self.scheduled_restart().is_some_and(|time| time <= now)
    }
}
