//! Decides what to do with a repository: a pure function of spec, database record and time.
//!
//! The status is never an input, since users may edit it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::spec::RepositorySpec;
use crate::catalog::{Handled, Record};
use crate::runtime::workqueue::Backoff;

const PARTIAL_PREFIX: &str = "cut-short:";

/// Timers follow the monotonic clock, so this bounds the delay of a sync after a step of the wall clock. Each reconcile
/// reads the database once.
const MAX_REQUEUE: Duration = Duration::from_hours(1);

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
pub enum Mode {
    /// Sends conditional requests, and skips entries that are known to be unchanged.
    Conditional,
    /// Fetches everything and compares all rows. Used for repair and after changes on our side.
    Complete,
}

/// Relation of the stored rows to the object, by UID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    New,
    Same,
    /// The rows belong to an object of the same name, URL and type: a restored backup or a takeover. The rows stay,
    /// validators do not.
    Restored,
    /// The rows belong to another repository that had this name. They are removed first.
    Replaced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Suspended,
    Wait,
    Sync(Mode),
}

#[must_use]
pub fn identity(spec: &RepositorySpec, record: Option<&Record>) -> Identity {
    match record {
        None => Identity::New,
        Some(record) if record.uid == spec.uid => Identity::Same,
        Some(record) if record.url == spec.url && record.kind == spec.kind.as_str() => Identity::Restored,
        Some(_) => Identity::Replaced,
    }
}

#[must_use]
pub fn decide(spec: &RepositorySpec, record: Option<&Record>, now: Timestamp) -> Decision {
    if spec.suspended {
        return Decision::Suspended;
    }
    let Some(record) = record else {
        return Decision::Sync(Mode::Complete);
    };
    if is_changed(spec, record) {
        return Decision::Sync(Mode::Complete);
    }
    if next_retry(record, now).is_some_and(|retry| retry > now) {
        return Decision::Wait;
    }
    if needs_complete_sync(spec, record) {
        return Decision::Sync(Mode::Complete);
    }
    if is_due(spec, record, now) || has_more(record) {
        Decision::Sync(Mode::Conditional)
    } else {
        Decision::Wait
    }
}

/// Returns the oldest acceptable fetch time. Responses fetched earlier are too stale for this sync. A scheduled sync
/// accepts responses since its tick, a new repository those since it was `created`, any other sync only new ones.
#[must_use]
pub fn fresh_since(
    spec: &RepositorySpec,
    record: Option<&Record>,
    created: Option<Timestamp>,
    mode: Mode,
    now: Timestamp,
) -> Timestamp {
    let since = match (mode, record) {
        // A requested sync needs a new response, regardless of the age of the object.
        (_, None) if !is_requested(spec, &Handled::default()) => created,
        (Mode::Conditional, Some(record)) if record.state.ready == Some(true) => {
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

/// Marks the digest of a registry that is not pulled completely. It never equals the digest of a complete one.
#[must_use]
pub fn partial_digest(digest: &str) -> String {
    format!("{PARTIAL_PREFIX}{digest}")
}

/// Returns true if the last sync left tags of an OCI registry for the next one.
#[must_use]
pub fn is_partial(record: &Record) -> bool {
    record.index_digest.starts_with(PARTIAL_PREFIX)
}

/// Returns true if charts are stored: all of them, or those of a partly pulled registry.
#[must_use]
pub fn has_charts(record: &Record) -> bool {
    record.state.ready == Some(true) || is_partial(record)
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

/// Returns the requests that count as handled after a sync for `spec`.
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

/// Returns true if the last sync stopped only at its limit. A failed one waits for its backoff.
pub(super) fn has_more(record: &Record) -> bool {
    is_partial(record) && record.state.ready.is_none()
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

/// Returns the time from `now` to the next reconcile of a repository that is not due: its retry or scheduled sync.
#[must_use]
pub fn until_next(spec: &RepositorySpec, record: Option<&Record>, now: Timestamp) -> Duration {
    let Some(retry) = record.and_then(|record| next_retry(record, now)) else {
        return until_due(spec, now, now);
    };
    Duration::try_from(retry.duration_since(now))
        .unwrap_or_default()
        .min(MAX_REQUEUE)
}

/// Returns the delay of the retry after a number of failures in a row.
#[must_use]
pub fn retry_delay(failures: u32) -> Duration {
    SYNC_BACKOFF.delay(failures.saturating_sub(1))
}

/// Returns true if the syncs of the repository wait for servers that do not respond. They share few workers, until one
/// succeeds.
#[must_use]
pub const fn is_slow(record: &Record) -> bool {
    record.state.slow_syncs >= SLOW_AFTER
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

/// Returns the time of the retry after a transient failure. Ticks before it are skipped, or a server that fails would be
/// asked at every tick.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::AppRepository;
    use crate::catalog::{Refused, State};
    use crate::controllers::apprepository::spec::Defaults;

    fn object(edit: impl FnOnce(&mut serde_json::Value)) -> AppRepository {
        let mut object = serde_json::json!({
            "apiVersion": "kubeapps.com/v1alpha1", "kind": "AppRepository",
            "metadata": { "namespace": "default", "name": "stable", "uid": "u1", "generation": 1 },
            "spec": { "type": "helm", "url": " https://example.com/charts " },
        });
        edit(&mut object);
        serde_json::from_value(object).unwrap()
    }

    fn spec_with(edit: impl FnOnce(&mut serde_json::Value)) -> RepositorySpec {
        RepositorySpec::of(&object(edit), &Defaults::usual(), false)
    }

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    const NOW: &str = "2026-01-01T10:05:00Z";

    /// Returns the record of `spec` after a sync at 10:00:05.
    fn synced(spec: &RepositorySpec) -> Record {
        Record {
            name: spec.name.clone(),
            uid: spec.uid.clone(),
            url: spec.url.clone(),
            kind: "helm".to_owned(),
            change_key: spec.change_key.as_str().to_owned(),
            spec_hash: Some(spec.spec_hash.clone()),
            handled: handled(spec, &Handled::default()),
            last_attempt: Some(at("2026-01-01T10:00:05Z")),
            last_success: Some(at("2026-01-01T10:00:06Z")),
            state: State {
                ready: Some(true),
                ..State::default()
            },
            trusted: true,
            ..Record::default()
        }
    }

    #[test]
    fn a_new_repository_gets_a_complete_sync() {
        let spec = spec_with(|_| ());
        assert_eq!(decide(&spec, None, at(NOW)), Decision::Sync(Mode::Complete));
    }

    #[test]
    fn nothing_is_due_between_two_ticks() {
        let spec = spec_with(|_| ());
        assert_eq!(decide(&spec, Some(&synced(&spec)), at(NOW)), Decision::Wait);
    }

    #[test]
    fn one_sync_follows_any_number_of_missed_ticks() {
        let spec = spec_with(|_| ());
        for now in ["2026-01-01T10:10:00Z", "2026-03-01T00:00:00Z"] {
            let decision = decide(&spec, Some(&synced(&spec)), at(now));
            assert_eq!(decision, Decision::Sync(Mode::Conditional), "{now}");
        }
    }

    #[test]
    fn responses_since_the_tick_are_fresh_but_not_for_a_requested_sync() {
        let spec = spec_with(|_| ());
        let record = synced(&spec);
        let (created, now) = (Some(at("2026-01-01T09:00:00Z")), at("2026-01-01T10:10:30Z"));
        let since = |record: Option<&Record>, mode| fresh_since(&spec, record, created, mode, now);
        assert_eq!(since(Some(&record), Mode::Conditional), at("2026-01-01T10:10:00Z"));
        assert_eq!(since(Some(&record), Mode::Complete), now);
        assert_eq!(since(None, Mode::Complete), created.unwrap());
        let failed = Record {
            state: State {
                ready: Some(false),
                ..State::default()
            },
            ..synced(&spec)
        };
        assert_eq!(since(Some(&failed), Mode::Conditional), now);
        let early = fresh_since(&spec, Some(&record), created, Mode::Conditional, at(NOW));
        assert_eq!(early, at(NOW));
    }

    #[test]
    fn syncs_continue_at_the_next_tick_after_the_clock_was_set_back() {
        let spec = spec_with(|_| ());
        for ready in [true, false] {
            let mut record = Record {
                last_attempt: Some(at("2030-01-01T00:00:00Z")),
                ..synced(&spec)
            };
            record.state.ready = Some(ready);
            assert_eq!(decide(&spec, Some(&record), at(NOW)), Decision::Wait, "{ready}");
            let tick = at("2026-01-01T10:10:00Z");
            assert_eq!(
                until_next(&spec, Some(&record), at(NOW)),
                until_due(&spec, at(NOW), at(NOW))
            );
            assert_eq!(
                decide(&spec, Some(&record), tick),
                Decision::Sync(Mode::Conditional),
                "{ready}"
            );
        }
    }

    #[test]
    fn a_tick_during_the_backoff_is_skipped() {
        let spec = spec_with(|_| ());
        let mut record = Record {
            last_attempt: Some(at("2026-01-01T10:09:00Z")),
            ..synced(&spec)
        };
        (record.state.ready, record.state.failures) = (Some(false), 5);
        let now = at("2026-01-01T10:10:00Z");
        assert_eq!(decide(&spec, Some(&record), now), Decision::Wait);
        assert_eq!(until_next(&spec, Some(&record), now), Duration::from_secs(20));
        let retry = at("2026-01-01T10:10:20Z");
        assert_eq!(decide(&spec, Some(&record), retry), Decision::Sync(Mode::Conditional));
        let requested = spec_with(|object| object["spec"]["resyncRequests"] = 7.into());
        assert_eq!(decide(&requested, Some(&record), now), Decision::Sync(Mode::Complete));
    }

    #[test]
    fn each_way_to_request_a_sync_is_handled_once() {
        let record = synced(&spec_with(|_| ()));
        let ways: [fn(&mut serde_json::Value); 4] = [
            |object| object["spec"]["resyncRequests"] = 7.into(),
            |object| {
                object["metadata"]["annotations"] =
                    serde_json::json!({ "apprepositories.kubeapps.com/requested-at": "now" });
            },
            |object| {
                object["metadata"]["annotations"] = serde_json::json!({ "reconcile.fluxcd.io/requestedAt": "now" })
            },
            |object| object["spec"]["description"] = "another".into(),
        ];
        for (number, way) in ways.into_iter().enumerate() {
            let asked = spec_with(way);
            assert_eq!(
                decide(&asked, Some(&record), at(NOW)),
                Decision::Sync(Mode::Complete),
                "way {number}"
            );
            assert_eq!(
                decide(&asked, Some(&synced(&asked)), at(NOW)),
                Decision::Wait,
                "way {number}, handled"
            );
        }
    }

    #[test]
    fn the_value_handled_last_is_the_one_that_changed() {
        let first = spec_with(|object| {
            object["metadata"]["annotations"] = serde_json::json!({ "apprepositories.kubeapps.com/requested-at": "a" });
        });
        let after_first = handled(&first, &Handled::default());
        assert_eq!(after_first.last.as_deref(), Some("a"));
        let second = spec_with(|object| {
            object["metadata"]["annotations"] = serde_json::json!({
                "apprepositories.kubeapps.com/requested-at": "a", "reconcile.fluxcd.io/requestedAt": "b"
            });
        });
        assert_eq!(handled(&second, &after_first).last.as_deref(), Some("b"));
        assert_eq!(handled(&spec_with(|_| ()), &after_first).last.as_deref(), Some("a"));
    }

    #[test]
    fn a_changed_filter_or_source_causes_a_complete_sync() {
        let record = Record {
            change_key: "other".to_owned(),
            ..synced(&spec_with(|_| ()))
        };
        assert_eq!(
            decide(&spec_with(|_| ()), Some(&record), at(NOW)),
            Decision::Sync(Mode::Complete)
        );
    }

    #[test]
    fn modified_rows_cause_a_complete_sync() {
        let spec = spec_with(|_| ());
        let record = Record {
            trusted: false,
            ..synced(&spec)
        };
        assert_eq!(decide(&spec, Some(&record), at(NOW)), Decision::Sync(Mode::Complete));
    }

    #[test]
    fn a_transient_failure_is_retried_and_a_stalled_one_waits_for_its_tick() {
        let spec = spec_with(|_| ());
        let failed = |stalled| Record {
            state: State {
                ready: Some(false),
                stalled,
                ..State::default()
            },
            ..synced(&spec)
        };
        assert_eq!(
            decide(&spec, Some(&failed(false)), at(NOW)),
            Decision::Sync(Mode::Conditional)
        );
        assert_eq!(decide(&spec, Some(&failed(true)), at(NOW)), Decision::Wait);
        assert_eq!(
            decide(&spec, Some(&failed(true)), at("2026-01-01T10:10:01Z")),
            Decision::Sync(Mode::Conditional)
        );
    }

    #[test]
    fn a_partly_pulled_registry_continues_immediately_unless_it_failed() {
        let spec = spec_with(|_| ());
        let part = |ready, stalled| Record {
            index_digest: partial_digest("feed"),
            state: State {
                ready,
                stalled,
                ..State::default()
            },
            ..synced(&spec)
        };
        let decision = |record: Record| decide(&spec, Some(&record), at(NOW));
        assert_eq!(decision(part(None, false)), Decision::Sync(Mode::Conditional));
        assert_eq!(decision(part(Some(false), true)), Decision::Wait);
    }

    #[test]
    fn a_confirmed_shrink_is_synced_immediately_unless_the_digest_is_wrong() {
        let confirmed = spec_with(|object| {
            object["metadata"]["annotations"] =
                serde_json::json!({ "apprepositories.kubeapps.com/allow-shrink": "feed" });
        });
        let refused = |digest: &str| Record {
            refused: Some(Refused {
                confirm: Some(digest.to_owned()),
                inputs: confirmed.refusal_key(),
                ..Refused::default()
            }),
            state: State {
                ready: Some(false),
                stalled: true,
                ..State::default()
            },
            ..synced(&confirmed)
        };
        assert_eq!(
            decide(&confirmed, Some(&refused("feed")), at(NOW)),
            Decision::Sync(Mode::Complete)
        );
        assert_eq!(decide(&confirmed, Some(&refused("beef")), at(NOW)), Decision::Wait);
    }

    #[test]
    fn a_suspended_repository_handles_requests_after_resuming() {
        let suspended = spec_with(|object| {
            object["spec"]["suspend"] = true.into();
            object["spec"]["resyncRequests"] = 7.into();
        });
        assert_eq!(
            decide(&suspended, Some(&synced(&spec_with(|_| ()))), at(NOW)),
            Decision::Suspended
        );
    }

    #[test]
    fn rows_belong_to_the_uid_they_were_written_for() {
        let spec = spec_with(|_| ());
        let record = synced(&spec);
        assert_eq!(identity(&spec, None), Identity::New);
        assert_eq!(identity(&spec, Some(&record)), Identity::Same);
        let older = Record {
            uid: "u0".to_owned(),
            ..record
        };
        assert_eq!(identity(&spec, Some(&older)), Identity::Restored);
        let other = Record {
            url: "https://example.com/other".to_owned(),
            ..older
        };
        assert_eq!(identity(&spec, Some(&other)), Identity::Replaced);
    }

    #[test]
    fn a_refusal_holds_until_its_tick() {
        let spec = spec_with(|_| ());
        let refused = Record {
            refused: Some(Refused {
                inputs: spec.refusal_key(),
                ..Refused::default()
            }),
            change_key: String::new(),
            trusted: false,
            state: State {
                ready: Some(false),
                stalled: true,
                ..State::default()
            },
            ..synced(&spec)
        };
        assert_eq!(decide(&spec, Some(&refused), at(NOW)), Decision::Wait);
        let at_tick = decide(&spec, Some(&refused), at("2026-01-01T10:10:01Z"));
        assert_eq!(at_tick, Decision::Sync(Mode::Conditional));
    }

    #[test]
    fn a_changed_limit_retries_a_refused_index() {
        let limited = |bytes: &str| {
            let annotations = serde_json::json!({ "portolan.dev/index-max-bytes": bytes });
            spec_with(|object| object["metadata"]["annotations"] = annotations)
        };
        let refused = Record {
            refused: Some(Refused {
                inputs: limited("10").refusal_key(),
                ..Refused::default()
            }),
            ..synced(&limited("10"))
        };
        assert_eq!(decide(&limited("10"), Some(&refused), at(NOW)), Decision::Wait);
        assert_eq!(
            decide(&limited("20"), Some(&refused), at(NOW)),
            Decision::Sync(Mode::Complete)
        );
    }

    #[test]
    fn missing_charts_cause_a_complete_sync() {
        let spec = spec_with(|_| ());
        let record = |charts| Record {
            last_sync: Some(serde_json::json!({ "charts": 2 })),
            charts,
            ..synced(&spec)
        };
        assert_eq!(decide(&spec, Some(&record(2)), at(NOW)), Decision::Wait);
        assert_eq!(decide(&spec, Some(&record(1)), at(NOW)), Decision::Sync(Mode::Complete));
        assert!(has_lost_charts(&record(0)) && !has_lost_charts(&record(1)));
    }

    #[test]
    fn a_partly_synced_registry_has_charts() {
        let record = |ready, index_digest: &str| Record {
            index_digest: index_digest.to_owned(),
            state: State {
                ready,
                ..State::default()
            },
            ..Record::default()
        };
        assert!(has_charts(&record(Some(true), "a")));
        assert!(
            has_charts(&record(Some(false), &partial_digest("a"))) && has_charts(&record(None, &partial_digest("a")))
        );
        assert!(!has_charts(&record(Some(false), "a")) && !has_charts(&record(None, "")));
    }
}
