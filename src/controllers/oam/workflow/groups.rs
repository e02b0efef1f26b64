//! The state of a step group, from its sub-steps together.

use super::phase::{StepPhase, StepReason, StepState};
use super::results::{end_step, fail_step, skip_step};
use super::run::WorkflowRun;
use crate::api::oam::StepStatus;

/// Reasons that a group takes from its sub-steps, in this order.
const REASONS: [StepReason; 4] = [
    StepReason::FailedAfterRetries,
    StepReason::Timeout,
    StepReason::Action,
    StepReason::Terminate,
];

/// The end of a group that its sub-steps share.
#[derive(Clone, Debug)]
pub(super) enum GroupEnd {
    Skipped { message: String },
    TimedOut,
}

/// Updates a group whose sub-steps were visited.
pub(super) fn close_group(run: &mut WorkflowRun<'_>, group: usize, end: Option<GroupEnd>) {
    match end {
        Some(GroupEnd::Skipped { message }) => skip_step(run, group, &message),
        Some(GroupEnd::TimedOut) => fail_step(run, group, StepReason::Timeout, ""),
        None => {
            let state = group_state(run, group);
            run.update(group, state, "", false);
            if run.is_finished(group) {
                end_step(run, group, Vec::new());
            }
        }
    }
}

/// Updates groups with sub-steps that were not recorded. A group that was not begun before stays so.
pub(super) fn update_open_groups(run: &mut WorkflowRun<'_>, groups: Vec<usize>) {
    for group in groups {
        let has_state = |status: &StepStatus| !status.phase.is_empty();
        let begun = run.plan.members(group).iter().copied().chain([group]);
        if begun.filter_map(|step| run.statuses.get(step)).any(has_state) {
            let state = group_state(run, group);
            run.update(group, state, "", false);
        }
    }
}

fn group_state(run: &WorkflowRun<'_>, group: usize) -> StepState {
    use StepPhase::{Failed, Pending, Running, Skipped, Succeeded, Suspending};
    let members = run.plan.members(group);
    let statuses: Vec<&StepStatus> = members
        .iter()
        .filter_map(|member| run.statuses.get(*member))
        .filter(|status| !status.phase.is_empty())
        .collect();
    if statuses.len() < members.len() {
        return (Running, None);
    }
    let mut phases = [Suspending, Running, Pending, Failed].into_iter();
    match phases.find(|phase| statuses.iter().any(|status| status.is(*phase))) {
        Some(Failed) => (Failed, group_reason(run, &statuses)),
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
fn group_reason(run: &WorkflowRun<'_>, members: &[&StepStatus]) -> Option<StepReason> {
    let failed = || members.iter().filter(|status| status.is(StepPhase::Failed));
    if failed().any(|status| !run.has_finished(status)) && !run.settings.suspend_on_failure {
        return None;
    }
    let has = |reason: &StepReason| failed().any(|status| status.has_reason(*reason));
    let first = failed().find_map(|status| StepReason::parse(&status.reason));
    REASONS.into_iter().find(has).or(first)
}
