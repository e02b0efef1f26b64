use super::*;
use crate::catalog::{RecordState, Refused};
use crate::controllers::apprepository::tests::samples::{NOW, at, spec_with, synced};

#[test]
fn a_new_repository_gets_a_complete_sync() {
    let spec = spec_with(|_| ());
    assert_eq!(decide(&spec, None, at(NOW)), SyncDecision::Sync(SyncMode::Complete));
}

#[test]
fn nothing_is_due_between_two_ticks() {
    let spec = spec_with(|_| ());
    assert_eq!(decide(&spec, Some(&synced(&spec)), at(NOW)), SyncDecision::Wait);
}

#[test]
fn one_sync_follows_any_number_of_missed_ticks() {
    let spec = spec_with(|_| ());
    for now in ["2026-01-01T10:10:00Z", "2026-03-01T00:00:00Z"] {
        let decision = decide(&spec, Some(&synced(&spec)), at(now));
        assert_eq!(decision, SyncDecision::Sync(SyncMode::Conditional), "{now}");
    }
}

#[test]
fn responses_since_the_tick_are_fresh_but_not_for_a_requested_sync() {
    let spec = spec_with(|_| ());
    let record = synced(&spec);
    let (created, now) = (Some(at("2026-01-01T09:00:00Z")), at("2026-01-01T10:10:30Z"));
    let since = |record: Option<&Record>, mode| fresh_since(&spec, record, created, mode, now);
    assert_eq!(since(Some(&record), SyncMode::Conditional), at("2026-01-01T10:10:00Z"));
    assert_eq!(since(Some(&record), SyncMode::Complete), now);
    assert_eq!(since(None, SyncMode::Complete), created.unwrap());
    let failed = Record {
        state: RecordState {
            ready: Some(false),
            ..RecordState::default()
        },
        ..synced(&spec)
    };
    assert_eq!(since(Some(&failed), SyncMode::Conditional), now);
    let early = fresh_since(&spec, Some(&record), created, SyncMode::Conditional, at(NOW));
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
        assert_eq!(decide(&spec, Some(&record), at(NOW)), SyncDecision::Wait, "{ready}");
        let tick = at("2026-01-01T10:10:00Z");
        assert_eq!(
            until_next(&spec, Some(&record), at(NOW)),
            until_due(&spec, at(NOW), at(NOW))
        );
        assert_eq!(
            decide(&spec, Some(&record), tick),
            SyncDecision::Sync(SyncMode::Conditional),
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
    assert_eq!(decide(&spec, Some(&record), now), SyncDecision::Wait);
    assert_eq!(until_next(&spec, Some(&record), now), Duration::from_secs(20));
    let retry = at("2026-01-01T10:10:20Z");
    assert_eq!(
        decide(&spec, Some(&record), retry),
        SyncDecision::Sync(SyncMode::Conditional)
    );
    let requested = spec_with(|object| object["spec"]["resyncRequests"] = 7.into());
    assert_eq!(
        decide(&requested, Some(&record), now),
        SyncDecision::Sync(SyncMode::Complete)
    );
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
        |object| object["metadata"]["annotations"] = serde_json::json!({ "reconcile.fluxcd.io/requestedAt": "now" }),
        |object| object["spec"]["description"] = "another".into(),
    ];
    for (number, way) in ways.into_iter().enumerate() {
        let asked = spec_with(way);
        assert_eq!(
            decide(&asked, Some(&record), at(NOW)),
            SyncDecision::Sync(SyncMode::Complete),
            "way {number}"
        );
        assert_eq!(
            decide(&asked, Some(&synced(&asked)), at(NOW)),
            SyncDecision::Wait,
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
        SyncDecision::Sync(SyncMode::Complete)
    );
}

#[test]
fn modified_rows_cause_a_complete_sync() {
    let spec = spec_with(|_| ());
    let record = Record {
        trusted: false,
        ..synced(&spec)
    };
    assert_eq!(
        decide(&spec, Some(&record), at(NOW)),
        SyncDecision::Sync(SyncMode::Complete)
    );
}

#[test]
fn a_transient_failure_is_retried_and_a_stalled_one_waits_for_its_tick() {
    let spec = spec_with(|_| ());
    let failed = |stalled| Record {
        state: RecordState {
            ready: Some(false),
            stalled,
            ..RecordState::default()
        },
        ..synced(&spec)
    };
    assert_eq!(
        decide(&spec, Some(&failed(false)), at(NOW)),
        SyncDecision::Sync(SyncMode::Conditional)
    );
    assert_eq!(decide(&spec, Some(&failed(true)), at(NOW)), SyncDecision::Wait);
    assert_eq!(
        decide(&spec, Some(&failed(true)), at("2026-01-01T10:10:01Z")),
        SyncDecision::Sync(SyncMode::Conditional)
    );
}

#[test]
fn a_partly_pulled_registry_continues_immediately_unless_it_failed() {
    let spec = spec_with(|_| ());
    let part = |ready, stalled| Record {
        index_digest: partial_digest("feed"),
        state: RecordState {
            ready,
            stalled,
            ..RecordState::default()
        },
        ..synced(&spec)
    };
    let decision = |record: Record| decide(&spec, Some(&record), at(NOW));
    assert_eq!(decision(part(None, false)), SyncDecision::Sync(SyncMode::Conditional));
    assert_eq!(decision(part(Some(false), true)), SyncDecision::Wait);
}

#[test]
fn a_confirmed_shrink_is_synced_immediately_unless_the_digest_is_wrong() {
    let confirmed = spec_with(|object| {
        object["metadata"]["annotations"] = serde_json::json!({ "apprepositories.kubeapps.com/allow-shrink": "feed" });
    });
    let refused = |digest: &str| Record {
        refused: Some(Refused {
            confirm: Some(digest.to_owned()),
            inputs: confirmed.refusal_key(),
            ..Refused::default()
        }),
        state: RecordState {
            ready: Some(false),
            stalled: true,
            ..RecordState::default()
        },
        ..synced(&confirmed)
    };
    assert_eq!(
        decide(&confirmed, Some(&refused("feed")), at(NOW)),
        SyncDecision::Sync(SyncMode::Complete)
    );
    assert_eq!(decide(&confirmed, Some(&refused("beef")), at(NOW)), SyncDecision::Wait);
}

#[test]
fn a_suspended_repository_handles_requests_after_resuming() {
    let suspended = spec_with(|object| {
        object["spec"]["suspend"] = true.into();
        object["spec"]["resyncRequests"] = 7.into();
    });
    assert_eq!(
        decide(&suspended, Some(&synced(&spec_with(|_| ()))), at(NOW)),
        SyncDecision::Suspended
    );
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
        state: RecordState {
            ready: Some(false),
            stalled: true,
            ..RecordState::default()
        },
        ..synced(&spec)
    };
    assert_eq!(decide(&spec, Some(&refused), at(NOW)), SyncDecision::Wait);
    let at_tick = decide(&spec, Some(&refused), at("2026-01-01T10:10:01Z"));
    assert_eq!(at_tick, SyncDecision::Sync(SyncMode::Conditional));
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
    assert_eq!(decide(&limited("10"), Some(&refused), at(NOW)), SyncDecision::Wait);
    assert_eq!(
        decide(&limited("20"), Some(&refused), at(NOW)),
        SyncDecision::Sync(SyncMode::Complete)
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
    assert_eq!(decide(&spec, Some(&record(2)), at(NOW)), SyncDecision::Wait);
    assert_eq!(
        decide(&spec, Some(&record(1)), at(NOW)),
        SyncDecision::Sync(SyncMode::Complete)
    );
    assert!(has_lost_charts(&record(0)) && !has_lost_charts(&record(1)));
}

#[test]
fn a_partly_synced_registry_has_charts() {
    let record = |ready, index_digest: &str| Record {
        index_digest: index_digest.to_owned(),
        state: RecordState {
            ready,
            ..RecordState::default()
        },
        ..Record::default()
    };
    assert!(has_charts(&record(Some(true), "a")));
    assert!(has_charts(&record(Some(false), &partial_digest("a"))) && has_charts(&record(None, &partial_digest("a"))));
    assert!(!has_charts(&record(Some(false), "a")) && !has_charts(&record(None, "")));
}

#[test]
fn an_attempt_is_due_at_the_retry_or_the_tick_after_the_last_one() {
    let (created, now) = (at("2026-01-01T00:00:00Z"), at("2026-01-05T10:00:01Z"));
    let daily = spec_with(|object| object["spec"]["interval"] = "0 3 * * *".into());
    let jitter = SignedDuration::try_from(daily.jitter()).unwrap();
    assert_eq!(next_attempt(&daily, None, created, now), Some(created));
    let failed = |stalled| Record {
        last_attempt: Some(at("2026-01-05T10:00:00Z")),
        state: RecordState {
            ready: Some(false),
            stalled,
            failures: 1,
            ..RecordState::default()
        },
        ..synced(&daily)
    };
    let due = next_attempt(&daily, Some(&failed(true)), created, now);
    assert_eq!(due, Some(at("2026-01-06T03:00:00Z") + jitter), "stalled");
    let due = next_attempt(&daily, Some(&failed(false)), created, now).unwrap();
    assert!(due < at("2026-01-05T10:01:00Z"), "{due}");
    let suspended = spec_with(|object| object["spec"]["suspend"] = true.into());
    assert_eq!(next_attempt(&suspended, None, created, now), None);
}

#[test]
fn a_success_is_due_at_the_tick_after_the_last_one_whatever_failed_since() {
    let created = at("2026-01-01T00:00:00Z");
    let daily = spec_with(|object| object["spec"]["interval"] = "0 3 * * *".into());
    let jitter = SignedDuration::try_from(daily.jitter()).unwrap();
    assert_eq!(next_success(&daily, None, created), Some(created));
    let failed = Record {
        last_attempt: Some(at("2026-01-05T10:00:00Z")),
        state: RecordState {
            ready: Some(false),
            ..RecordState::default()
        },
        ..synced(&daily)
    };
    for record in [synced(&daily), failed] {
        let due = next_success(&daily, Some(&record), created);
        assert_eq!(due, Some(at("2026-01-02T03:00:00Z") + jitter));
    }
    let suspended = spec_with(|object| object["spec"]["suspend"] = true.into());
    for record in [None, Some(synced(&suspended))] {
        assert_eq!(next_success(&suspended, record.as_ref(), created), None);
    }
}
