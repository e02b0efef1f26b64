//! The class of slow repositories, and the pause that a server asked for.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::catalog::{Handled, Record, RecordState};
use crate::controllers::apprepository::decision::{
    SyncDecision, SyncMode, decide, handled, is_slow, retry_at, slow_syncs, until_next,
};
use crate::controllers::apprepository::spec::{Defaults, RepositorySpec};

fn spec(more: &serde_json::Value) -> RepositorySpec {
    let mut spec = serde_json::json!({ "type": "helm", "url": "https://example.com", "interval": "* * * * *" });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let object = serde_json::json!({
        "apiVersion": "kubeapps.com/v1alpha1", "kind": "AppRepository",
        "metadata": { "namespace": "default", "name": "stable", "uid": "u1", "generation": 1 },
        "spec": spec,
    });
    RepositorySpec::of(&serde_json::from_value(object).unwrap(), &Defaults::usual(), false)
}

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

/// Returns the record after a sync at 10:00:05 that failed with a `Retry-After`.
fn held(spec: &RepositorySpec, seconds: u64) -> Record {
    let failed = at("2026-01-01T10:00:05Z");
    Record {
        uid: spec.uid.clone(),
        change_key: spec.change_key.as_str().to_owned(),
        spec_hash: Some(spec.spec_hash.clone()),
        handled: handled(spec, &Handled::default()),
        last_attempt: Some(failed),
        state: RecordState {
            ready: Some(false),
            failures: 1,
            retry_at: retry_at(Some(Duration::from_secs(seconds)), failed),
            ..RecordState::default()
        },
        trusted: true,
        ..Record::default()
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn three_syncs_in_a_row_without_a_response_make_a_repository_slow_until_one_succeeds() {
    const URL: &str = "https://charts.example.com";
    let mut record = Record {
        url: URL.to_owned(),
        ..Record::default()
    };
    for expected in [1, 2, 3, 3] {
        assert_eq!(is_slow(URL, &record), record.state.slow_syncs == 3);
        record.state.slow_syncs = slow_syncs(record.state.slow_syncs, 2 * MINUTE, false);
        assert_eq!(record.state.slow_syncs, expected);
    }
    assert_eq!(slow_syncs(3, Duration::ZERO, false), 3, "a fast failure is no success");
    assert!(
        !is_slow("https://mended.example.com", &record),
        "another server may respond"
    );
    record.state = RecordState::default();
    assert!(!is_slow(URL, &record));
}

#[test]
fn a_failure_within_a_minute_starts_the_count_again() {
    assert_eq!(slow_syncs(2, MINUTE, false), 0);
    assert_eq!(slow_syncs(2, MINUTE + Duration::from_secs(1), false), 3);
}

#[test]
fn an_aborted_download_makes_its_repository_slow_at_once() {
    assert_eq!(slow_syncs(0, Duration::ZERO, true), 3);
}

#[test]
fn no_tick_and_no_restart_comes_before_the_end_of_a_retry_after() {
    let spec = spec(&serde_json::json!({}));
    let record = held(&spec, 600);
    for now in ["2026-01-01T10:01:00Z", "2026-01-01T10:10:04Z"] {
        assert_eq!(decide(&spec, Some(&record), at(now)), SyncDecision::Wait, "{now}");
    }
    let now = at("2026-01-01T10:10:00Z");
    assert_eq!(until_next(&spec, Some(&record), now), Duration::from_secs(5));
    let end = at("2026-01-01T10:10:05Z");
    assert_eq!(
        decide(&spec, Some(&record), end),
        SyncDecision::Sync(SyncMode::Conditional)
    );
    let short = held(&spec, 1);
    assert_eq!(
        decide(&spec, Some(&short), at("2026-01-01T10:00:08Z")),
        SyncDecision::Wait,
        "the backoff is longer"
    );
}

#[test]
fn a_repository_that_was_never_synced_waits_for_its_backoff_too() {
    let spec = spec(&serde_json::json!({}));
    let record = Record {
        change_key: String::new(),
        ..held(&spec, 0)
    };
    let decision = |now| decide(&spec, Some(&record), at(now));
    assert_eq!(decision("2026-01-01T10:00:09Z"), SyncDecision::Wait);
    assert_eq!(decision("2026-01-01T10:00:10Z"), SyncDecision::Sync(SyncMode::Complete));
}

#[test]
fn a_requested_sync_starts_before_the_end_of_a_retry_after() {
    let record = held(&spec(&serde_json::json!({})), 600);
    let requested = spec(&serde_json::json!({ "resyncRequests": 1 }));
    let decision = decide(&requested, Some(&record), at("2026-01-01T10:00:06Z"));
    assert_eq!(decision, SyncDecision::Sync(SyncMode::Complete));
}

#[test]
fn a_stored_pause_has_a_limit_though_the_clock_was_set_back() {
    let spec = spec(&serde_json::json!({}));
    let record = held(&spec, 86_400);
    let quarter = at("2026-01-01T10:15:05Z");
    assert_eq!(
        decide(&spec, Some(&record), quarter),
        SyncDecision::Sync(SyncMode::Conditional)
    );
    let mut record = held(&spec, 600);
    record.state.retry_at = Some(at("2027-01-01T00:00:00Z"));
    let now = record.last_attempt.unwrap() + SignedDuration::from_secs(1);
    assert_eq!(until_next(&spec, Some(&record), now), 15 * MINUTE);
}
