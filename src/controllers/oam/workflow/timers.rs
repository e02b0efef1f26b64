//! Times at which a step fails or is resumed, whatever happens.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::phase::StepPhase;
use super::round::Visit;
use super::store::until;
use super::turn::WorkflowTurn;
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

impl WorkflowTurn<'_> {
    /// Returns the timeout of a step. It counts from the first visit; KubeVela looks at it from the second visit on.
    pub(super) fn timeout(&self, step: usize) -> Timeout {
        match self.deadline(step) {
            None => Timeout::Open,
            Some(Err(error)) => Timeout::Invalid(error),
            Some(Ok(deadline)) if deadline <= self.now => Timeout::Passed,
            Some(Ok(_)) => Timeout::Open,
        }
    }

    fn deadline(&self, step: usize) -> Option<Result<Timestamp, String>> {
        let timeout = self.step(step).map(|step| step.timeout.as_str());
        let timeout = timeout.filter(|timeout| !timeout.is_empty())?;
        let Time(begin) = self.statuses.get(step)?.first_execute_time.as_ref()?;
        let end = |duration| begin.checked_add(duration).unwrap_or(Timestamp::MAX);
        Some(parse_duration(timeout).map(end))
    }

    /// Returns the time until the next step fails or is resumed, and zero if a step was pending and has become ready.
    pub(super) fn next_timer(&mut self) -> Option<Duration> {
        let pending = std::mem::take(&mut self.pending);
        if pending
            .into_iter()
            .any(|step| self.is_outstanding(step) && self.pending_on(step).is_none())
        {
            return Some(Duration::ZERO);
        }
        let timers = (0..self.plan.len()).filter_map(|step| self.timer(step));
        timers.min().map(|timer| timer.min(MAX_WAIT))
    }

    fn timer(&self, step: usize) -> Option<Duration> {
        let status = self.statuses.get(step).filter(|status| !self.has_finished(status))?;
        let is_outstanding = self.is_outstanding(step);
        if is_outstanding && status.is(StepPhase::Pending) {
            return None;
        }
        let next_run = self.next_run(status).filter(|_| is_outstanding);
        let resumption = self
            .store
            .suspensions
            .until(&status.id)
            .filter(|_| status.is_suspended());
        // If failures suspend, a timeout is tried again at the back-off.
        let is_met = |deadline: &Timestamp| *deadline > self.now || !status.is(StepPhase::Failed);
        let deadline = self.deadline(step).and_then(Result::ok).filter(is_met);
        let timers = [resumption, deadline, next_run].into_iter().flatten();
        // A step that is not visited does not meet a time that has passed.
        let timers = timers.filter(|time| !is_outstanding || *time > self.now);
        timers.min().map(|time| until(time, self.now))
    }

    fn is_outstanding(&self, step: usize) -> bool {
        matches!(self.visits.get(step), Some(Visit::Outstanding))
    }
}

/// Parses a duration as Go does. A negative duration is over at once.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = match text.strip_prefix('-') {
        Some(positive) => cron::parse_duration(positive).map(|_| Duration::ZERO),
        None => cron::parse_duration(text),
    };
    duration.ok_or_else(|| format!("time: invalid duration {:?}", truncate(text, MAX_DURATION)))
}
