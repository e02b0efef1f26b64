//! Decides what to do with a repository: by spec, record and time, not by the status, which users may edit.

mod polls;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

pub use polls::{due_look, handled_poll, is_poll_due, is_polled, until_look};

use super::spec::RepositorySpec;
use crate::catalog::{Handled, PARTIAL_PREFIX, Record};
use crate::runtime::workqueue::Backoff;

/// Bounds the delay of a sync after a step of the wall clock: timers are monotonic. Each reconcile reads the database.
pub const MAX_REQUEUE: Duration = Duration::from_hours(1);

/// Maximum delay of a reconcile after its tick and jitter.
const MAX_LATENESS: Duration = Duration::from_secs(60);

/// Backoff of transient failures, also across ticks.
pub const SYNC_BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(5),
    cap: Duration::from_secs(15 * 60),
};

/// Failed syncs in a row after which a repository is slow.
const SLOW_AFTER: u32 = 3;

/// Time without a response from which on a failed sync counts for [`SLOW_AFTER`].
const SLOW_SYNC: Duration = Duration::from_secs(60);

/// Upper bound of a stored `Retry-After`, which the fetcher has bounded already.
const MAX_RETRY_AFTER: SignedDuration = SignedDuration::from_mins(15);

/// The cron trigger polls twice a second. The timer fires after it, so that a tick causes one reconcile.
const TRIGGER_LATENCY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// Sends conditional requests, and skips entries that are known to be unchanged.
    Conditional,
    /// Fetches everything and compares all rows. Used for repair and after changes on our side.
    Complete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncDecision {
    Suspended,
    Wait,
    Sync(SyncMode),
}

#[must_use]
pub fn decide(spec: &RepositorySpec, record: Option<&Record>, now: Timestamp) -> SyncDecision {
    if spec.suspended {
        return SyncDecision::Suspended;
    }
    let Some(record) = record else {
        return SyncDecision::Sync(SyncMode::Complete);
    };
    if is_changed(spec, record) {
        return SyncDecision::Sync(SyncMode::Complete);
    }
    if next_retry(record, now).is_some_and(|retry| retry > now) {
        return SyncDecision::Wait;
    }
    if needs_complete_sync(spec, record) {
        return SyncDecision::Sync(SyncMode::Complete);
    }
    if is_due(spec, record, now) || has_more(record) || is_poll_due(spec, record, now) {
        SyncDecision::Sync(SyncMode::Conditional)
    } else {
        SyncDecision::Wait
    }
}

/// Returns the oldest acceptable fetch time. Responses fetched earlier are too stale for this sync. A scheduled sync
/// accepts responses since its tick, a new repository responses since it was `created`, any other sync only new ones.
#[must_use]
pub fn fresh_since(
    spec: &RepositorySpec,
    record: Option<&Record>,
    created: Option<Timestamp>,
    mode: SyncMode,
    now: Timestamp,
) -> Timestamp {
    let since = match (mode, record) {
        // A requested sync needs a new response, regardless of the age of the object.
        (_, None) if !is_requested(spec, &Handled::default()) => created,
        // An earlier response may precede the push.
        (_, Some(record)) if is_poll_due(spec, record, now) => None,
        (SyncMode::Conditional, Some(record)) if record.state.ready == Some(true) => {
            let last = record.last_attempt.filter(|last| *last <= now);
            last.and_then(|last| spec.cron.next_after(last))
        }
        _ => None,
    };
    since.map_or(now, |since| since.min(now))
}

/// Returns true if a user has changed or requested something, which no backoff delays.
fn is_changed(spec: &RepositorySpec, record: &Record) -> bool {
    let refused = record.refused.as_ref();
    let confirms_shrink =
        spec.allow_shrink.is_some() && refused.is_some_and(|refused| refused.confirm == spec.allow_shrink);
    is_requested(spec, &record.handled)
        || confirms_shrink
        || record.spec_hash.as_deref() != Some(spec.spec_hash.as_str())
}

fn needs_complete_sync(spec: &RepositorySpec, record: &Record) -> bool {
    match record.refused.as_ref() {
        // The refusal holds for the same index; the next tick checks for a new one.
        Some(refused) => refused.inputs != spec.refusal_key(),
        None => {
            record.change_key != spec.change_key.as_str() || (record.last_success.is_some() && !is_unmodified(record))
        }
    }
}

/// Marks the digest of a registry that is not pulled completely.
#[must_use]
pub fn partial_digest(digest: &str) -> String {
    format!("{PARTIAL_PREFIX}{digest}")
}

/// Returns true if charts are stored: all of them, or charts of a partly pulled registry.
#[must_use]
pub fn has_charts(record: &Record) -> bool {
    record.state.ready == Some(true) || record.is_partial()
}

/// Returns true if the rows are as our last sync left them: no other writer, restore or deletion changed them.
#[must_use]
pub fn is_unmodified(record: &Record) -> bool {
    let last_sync = record.last_sync.as_ref();
    let synced = last_sync.and_then(|last_sync| last_sync.get("charts")?.as_u64());
    record.trusted && synced.is_none_or(|charts| record.charts >= charts)
}

#[must_use]
pub fn has_lost_charts(record: &Record) -> bool {
    record.last_success.is_some() && record.charts == 0 && !is_unmodified(record)
}

/// Returns true if the user requested a sync that is not handled yet. Removing a request is not a request.
#[must_use]
pub fn is_requested(spec: &RepositorySpec, handled: &Handled) -> bool {
    let requests = &spec.requests;
    let differs = |requested: &Option<String>, handled: &Option<String>| requested.is_some() && requested != handled;
    handled.resync_requests.unwrap_or_default() != requests.resync_requests
        || differs(&requests.requested_at, &handled.requested_at)
        || differs(&requests.flux_requested_at, &handled.flux_requested_at)
}

#[must_use]
pub fn handled(spec: &RepositorySpec, before: &Handled) -> Handled {
    let requests = &spec.requests;
    let last = if requests.requested_at.is_some() && requests.requested_at != before.requested_at {
        requests.requested_at.clone()
    } else if requests.flux_requested_at.is_some() && requests.flux_requested_at != before.flux_requested_at {
        requests.flux_requested_at.clone()
    } else {
        before.last.clone()
    };
    Handled {
        resync_requests: Some(requests.resync_requests),
        requested_at: requests.requested_at.clone(),
        flux_requested_at: requests.flux_requested_at.clone(),
        last,
    }
}

/// Returns true if the last sync stopped only at its limit. A failed sync waits for its backoff.
pub(super) fn has_more(record: &Record) -> bool {
    record.is_partial() && record.state.ready.is_none()
}

/// Returns the time from `now` to the first scheduled sync after `since`, at most an hour.
#[must_use]
pub fn until_due(spec: &RepositorySpec, since: Timestamp, now: Timestamp) -> Duration {
    let Some(tick) = spec.cron.next_after(since) else {
        return MAX_REQUEUE;
    };
    let delay = spec.jitter() + TRIGGER_LATENCY;
    let delay = SignedDuration::try_from(delay).unwrap_or_default();
    let wait = tick.duration_since(now).saturating_add(delay);
    Duration::try_from(wait).unwrap_or_default().min(MAX_REQUEUE)
}

/// The tick after the last success, or the creation of the object. `None` for a suspended repository.
#[must_use]
pub fn next_success(spec: &RepositorySpec, record: Option<&Record>, created: Timestamp) -> Option<Timestamp> {
    if spec.suspended {
        return None;
    }
    let Some(last) = record.and_then(|record| record.last_success) else {
        return Some(created);
    };
    tick_after(spec, last)
}

/// The retry, the tick after the last attempt, or the creation of the object. `None` for a suspended repository.
#[must_use]
pub fn next_attempt(
    spec: &RepositorySpec,
    record: Option<&Record>,
    created: Timestamp,
    now: Timestamp,
) -> Option<Timestamp> {
    if spec.suspended {
        return None;
    }
    let Some((record, last)) = record.and_then(|record| Some((record, record.last_attempt?))) else {
        return Some(created);
    };
    next_retry(record, now).or_else(|| tick_after(spec, last))
}

fn tick_after(spec: &RepositorySpec, last: Timestamp) -> Option<Timestamp> {
    let tick = spec.cron.next_after(last)?;
    let jitter = SignedDuration::try_from(spec.jitter()).ok()?;
    Some(tick.checked_add(jitter).unwrap_or(tick))
}

/// Returns the time from `now` to the next reconcile of a repository that is not due: its retry, scheduled sync or look.
#[must_use]
pub fn until_next(spec: &RepositorySpec, record: Option<&Record>, now: Timestamp) -> Duration {
    let Some(retry) = record.and_then(|record| next_retry(record, now)) else {
        let look = record.map_or(MAX_REQUEUE, |record| until_look(record, now));
        return until_due(spec, now, now).min(look);
    };
    Duration::try_from(retry.duration_since(now))
        .unwrap_or_default()
        .min(MAX_REQUEUE)
}

#[must_use]
pub fn retry_delay(failures: u32) -> Duration {
    SYNC_BACKOFF.delay(failures.saturating_sub(1))
}

/// Slow repositories share few workers, until a sync succeeds or the URL changes.
#[must_use]
pub fn is_slow(url: &str, record: &Record) -> bool {
    record.state.slow_syncs >= SLOW_AFTER && record.url == url
}

/// Returns the number of slow syncs in a row after a failed one, which was `unanswered` for this time.
#[must_use]
pub fn slow_syncs(before: u32, unanswered: Duration, was_aborted: bool) -> u32 {
    match before {
        _ if was_aborted => SLOW_AFTER,
        SLOW_AFTER.. => before,
        _ if unanswered > SLOW_SYNC => before + 1,
        _ => 0,
    }
}

/// Returns the time before which a server asked for no request.
#[must_use]
pub fn retry_at(retry_after: Option<Duration>, now: Timestamp) -> Option<Timestamp> {
    let delay = SignedDuration::try_from(retry_after?).unwrap_or(MAX_RETRY_AFTER);
    now.checked_add(delay.min(MAX_RETRY_AFTER)).ok()
}

/// Ticks before the retry are skipped, or a server that fails would be asked at every tick.
fn next_retry(record: &Record, now: Timestamp) -> Option<Timestamp> {
    let has_failed = record.state.ready == Some(false) && !record.state.stalled;
    let last = record.last_attempt.filter(|last| has_failed && *last <= now)?;
    let delay = SignedDuration::try_from(retry_delay(record.state.failures)).unwrap_or_default();
    let backoff = last.checked_add(delay).ok()?;
    // Bounded, since the clock may have been set back.
    let requested = record.state.retry_at.map(|at| at.min(now + MAX_RETRY_AFTER));
    requested.max(Some(backoff))
}

fn is_due(spec: &RepositorySpec, record: &Record, now: Timestamp) -> bool {
    let Some(last) = record.last_attempt else { return true };
    if let Some(retry) = next_retry(record, now) {
        return retry <= now;
    }
    // A last attempt in the future means that the clock was set back. Nothing is due at once: the next reconcile comes
    // shortly after a tick.
    let lateness = SignedDuration::try_from(spec.jitter() + MAX_LATENESS).unwrap_or_default();
    let since = if last <= now {
        Ok(last)
    } else {
        now.checked_sub(lateness)
    };
    since.is_ok_and(|since| spec.cron.next_after(since).is_some_and(|tick| tick <= now))
}
