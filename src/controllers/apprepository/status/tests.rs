use super::*;
use crate::catalog::Handled;
use crate::text::{MAX_TEXT, is_control, is_invisible};

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

fn state(ready: bool, stalled: bool, reason: &str) -> RecordState {
    RecordState {
        ready: Some(ready),
        stalled,
        reason: reason.to_owned(),
        message: "the server said 404".to_owned(),
        ..RecordState::default()
    }
}

fn record(state: RecordState) -> Record {
    Record {
        state,
        last_success: Some(at("2026-01-01T10:00:00.4Z")),
        handled: Handled {
            last: Some("now".to_owned()),
            ..Handled::default()
        },
        trusted: true,
        ..Record::default()
    }
}

fn facts(record: Option<&Record>) -> Facts<'_> {
    Facts {
        generation: Some(3),
        suspended: false,
        is_new_spec: false,
        record,
        unrecorded: None,
        phase: SyncPhase::Idle,
        files: ImportProgress::Disabled,
        now: at("2026-01-01T11:00:00Z"),
    }
}

/// Returns type, status and reason of each condition.
fn shape(status: &AppRepositoryStatus) -> Vec<(&str, &str, &str)> {
    status
        .conditions
        .iter()
        .map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_str()))
        .collect()
}

#[test]
fn never_synced_is_unknown_and_reconciling() {
    let status = build(&facts(None), None);
    assert_eq!(
        shape(&status),
        [("Ready", "Unknown", "Syncing"), ("Reconciling", "True", "Syncing")]
    );
    assert_eq!(status.observed_generation, Some(3));
    assert!(
        status
            .conditions
            .iter()
            .all(|condition| condition.observed_generation == Some(3))
    );
}

#[test]
fn synced_is_ready_and_nothing_else() {
    let record = record(state(true, false, "Synced"));
    let status = build(&facts(Some(&record)), None);
    assert_eq!(shape(&status), [("Ready", "True", "Synced")]);
    assert_eq!(status.status.as_deref(), Some("Ready"));
    assert_eq!(status.last_handled_reconcile_at.as_deref(), Some("now"));
    assert_eq!(status.last_sync_time, Some(Time(at("2026-01-01T10:00:00Z"))));
}

#[test]
fn a_partly_pulled_registry_is_reconciling() {
    let record = record(RecordState {
        ready: None,
        message: "500 of 800 versions are pulled".to_owned(),
        ..state(true, false, "Progressing")
    });
    let status = build(&facts(Some(&record)), None);
    assert_eq!(
        shape(&status),
        [
            ("Ready", "Unknown", "Progressing"),
            ("Reconciling", "True", "Progressing")
        ]
    );
    assert!(status.conditions.iter().all(|c| c.message.starts_with("500 of 800")));
}

#[test]
fn a_transient_failure_is_reconciling_and_reports_the_available_charts() {
    let record = record(state(false, false, "ServerError"));
    let status = build(&facts(Some(&record)), None);
    assert_eq!(
        shape(&status),
        [("Ready", "False", "ServerError"), ("Reconciling", "True", "Retrying")]
    );
    let message = &status.conditions[0].message;
    assert_eq!(
        message,
        "The server said 404. Charts from the last sync at 2026-01-01T10:00:00Z remain available."
    );
    assert!(status.status.unwrap().starts_with("Failed: "));
}

#[test]
fn a_permanent_failure_is_stalled() {
    let record = record(state(false, true, "NotFound"));
    assert_eq!(
        shape(&build(&facts(Some(&record)), None)),
        [("Ready", "False", "NotFound"), ("Stalled", "True", "NotFound")]
    );
}

#[test]
fn a_lost_catalog_is_distinguished_from_a_new_repository() {
    let before = AppRepositoryStatus {
        last_sync_time: Some(Time(at(NOON))),
        ..AppRepositoryStatus::default()
    };
    let status = build(&facts(None), Some(&before));
    assert_eq!(status.conditions[0].reason, "RebuildingCatalog");
    assert_eq!(status.last_sync_time, before.last_sync_time);
}

const NOON: &str = "2026-01-01T12:00:00Z";

#[test]
fn lost_charts_are_not_ready_and_not_available() {
    let mut lost = record(state(true, false, "Synced"));
    lost.trusted = false;
    assert_eq!(
        build(&facts(Some(&lost)), None).conditions[0].reason,
        "RebuildingCatalog"
    );
    lost.state = state(false, false, "ServerError");
    assert_eq!(
        build(&facts(Some(&lost)), None).conditions[0].message,
        "The server said 404."
    );
}

#[test]
fn unreadable_records_keep_the_previous_status() {
    let known = record(state(true, false, "Synced"));
    let before = build(&facts(Some(&known)), None);
    let away = state(false, false, "DatabaseUnreachable");
    let status = build(
        &Facts {
            unrecorded: Some(&away),
            ..facts(None)
        },
        Some(&before),
    );
    assert_eq!(status.last_handled_reconcile_at.as_deref(), Some("now"));
    assert!(
        status.conditions[0].message.contains("remain available"),
        "{:?}",
        status.conditions[0]
    );
}

#[test]
fn a_resync_of_the_same_spec_keeps_ready_and_is_reconciling() {
    let record = record(state(true, false, "Synced"));
    let status = build(
        &Facts {
            phase: SyncPhase::Syncing,
            ..facts(Some(&record))
        },
        None,
    );
    assert_eq!(
        shape(&status),
        [("Ready", "True", "Synced"), ("Reconciling", "True", "Syncing")]
    );
}

#[test]
fn a_changed_spec_is_unknown_until_it_was_synced() {
    for (ready, reason) in [(true, "Synced"), (false, "NotFound")] {
        let record = record(state(ready, !ready, reason));
        let status = build(
            &Facts {
                phase: SyncPhase::Syncing,
                is_new_spec: true,
                ..facts(Some(&record))
            },
            None,
        );
        assert_eq!(
            shape(&status),
            [("Ready", "Unknown", "Syncing"), ("Reconciling", "True", "Syncing")]
        );
        assert_eq!(status.conditions[0].observed_generation, Some(3));
        assert_eq!(
            status.conditions[0].message,
            "The changed spec is being synced. Charts from the last sync at 2026-01-01T10:00:00Z remain available."
        );
    }
    // The failure of an attempt that could not be recorded is shown.
    let (known, away) = (
        record(state(true, false, "Synced")),
        state(false, false, "DatabaseUnreachable"),
    );
    let status = build(
        &Facts {
            is_new_spec: true,
            unrecorded: Some(&away),
            ..facts(Some(&known))
        },
        None,
    );
    assert_eq!(status.conditions[0].reason, "DatabaseUnreachable");
}

#[test]
fn a_suspended_repository_keeps_ready_for_the_generation_that_was_synced() {
    let synced = Record {
        generation: 2,
        ..record(state(true, false, "Synced"))
    };
    let status = build(
        &Facts {
            suspended: true,
            is_new_spec: true,
            ..facts(Some(&synced))
        },
        None,
    );
    assert_eq!(shape(&status), [("Ready", "True", "Synced")]);
    assert_eq!(status.conditions[0].observed_generation, Some(2));
    assert_eq!(status.observed_generation, Some(3));
}

#[test]
fn suspension_keeps_ready_and_removes_reconciling() {
    let failed = record(state(false, false, "ServerError"));
    let status = build(
        &Facts {
            suspended: true,
            ..facts(Some(&failed))
        },
        None,
    );
    assert_eq!(shape(&status), [("Ready", "False", "ServerError")]);
    assert_eq!(status.suspended, Some(true));
}

#[test]
fn an_unchanged_condition_keeps_its_transition_time() {
    let record = record(state(true, false, "Synced"));
    let first = build(&facts(Some(&record)), None);
    let second = build(
        &Facts {
            now: at(NOON),
            ..facts(Some(&record))
        },
        Some(&first),
    );
    assert_eq!(
        second.conditions[0].last_transition_time,
        first.conditions[0].last_transition_time
    );
    let mut failed = record.clone();
    failed.state = state(false, true, "NotFound");
    let third = build(
        &Facts {
            now: at(NOON),
            ..facts(Some(&failed))
        },
        Some(&second),
    );
    assert_eq!(third.conditions[0].last_transition_time, Time(at(NOON)));
}

#[test]
fn a_later_time_alone_is_written_only_after_an_hour() {
    let mut record = record(state(true, false, "Synced"));
    let old = build(&facts(Some(&record)), None);
    record.last_success = Some(at("2026-01-01T10:59:00Z"));
    assert!(!needs_update(Some(&old), &build(&facts(Some(&record)), Some(&old))));
    record.last_success = Some(at("2026-01-01T11:00:02Z"));
    assert!(needs_update(Some(&old), &build(&facts(Some(&record)), Some(&old))));
    record.handled.last = Some("later".to_owned());
    record.last_success = Some(at("2026-01-01T10:00:01Z"));
    assert!(needs_update(Some(&old), &build(&facts(Some(&record)), Some(&old))));
}

#[test]
fn a_message_becomes_a_sentence_without_changing_names() {
    assert_eq!(sentence("the index is empty"), "The index is empty.");
    assert_eq!(sentence("Kubeapps' copy is gone!"), "Kubeapps' copy is gone!");
    for named in [
        "oci://host/ports answered 404.",
        "charts.example.com is away.",
        "lib64 is old.",
    ] {
        assert_eq!(sentence(named), named);
    }
    assert_eq!(sentence(""), ".");
}

#[test]
fn a_hostile_message_is_cut_and_loses_control_and_invisible_characters() {
    let mut record = record(state(false, true, "NotFound"));
    record.state.message = "\u{202e}x\u{200b}\u{1b}[31m\n".repeat(40_000);
    let status = build(&facts(Some(&record)), None);
    let texts = status.conditions.iter().map(|condition| &condition.message);
    for text in texts.chain(&status.status) {
        assert!(
            text.contains('x') && text.len() <= MAX_TEXT + "Failed: ".len(),
            "{}",
            text.len()
        );
        assert!(!text.contains(|c| is_control(c) || is_invisible(c)), "{text:?}");
    }
}
