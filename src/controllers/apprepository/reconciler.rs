//! The reconcile of an AppRepository: look, decide, attempt, report.
//!
//! ```text
//!  not in the store ───────────► cleanup (if the removal is approved)
//!  being deleted ──────────────► cleanup, then the finalizer is taken off
//!  can't be decoded ───────────► reported
//!  declared ─► finalizer ─► identity ─► decide ─► attempt ─► status, events ─► requeue at the next tick
//! ```
//! Each step may be the last before the process dies: the finalizer stands before the first row is written, rows and their
//! bookkeeping are one transaction, and the status is derived from them anew by the next reconcile.

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

/// How soon, and how late, a sync that failed is tried again. The next tick may come sooner.
const SYNC_BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(5),
    cap: Duration::from_secs(15 * 60),
};

/// What reconciles work with.
pub struct Reconciler {
    /// The declarations.
    pub store: Store<AppRepository>,
    /// Where they come from.
    pub origin: Arc<Origin>,
    /// The database.
    pub catalog: Catalog,
    /// Runs the syncs.
    pub syncer: Syncer,
    /// What the declarations that say nothing get.
    pub defaults: Defaults,
    /// The syncs under way.
    pub activity: RunningSyncs,
    /// What is kept in memory of each repository.
    pub states: RepositoryStates,
    /// Told when the catalogue is to be compared with the declarations.
    pub listed: Arc<Notify>,
    /// The figures.
    pub metrics: Metrics,
    /// Imports chart files after a sync; `None` if they are not imported.
    pub files: Option<ImportQueue>,
    /// What takes the CronJobs away that Kubeapps has left; nothing, where they are to stay.
    pub adoption: Option<Adoption>,
    /// Cancelled when the process is to end: what is still queued is then left for the next start.
    pub stopping: CancellationToken,
}

impl Reconcile for Reconciler {
    fn reconcile<'a>(&'a self, key: &'a Key, _priority: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>> {
        async move { self.look_at(&key.name, false).await }.boxed()
    }
}

impl Reconciler {
    /// Syncs what `name` declares although it may not be due, as `run --once` does.
    ///
    /// # Errors
    /// The same as a reconcile's.
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
            // It has gone since it was looked up, and what was just taken back may be the approval to remove its charts.
            self.listed.notify_one();
        }
        let declaration = RepositorySpec::of(object, &self.defaults, self.origin.is_folder());
        match self.origin.add_finalizer(&object.metadata).await {
            Ok(()) => {}
            // The event of its deletion is on its way.
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

    /// Whether this very object is declared still.
    fn is_still(&self, name: &NamespacedName, meta: &ObjectMeta) -> bool {
        self.store.get(name).is_some_and(|seen| {
            let now = seen.meta();
            now.uid == meta.uid && now.deletion_timestamp.is_none()
        })
    }

    /// What the database remembers of this very object, and the UID that it holds.
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
                // That nobody can be told is no reason not to sync; what comes of it is told again.
                tracing::warn!(error = ?failure, "failed to set Reconciling condition");
            }
        }
        let running = self.activity.begin(name);
        // What has become of the object before this moment has given up nothing; its key is in the queue again.
        if !self.is_still(name, &object.metadata) {
            return Ok(Action::Done);
        }
        let timer = self.metrics.start();
        let finished = self.syncer.sync(attempt, running.token().clone()).await;
        drop(running);
        if self.store.get(name).is_none() {
            // It has gone meanwhile, and may have been looked for in the catalogue before its rows were there.
            self.listed.notify_one();
        }
        let SyncResult {
            record,
            outcome: verdict,
        } = match finished {
            Ok(finished) => finished,
            // Whatever cancelled it has put the key back into the queue, or has the catalogue compared with a new list.
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
            // The verdict's own back-off stands whatever came of telling: the next attempt tells again.
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

    /// Has done what follows a sync that has made charts, now or before the start: files are imported, and what Kubeapps has left
    /// is taken away.
    async fn follow(&self, name: &NamespacedName, record: Option<&Record>) {
        let Some(record) = record.filter(|record| has_charts(record)) else {
            return;
        };
        if let Some(files) = &self.files {
            files.enqueue(record);
        }
        // Kubeapps' own syncs go only once all is there.
        let adoption = self.adoption.as_ref().filter(|_| record.state.ready == Some(true));
        if let Some(adoption) = adoption {
            let removed = adoption.synced(name).await;
            if removed > 0 {
                tracing::info!(removed, "removed Kubeapps' CronJobs of the repository");
            }
        }
    }

    /// The database can't be read or written: the object says so, and everything is tried again.
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
            // There is nobody to tell, or somebody else.
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

/// What may still be believed of a repository whose object was made anew: its rows, but nothing about the server.
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

/// Nobody is left to tell, which is no reason to try again.
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

/// Whether it is to be said that a sync begins: of a repository that was never synced, and of a spec that nothing was said of
/// yet. Where nothing can be remembered because the database fails, each retry would be a first; it is said just once.
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

/// Has the attempt repeated after its `failures`, counted in the database: the queue's own count would mix in the conflicts with
/// the API server, and knows nothing of the time before a restart.
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

/// Requeues a repository for its schedule, whatever the priority of the event that caused this reconcile.
fn scheduled(delay: Duration) -> Action {
    Action::RequeueAfter {
        delay,
        priority: Some(Priority::LOW),
    }
}
