//! Times at which a step fails or is resumed, whatever happens.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::phase::StepPhase;
use super::run::WorkflowRun;
use super::store::until;
use crate::api::oam::StepStatus;
use crate::runtime::cron;
use crate::text::truncate;

/// Longest time to the next turn. A turn that comes too early does nothing.
const MAX_WAIT: Duration = Duration::from_hours(24);
/// Largest part of an invalid duration in a message.
pub(super) const MAX_DURATION: usize = 64;

/// The timeout of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Timeout {
    /// There is none, or it has not passed.
    Open,
    Passed,
    /// The duration is invalid.
    Invalid(String),
}

/// Returns the timeout of a step. It counts from the first visit; KubeVela looks at it from the second visit on.
pub(super) fn timeout(run: &WorkflowRun<'_>, step: usize) -> Timeout {
    match deadline(run, step) {
        None => Timeout::Open,
        Some(Err(error)) => Timeout::Invalid(error),
        Some(Ok(deadline)) if deadline <= run.now => Timeout::Passed,
        Some(Ok(_)) => Timeout::Open,
    }
}

fn deadline(run: &WorkflowRun<'_>, step: usize) -> Option<Result<Timestamp, String>> {
    let timeout = run.step(step).map(|step| step.timeout.as_str());
    let timeout = timeout.filter(|timeout| !timeout.is_empty())?;
    let Time(begin) = run.statuses.get(step)?.first_execute_time.as_ref()?;
    let end = |duration| begin.checked_add(duration).unwrap_or(Timestamp::MAX);
    Some(parse_duration(timeout).map(end))
}

/// Returns the time before which a step that waits must not run again. A template that applies an object and then waits
/// would otherwise start itself without end by the event of its own write.
pub(super) fn next_run(run: &WorkflowRun<'_>, status: &StepStatus) -> Option<Timestamp> {
    let next_run = || run.store.attempts.next_run(&status.id, run.now);
    status.is(StepPhase::Running).then(next_run).flatten()
}

/// Returns the time until the next step fails or is resumed.
pub(super) fn next_timer(run: &WorkflowRun<'_>, is_outstanding: impl Fn(usize) -> bool) -> Option<Duration> {
    let timers = (0..run.plan.len()).filter_map(|step| timer(run, step, is_outstanding(step)));
    timers.min().map(|timer| timer.min(MAX_WAIT))
}

fn timer(run: &WorkflowRun<'_>, step: usize, is_outstanding: bool) -> Option<Duration> {
    let WorkflowRun { now, store, .. } = run;
    let status = run.statuses.get(step).filter(|status| !run.has_finished(status))?;
    if is_outstanding && status.is(StepPhase::Pending) {
        return None;
    }
    let next_run = next_run(run, status).filter(|_| is_outstanding);
    let resumption = store.suspensions.until(&status.id).filter(|_| status.is_suspended());
    // If failures suspend, a timeout is tried again at the back-off.
    let is_met = |deadline: &Timestamp| deadline > now || !status.is(StepPhase::Failed);
    let deadline = deadline(run, step).and_then(Result::ok).filter(is_met);
    let timers = [resumption, deadline, next_run].into_iter().flatten();
    // A step that is not visited does not meet a time that has passed.
    let timers = timers.filter(|time| !is_outstanding || time > now);
    timers.min().map(|time| until(time, *now))
}

/// Parses a duration as Go does. A negative duration is over at once.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = match text.strip_prefix('-') {
        Some(positive) => cron::parse_duration(positive).map(|_| Duration::ZERO),
        None => cron::parse_duration(text),
    };
    duration.ok_or_else(|| format!("time: invalid duration {:?}", truncate(text, MAX_DURATION)))
}
