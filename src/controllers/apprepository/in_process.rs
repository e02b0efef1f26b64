//! Syncs a repository in this process, and reports the result.

use std::time::Duration;

use jiff::Timestamp;
use tracing::Instrument;

use super::decision::{Mode, has_charts, is_slow, retry_delay, until_due};
use super::events;
use super::reconciler::{Reconciler, TombstoneError, api_error, scheduled};
use super::spec::RepositorySpec;
use super::status::{self, Phase};
use super::sync::request::{SyncAborted, SyncError, SyncOutcome, SyncRequest, SyncResult};
use crate::api::{AppRepository, NamespacedName};
use crate::catalog::{self, ChangedCharts, Record};
use crate::runtime::controller::{Action, ReconcileError};
use crate::runtime::workqueue::{Backoff, Priority};
use crate::trace::trace_span;

impl Reconciler {
    pub(super) async fn sync(
        &self,
        name: &NamespacedName,
        object: &AppRepository,
        request: SyncRequest,
    ) -> Result<Action, ReconcileError> {
        let spec = request.spec.clone();
        let (previous, started) = (request.previous.clone(), request.started);
        let is_complete_sync = request.mode == Mode::Complete;
        if has_to_show_syncing(object, &spec, previous.is_some()) {
            let written = self
                .write_status(object, &spec, previous.as_ref(), None, Phase::Syncing)
                .await;
            if let Err(failure) = written {
                // Status updates never block a sync; the update after the sync retries.
                tracing::warn!(error = %failure, "failed to set Reconciling condition");
            }
        }
        let running = match previous.as_ref().is_some_and(|previous| is_slow(&spec.url, previous)) {
            false => self.running_syncs.begin(name),
            true => self.running_syncs.begin_slow(name),
        };
        // A change before `begin` canceled nothing, but it enqueued the key again.
        if !self.is_current(name, &object.metadata) {
            return Ok(Action::Done);
        }
        // Before the sync reads the Secret: a change during the sync forces another one.
        let was_forced = self.states.update(name, |state| std::mem::take(&mut state.force_sync));
        let timer = self.metrics.start();
        let sync = self.syncer.sync(request, running.attempt().clone());
        let result = sync.instrument(trace_span!("sync")).await;
        drop(running);
        let is_complete = match &result {
            Ok(result) => !matches!(&result.outcome, SyncOutcome::Failed(failed) if failed.transient),
            Err(_) => false,
        };
        if was_forced && !is_complete {
            self.states.update(name, |state| state.force_sync = true);
        }
        if self.store.get(name).is_none() {
            // The object was deleted during the sync. The orphan check may have run before the rows were committed.
            self.listed.notify_one();
        }
        let SyncResult { record, outcome } = match result {
            Ok(result) => result,
            // The change that canceled the sync also enqueued the key or triggered an orphan check.
            Err(SyncAborted::Cancelled) => return Ok(Action::Done),
            Err(SyncAborted::Catalog(catalog::Error::Superseded { .. })) => {
                return match self.forget_deletion(name, &object.metadata).await {
                    Ok(()) => Ok(Action::Requeue),
                    Err(TombstoneError::Api(error)) => Err(api_error(&error)),
                    Err(TombstoneError::Catalog(error)) => {
                        self.report_database_error(object, &spec, previous.as_ref(), &error)
                            .await
                    }
                };
            }
            Err(SyncAborted::Catalog(error)) => {
                timer.finish("database");
                return self
                    .report_database_error(object, &spec, previous.as_ref(), &error)
                    .await;
            }
        };
        timer.finish(match &outcome {
            SyncOutcome::NotModified => "not_modified",
            SyncOutcome::Synced { .. } => "success",
            SyncOutcome::Interrupted(_) => "error",
            SyncOutcome::Failed(failed) if failed.transient => "error",
            SyncOutcome::Failed(_) => "stalled",
        });
        self.observe(object, &spec, Some(&record));
        let changed = changed_charts(&outcome, previous.as_ref(), is_complete_sync);
        self.after_sync(name, Some(&record), changed).await;
        for event in events::sync_events(&spec, previous.as_ref(), &record, &outcome) {
            self.origin.publish(&object.metadata, event).await;
        }
        let written = self.write_status(object, &spec, Some(&record), None, Phase::Idle).await;
        let next = until_due(&spec, started, Timestamp::now());
        match outcome {
            // The backoff of the sync applies even if the status update failed; the next sync retries it.
            SyncOutcome::Interrupted(failed) => Err(retry(failed, record.state.failures)),
            SyncOutcome::Failed(failed) if failed.transient => Err(retry(failed, record.state.failures)),
            SyncOutcome::Failed(failed) => written.and(Err(ReconcileError::Terminal {
                message: failed.message,
                retry_after: Some(next),
            })),
            SyncOutcome::Synced { is_complete: false, .. } => written.map(|()| Action::RequeueAfter {
                delay: Duration::ZERO,
                priority: Some(Priority::CONTINUED),
            }),
            SyncOutcome::NotModified | SyncOutcome::Synced { .. } => written.map(|()| scheduled(next)),
        }
    }

    pub(super) async fn after_sync(&self, name: &NamespacedName, record: Option<&Record>, changed: ChangedCharts) {
        let Some(record) = record.filter(|record| has_charts(record)) else {
            return;
        };
        if let Some(imports) = &self.imports {
            imports.enqueue(record, changed);
        }
        // Kubeapps' CronJobs stay until all charts are synced.
        if let Some(remover) = self
            .cronjob_remover
            .as_ref()
            .filter(|_| record.state.ready == Some(true))
        {
            remover.after_sync(name).await;
        }
    }
}

/// Returns the charts whose versions may lack rows of files after a sync.
fn changed_charts(outcome: &SyncOutcome, previous: Option<&Record>, is_complete_sync: bool) -> ChangedCharts {
    let is_trusted = previous.is_some_and(|previous| previous.trusted);
    match outcome {
        SyncOutcome::Synced { committed, .. } if is_trusted && !is_complete_sync => committed.written.clone(),
        SyncOutcome::Synced { .. } | SyncOutcome::Interrupted(_) => ChangedCharts::ALL,
        SyncOutcome::NotModified | SyncOutcome::Failed(_) => ChangedCharts::default(),
    }
}

/// Returns true if the status has to show that a sync starts: the first sync, or a new generation. If the database
/// fails, only the first attempt is shown, since no attempt can be recorded.
fn has_to_show_syncing(object: &AppRepository, spec: &RepositorySpec, has_record: bool) -> bool {
    let Some(status) = &object.status else { return true };
    let has_failed = || {
        let mut conditions = status.conditions.iter();
        conditions.any(|condition| condition.type_ == status::READY && condition.status == "False")
    };
    status.observed_generation != spec.generation || (!has_record && !has_failed())
}

/// Retries after `failures`, as counted in the database. The queue's count includes API conflicts and is lost on
/// restart.
fn retry(failed: SyncError, failures: u32) -> ReconcileError {
    let delay = retry_delay(failures);
    ReconcileError::Transient {
        message: failed.message,
        backoff: Backoff {
            base: delay,
            cap: delay,
        },
        at_least: failed.retry_after.unwrap_or_default(),
    }
}
