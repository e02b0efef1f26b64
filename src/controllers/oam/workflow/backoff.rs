//! The time until steps that wait are looked at again.

use std::time::Duration;

use jiff::Timestamp;

use super::phase::StepPhase;
use super::run::WorkflowRun;
use super::store::Attempts;

/// Waits are not counted further.
pub(super) const MAX_WAITS: u32 = 15;
pub(super) const MIN_WAIT: Duration = Duration::from_secs(1);
/// Milliseconds of the first wait; each further wait doubles it.
const BASE_MILLIS: u64 = 50;

/// Schedules the next turn, and returns the time until then. `before` is as at the begin of the turn.
pub(super) fn schedule(run: &mut WorkflowRun<'_>, before: &Attempts) -> Duration {
    let interval = interval(run);
    let next = run.now.checked_add(interval).unwrap_or(Timestamp::MAX);
    let attempts = &mut run.store.attempts;
    attempts.schedule(next, run.is_due, before);
    let next_in = attempts.next_in(run.now);
    next_in.map_or(interval, |next_in| next_in.min(interval))
}

/// Returns the longest time to the next turn: by the step that has waited least often. An event of an object comes first.
fn interval(run: &WorkflowRun<'_>) -> Duration {
    let max = if run.leaves().any(|step| step.is(StepPhase::Failed)) {
        run.settings.max_failed_backoff
    } else {
        run.settings.max_wait_backoff
    };
    if !has_active(run) {
        // Steps that are pending go on when another step finishes.
        return max;
    }
    let waits = run.leaves().map(|step| run.store.attempts.waits(&step.id));
    let wait = waits.filter(|waits| *waits > 0).min().map_or(MIN_WAIT, |waits| {
        // Whole seconds, as in KubeVela.
        Duration::from_secs((BASE_MILLIS << waits.min(MAX_WAITS)) / 1000)
    });
    wait.max(MIN_WAIT).min(max)
}

/// Returns true if a step runs, or is tried again.
pub(super) fn has_active(run: &WorkflowRun<'_>) -> bool {
    run.leaves()
        .any(|step| (step.is(StepPhase::Running) || step.is(StepPhase::Failed)) && !run.has_finished(step))
}
