//! Reconciles one AppRepository: cleanup if it is gone or being deleted, otherwise decide, sync, and update the status.
//!
//! Each step may be the last before the process dies. The finalizer is added before the first row is written. Rows and
//! their record are committed together, and each reconcile derives the status from them.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::api::ObjectMeta;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::chart_files::ImportQueue;
use super::decision::{Decision, Identity, Mode, decide, has_charts, identity, until_due, wanted_since};
use super::events as news;
use super::kubeapps_cronjobs::Adoption;
use super::metrics::Metrics;
use super::origin::Origin;
use super::running_syncs::RunningSyncs;
use super::spec::{Defaults, RepositorySpec};
use super::state::RepositoryStates;
use super::status::{self, Facts, Imported, Phase};
use super::sync::Syncer;
use super::sync::request::{SyncAborted, SyncError, SyncOutcome, SyncRequest, SyncResult};
use crate::api::AppRepository;
use crate::api::NamespacedName;
use crate::catalog::{self, Catalog, Handled, Record, State};
use crate::runtime::controller::{Action, Key, Reconcile, ReconcileError};
use crate::runtime::informer::{Seen, Store};
use crate::runtime::kube_client::ApiError;
use crate::runtime::workqueue::{Backoff, Priority};

/// Backoff of failed syncs. The next scheduled sync may come sooner.
const SYNC_BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(5),
    cap: Duration::from_secs(15 * 60),
};

/// Reconciles `AppRepository` objects.
pub struct Reconciler {
    pub store: Store<AppRepository>,
    pub origin: Arc<Origin>,
    pub catalog: Catalog,
    pub syncer: Syncer,
    pub defaults: Defaults,
    pub activity: RunningSyncs,
    pub states: RepositoryStates,
    /// Notified when the catalog must be compared with the declared repositories.
    pub listed: Arc<Notify>,
    pub metrics: Metrics,
    /// `None` if chart files are not imported.
    pub files: Option<ImportQueue>,
    /// Removes Kubeapps' CronJobs; `None` if they stay.
    pub adoption: Option<Adoption>,
    /// Canceled at shutdown; queued keys are left for the next start.
    pub stopping: CancellationToken,
}

impl Reconcile for Reconciler {
    fn reconcile<'a>(&'a self, key: &'a Key, _priority: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>> {
        async move { self.look_at(&key.name, false).await }.boxed()
    }
}

impl Reconciler {
    /// Syncs `name` even if it is not due, as `run --once` does.
    pub async fn sync_now(&self, name: &NamespacedName) -> Result<Action, ReconcileError> {
        self.look_at(name, true).await
    }

    async fn look_at(&self, name: &NamespacedName, forced: bool) -> Result<Action, ReconcileError> {
        if self.stopping.is_cancelled() {
            return Ok(Action::Done);
        }
        let seen = self.store.get(name);
        let uid = seen.as_ref().and_then(|seen| seen.meta().uid.clone());
        self.states.update(name, |state| state.reset_unless_same(uid));
        match seen {
            None => self.clean_up_gone(name).await,
            Some(seen) if seen.meta().deletion_timestamp.is_some() => self.clean_up_deleted(name, seen.meta()).await,
            Some(Seen::Undecodable { meta, error }) => self.report_undecodable(name, &meta, &error).await,
            Some(Seen::Object(object)) => self.declared(name, &object, forced).await,
        }
    }

    async fn declared(
        &self,
        name: &NamespacedName,
        object: &AppRepository,
        forced: bool,
    ) -> Result<Action, ReconcileError> {
        self.states.update(name, |state| {
            state.removal_approved = false;
            state.last_event = None;
        });
        if !self.is_still(name, &object.metadata) {
            // The object is gone again, and the approval that was just revoked may have been for that deletion.
            self.listed.notify_one();
        }
        let declaration = RepositorySpec::of(object, &self.defaults, self.origin.is_folder());
        match self.origin.add_finalizer(&object.metadata).await {
            Ok(()) => {}
            // The deletion event is on its way.
            Err(error) if error.is_not_found() => return Ok(Action::Done),
            Err(error) => gone_is_done(error)?,
        }
        let (record, expected_uid) = match self.remembered(&declaration).await {
            Ok(remembered) => remembered,
            Err(error) => return self.database_away(object, &declaration, None, &error).await,
        };
        let now = Timestamp::now();
        if let Some(record) = &record {
            self.metrics.observe(record);
        }
        let decision = match decide(&declaration, record.as_ref(), now) {
            Decision::Rest if forced || self.states.read(name, |state| state.force_sync) => {
                Decision::Sync(Mode::Conditional)
            }
            decision => decision,
        };
        match decision {
            Decision::Suspended | Decision::Rest => {
                self.follow(name, record.as_ref()).await;
                self.write_status(object, &declaration, record.as_ref(), None, Phase::Settled)
                    .await?;
                Ok(if declaration.suspended {
                    Action::Done
                } else {
                    scheduled(until_due(&declaration, now, Timestamp::now()))
                })
            }
            Decision::Sync(mode) => {
                let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
                let attempt = SyncRequest {
                    wanted_since: wanted_since(&declaration, record.as_ref(), created, mode, now),
                    declaration,
                    previous: record,
                    expected_uid,
                    mode,
                    started: now,
                };
                self.attempt(name, object, attempt).await
            }
        }
    }

    /// Returns true if the store still has this object, and it is not being deleted.
    fn is_still(&self, name: &NamespacedName, meta: &ObjectMeta) -> bool {
        self.store.get(name).is_some_and(|seen| {
            let now = seen.meta();
            now.uid == meta.uid && now.deletion_timestamp.is_none()
        })
    }

    /// Loads the record of this object, and the UID stored in the database.
    async fn remembered(
        &self,
        declaration: &RepositorySpec,
    ) -> Result<(Option<Record>, Option<String>), catalog::Error> {
        let Some(record) = self.catalog.record(&declaration.name).await? else {
            return Ok((None, None));
        };
        let expected_uid = Some(record.uid.clone());
        match identity(declaration, Some(&record)) {
            Identity::New | Identity::Same => Ok((Some(record), expected_uid)),
            Identity::Restored => Ok((Some(restored(record)), expected_uid)),
            Identity::Another => {
                tracing::info!("removing charts of a previous repository with the same name");
                self.catalog.remove(&declaration.name, expected_uid.as_deref()).await?;
                Ok((None, None))
            }
        }
    }

    async fn attempt(
        &self,
        name: &NamespacedName,
        object: &AppRepository,
        attempt: SyncRequest,
    ) -> Result<Action, ReconcileError> {
        let declaration = attempt.declaration.clone();
        let (previous, started) = (attempt.previous.clone(), attempt.started);
        if is_worth_announcing(object, &declaration, previous.is_some()) {
            let told = self
                .write_status(object, &declaration, previous.as_ref(), None, Phase::Syncing)
                .await;
            if let Err(failure) = told {
                // Status updates never block a sync; the update after the sync retries.
                tracing::warn!(error = ?failure, "failed to set Reconciling condition");
            }
        }
        let running = self.activity.begin(name);
        // A change before `begin` canceled nothing, but it enqueued the key again.
        if !self.is_still(name, &object.metadata) {
            return Ok(Action::Done);
        }
        let timer = self.metrics.start();
        let finished = self.syncer.sync(attempt, running.token().clone()).await;
        drop(running);
        if self.store.get(name).is_none() {
            // The object was deleted during the sync. The orphan check may have run before the rows were committed.
            self.listed.notify_one();
        }
        let SyncResult {
            record,
            outcome: verdict,
        } = match finished {
            Ok(finished) => finished,
            // The change that canceled the sync also enqueued the key or triggered an orphan check.
            Err(SyncAborted::Cancelled) => return Ok(Action::Done),
            Err(SyncAborted::Catalog(catalog::Error::Superseded { .. })) => return Ok(Action::Requeue),
            Err(SyncAborted::Catalog(error)) => {
                timer.ended("database");
                return self
                    .database_away(object, &declaration, previous.as_ref(), &error)
                    .await;
            }
        };
        timer.ended(match &verdict {
            SyncOutcome::NotModified => "not_modified",
            SyncOutcome::Synced { .. } => "success",
            SyncOutcome::Interrupted(_) => "error",
            SyncOutcome::Failed(failed) if failed.transient => "error",
            SyncOutcome::Failed(_) => "stalled",
        });
        self.metrics.observe(&record);
        if !matches!(&verdict, SyncOutcome::Failed(failed) if failed.transient) {
            self.states.update(name, |state| state.force_sync = false);
        }
        self.follow(name, Some(&record)).await;
        for news in news::of(&declaration, previous.as_ref(), &record, &verdict) {
            self.origin.publish(&object.metadata, news).await;
        }
        let told = self
            .write_status(object, &declaration, Some(&record), None, Phase::Settled)
            .await;
        let next = until_due(&declaration, started, Timestamp::now());
        match verdict {
            // The backoff of the sync applies even if the status update failed; the next sync retries it.
            SyncOutcome::Interrupted(failed) => Err(retry(&declaration, failed, record.state.failures)),
            SyncOutcome::Failed(failed) if failed.transient => Err(retry(&declaration, failed, record.state.failures)),
            SyncOutcome::Failed(failed) => told.and(Err(ReconcileError::Terminal {
                message: failed.message,
                retry_after: Some(next),
            })),
            SyncOutcome::Synced { is_complete: false, .. } => told.map(|()| Action::requeue_after(Duration::ZERO)),
            SyncOutcome::NotModified | SyncOutcome::Synced { .. } => told.map(|()| scheduled(next)),
        }
    }

    async fn follow(&self, name: &NamespacedName, record: Option<&Record>) {
        let Some(record) = record.filter(|record| has_charts(record)) else {
            return;
        };
        if let Some(files) = &self.files {
            files.enqueue(record);
        }
        // Kubeapps' CronJobs stay until all charts are synced.
        let adoption = self.adoption.as_ref().filter(|_| record.state.ready == Some(true));
        if let Some(adoption) = adoption {
            let removed = adoption.synced(name).await;
            if removed > 0 {
                tracing::info!(removed, "removed Kubeapps' CronJobs of the repository");
            }
        }
    }

    async fn database_away(
        &self,
        object: &AppRepository,
        declaration: &RepositorySpec,
        record: Option<&Record>,
        error: &catalog::Error,
    ) -> Result<Action, ReconcileError> {
        let state = State {
            ready: Some(false),
            stalled: false,
            reason: error.reason().to_owned(),
            message: error.to_string(),
            failures: 1,
        };
        let told = self
            .write_status(object, declaration, record, Some(&state), Phase::Settled)
            .await;
        if let Err(failure) = told {
            tracing::warn!(error = ?failure, "failed to update status after database error");
        }
        Err(ReconcileError::Transient {
            message: state.message,
            backoff: SYNC_BACKOFF,
            at_least: Duration::ZERO,
            at_most: until_retry(declaration),
        })
    }

    async fn write_status(
        &self,
        object: &AppRepository,
        declaration: &RepositorySpec,
        record: Option<&Record>,
        unrecorded: Option<&State>,
        phase: Phase,
    ) -> Result<(), ReconcileError> {
        if !self
            .origin
            .has_status()
            .await
            .or_else(|error| gone_is_done(error).map(|()| false))?
        {
            return Ok(());
        }
        let name = &declaration.name;
        if !self.is_still(name, &object.metadata) {
            // The object was deleted or recreated.
            return Ok(());
        }
        let facts = Facts {
            generation: declaration.generation,
            suspended: declaration.suspended,
            record,
            unrecorded,
            phase,
            files: self.files.as_ref().map_or(Imported::None, |files| files.progress(name)),
            now: Timestamp::now(),
        };
        let before = object.status.as_ref();
        let status = status::build(&facts, before);
        let fingerprint = status::fingerprint(&status);
        let last = self.states.read(name, |state| state.last_status);
        if status::is_news(before, &status) || last.is_some_and(|last| last != fingerprint) {
            self.origin
                .write_status(&object.metadata, &status)
                .await
                .or_else(gone_is_done)?;
            self.states.update(name, |state| state.last_status = Some(fingerprint));
        }
        Ok(())
    }
}

/// Drops what the record says about the server, for an object that was recreated. The rows stay.
fn restored(record: Record) -> Record {
    Record {
        etag: None,
        last_modified: None,
        index_digest: String::new(),
        baseline: None,
        refused: None,
        handled: Handled::default(),
        change_key: String::new(),
        last_attempt: None,
        ..record
    }
}

/// Treats NotFound as success: the object was deleted.
pub(super) fn gone_is_done(error: ApiError) -> Result<(), ReconcileError> {
    if error.is_not_found() {
        return Ok(());
    }
    Err(ReconcileError::Transient {
        message: format!("call to the API server failed: {error}"),
        backoff: Backoff::CONFLICT,
        at_least: Duration::ZERO,
        at_most: Duration::MAX,
    })
}

/// Returns true if the status has to show that a sync starts: the first sync, or a new generation. If the database
/// fails, only the first attempt is shown, since no attempt can be recorded.
fn is_worth_announcing(object: &AppRepository, declaration: &RepositorySpec, is_known: bool) -> bool {
    let Some(status) = &object.status else { return true };
    let has_failed = || {
        status
            .conditions
            .iter()
            .any(|c| c.type_ == status::READY && c.status == "False")
    };
    status.observed_generation != declaration.generation || (!is_known && !has_failed())
}

/// Retries after `failures`, as counted in the database. The queue's count includes API conflicts and is lost on
/// restart.
fn retry(declaration: &RepositorySpec, failed: SyncError, failures: u32) -> ReconcileError {
    let delay = SYNC_BACKOFF.delay(failures.saturating_sub(1));
    let at_least = failed.retry_after.unwrap_or_default();
    ReconcileError::Transient {
        message: failed.message,
        backoff: Backoff {
            base: delay,
            cap: delay,
        },
        at_least,
        at_most: until_retry(declaration).max(at_least),
    }
}

/// Returns the longest backoff: a retry comes no later than the next scheduled sync.
fn until_retry(declaration: &RepositorySpec) -> Duration {
    let now = Timestamp::now();
    until_due(declaration, now, now)
}

/// Requeues for the schedule at low priority, even if a user's change caused this reconcile.
fn scheduled(delay: Duration) -> Action {
    Action::RequeueAfter {
        delay,
        priority: Some(Priority::LOW),
    }
}
