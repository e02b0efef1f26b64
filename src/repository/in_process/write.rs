//! Recording what came of an attempt: the charts and all that is remembered beside them, in one transaction.

use std::time::Duration;

use jiff::Timestamp;

use super::{Decoded, Run, spool_failed};
use crate::catalog::{Commit, Committed, HistoryEntry, Keep, Record, Refused, State};
use crate::repository::decide::{Mode, handled};
use crate::repository::execute::{Attempt, AttemptError, Failed, Finished, Verdict};
use crate::repository::guard;
use crate::repository::summary::{Counts, account, last_sync, ready_message, unless_quiet};
use crate::source::fetch::Validators;
use crate::source::index;

impl Run<'_> {
    pub(super) async fn save_unchanged(self, validators: Option<Validators>) -> Result<Finished, AttemptError> {
        let mut record = self.new_record();
        let recovered = record.state.ready == Some(false);
        if let Some(validators) = validators {
            record.etag = validators.etag;
            record.last_modified = validators.last_modified;
        }
        record.refused = None;
        record.credentials.clone_from(&self.credentials);
        record.last_success = Some(Timestamp::now());
        if account(&record).is_some_and(|account| account.kept > 0) {
            let (catalog, uid) = (&self.tools.catalog, self.attempt.expected_uid.as_deref());
            catalog
                .drop_expired(&record.name, uid.unwrap_or_default(), Timestamp::now())
                .await?;
        }
        record.state = ready(account(&record).as_ref().map_or_else(String::new, ready_message));
        let history = recovered.then(|| self.history(&record, "Succeeded", &record.index_digest));
        self.tools
            .catalog
            .save(&record, self.attempt.expected_uid.as_deref(), history.as_ref())
            .await?;
        Ok(Finished {
            record,
            verdict: Verdict::NotModified,
        })
    }

    pub(super) async fn save_failed(self, failed: Failed, refused: Option<Refused>) -> Result<Finished, AttemptError> {
        let mut record = self.new_record();
        let state = State {
            ready: Some(false),
            stalled: !failed.transient,
            reason: failed.reason.clone(),
            message: failed.message.clone(),
            failures: record.state.failures.saturating_add(1),
        };
        let before = std::mem::replace(&mut record.state, state);
        if refused.is_some() {
            record.credentials.clone_from(&self.credentials);
        }
        record.refused = refused;
        if self.attempt.mode == Mode::Complete {
            // Everything was to be compared and was not: the next attempt must not take "unchanged" for an answer.
            record.etag = None;
            record.last_modified = None;
            record.index_digest.clear();
        }
        // A failure that repeats itself is one line of history, not one a try.
        let is_new = before.ready != Some(false) || before.reason != failed.reason;
        let result = if failed.transient { "Failed" } else { "Stalled" };
        let digest = record
            .refused
            .as_ref()
            .map(|refused| refused.digest.clone())
            .unwrap_or_default();
        let history = is_new.then(|| self.history(&record, result, &digest));
        self.tools
            .catalog
            .save(&record, self.attempt.expected_uid.as_deref(), history.as_ref())
            .await?;
        Ok(Finished {
            record,
            verdict: Verdict::Failed(failed),
        })
    }

    pub(super) async fn commit(self, decoded: Decoded) -> Result<Finished, AttemptError> {
        let Decoded {
            spool,
            filtered_out,
            summary,
            sha256,
            validators,
            is_complete,
        } = decoded;
        let mut record = self.new_record();
        let is_first_or_recovered = record.state.ready != Some(true);
        record.etag = validators.etag;
        record.last_modified = validators.last_modified;
        // Without a digest nothing is known to be the same, so what was left goes on.
        record.index_digest = if is_complete { sha256.clone() } else { String::new() };
        record.change_key = self.attempt.declaration.change_key.as_str().to_owned();
        record.baseline = Some(guard::baseline(&summary));
        record.refused = None;
        record.credentials.clone_from(&self.credentials);
        record.last_success = Some(Timestamp::now());
        let (charts, versions, filtered) = (spool.charts(), spool.versions(), filtered_out.len() as u64);
        let rows = match spool.into_rows() {
            Ok(rows) => rows,
            Err(error) => return self.save_failed(spool_failed(&error), None).await,
        };
        let skipped = summary.skipped.clone();
        let started = self.attempt.started;
        let complete = move |committed: &Committed, record: &mut Record| {
            let counts = Counts {
                charts,
                versions,
                filtered,
            };
            let new = last_sync(&summary, &counts, committed, started);
            let account = unless_quiet(new, account(record));
            record.state = ready(ready_message(&account));
            // An account holds string keys and finite numbers only, for which JSON can't fail.
            record.last_sync = serde_json::to_value(account).ok();
        };
        let (history, skipped_before) = (self.history(&record, "Succeeded", &sha256), skipped.count);
        let concluded = {
            let complete = complete.clone();
            move |committed: &Committed, record: &mut Record| {
                complete(committed, record);
                let is_news = is_first_or_recovered || committed.is_change();
                is_news.then(|| HistoryEntry {
                    duration: since(started),
                    skipped: skipped_before + committed.rejected.len() as u64,
                    reason: record.state.reason.clone(),
                    message: record.state.message.clone(),
                    charts,
                    versions,
                    added: committed.added,
                    changed: committed.changed,
                    removed: committed.removed,
                    ..history
                })
            }
        };
        let mut commit =
            Commit::new(record.clone(), self.attempt.expected_uid.clone(), sha256).conclude_with(concluded);
        commit.keep = self.tools.keep_removed.map(|duration| Keep {
            now: Timestamp::now(),
            duration,
            order: index::newest_first,
            filtered_out,
        });
        let committed = self.tools.catalog.commit(commit, rows).await?;
        if self.attempt.mode == Mode::Complete {
            // Whoever asks for everything asks for the archives too that would not come.
            self.tools.catalog.retry_failed(&record.name, &record.uid).await?;
        }
        complete(&committed, &mut record);
        (record.trusted, record.charts) = (true, charts);
        let mut skipped = skipped;
        for (chart, reason) in &committed.rejected {
            skipped.add(chart, None, reason);
        }
        Ok(Finished {
            record,
            verdict: Verdict::Synced {
                committed,
                skipped,
                is_complete,
            },
        })
    }

    /// What is remembered after this attempt whatever comes of it: who was tried, when, and what was asked for.
    fn new_record(&self) -> Record {
        let Attempt {
            declaration,
            previous,
            started,
            ..
        } = &self.attempt;
        let mut record = previous.clone().unwrap_or_else(|| Record {
            name: declaration.name.clone(),
            ..Record::default()
        });
        if record.spec_hash.as_deref() != Some(declaration.spec_hash.as_str()) {
            record.spec_hash = Some(declaration.spec_hash.clone());
            record.generation = declaration.generation.unwrap_or(record.generation + 1);
        }
        record.uid.clone_from(&declaration.uid);
        record.origin.clone_from(&self.tools.origin);
        record.url.clone_from(&declaration.url);
        record.kind = declaration.kind.as_str().to_owned();
        record.handled = handled(declaration, &record.handled);
        record.schedule = declaration.schedule.clone().or(record.schedule);
        record.last_attempt = Some(*started);
        record
    }

    /// A line of history about this attempt.
    fn history(&self, record: &Record, result: &str, digest: &str) -> HistoryEntry {
        HistoryEntry {
            started_at: self.attempt.started,
            duration: since(self.attempt.started),
            result: result.to_owned(),
            reason: record.state.reason.clone(),
            message: record.state.message.clone(),
            digest: digest.to_owned(),
            ..HistoryEntry::default()
        }
    }
}

/// The state of a repository whose charts are in step.
fn ready(message: String) -> State {
    State {
        ready: Some(true),
        stalled: false,
        reason: "Synced".to_owned(),
        message,
        failures: 0,
    }
}

fn since(started: Timestamp) -> Duration {
    Duration::try_from(Timestamp::now().duration_since(started)).unwrap_or_default()
}
