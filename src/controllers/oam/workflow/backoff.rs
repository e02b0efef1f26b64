//! The time until steps that wait are looked at again.

use std::time::Duration;

use super::interface::Settings;
use super::phase::StepPhase;
use super::store::Store;
use crate::api::oam::StepStatus;

/// Waits are not counted further.
pub(super) const MAX_WAITS: u32 = 15;
const MIN_WAIT: Duration = Duration::from_secs(1);
/// Milliseconds of the first wait; each further one doubles it.
const BASE_MILLIS: u64 = 50;

/// Returns the longest time to the next turn: by the step that has waited least often. An event of an object comes first.
pub(super) fn interval(steps: &[StepStatus], store: &Store, settings: &Settings) -> Duration {
    let has_failed = steps.iter().any(|step| step.is(StepPhase::Failed));
    let max = if has_failed {
        settings.max_failed_backoff
    } else {
        settings.max_wait_backoff
    };
    if !steps
        .iter()
        .any(|step| step.is(StepPhase::Running) || step.is(StepPhase::Failed))
    {
        // Steps that are pending go on when another step finishes.
        return max;
    }
    let waits = steps
        .iter()
        .map(|step| store.waits(&step.id))
        .filter(|waits| *waits > 0)
        .min();
    let wait = waits.map_or(MIN_WAIT, |waits| {
        // Whole seconds, as in KubeVela.
        Duration::from_secs((BASE_MILLIS << waits.min(MAX_WAITS)) / 1000)
    });
    wait.max(MIN_WAIT).min(max)
}
