//! Records the outcome of a sync: rows, record and history in one transaction.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;

use super::request::{SyncAborted, SyncError, SyncOutcome, SyncRequest, SyncResult};
use super::shrink_guard as guard;
use super::{Decoded, Rest, Run, Stays, spool_failed};
use crate::api::LastSync;
use crate::catalog::{Commit, Committed, HistoryEntry, Keep, Record, Refused, State};
use crate::controllers::apprepository::decision::{Mode, cut_short, handled, is_cut_short};
use crate::controllers::apprepository::sync_summary::{
    Counts, account, last_sync, ready_message, unless_quiet, with_earlier,
};
use crate::helm::index::{self, Summary};
use crate::http::Validators;

impl Run<'_> {
    pub(super) async fn save_unchanged(self, validators: Option<Validators>) -> Result<SyncResult, SyncAborted> {
        let mut record = self.new_record();
        let recovered = record.state.ready == Some(false);
        if let Some(validators) = validators {
            record.etag = validators.etag;
            record.last_modified = validators.last_modified;
        }
        record.refused = None;
        record.credentials.clone_from(&self.credentials);
        record.last_success = Some(Timestamp::now());
        if let Some(account) = account(&record).filter(|account| account.kept > 0) {
            self.drop_expired(&mut record, account).await?;
        }
        record.state = ready(account(&record).as_ref().map_or_else(String::new, ready_message));
        let history = recovered.then(|| self.history(&record, "Succeeded", &record.index_digest));
        self.catalog()
            .save(&record, self.request.expected_uid.as_deref(), history.as_ref())
            .await?;
        Ok(SyncResult {
            record,
            outcome: SyncOutcome::NotModified,
        })
    }

    /// Deletes retained versions whose retention has expired, although the index did not change.
    async fn drop_expired(&self, record: &mut Record, mut account: LastSync) -> Result<(), SyncAborted> {
        let uid = self.request.expected_uid.as_deref().unwrap_or_default();
        let dropped = self.catalog().drop_expired(&record.name, uid, Timestamp::now()).await?;
        if dropped > 0 {
            account.kept = account.kept.saturating_sub_unsigned(dropped).max(0);
            // A summary holds string keys and finite numbers only, so that JSON can't fail.
            record.last_sync = serde_json::to_value(account).ok();
        }
        Ok(())
    }

    pub(super) async fn save_failed(
        self,
        failed: SyncError,
        refused: Option<Refused>,
    ) -> Result<SyncResult, SyncAborted> {
        let mut record = self.new_record();
        let state = State {
            ready: Some(false),
            stalled: !failed.transient,
            reason: failed.reason.clone(),
            message: failed.message.clone(),
            failures: record.state.failures.saturating_add(1),
        };
        if refused.is_some() {
            record.credentials.clone_from(&self.credentials);
        }
        let before = record.clone();
        record.state = state;
        record.refused = refused;
        if self.request.mode == Mode::Complete {
            // The comparison is still due: the next sync must not trust "not modified".
            record.etag = None;
            record.last_modified = None;
            record.index_digest.clear();
        }
        let is_new = is_new_failure(&before, &failed);
        let result = history_result(Some(&failed));
        let digest = record
            .refused
            .as_ref()
            .map(|refused| refused.digest.clone())
            .unwrap_or_default();
        let history = is_new.then(|| self.history(&record, result, &digest));
        self.catalog()
            .save(&record, self.request.expected_uid.as_deref(), history.as_ref())
            .await?;
        Ok(SyncResult {
            record,
            outcome: SyncOutcome::Failed(failed),
        })
    }

    pub(super) async fn commit(self, decoded: Decoded) -> Result<SyncResult, SyncAborted> {
        let Decoded {
            spool,
            filtered_out,
            summary,
            sha256,
            validators,
            rest,
            stays,
            gone,
            cuts,
        } = decoded;
        let mut record = self.new_record();
        let before = record.clone();
        record.etag = validators.etag;
        record.last_modified = validators.last_modified;
        record.index_digest = match &rest {
            Some(_) => cut_short(&sha256),
            None => sha256.clone(),
        };
        record.change_key = self.request.declaration.change_key.as_str().to_owned();
        // Repositories that could not be listed are not counted, but still exist.
        let known = (rest.as_ref().filter(|rest| rest.is_in_the_dark)).and_then(|_| self.baseline().copied());
        record.baseline = Some(known.unwrap_or_else(|| guard::baseline(&summary)));
        record.refused = None;
        record.credentials.clone_from(&self.credentials);
        record.last_success = Some(Timestamp::now());
        let conclusion = Conclusion {
            before,
            counts: Counts {
                charts: spool.charts(),
                versions: spool.versions(),
                filtered: filtered_out.len() as u64,
            },
            started: self.request.started,
            history: self.history(
                &record,
                history_result(rest.as_ref().and_then(|rest| rest.failed.as_ref())),
                &sha256,
            ),
            summary,
            rest,
        };
        let rows = match spool.into_rows() {
            Ok(rows) => rows,
            Err(error) => return self.save_failed(spool_failed(&error), None).await,
        };
        let mut commit = Commit::new(record.clone(), self.request.expected_uid.clone(), sha256).conclude_with({
            let conclusion = conclusion.clone();
            move |committed, record| {
                conclusion.complete(committed, record);
                conclusion.history(committed, record)
            }
        });
        commit.keep = self.keep(stays, filtered_out);
        commit.cuts = cuts;
        commit.gone = Some(gone).filter(|gone| !gone.is_empty());
        let committed = self.catalog().commit(commit, rows).await?;
        if self.request.mode == Mode::Complete {
            // A complete sync also retries failed archives.
            self.catalog().retry_failed(&record.name, &record.uid).await?;
        }
        conclusion.complete(&committed, &mut record);
        (record.trusted, record.charts) = (true, conclusion.counts.charts);
        Ok(SyncResult {
            record,
            outcome: conclusion.outcome(committed),
        })
    }

    /// Returns the rows to retain although they are not in the index.
    fn keep(&self, stays: Stays, filtered_out: HashSet<String>) -> Option<Keep> {
        let (duration, held) = match stays {
            Stays::All => (Some(Duration::MAX), HashMap::new()),
            Stays::Held(held) => {
                let holding = (!held.is_empty()).then_some(Duration::ZERO);
                (self.syncer.context.keep_removed.or(holding), held)
            }
        };
        duration.map(|duration| Keep {
            now: Timestamp::now(),
            duration,
            order: index::newest_first,
            filtered_out,
            held,
        })
    }

    /// Returns the record of this sync as far as it is independent of the outcome.
    fn new_record(&self) -> Record {
        let SyncRequest {
            declaration,
            previous,
            started,
            ..
        } = &self.request;
        let mut record = previous.clone().unwrap_or_else(|| Record {
            name: declaration.name.clone(),
            ..Record::default()
        });
        if record.spec_hash.as_deref() != Some(declaration.spec_hash.as_str()) {
            record.spec_hash = Some(declaration.spec_hash.clone());
            record.generation = declaration.generation.unwrap_or(record.generation + 1);
        }
        record.uid.clone_from(&declaration.uid);
        record.origin.clone_from(&self.syncer.context.origin);
        record.url.clone_from(&declaration.url);
        record.kind = declaration.kind.as_str().to_owned();
        record.handled = handled(declaration, &record.handled);
        record.schedule = declaration.schedule.clone().or(record.schedule);
        record.last_attempt = Some(*started);
        record
    }

    fn history(&self, record: &Record, result: &str, digest: &str) -> HistoryEntry {
        HistoryEntry {
            started_at: self.request.started,
            duration: since(self.request.started),
            result: result.to_owned(),
            reason: record.state.reason.clone(),
            message: record.state.message.clone(),
            digest: digest.to_owned(),
            ..HistoryEntry::default()
        }
    }
}

fn ready(message: String) -> State {
    State {
        ready: Some(true),
        stalled: false,
        reason: "Synced".to_owned(),
        message,
        failures: 0,
    }
}

/// Data for the record and history of a commit, completed inside the transaction.
#[derive(Clone)]
struct Conclusion {
    before: Record,
    counts: Counts,
    summary: Summary,
    started: Timestamp,
    history: HistoryEntry,
    rest: Option<Rest>,
}

impl Conclusion {
    fn complete(&self, committed: &Committed, record: &mut Record) {
        let new = last_sync(&self.summary, &self.counts, committed, self.started);
        let mut account = match account(&self.before) {
            Some(earlier) if is_cut_short(&self.before) => with_earlier(new, &earlier),
            earlier => unless_quiet(new, earlier),
        };
        record.state = match &self.rest {
            Some(rest) => {
                // Versions are retained while it is unknown whether they were removed.
                account.kept = 0;
                unfinished(rest, self.before.state.failures)
            }
            None => ready(ready_message(&account)),
        };
        // A summary holds string keys and finite numbers only, so that JSON can't fail.
        record.last_sync = serde_json::to_value(account).ok();
    }

    fn history(self, committed: &Committed, record: &Record) -> Option<HistoryEntry> {
        let is_news = match &self.rest {
            None => self.before.state.ready != Some(true) || committed.is_change(),
            // A sync in several parts is reported once, at its end.
            Some(rest) => (rest.failed.as_ref()).is_some_and(|failed| is_new_failure(&self.before, failed)),
        };
        let (added, changed, removed) = match account(record).filter(|_| is_cut_short(&self.before)) {
            Some(all) => {
                let number = |count: i64| u64::try_from(count).unwrap_or_default();
                (number(all.added), number(all.changed), number(all.removed))
            }
            None => (committed.added, committed.changed, committed.removed),
        };
        is_news.then(|| HistoryEntry {
            duration: since(self.started),
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

    fn outcome(self, committed: Committed) -> SyncOutcome {
        let mut skipped = self.summary.skipped;
        for (chart, reason) in &committed.rejected {
            skipped.add(chart, None, reason);
        }
        match self.rest {
            Some(Rest {
                failed: Some(failed), ..
            }) => SyncOutcome::Interrupted(failed),
            rest => SyncOutcome::Synced {
                committed,
                skipped,
                is_complete: rest.is_none(),
            },
        }
    }
}

/// Returns the state of a registry that is not pulled completely.
fn unfinished(rest: &Rest, failures: u32) -> State {
    match &rest.failed {
        Some(failed) => State {
            ready: Some(false),
            stalled: false,
            reason: failed.reason.clone(),
            message: failed.message.clone(),
            // A sync that made progress is retried soon.
            failures: if rest.has_come_on {
                1
            } else {
                failures.saturating_add(1)
            },
        },
        None => State {
            ready: None,
            stalled: false,
            reason: "Pulling".to_owned(),
            message: if rest.pulled < rest.listed {
                format!(
                    "{} of {} versions are pulled; the others follow, and what was there before stays until then.",
                    rest.pulled, rest.listed
                )
            } else {
                "All versions are pulled; it goes on with looking which of them were published anew.".to_owned()
            },
            failures: 0,
        },
    }
}

fn history_result(failed: Option<&SyncError>) -> &'static str {
    match failed {
        None => "Succeeded",
        Some(failed) if failed.transient => "Failed",
        Some(_) => "Stalled",
    }
}

/// Returns true unless the failure repeats the last one, which is recorded once.
fn is_new_failure(before: &Record, failed: &SyncError) -> bool {
    before.state.ready != Some(false) || before.state.reason != failed.reason
}

fn since(started: Timestamp) -> Duration {
    Duration::try_from(Timestamp::now().duration_since(started)).unwrap_or_default()
}
