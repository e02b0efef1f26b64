use std::collections::{HashMap, HashSet};
use std::io;
use std::time::Duration;

use jiff::Timestamp;

use super::commit_result::{CommitResult, elapsed_since, history_result, is_new_failure, ready_state};
use super::request::{SyncAborted, SyncError, SyncOutcome, SyncRequest, SyncResult};
use super::rows::Spool;
use super::{DecodedRows, Retain, SyncerRun, spool_error};
use crate::api::LastSync;
use crate::catalog::{DeprecatedCharts, ErrorKind, HistoryEntry, Record, RecordState, Refused, Retention, SyncCommit};
use crate::controllers::apprepository::decision::{
    SyncMode, handled, handled_poll, partial_digest, retry_at, slow_syncs,
};
use crate::controllers::apprepository::news::is_failure_reported;
use crate::controllers::apprepository::sync_summary::{SyncCounts, last_sync_of, ready_message};
use crate::helm::index;
use crate::http::Validators;

pub(super) async fn save_unchanged(
    run: &SyncerRun<'_>,
    validators: Option<Validators>,
) -> Result<SyncResult, SyncAborted> {
    let mut record = new_record(run);
    let has_recovered = record.state.ready == Some(false);
    let was_failure_reported = record.state.failure_reported;
    if let Some(validators) = validators {
        record.etag = validators.etag;
        record.last_modified = validators.last_modified;
    }
    record.refused = None;
    record.credentials.clone_from(&run.secret_versions);
    record.last_success = Some(Timestamp::now());
    if let Some(last_sync) = last_sync_of(&record).filter(|last_sync| last_sync.kept > 0) {
        drop_expired(run, &mut record, last_sync).await?;
    }
    record.state = ready_state(last_sync_of(&record).as_ref().map_or_else(String::new, ready_message));
    let history = has_recovered.then(|| history(run.request.started, &record, "Succeeded", &record.index_digest));
    let (uid, sinks) = (run.request.expected_uid.as_deref(), &run.request.spec.news_sinks);
    run.catalog()
        .save_with_news(&record, uid, history.as_ref(), sinks, was_failure_reported)
        .await?;
    Ok(SyncResult {
        record,
        outcome: SyncOutcome::NotModified,
    })
}

/// Deletes retained versions whose retention has expired, although the index did not change.
async fn drop_expired(run: &SyncerRun<'_>, record: &mut Record, mut last_sync: LastSync) -> Result<(), SyncAborted> {
    let uid = run.request.expected_uid.as_deref().unwrap_or_default();
    let sinks = &run.request.spec.news_sinks;
    let dropped = run.catalog().drop_expired(record, uid, Timestamp::now(), sinks).await?;
    if dropped > 0 {
        last_sync.kept = last_sync.kept.saturating_sub_unsigned(dropped).max(0);
        // A summary holds string keys and finite numbers only, so that JSON can't fail.
        record.last_sync = serde_json::to_value(last_sync).ok();
    }
    Ok(())
}

pub(super) async fn save_failed(
    run: &SyncerRun<'_>,
    failed: SyncError,
    refused: Option<Refused>,
) -> Result<SyncResult, SyncAborted> {
    let mut record = new_record(run);
    let is_new = is_new_failure(&record, &failed);
    let before = record.state.clone();
    record.state = RecordState {
        ready: Some(false),
        stalled: !failed.transient,
        reason: failed.reason.clone(),
        message: failed.message.clone(),
        failures: before.failures.saturating_add(1),
        ..failed_state(run, &failed, false)
    };
    let (uid, sinks) = (run.request.expected_uid.as_deref(), &run.request.spec.news_sinks);
    record.state.failure_reported = is_failure_reported(&before, &record.state, !sinks.is_empty());
    if refused.is_some() {
        record.credentials.clone_from(&run.secret_versions);
    }
    record.refused = refused;
    if run.request.mode == SyncMode::Complete {
        // The comparison is still due: the next sync must not trust "not modified".
        record.etag = None;
        record.last_modified = None;
        record.index_digest.clear();
    }
    let digest = record.refused.as_ref().map_or("", |refused| &refused.digest);
    let history = is_new.then(|| history(run.request.started, &record, history_result(Some(&failed)), digest));
    run.catalog()
        .save_with_news(&record, uid, history.as_ref(), sinks, before.failure_reported)
        .await?;
    Ok(SyncResult {
        record,
        outcome: SyncOutcome::Failed(failed),
    })
}

pub(super) async fn commit(run: &SyncerRun<'_>, decoded: DecodedRows) -> Result<SyncResult, SyncAborted> {
    let before = new_record(run);
    let mut record = committed_record(run, &before, &decoded);
    let commit_result = commit_result(run, before, &record, &decoded);
    let DecodedRows {
        spool,
        filtered_out,
        deprecated,
        sha256,
        retain,
        gone,
        digests,
        memory,
        ..
    } = decoded;
    let read = spool
        .into_rows()
        .and_then(|rows| Ok((rows, deprecated_charts(deprecated, &retain)?)));
    let (rows, deprecated) = match read {
        Ok(read) => read,
        Err(error) => return save_failed(run, spool_error(&error), None).await,
    };
    let mut commit = SyncCommit::new(record.clone(), run.request.expected_uid.clone(), sha256).complete_record_with({
        let commit_result = commit_result.clone();
        move |committed, record| {
            commit_result.complete(committed, record);
            commit_result.history(committed, record)
        }
    });
    commit.retention = retention(run.syncer.context.keep_removed, retain, filtered_out);
    commit.deprecated = deprecated;
    commit.digests = digests;
    commit.oci_removals = Some(gone).filter(|gone| !gone.is_empty());
    commit.is_complete = run.request.mode == SyncMode::Complete;
    commit.sinks.clone_from(&run.request.spec.news_sinks);
    let committed = match run.catalog().commit(commit, rows).await {
        Ok(committed) => committed,
        // Not remembered as refused: space may become free without a change of the index.
        Err(error) if matches!(error.kind(), ErrorKind::QuotaExceeded { .. }) => {
            let failed = SyncError::stalled(error.reason(), error.to_string());
            return save_failed(run, failed, None).await;
        }
        Err(error) => return Err(error.into()),
    };
    drop(memory);
    commit_result.complete(&committed, &mut record);
    (record.trusted, record.charts) = (true, commit_result.counts.charts);
    Ok(SyncResult {
        record,
        outcome: commit_result.outcome(committed),
    })
}

/// Returns the record of a sync that writes these rows, without their counts.
fn committed_record(run: &SyncerRun<'_>, before: &Record, decoded: &DecodedRows) -> Record {
    Record {
        etag: decoded.validators.etag.clone(),
        last_modified: decoded.validators.last_modified.clone(),
        index_digest: match decoded.remaining {
            Some(_) => partial_digest(&decoded.sha256),
            None => decoded.sha256.clone(),
        },
        change_key: run.request.spec.change_key.as_str().to_owned(),
        baseline: Some(decoded.baseline),
        refused: None,
        credentials: run.secret_versions.clone(),
        last_success: Some(Timestamp::now()),
        ..before.clone()
    }
}

fn commit_result(run: &SyncerRun<'_>, before: Record, record: &Record, decoded: &DecodedRows) -> CommitResult {
    let remaining = decoded.remaining.as_ref();
    let error = remaining.and_then(|remaining| remaining.error.as_ref());
    let made_progress = remaining.is_some_and(|remaining| remaining.made_progress);
    CommitResult {
        before,
        counts: SyncCounts {
            charts: decoded.spool.charts(),
            versions: decoded.spool.versions(),
            filtered: decoded.filtered_out.len() as u64,
        },
        started: run.request.started,
        history: history(run.request.started, record, history_result(error), &decoded.sha256),
        summary: decoded.summary.clone(),
        failed_state: error
            .map(|error| failed_state(run, error, made_progress))
            .unwrap_or_default(),
        remaining: decoded.remaining.clone(),
        has_sinks: !run.request.spec.news_sinks.is_empty(),
    }
}

fn retention(keep_removed: Option<Duration>, retain: Retain, filtered_out: HashSet<String>) -> Option<Retention> {
    let (duration, kept) = match retain {
        Retain::All => (Some(Duration::MAX), HashMap::new()),
        Retain::Charts(kept) => {
            let retains_charts = (!kept.is_empty()).then_some(Duration::ZERO);
            (keep_removed.or(retains_charts), kept)
        }
    };
    duration.map(|duration| Retention {
        now: Timestamp::now(),
        duration,
        order: index::newest_first,
        filtered_out,
        retained: kept,
    })
}

/// Returns the record of this sync as far as it is independent of the outcome.
fn new_record(run: &SyncerRun<'_>) -> Record {
    let SyncRequest {
        spec,
        previous,
        started,
        ..
    } = &run.request;
    let mut record = previous.clone().unwrap_or_else(|| Record {
        name: spec.name.clone(),
        ..Record::default()
    });
    let is_changed = record.spec_hash.as_deref() != Some(spec.spec_hash.as_str()) || record.uid != spec.uid;
    // Also if it is lower, after a restore of the API server.
    record.generation = spec.generation.unwrap_or(record.generation + i64::from(is_changed));
    record.spec_hash = Some(spec.spec_hash.clone());
    record.uid.clone_from(&spec.uid);
    record.origin.clone_from(&run.syncer.context.origin);
    record.url.clone_from(&spec.url);
    record.kind = spec.kind.as_str().to_owned();
    record.handled = handled(spec, &record.handled);
    record.poll = handled_poll(spec, &record.poll);
    record.schedule = spec.schedule.clone().or(record.schedule);
    record.last_attempt = Some(*started);
    record
}

/// Returns the part of the state of a failed sync that decides when and among which repositories it is retried.
fn failed_state(run: &SyncerRun<'_>, failed: &SyncError, made_progress: bool) -> RecordState {
    let spec = &run.request.spec;
    let previous = (run.request.previous.as_ref()).filter(|previous| previous.url == spec.url);
    let before = previous.map_or(0, |previous| previous.state.slow_syncs);
    let requests = &run.attempt.requests;
    RecordState {
        slow_syncs: if made_progress && !requests.is_aborted() {
            0
        } else {
            slow_syncs(before, requests.unanswered(), requests.is_aborted())
        },
        retry_at: retry_at(failed.retry_after, Timestamp::now()),
        ..RecordState::default()
    }
}

fn history(started_at: Timestamp, record: &Record, result: &str, digest: &str) -> HistoryEntry {
    HistoryEntry {
        started_at,
        duration: elapsed_since(started_at),
        result: result.to_owned(),
        reason: record.state.reason.clone(),
        message: record.state.message.clone(),
        digest: digest.to_owned(),
        ..HistoryEntry::default()
    }
}

fn deprecated_charts(spool: Spool, retain: &Retain) -> io::Result<DeprecatedCharts> {
    let current: HashSet<String> = spool.ids().map(str::to_owned).collect();
    let rows: Box<dyn Iterator<Item = _> + Send> = Box::new(spool.into_rows()?);
    Ok(DeprecatedCharts {
        current,
        rows: Some(rows),
        keeps_others: !matches!(retain, Retain::Charts(charts) if charts.is_empty()),
    })
}
