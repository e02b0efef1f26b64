use std::time::Duration;

use jiff::Timestamp;

use super::Remaining;
use super::request::{SyncError, SyncOutcome};
use crate::catalog::{CommitSummary, HistoryEntry, Record, RecordState};
use crate::controllers::apprepository::news::is_failure_reported;
use crate::controllers::apprepository::sync_summary::{
    SyncCounts, changes, last_sync, last_sync_of, ready_message, unless_quiet, with_earlier,
};
use crate::helm::index::Summary;

/// Data for the record and history of a commit, completed inside the transaction.
#[derive(Clone)]
pub(super) struct CommitResult {
    pub(super) before: Record,
    pub(super) counts: SyncCounts,
    pub(super) summary: Summary,
    pub(super) started: Timestamp,
    pub(super) history: HistoryEntry,
    pub(super) remaining: Option<Remaining>,
    pub(super) failed_state: RecordState,
    pub(super) has_sinks: bool,
}

impl CommitResult {
    pub(super) fn complete(&self, committed: &CommitSummary, record: &mut Record) {
        record.poll.has_found |= committed.is_change();
        let new = last_sync(&self.summary, &self.counts, committed, self.started);
        let mut last_sync = match last_sync_of(&self.before) {
            Some(earlier) if self.before.is_partial() => with_earlier(new, &earlier),
            earlier => unless_quiet(new, earlier),
        };
        record.state = match &self.remaining {
            Some(remaining) => {
                // Versions are retained while it is unknown whether they were removed.
                last_sync.kept = 0;
                partial_state(remaining, self.before.state.failures, &self.failed_state)
            }
            None => ready_state(ready_message(&last_sync)),
        };
        record.state.failure_reported = is_failure_reported(&self.before.state, &record.state, self.has_sinks);
        // A summary holds string keys and finite numbers only, so that JSON can't fail.
        record.last_sync = serde_json::to_value(last_sync).ok();
    }

    pub(super) fn history(self, committed: &CommitSummary, record: &Record) -> Option<HistoryEntry> {
        let is_recorded = match &self.remaining {
            None => self.before.state.ready != Some(true) || committed.is_change(),
            // A sync in several parts is reported once, at its end.
            Some(remaining) => (remaining.error.as_ref()).is_some_and(|failed| is_new_failure(&self.before, failed)),
        };
        let changes = changes(Some(&self.before), record, committed);
        let [added, changed, removed] = changes.map(|count| u64::try_from(count).unwrap_or_default());
        is_recorded.then(|| HistoryEntry {
            duration: elapsed_since(self.started),
            skipped: self.summary.skipped.count + committed.rejected.len() as u64,
            reason: record.state.reason.clone(),
            message: record.state.message.clone(),
            charts: self.counts.charts,
            versions: self.counts.versions,
            added,
            changed,
            removed,
            ..self.history
        })
    }

    pub(super) fn outcome(self, committed: CommitSummary) -> SyncOutcome {
        let mut skipped = self.summary.skipped;
        for (chart, reason) in &committed.rejected {
            skipped.add(chart, None, reason);
        }
        match self.remaining {
            Some(Remaining { error: Some(error), .. }) => SyncOutcome::Interrupted(error),
            remaining => SyncOutcome::Synced {
                committed,
                skipped,
                is_complete: remaining.is_none(),
            },
        }
    }
}

pub(super) fn ready_state(message: String) -> RecordState {
    RecordState {
        ready: Some(true),
        stalled: false,
        reason: "Synced".to_owned(),
        message,
        ..RecordState::default()
    }
}

fn partial_state(remaining: &Remaining, failures: u32, failed_state: &RecordState) -> RecordState {
    match &remaining.error {
        Some(error) => RecordState {
            ready: Some(false),
            stalled: false,
            reason: error.reason.clone(),
            message: error.message.clone(),
            // A sync that made progress is retried soon.
            failures: if remaining.made_progress {
                1
            } else {
                failures.saturating_add(1)
            },
            ..failed_state.clone()
        },
        None => RecordState {
            ready: None,
            stalled: false,
            reason: "Progressing".to_owned(),
            message: if remaining.pulled < remaining.listed {
                format!(
                    "{} of {} versions are pulled. Previously synced charts are kept until the others follow.",
                    remaining.pulled, remaining.listed
                )
            } else {
                "All versions are pulled. Checking for retagged versions.".to_owned()
            },
            ..RecordState::default()
        },
    }
}

pub(super) fn history_result(failed: Option<&SyncError>) -> &'static str {
    match failed {
        None => "Succeeded",
        Some(failed) if failed.transient => "Failed",
        Some(_) => "Stalled",
    }
}

/// Returns true unless the failure repeats the last one, which is recorded once.
pub(super) fn is_new_failure(before: &Record, failed: &SyncError) -> bool {
    before.state.ready != Some(false) || before.state.reason != failed.reason
}

pub(super) fn elapsed_since(started: Timestamp) -> Duration {
    Duration::try_from(Timestamp::now().duration_since(started)).unwrap_or_default()
}
