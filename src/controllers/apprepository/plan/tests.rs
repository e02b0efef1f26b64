use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::budget::Full;
use crate::catalog::{self, ChangedCharts, CommitSummary, ErrorKind, Refused};
use crate::controllers::apprepository::sync::request::{SyncAborted, SyncError, SyncOutcome, SyncResult};
use crate::controllers::apprepository::tests::samples::{NOW, at, spec_with, synced};
use crate::helm::index::Skipped;
use crate::http::FetchError;
use crate::runtime::controller::ReconcileError;
use crate::runtime::workqueue::Backoff;

const TICK: &str = "2026-01-01T10:10:00Z";

/// Returns the spec, changed at this JSON pointer.
fn spec(pointer: &str, value: &Value) -> RepositorySpec {
    spec_with(|object| {
        let (parent, field) = pointer.rsplit_once('/').unwrap_or_default();
        if let Some(parent) = object.pointer_mut(parent) {
            parent[field] = value.clone();
        }
    })
}

fn declared() -> RepositorySpec {
    spec_with(|_| ())
}

fn polled() -> RepositorySpec {
    spec(
        "/metadata/annotations",
        &json!({ "portolan.dev/poll-at": "2026-01-01T10:04:00Z" }),
    )
}

fn suspended() -> RepositorySpec {
    spec("/spec/suspend", &json!(true))
}

/// Returns the record of the declared repository, as it is stored after an edit.
fn stored(edit: impl FnOnce(&mut Record)) -> Record {
    let mut record = synced(&declared());
    edit(&mut record);
    record
}

fn of_other_uid(record: &mut Record) {
    record.uid = "u0".to_owned();
}

fn fails(record: &mut Record) {
    (record.state.ready, record.state.failures) = (Some(false), 9);
}

fn slow(record: &mut Record) {
    record.state.slow_syncs = 3;
}

fn of_later_generation(record: &mut Record) {
    (record.generation, record.revision) = (7, Some(42));
}

/// Returns the rows that `spec` takes over.
fn own(spec: &RepositorySpec, record: Option<Record>) -> Rows {
    adopt(spec, record).unwrap()
}

/// Returns a plan in one word, with its argument.
fn planned(
    spec: &RepositorySpec,
    record: Option<Record>,
    class: Option<&'static str>,
    force: bool,
    now: &str,
) -> String {
    let rows = own(spec, record);
    let observed = ObservedRepository {
        spec,
        rows: &rows,
        created: Some(at("2026-01-01T09:00:00Z")),
        class,
        force_sync: force,
    };
    match plan(observed, at(now)) {
        SyncPlan::HandOver(class) => format!("hand over to {class}"),
        SyncPlan::Wait(None) => "wait".to_owned(),
        SyncPlan::Wait(Some(until)) => {
            let delay = until.duration_since(at(now)).unsigned_abs();
            assert_eq!(delay, until_next(spec, rows.record.as_ref(), at(now)));
            "wait for the schedule".to_owned()
        }
        SyncPlan::Sync(request) => {
            assert_eq!((&request.previous, &request.expected_uid), (&rows.record, &rows.uid));
            assert_eq!(request.started, at(now));
            format!("sync {:?} since {}", request.mode, request.fresh_since)
        }
    }
}

#[rstest]
#[case::new(declared(), None, "sync Complete since 2026-01-01T09:00:00Z")]
#[case::synced(declared(), Some(stored(|_| ())), "wait for the schedule")]
#[case::suspended(suspended(), Some(stored(|_| ())), "wait")]
#[case::requested(spec("/spec/resyncRequests", &json!(7)), Some(stored(|_| ())), "sync Complete since 2026-01-01T10:05:00Z")]
#[case::modified_rows(declared(), Some(stored(|record| record.trusted = false)), "sync Complete since 2026-01-01T10:05:00Z")]
#[case::restored(declared(), Some(stored(of_other_uid)), "sync Complete since 2026-01-01T10:05:00Z")]
#[case::refused(declared(), Some(stored(|record| {
    record.refused = Some(Refused { inputs: declared().refusal_key(), ..Refused::default() });
    (record.state.ready, record.state.stalled) = (Some(false), true);
})), "wait for the schedule")]
#[case::failed_just_now(declared(), Some(stored(|record| {
    record.last_attempt = Some(at(NOW));
    (record.state.ready, record.state.failures) = (Some(false), 1);
})), "wait for the schedule")]
#[case::slow(declared(), Some(stored(slow)), "hand over to apprepository/slow")]
#[case::slow_at_another_url(spec("/spec/url", &json!("https://mended.example.com")), Some(stored(slow)), "sync Complete since 2026-01-01T10:05:00Z")]
fn between_two_ticks_a_repository_waits_unless_something_has_changed(
    #[case] spec: RepositorySpec,
    #[case] record: Option<Record>,
    #[case] expected: &str,
) {
    assert_eq!(planned(&spec, record, Some(NAME), false, NOW), expected);
}

#[rstest]
#[case::synced(stored(|_| ()), Some(NAME), "sync Conditional since 2026-01-01T10:10:00Z")]
#[case::slow(stored(slow), Some(SLOW), "sync Conditional since 2026-01-01T10:10:00Z")]
#[case::no_longer_slow(stored(|_| ()), Some(SLOW), "hand over to apprepository")]
#[case::slow_with_run_once(stored(slow), None, "sync Conditional since 2026-01-01T10:10:00Z")]
fn a_tick_is_handled_by_the_class_of_the_repository(
    #[case] record: Record,
    #[case] class: Option<&'static str>,
    #[case] expected: &str,
) {
    assert_eq!(planned(&declared(), Some(record), class, false, TICK), expected);
}

#[rstest]
#[case::by_a_secret(declared(), Some(NAME), true, "sync Conditional since 2026-01-01T10:05:00Z")]
#[case::by_run_once(declared(), None, false, "sync Conditional since 2026-01-01T10:05:00Z")]
#[case::while_suspended(suspended(), None, true, "wait")]
fn a_forced_sync_needs_no_tick_and_takes_only_new_responses(
    #[case] spec: RepositorySpec,
    #[case] class: Option<&'static str>,
    #[case] force: bool,
    #[case] expected: &str,
) {
    // A response since the last tick would do for a scheduled sync, and the clock is before the next one.
    assert_eq!(planned(&spec, Some(stored(|_| ())), class, force, NOW), expected);
}

#[rstest]
#[case::unlisted(Execution::Unknown { is_overdue: false }, JobsPlan::Await { is_overdue: false })]
#[case::overdue(Execution::Unknown { is_overdue: true }, JobsPlan::Await { is_overdue: true })]
#[case::of_an_earlier_executor(Execution::InProcess, JobsPlan::End)]
#[case::wanted(Execution::Jobs, JobsPlan::Run(None))]
fn jobs_are_listed_before_they_are_ended_or_written(#[case] execution: Execution, #[case] expected: JobsPlan) {
    let (spec, rows) = (declared(), own(&declared(), Some(stored(|_| ()))));
    let observed = ObservedRepository {
        spec: &spec,
        rows: &rows,
        created: None,
        class: Some(NAME),
        force_sync: false,
    };
    assert_eq!(plan_jobs(observed, execution, at(NOW)), expected);
}

#[rstest]
#[case::new(declared(), None, false, Some(DueSync::default()))]
#[case::at_its_tick(declared(), Some(stored(|_| ())), false, None)]
#[case::forced(declared(), Some(stored(|_| ())), true, Some(DueSync { is_forced: true, ..DueSync::default() }))]
#[case::forced_while_suspended(suspended(), Some(stored(|_| ())), true, None)]
#[case::requested(spec("/spec/resyncRequests", &json!(7)), Some(stored(|_| ())), false, Some(DueSync::default()))]
#[case::polled(polled(), Some(stored(|_| ())), false, Some(DueSync { is_poll: true, ..DueSync::default() }))]
#[case::polled_while_failing(polled(), Some(stored(fails)), false, None)]
#[case::looked_at_again(polled(), Some(stored(|record| {
    record.poll.at = polled().requests.poll_at;
})), false, Some(DueSync { is_poll: true, look: Some(at("2026-01-01T10:04:10Z")), ..DueSync::default() }))]
#[case::taken_over(declared(), Some(stored(of_other_uid)), false, Some(DueSync {
    replaces_uid: Some("u0".to_owned()),
    ..DueSync::default()
}))]
#[case::of_a_later_generation(declared(), Some(stored(of_later_generation)), false, Some(DueSync {
    later: Some(LaterSync { revision: Some(42) }),
    ..DueSync::default()
}))]
#[case::of_a_later_generation_of_another(declared(), Some(stored(|record| {
    of_later_generation(record);
    of_other_uid(record);
})), false, Some(DueSync { replaces_uid: Some("u0".to_owned()), ..DueSync::default() }))]
fn changes_and_requests_need_a_job_of_their_own(
    #[case] spec: RepositorySpec,
    #[case] record: Option<Record>,
    #[case] force: bool,
    #[case] expected: Option<DueSync>,
) {
    let rows = own(&spec, record);
    let observed = ObservedRepository {
        spec: &spec,
        rows: &rows,
        created: None,
        class: Some(NAME),
        force_sync: force,
    };
    assert_eq!(plan_jobs(observed, Execution::Jobs, at(TICK)), JobsPlan::Run(expected));
}

#[test]
fn rows_belong_to_the_uid_they_were_written_for() {
    let spec = declared();
    let record = Record {
        etag: Some("\"a\"".to_owned()),
        index_digest: "feed".to_owned(),
        ..stored(|_| ())
    };
    assert_eq!(adopt(&spec, None), Ok(Rows::default()));
    let same = Rows {
        uid: Some("u1".to_owned()),
        record: Some(record.clone()),
    };
    assert_eq!(adopt(&spec, Some(record.clone())), Ok(same));

    let restored = Record {
        uid: "u0".to_owned(),
        ..record.clone()
    };
    let rows = own(&spec, Some(restored));
    let kept = rows.record.unwrap();
    assert_eq!(rows.uid.as_deref(), Some("u0"));
    assert_eq!(
        (kept.etag, kept.index_digest, kept.last_attempt),
        (None, String::new(), None)
    );
    assert_eq!(
        kept.change_key,
        spec.change_key.source(),
        "the baseline of the shrink guard stays"
    );

    let other = Record {
        uid: "u0".to_owned(),
        url: "https://example.com/other".to_owned(),
        ..record
    };
    let replaced = Replaced { uid: "u0".to_owned() };
    assert_eq!(adopt(&spec, Some(other)), Err(replaced));
}

fn synced_charts(is_complete: bool) -> SyncOutcome {
    let mut written = ChangedCharts::default();
    written.extend(["stable/web".to_owned()]);
    SyncOutcome::Synced {
        committed: CommitSummary {
            written,
            ..CommitSummary::default()
        },
        skipped: Skipped::default(),
        is_complete,
    }
}

fn failed(transient: bool, retry_after: Option<u64>) -> SyncError {
    SyncError {
        transient,
        retry_after: retry_after.map(Duration::from_secs),
        ..SyncError::stalled("FetchFailed", "no response")
    }
}

fn spool_is_full() -> SyncError {
    FetchError::SpoolFull(Full { limit: 1 << 20 }).into()
}

fn retried(seconds: u64, at_least: u64) -> Result<Action, ReconcileError> {
    retried_for("no response", seconds, at_least)
}

fn retried_for(message: &str, seconds: u64, at_least: u64) -> Result<Action, ReconcileError> {
    let delay = Duration::from_secs(seconds);
    Err(ReconcileError::Transient {
        message: message.to_owned(),
        backoff: Backoff {
            base: delay,
            cap: delay,
        },
        at_least: Duration::from_secs(at_least),
    })
}

fn requeued(seconds: u64, priority: Priority) -> Result<Action, ReconcileError> {
    Ok(Action::RequeueAfter {
        delay: Duration::from_secs(seconds),
        priority: Some(priority),
    })
}

#[rstest]
#[case::not_modified(SyncOutcome::NotModified, 0, requeued(60, Priority::LOW))]
#[case::synced(synced_charts(true), 0, requeued(60, Priority::LOW))]
#[case::partly_pulled(synced_charts(false), 0, requeued(0, Priority::CONTINUED))]
#[case::first_failure(SyncOutcome::Failed(failed(true, None)), 1, retried(5, 0))]
#[case::third_failure(SyncOutcome::Failed(failed(true, None)), 3, retried(20, 0))]
#[case::a_server_that_asked_for_a_pause(SyncOutcome::Failed(failed(true, Some(600))), 1, retried(5, 600))]
#[case::interrupted(SyncOutcome::Interrupted(failed(true, None)), 2, retried(10, 0))]
#[case::a_full_share_of_the_spool(SyncOutcome::Failed(spool_is_full()), 1, retried_for(&spool_is_full().message, 5, 0))]
#[case::stalled(SyncOutcome::Failed(failed(false, None)), 1, Err(ReconcileError::Terminal {
    message: "no response".to_owned(),
    retry_after: Some(Duration::from_secs(60)),
}))]
fn the_next_reconcile_follows_from_the_outcome_and_the_failures_in_a_row(
    #[case] outcome: SyncOutcome,
    #[case] failures: u32,
    #[case] expected: Result<Action, ReconcileError>,
) {
    assert_eq!(after_sync(outcome, failures, Duration::from_secs(60)), expected);
}

#[rstest]
#[case::known_charts(SyncMode::Conditional, true, synced_charts(true), false)]
#[case::complete(SyncMode::Complete, true, synced_charts(true), true)]
#[case::of_another_writer(SyncMode::Conditional, false, synced_charts(true), true)]
#[case::interrupted(SyncMode::Conditional, true, SyncOutcome::Interrupted(failed(true, None)), true)]
fn all_charts_may_lack_files_unless_the_written_ones_are_known(
    #[case] mode: SyncMode,
    #[case] trusted: bool,
    #[case] outcome: SyncOutcome,
    #[case] expected: bool,
) {
    let request = SyncRequest {
        spec: declared(),
        previous: Some(stored(|record| record.trusted = trusted)),
        expected_uid: None,
        mode,
        started: at(NOW),
        fresh_since: at(NOW),
    };
    assert_eq!(changed_charts(&request, &outcome) == ChangedCharts::ALL, expected);
    assert!(changed_charts(&request, &SyncOutcome::NotModified).is_empty());
    assert!(changed_charts(&request, &SyncOutcome::Failed(failed(true, None))).is_empty());
}

fn superseded() -> SyncAborted {
    let repository = declared().name;
    SyncAborted::Catalog(ErrorKind::Superseded { repository }.into())
}

fn database_failed() -> SyncAborted {
    SyncAborted::Catalog(catalog::Error::from(ErrorKind::ReadOnlyServer))
}

#[test]
fn only_a_superseded_sync_looks_for_an_outdated_tombstone() {
    assert!(matches!(after_abort(SyncAborted::Cancelled), AbortPlan::AwaitEvent));
    assert!(matches!(after_abort(superseded()), AbortPlan::ForgetTombstone));
    let AbortPlan::ReportDatabase(error) = after_abort(database_failed()) else {
        panic!("a fault of the database")
    };
    assert_eq!(*error.kind(), ErrorKind::ReadOnlyServer);
}

#[rstest]
#[case::not_modified(Ok(SyncOutcome::NotModified), Some("not_modified"), true)]
#[case::synced(Ok(synced_charts(true)), Some("success"), true)]
#[case::interrupted(Ok(SyncOutcome::Interrupted(failed(true, None))), Some("error"), true)]
#[case::transient(Ok(SyncOutcome::Failed(failed(true, None))), Some("error"), false)]
#[case::stalled(Ok(SyncOutcome::Failed(failed(false, None))), Some("stalled"), true)]
#[case::canceled(Err(SyncAborted::Cancelled), None, false)]
#[case::superseded(Err(superseded()), None, false)]
#[case::database(Err(database_failed()), Some("database"), false)]
fn a_sync_is_counted_by_its_result_and_repeated_for_a_changed_secret_unless_it_used_it(
    #[case] outcome: Result<SyncOutcome, SyncAborted>,
    #[case] label: Option<&str>,
    #[case] used_secrets: bool,
) {
    let result = outcome.map(|outcome| SyncResult {
        record: Record::default(),
        outcome,
    });
    assert_eq!(metric_label(&result), label);
    assert_eq!(has_used_secrets(&result), used_secrets);
}
