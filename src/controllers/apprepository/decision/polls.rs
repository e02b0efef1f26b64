//! Conditional syncs that a receiver requests after a push, and the looks that follow: a push may precede the index.
//!
//! The record and the annotation alone tell which look is due, so that none is lost in a crash.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::MAX_REQUEUE;
use crate::catalog::{Poll, Record};
use crate::controllers::apprepository::spec::RepositorySpec;

/// Times after a request at which a repository without changes is synced again.
const LOOKS: [SignedDuration; 3] = [
    SignedDuration::from_secs(10),
    SignedDuration::from_mins(1),
    SignedDuration::from_mins(10),
];

/// Returns true if a request is not handled yet. Removing it is not a request.
#[must_use]
pub fn is_polled(spec: &RepositorySpec, record: &Record) -> bool {
    spec.requests.poll_at.is_some() && spec.requests.poll_at != record.poll.at
}

/// Returns true if a request or a later look needs a sync.
#[must_use]
pub fn is_poll_due(spec: &RepositorySpec, record: &Record, now: Timestamp) -> bool {
    is_polled(spec, record) || due_look(record, now).is_some()
}

/// Returns the time of the look that is due.
#[must_use]
pub fn due_look(record: &Record, now: Timestamp) -> Option<Timestamp> {
    next_look(record).filter(|look| *look <= now)
}

/// Returns the time from `now` to the next look, at most an hour.
#[must_use]
pub fn until_look(record: &Record, now: Timestamp) -> Duration {
    next_look(record).map_or(MAX_REQUEUE, |look| {
        let wait = Duration::try_from(look.duration_since(now)).unwrap_or_default();
        wait.min(MAX_REQUEUE)
    })
}

/// Returns the first look after the last attempt, unless a sync has found the push. One attempt makes up for several looks.
fn next_look(record: &Record) -> Option<Timestamp> {
    let requested: Timestamp = record
        .poll
        .at
        .as_deref()
        .filter(|_| !record.poll.has_found)?
        .parse()
        .ok()?;
    let last = record.last_attempt?;
    let mut looks = LOOKS.iter().filter_map(|after| requested.checked_add(*after).ok());
    looks.find(|look| *look > last)
}

/// Returns the poll of the record after a sync that found no changes yet.
#[must_use]
pub fn handled_poll(spec: &RepositorySpec, before: &Poll) -> Poll {
    let at = spec.requests.poll_at.clone();
    Poll {
        has_found: before.has_found && before.at == at,
        at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::apprepository::decision::{SyncDecision, SyncMode, decide, fresh_since, until_next};
    use crate::controllers::apprepository::tests::samples::{at, spec_with, synced};

    fn pushed(seconds: i64) -> Timestamp {
        at("2026-01-01T10:05:00.123456Z") + SignedDuration::from_secs(seconds)
    }

    /// Returns a repository that is synced once a night, with this value of the annotation.
    fn annotated(poll_at: &str) -> RepositorySpec {
        spec_with(|object| {
            object["spec"]["interval"] = "0 3 * * *".into();
            object["metadata"]["annotations"] = serde_json::json!({ "portolan.dev/poll-at": poll_at });
        })
    }

    fn polled() -> RepositorySpec {
        annotated(&pushed(0).to_string())
    }

    /// Returns the record of a repository whose last sync began this long after the push.
    fn after(spec: &RepositorySpec, seconds: i64) -> Record {
        Record {
            poll: handled_poll(spec, &Poll::default()),
            last_attempt: Some(pushed(seconds)),
            ..synced(spec)
        }
    }

    fn decision(spec: &RepositorySpec, record: &Record, seconds: i64) -> SyncDecision {
        decide(spec, Some(record), pushed(seconds))
    }

    #[test]
    fn a_request_is_a_conditional_sync_with_a_response_of_its_own() {
        let spec = polled();
        let record = Record {
            last_attempt: Some(pushed(-5)),
            ..synced(&spec)
        };
        assert_eq!(decision(&spec, &record, 0), SyncDecision::Sync(SyncMode::Conditional));
        let now = pushed(1);
        let since = fresh_since(&spec, Some(&record), None, SyncMode::Conditional, now);
        assert_eq!(since, now);
        assert_eq!(decision(&spec, &after(&spec, 0), 1), SyncDecision::Wait);
    }

    #[test]
    fn a_sync_that_found_nothing_looks_again_after_10_seconds_a_minute_and_10_minutes() {
        let spec = polled();
        for (last, look) in [(0, 10), (10, 60), (30, 60), (61, 600)] {
            let record = after(&spec, last);
            assert_eq!(decision(&spec, &record, look - 1), SyncDecision::Wait, "{look}");
            let now = pushed(look - 1);
            assert_eq!(until_next(&spec, Some(&record), now), Duration::from_secs(1), "{look}");
            let decided = decision(&spec, &record, look);
            assert_eq!(decided, SyncDecision::Sync(SyncMode::Conditional), "{look}");
        }
        let last = after(&spec, 600);
        assert_eq!(until_look(&last, pushed(601)), MAX_REQUEUE);
        assert_eq!(due_look(&last, pushed(9_000)), None);
    }

    #[test]
    fn a_sync_that_found_a_change_is_the_last_one_until_the_next_push() {
        let spec = polled();
        let mut record = after(&spec, 0);
        record.poll.has_found = true;
        assert_eq!(due_look(&record, pushed(10)), None);
        assert!(handled_poll(&spec, &record.poll).has_found, "a later sync keeps it");
        let next = annotated("later");
        assert!(is_polled(&next, &record) && !handled_poll(&next, &record.poll).has_found);
    }

    #[test]
    fn a_failing_server_is_asked_after_its_backoff_only() {
        let spec = polled();
        let mut record = after(&spec, -1);
        record.poll = Poll::default();
        (record.state.ready, record.state.failures) = (Some(false), 3);
        assert_eq!(decision(&spec, &record, 0), SyncDecision::Wait);
        assert_eq!(decision(&spec, &record, 19), SyncDecision::Sync(SyncMode::Conditional));
    }

    #[test]
    fn a_value_that_is_no_time_is_handled_without_later_looks() {
        for value in ["now", "", "9999-99-99T00:00:00Z"] {
            let spec = annotated(value);
            assert!(is_polled(&spec, &synced(&spec)), "{value}");
            let record = after(&spec, 0);
            assert!(!is_poll_due(&spec, &record, pushed(10)), "{value}");
        }
    }

    #[test]
    fn a_suspended_repository_is_not_synced() {
        let mut spec = polled();
        spec.suspended = true;
        assert_eq!(decision(&spec, &after(&spec, 0), 10), SyncDecision::Suspended);
    }
}
