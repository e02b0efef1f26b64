//! Decides what to do with a repository: a pure function of spec, database record and time.
//!
//! The status is never an input, since users may edit it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::spec::RepositorySpec;
use crate::catalog::{Handled, Record};

/// Prefix of the digest of an OCI registry that is not pulled completely.
const CUT_SHORT: &str = "cut-short:";

/// The longest time to the next reconcile of a repository that is not suspended. Timers follow the monotonic clock, so this
/// bounds the delay of a sync after a step of the wall clock. Each such reconcile reads the database once.
const MAX_REQUEUE: Duration = Duration::from_hours(1);

/// The cron trigger polls twice a second. The timer fires after it, so that a tick causes one reconcile.
const TRIGGER_LATENCY: Duration = Duration::from_secs(1);

/// The extent to which a sync trusts cached state.
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
    Another,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Suspended,
    Rest,
    Sync(Mode),
}

#[must_use]
pub fn identity(declaration: &RepositorySpec, record: Option<&Record>) -> Identity {
    match record {
        None => Identity::New,
        Some(record) if record.uid == declaration.uid => Identity::Same,
        Some(record) if record.url == declaration.url && record.kind == declaration.kind.as_str() => Identity::Restored,
        Some(_) => Identity::Another,
    }
}

#[must_use]
pub fn decide(declaration: &RepositorySpec, record: Option<&Record>, now: Timestamp) -> Decision {
    if declaration.suspended {
        return Decision::Suspended;
    }
    let Some(record) = record else {
        return Decision::Sync(Mode::Complete);
    };
    if needs_comparison(declaration, record) {
        return Decision::Sync(Mode::Complete);
    }
    if is_due(declaration, record, now) || goes_on(record) {
        Decision::Sync(Mode::Conditional)
    } else {
        Decision::Rest
    }
}

/// Returns the oldest acceptable fetch time. Responses fetched earlier are too stale for this sync. A scheduled sync
/// accepts responses since its tick, a new repository those since it was `created`, any other sync only new ones.
#[must_use]
pub fn wanted_since(
    declaration: &RepositorySpec,
    record: Option<&Record>,
    created: Option<Timestamp>,
    mode: Mode,
    now: Timestamp,
) -> Timestamp {
    let since = match (mode, record) {
        // A requested sync needs a new response, regardless of the age of the object.
        (_, None) if !is_requested(declaration, &Handled::default()) => created,
        (Mode::Conditional, Some(record)) if record.state.ready == Some(true) => {
            let last = record.last_attempt.filter(|last| *last <= now);
            last.and_then(|last| declaration.cron.next_after(last))
        }
        _ => None,
    };
    since.map_or(now, |since| since.min(now))
}

fn needs_comparison(declaration: &RepositorySpec, record: &Record) -> bool {
    let confirms_shrink = declaration.allow_shrink.is_some()
        && record
            .refused
            .as_ref()
            .is_some_and(|refused| refused.confirm == declaration.allow_shrink);
    if is_requested(declaration, &record.handled)
        || confirms_shrink
        || record.spec_hash.as_deref() != Some(declaration.spec_hash.as_str())
    {
        return true;
    }
    match &record.refused {
        // The refusal holds for the same index; the next tick checks for a new one.
        Some(refused) => refused.given != declaration.grounds(),
        None => {
            record.change_key != declaration.change_key.as_str()
                || (record.last_success.is_some() && !are_as_left(record))
        }
    }
}

/// Marks the digest of a registry that is not pulled completely. It never equals the digest of a complete one.
#[must_use]
pub fn cut_short(digest: &str) -> String {
    format!("{CUT_SHORT}{digest}")
}

/// Returns true if the last sync left tags of an OCI registry for the next one.
#[must_use]
pub fn is_cut_short(record: &Record) -> bool {
    record.index_digest.starts_with(CUT_SHORT)
}

/// Returns true if charts are stored: all of them, or those of a partly pulled registry.
#[must_use]
pub fn has_charts(record: &Record) -> bool {
    record.state.ready == Some(true) || is_cut_short(record)
}

/// Returns true if the rows are as our last sync left them: no other writer, restore or deletion changed them.
#[must_use]
pub fn are_as_left(record: &Record) -> bool {
    let left = record
        .last_sync
        .as_ref()
        .and_then(|account| account.get("charts"))
        .and_then(serde_json::Value::as_u64);
    record.trusted && left.is_none_or(|charts| record.charts >= charts)
}

#[must_use]
pub fn is_lost(record: &Record) -> bool {
    record.last_success.is_some() && record.charts == 0 && !are_as_left(record)
}

/// Returns true if the user requested a sync that is not handled yet. Removing a request is not a request.
#[must_use]
pub fn is_requested(declaration: &RepositorySpec, handled: &Handled) -> bool {
    let requests = &declaration.requests;
    let differs = |asked: &Option<String>, handled: &Option<String>| asked.is_some() && asked != handled;
    handled.resync_requests.unwrap_or_default() != requests.resync_requests
        || differs(&requests.requested_at, &handled.requested_at)
        || differs(&requests.flux_requested_at, &handled.flux_requested_at)
}

/// Returns the requests that count as handled after a sync for `spec`.
#[must_use]
pub fn handled(declaration: &RepositorySpec, before: &Handled) -> Handled {
    let requests = &declaration.requests;
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
pub(super) fn goes_on(record: &Record) -> bool {
    is_cut_short(record) && record.state.ready.is_none()
}

/// Returns the time from `now` to the first scheduled sync after `since`, at most an hour.
#[must_use]
pub fn until_due(declaration: &RepositorySpec, since: Timestamp, now: Timestamp) -> Duration {
    let Some(tick) = declaration.cron.next_after(since) else {
        return MAX_REQUEUE;
    };
    let delay = declaration.jitter() + TRIGGER_LATENCY;
    let wait = tick
        .duration_since(now)
        .saturating_add(SignedDuration::try_from(delay).unwrap_or_default());
    Duration::try_from(wait).unwrap_or_default().min(MAX_REQUEUE)
}

fn is_due(declaration: &RepositorySpec, record: &Record, now: Timestamp) -> bool {
    let Some(last) = record.last_attempt else { return true };
    // The backoff of the queue decides when a transient failure is retried.
    let retry = record.state.ready == Some(false) && !record.state.stalled;
    // A last attempt in the future means that the clock was set back.
    retry || last > now || declaration.cron.next_after(last).is_some_and(|tick| tick <= now)
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

    fn declared(edit: impl FnOnce(&mut serde_json::Value)) -> RepositorySpec {
        RepositorySpec::of(&object(edit), &Defaults::usual(), false)
    }

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    const NOW: &str = "2026-01-01T10:05:00Z";

    /// Returns the record of `spec` after a sync at 10:00:05.
    fn synced(declaration: &RepositorySpec) -> Record {
        Record {
            name: declaration.name.clone(),
            uid: declaration.uid.clone(),
            url: declaration.url.clone(),
            kind: "helm".to_owned(),
            change_key: declaration.change_key.as_str().to_owned(),
            spec_hash: Some(declaration.spec_hash.clone()),
            handled: handled(declaration, &Handled::default()),
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
    fn what_was_never_synced_is_synced_completely() {
        let declaration = declared(|_| ());
        assert_eq!(decide(&declaration, None, at(NOW)), Decision::Sync(Mode::Complete));
    }

    #[test]
    fn between_two_ticks_nothing_is_done() {
        let declaration = declared(|_| ());
        assert_eq!(
            decide(&declaration, Some(&synced(&declaration)), at(NOW)),
            Decision::Rest
        );
    }

    #[test]
    fn at_a_tick_it_is_synced_however_many_were_missed() {
        let declaration = declared(|_| ());
        for now in ["2026-01-01T10:10:00Z", "2026-03-01T00:00:00Z"] {
            let decision = decide(&declaration, Some(&synced(&declaration)), at(now));
            assert_eq!(decision, Decision::Sync(Mode::Conditional), "{now}");
        }
    }

    #[test]
    fn what_came_after_a_tick_meets_it_and_a_resync_by_hand_means_now() {
        let declaration = declared(|_| ());
        let record = synced(&declaration);
        let (created, now) = (Some(at("2026-01-01T09:00:00Z")), at("2026-01-01T10:10:30Z"));
        let since = |record: Option<&Record>, mode| wanted_since(&declaration, record, created, mode, now);
        assert_eq!(since(Some(&record), Mode::Conditional), at("2026-01-01T10:10:00Z"));
        assert_eq!(since(Some(&record), Mode::Complete), now);
        assert_eq!(since(None, Mode::Complete), created.unwrap());
        let failed = Record {
            state: State {
                ready: Some(false),
                ..State::default()
            },
            ..synced(&declaration)
        };
        assert_eq!(since(Some(&failed), Mode::Conditional), now);
        let early = wanted_since(&declaration, Some(&record), created, Mode::Conditional, at(NOW));
        assert_eq!(early, at(NOW));
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_stop_syncs() {
        let declaration = declared(|_| ());
        let record = Record {
            last_attempt: Some(at("2030-01-01T00:00:00Z")),
            ..synced(&declaration)
        };
        assert_eq!(
            decide(&declaration, Some(&record), at(NOW)),
            Decision::Sync(Mode::Conditional)
        );
    }

    #[test]
    fn each_way_to_ask_for_a_resync_is_heard_once() {
        let record = synced(&declared(|_| ()));
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
            let asked = declared(way);
            assert_eq!(
                decide(&asked, Some(&record), at(NOW)),
                Decision::Sync(Mode::Complete),
                "way {number}"
            );
            assert_eq!(
                decide(&asked, Some(&synced(&asked)), at(NOW)),
                Decision::Rest,
                "way {number}, handled"
            );
        }
    }

    #[test]
    fn the_value_handled_last_is_the_one_that_changed() {
        let first = declared(|object| {
            object["metadata"]["annotations"] = serde_json::json!({ "apprepositories.kubeapps.com/requested-at": "a" });
        });
        let after_first = handled(&first, &Handled::default());
        assert_eq!(after_first.last.as_deref(), Some("a"));
        let second = declared(|object| {
            object["metadata"]["annotations"] = serde_json::json!({
                "apprepositories.kubeapps.com/requested-at": "a", "reconcile.fluxcd.io/requestedAt": "b"
            });
        });
        assert_eq!(handled(&second, &after_first).last.as_deref(), Some("b"));
        assert_eq!(handled(&declared(|_| ()), &after_first).last.as_deref(), Some("a"));
    }

    #[test]
    fn a_changed_filter_or_source_is_applied_although_the_server_says_unchanged() {
        let record = Record {
            change_key: "other".to_owned(),
            ..synced(&declared(|_| ()))
        };
        assert_eq!(
            decide(&declared(|_| ()), Some(&record), at(NOW)),
            Decision::Sync(Mode::Complete)
        );
    }

    #[test]
    fn rows_that_others_have_touched_are_compared() {
        let declaration = declared(|_| ());
        let record = Record {
            trusted: false,
            ..synced(&declaration)
        };
        assert_eq!(
            decide(&declaration, Some(&record), at(NOW)),
            Decision::Sync(Mode::Complete)
        );
    }

    #[test]
    fn a_failure_that_may_pass_is_tried_again_and_one_that_stalls_waits_for_its_tick() {
        let declaration = declared(|_| ());
        let failed = |stalled| Record {
            state: State {
                ready: Some(false),
                stalled,
                ..State::default()
            },
            ..synced(&declaration)
        };
        assert_eq!(
            decide(&declaration, Some(&failed(false)), at(NOW)),
            Decision::Sync(Mode::Conditional)
        );
        assert_eq!(decide(&declaration, Some(&failed(true)), at(NOW)), Decision::Rest);
        assert_eq!(
            decide(&declaration, Some(&failed(true)), at("2026-01-01T10:10:01Z")),
            Decision::Sync(Mode::Conditional)
        );
    }

    #[test]
    fn what_is_left_of_a_registry_goes_on_at_once_unless_the_last_attempt_has_failed() {
        let declaration = declared(|_| ());
        let part = |ready, stalled| Record {
            index_digest: cut_short("feed"),
            state: State {
                ready,
                stalled,
                ..State::default()
            },
            ..synced(&declaration)
        };
        let decision = |record: Record| decide(&declaration, Some(&record), at(NOW));
        assert_eq!(decision(part(None, false)), Decision::Sync(Mode::Conditional));
        assert_eq!(decision(part(Some(false), true)), Decision::Rest);
    }

    #[test]
    fn a_confirmed_shrinking_is_taken_up_at_once_and_a_wrong_digest_is_not() {
        let confirmed = declared(|object| {
            object["metadata"]["annotations"] =
                serde_json::json!({ "apprepositories.kubeapps.com/allow-shrink": "feed" });
        });
        let refused = |digest: &str| Record {
            refused: Some(Refused {
                confirm: Some(digest.to_owned()),
                given: confirmed.grounds(),
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
        assert_eq!(decide(&confirmed, Some(&refused("beef")), at(NOW)), Decision::Rest);
    }

    #[test]
    fn a_suspended_repository_keeps_its_requests_for_later() {
        let suspended = declared(|object| {
            object["spec"]["suspend"] = true.into();
            object["spec"]["resyncRequests"] = 7.into();
        });
        assert_eq!(
            decide(&suspended, Some(&synced(&declared(|_| ()))), at(NOW)),
            Decision::Suspended
        );
    }

    #[test]
    fn rows_belong_to_the_uid_they_were_written_for() {
        let declaration = declared(|_| ());
        let record = synced(&declaration);
        assert_eq!(identity(&declaration, None), Identity::New);
        assert_eq!(identity(&declaration, Some(&record)), Identity::Same);
        let older = Record {
            uid: "u0".to_owned(),
            ..record
        };
        assert_eq!(identity(&declaration, Some(&older)), Identity::Restored);
        let other = Record {
            url: "https://example.com/other".to_owned(),
            ..older
        };
        assert_eq!(identity(&declaration, Some(&other)), Identity::Another);
    }

    #[test]
    fn a_refusal_stands_until_its_tick_whatever_else_differs() {
        let declaration = declared(|_| ());
        let refused = Record {
            refused: Some(Refused {
                given: declaration.grounds(),
                ..Refused::default()
            }),
            change_key: String::new(),
            trusted: false,
            state: State {
                ready: Some(false),
                stalled: true,
                ..State::default()
            },
            ..synced(&declaration)
        };
        assert_eq!(decide(&declaration, Some(&refused), at(NOW)), Decision::Rest);
        let at_tick = decide(&declaration, Some(&refused), at("2026-01-01T10:10:01Z"));
        assert_eq!(at_tick, Decision::Sync(Mode::Conditional));
    }

    #[test]
    fn another_limit_takes_a_refusal_up_again() {
        let limited = |bytes: &str| {
            let annotations = serde_json::json!({ "portolan.dev/index-max-bytes": bytes });
            declared(|object| object["metadata"]["annotations"] = annotations)
        };
        let refused = Record {
            refused: Some(Refused {
                given: limited("10").grounds(),
                ..Refused::default()
            }),
            ..synced(&limited("10"))
        };
        assert_eq!(decide(&limited("10"), Some(&refused), at(NOW)), Decision::Rest);
        assert_eq!(
            decide(&limited("20"), Some(&refused), at(NOW)),
            Decision::Sync(Mode::Complete)
        );
    }

    #[test]
    fn charts_that_are_fewer_than_were_left_are_compared() {
        let declaration = declared(|_| ());
        let record = |charts| Record {
            last_sync: Some(serde_json::json!({ "charts": 2 })),
            charts,
            ..synced(&declaration)
        };
        assert_eq!(decide(&declaration, Some(&record(2)), at(NOW)), Decision::Rest);
        assert_eq!(
            decide(&declaration, Some(&record(1)), at(NOW)),
            Decision::Sync(Mode::Complete)
        );
        assert!(is_lost(&record(0)) && !is_lost(&record(1)));
    }

    #[test]
    fn what_follows_a_sync_is_done_where_there_are_charts_although_some_of_a_registry_fails() {
        let record = |ready, index_digest: &str| Record {
            index_digest: index_digest.to_owned(),
            state: State {
                ready,
                ..State::default()
            },
            ..Record::default()
        };
        assert!(has_charts(&record(Some(true), "a")));
        assert!(has_charts(&record(Some(false), &cut_short("a"))) && has_charts(&record(None, &cut_short("a"))));
        assert!(!has_charts(&record(Some(false), "a")) && !has_charts(&record(None, "")));
    }
}
