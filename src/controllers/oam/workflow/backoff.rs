//! The time until steps that wait are looked at again.

use std::time::Duration;

use super::interface::WorkflowSettings;
use super::phase::StepPhase;
use super::store::Attempts;
use crate::api::oam::StepStatus;

/// Waits are not counted further.
pub(super) const MAX_WAITS: u32 = 15;
pub(super) const MIN_WAIT: Duration = Duration::from_secs(1);
/// Milliseconds of the first wait; each further wait doubles it.
const BASE_MILLIS: u64 = 50;

/// Returns the longest time to the next turn: by the step that has waited least often. An event of an object comes first.
/// `steps` has no groups; `is_finished` tells which of them have ended.
pub(super) fn interval<'a>(
    steps: impl Iterator<Item = &'a StepStatus> + Clone,
    is_finished: impl Fn(&StepStatus) -> bool,
    attempts: &Attempts,
    settings: &WorkflowSettings,
) -> Duration {
    let max = if steps.clone().any(|step| step.is(StepPhase::Failed)) {
        settings.max_failed_backoff
    } else {
        settings.max_wait_backoff
    };
    if !has_active(steps.clone(), is_finished) {
        // Steps that are pending go on when another step finishes.
        return max;
    }
    let waits = steps
        .map(|step| attempts.waits(&step.id))
        .filter(|waits| *waits > 0)
        .min();
    let wait = waits.map_or(MIN_WAIT, |waits| {
        // Whole seconds, as in KubeVela.
        Duration::from_secs((BASE_MILLIS << waits.min(MAX_WAITS)) / 1000)
    });
    wait.max(MIN_WAIT).min(max)
}

/// Returns true if a step runs, or is tried again.
pub(super) fn has_active<'a>(
    mut steps: impl Iterator<Item = &'a StepStatus>,
    is_finished: impl Fn(&StepStatus) -> bool,
) -> bool {
    steps.any(|step| (step.is(StepPhase::Running) || step.is(StepPhase::Failed)) && !is_finished(step))
}
