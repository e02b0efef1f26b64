//! The state of a step group, from its sub-steps together.

use super::phase::{StepPhase, StepReason};
use super::round::GroupEnd;
use super::turn::WorkflowTurn;
use crate::api::oam::StepStatus;

/// Reasons that a group takes from its sub-steps, in this order.
const REASONS: [StepReason; 4] = [
    StepReason::FailedAfterRetries,
    StepReason::Timeout,
    StepReason::Action,
    StepReason::Terminate,
];

type GroupState = (StepPhase, Option<StepReason>);

impl WorkflowTurn<'_> {
    /// Updates a group whose sub-steps were visited.
    pub(super) fn close_group(&mut self, group: usize, end: Option<GroupEnd>) {
        match end {
            Some(GroupEnd::Skipped { message }) => self.skip(group, &message),
            Some(GroupEnd::TimedOut) => self.fail(group, StepReason::Timeout, ""),
            None => {
                let state = self.group_state(group);
                self.statuses.update(&self.plan, group, state, "", false);
                if self.is_finished(group) {
                    self.finish(group, Vec::new());
                }
            }
        }
    }

    /// Updates groups with sub-steps that were not recorded. A group that was not begun before stays so.
    pub(super) fn update_open_groups(&mut self) {
        for group in self.open_groups() {
            let has_state = |status: &StepStatus| !status.phase.is_empty();
            let members = self.members(group);
            let begun = members.iter().copied().chain([group]);
            if begun.filter_map(|step| self.statuses.get(step)).any(has_state) {
                let state = self.group_state(group);
                self.statuses.update(&self.plan, group, state, "", false);
            }
        }
    }

    fn members(&self, group: usize) -> Vec<usize> {
        let members = self.plan.get(group).map(|planned| planned.members.clone());
        members.unwrap_or_default()
    }

    fn group_state(&self, group: usize) -> GroupState {
        use StepPhase::{Failed, Pending, Running, Skipped, Succeeded, Suspending};
        let members = self.members(group);
        let statuses: Vec<&StepStatus> = members
            .iter()
            .filter_map(|member| self.statuses.get(*member))
            .filter(|status| !status.phase.is_empty())
            .collect();
        if statuses.len() < members.len() {
            return (Running, None);
        }
        let mut phases = [Suspending, Running, Pending, Failed].into_iter();
        match phases.find(|phase| statuses.iter().any(|status| status.is(*phase))) {
            Some(Failed) => (Failed, self.group_reason(&statuses)),
            Some(phase) => (phase, None),
            None if !statuses.is_empty() && statuses.iter().all(|status| status.is(Skipped)) => {
                (Skipped, Some(StepReason::Skip))
            }
            None => (Succeeded, None),
        }
    }

    /// Returns the reason of a failed group. It has none while a sub-step is tried again.
    ///
    /// KubeVela has none either for a sub-step that failed with `Rendering`, `Input`, `Output` or `ProcessParameter`; its
    /// workflow never ends then.
    fn group_reason(&self, members: &[&StepStatus]) -> Option<StepReason> {
        let failed = || members.iter().filter(|status| status.is(StepPhase::Failed));
        if failed().any(|status| !self.has_finished(status)) && !self.settings.suspend_on_failure {
            return None;
        }
        let has = |reason: &StepReason| failed().any(|status| status.has_reason(*reason));
        let first = failed().find_map(|status| StepReason::parse(&status.reason));
        REASONS.into_iter().find(has).or(first)
    }
}
