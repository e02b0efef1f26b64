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

use super::CachedRepository;
use super::chart_files::ImportQueue;
use super::database_faults::DatabaseFaults;
use super::decision::{
    Decision, Identity, Mode, decide, fresh_since, identity, is_slow, next_attempt, next_success, until_next,
};
use super::event_handler::cleanup_key;
use super::jobs::{Jobs, Seen};
use super::kubeapps_cronjobs::CronJobRemover;
use super::metrics::{Due, Metrics};
use super::origin::Origin;
use super::running_syncs::RunningSyncs;
use super::spec::{ChangeKey, Defaults, RepositorySpec};
use super::state::RepositoryStates;
use super::status::Phase;
use super::sync::Syncer;
use super::sync::request::SyncRequest;
use super::{CLEANUP, NAME, SLOW};
use crate::api::{AppRepository, NamespacedName};
use crate::catalog::{self, Catalog, ChangedCharts, Fence, Handled, Record};
use crate::runtime::controller::{Action, Key, Reconcile, ReconcileError};
use crate::runtime::events::Event;
use crate::runtime::kube_client::ApiError;
use crate::runtime::shards::Shards;
use crate::runtime::watch::{Cached, Store};
use crate::runtime::workqueue::{Backoff, Priority, Queue};

/// Delay of the retry while the cache is stale.
pub(super) const STALE_CACHE_RETRY: Duration = Duration::from_secs(5);

/// Reconciles `AppRepository` objects.
pub struct Reconciler {
    pub store: Store<Cached<CachedRepository>>,
    pub origin: Arc<Origin>,
    pub catalog: Catalog,
    pub faults: Arc<DatabaseFaults>,
    pub syncer: Syncer,
    pub defaults: Defaults,
    pub running_syncs: RunningSyncs,
    pub queue: Queue<Key>,
    pub states: RepositoryStates,
    /// Notified when the catalog must be compared with the declared repositories.
    pub listed: Arc<Notify>,
    pub metrics: Metrics,
    /// `None` if chart files are not imported.
    pub imports: Option<ImportQueue>,
    /// Removes Kubeapps' CronJobs; `None` if they stay.
    pub cronjob_remover: Option<CronJobRemover>,
    /// Runs syncs as Jobs; `None` if this process runs all of them.
    pub jobs: Option<Arc<Jobs>>,
    /// Canceled at shutdown; queued keys are left for the next start.
    pub stopping: CancellationToken,
    /// Only objects with certain labels are watched, so that an object may leave the cache without a deletion.
    pub has_selector: bool,
    pub shards: Shards,
}

/// Failure to compare a tombstone with the API server.
#[derive(Debug, thiserror::Error)]
pub(super) enum TombstoneError {
    #[error("request to the API server failed: {0}")]
    Api(#[from] ApiError),
    #[error(transparent)]
    Catalog(#[from] catalog::Error),
}

/// The reason for a reconcile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause<'a> {
    Key(&'a Key, Priority),
    /// A sync is due whatever the schedule says.
    Forced,
}

impl Reconcile for Reconciler {
    fn reconcile<'a>(&'a self, key: &'a Key, priority: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>> {
        async move {
            match key.class {
                CLEANUP => self.clean_up(&key.name).await,
                _ => self.reconcile_repository(&key.name, Cause::Key(key, priority)).await,
            }
        }
        .boxed()
    }
}

impl Reconciler {
    /// Syncs `name` even if it is not due, as `run --once` does.
    pub async fn sync_now(&self, name: &NamespacedName) -> Result<Action, ReconcileError> {
        if is_gone(self.store.get(name).as_ref()) {
            return self.clean_up(name).await;
        }
        self.reconcile_repository(name, Cause::Forced).await
    }

    /// Returns the cached object, after a reset of the state that belongs to another one of its name.
    pub(super) fn look_up(&self, name: &NamespacedName) -> Option<Cached<CachedRepository>> {
        let seen = self.store.get(name);
        let uid = seen.as_ref().and_then(|seen| seen.meta().uid.clone());
        self.states.update(name, |state| state.reset_unless_same(uid));
        seen
    }

    async fn reconcile_repository(&self, name: &NamespacedName, cause: Cause<'_>) -> Result<Action, ReconcileError> {
        if self.stopping.is_cancelled() {
            return Ok(Action::Done);
        }
        let Some(seen) = self.look_up(name).filter(|seen| !is_gone(Some(seen))) else {
            self.queue.add(cleanup_key(name), Priority::USER);
            return Ok(Action::Done);
        };
        match seen {
            Cached::Invalid { meta, error } => self.report_invalid_object(name, &meta, &error).await,
            Cached::Object(object) => self.sync_if_due(name, &object, cause).await,
        }
    }

    async fn sync_if_due(
        &self,
        name: &NamespacedName,
        object: &AppRepository,
        cause: Cause<'_>,
    ) -> Result<Action, ReconcileError> {
        self.states.update(name, |state| {
            state.approved_removal = None;
            state.last_event = None;
            state.last_status = None;
        });
        if !self.is_current(name, &object.metadata) {
            // The object is gone again, and the approval that was just revoked may have been for that deletion.
            self.listed.notify_one();
        }
        let spec = RepositorySpec::of(object, &self.defaults, self.origin.is_directory());
        match self.origin.add_finalizer(&object.metadata).await {
            Ok(()) => {}
            // The deletion event is on its way.
            Err(error) if error.is_not_found() => return Ok(Action::Done),
            Err(error) => ignore_not_found(error)?,
        }
        let record = match self.catalog.record(name).await {
            Ok(record) => record,
            Err(error) => return self.report_database_error(object, &spec, None, &error).await,
        };
        if identity(&spec, record.as_ref()) == Identity::Replaced && !self.is_cache_current(name).await? {
            return Ok(Action::requeue_after(STALE_CACHE_RETRY));
        }
        let (record, expected_uid) = match self.own_record(&spec, record).await {
            Ok(own) => own,
            Err(error) => return self.report_database_error(object, &spec, None, &error).await,
        };
        self.observe(object, &spec, record.as_ref());
        if let Some(jobs) = &self.jobs {
            let seen = Seen {
                object,
                spec: &spec,
                record: record.as_ref(),
                stored_uid: expected_uid.as_deref(),
            };
            if let Some(action) = self.run_as_jobs(jobs, seen).await? {
                return Ok(action);
            }
        }
        let is_slow = record.as_ref().is_some_and(|record| is_slow(&spec.url, record));
        if let Cause::Key(key, priority) = cause
            && key.class != class(is_slow)
        {
            let class = class(is_slow);
            self.queue.add(Key { class, ..key.clone() }, priority);
            return Ok(Action::Done);
        }
        let now = Timestamp::now();
        let decision = match decide(&spec, record.as_ref(), now) {
            Decision::Wait if cause == Cause::Forced || self.states.read(name, |state| state.force_sync) => {
                Decision::Sync(Mode::Conditional)
            }
            decision => decision,
        };
        let events = self.imports.as_ref().map(|imports| imports.take_events(name));
        for (reason, message) in events.into_iter().flatten() {
            self.origin
                .publish(&object.metadata, Event::warning(reason, message))
                .await;
        }
        match decision {
            Decision::Suspended | Decision::Wait => {
                self.after_sync(name, record.as_ref(), ChangedCharts::default()).await;
                self.write_status(object, &spec, record.as_ref(), None, Phase::Idle)
                    .await?;
                Ok(if spec.suspended {
                    Action::Done
                } else {
                    scheduled(until_next(&spec, record.as_ref(), Timestamp::now()))
                })
            }
            Decision::Sync(mode) => {
                let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
                let request = SyncRequest {
                    fresh_since: fresh_since(&spec, record.as_ref(), created, mode, now),
                    spec,
                    previous: record,
                    expected_uid,
                    mode,
                    started: now,
                };
                self.sync(name, object, request).await
            }
        }
    }

    /// Updates the metrics of a repository that is not deleted meanwhile.
    pub(super) fn observe(&self, object: &AppRepository, spec: &RepositorySpec, record: Option<&Record>) {
        let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
        // A manifest has no time of creation.
        let now = Timestamp::now();
        let created = created.unwrap_or(now);
        let due = Due {
            success: next_success(spec, record, created),
            attempt: next_attempt(spec, record, created, now),
        };
        self.metrics.observe(&spec.name, record, due);
        // Checked afterwards: a clean-up that follows drops the series itself.
        if is_gone(self.store.get(&spec.name).as_ref()) {
            self.metrics.forget(&spec.name);
        }
    }

    /// Returns true if the API server has the same object as the store, or none as well. Asked before charts are removed:
    /// the cache may be stale after an interrupted watch, and another replica may have synced a newer object.
    pub(super) async fn is_cache_current(&self, name: &NamespacedName) -> Result<bool, ReconcileError> {
        let cached = self.store.get(name).and_then(|seen| seen.meta().uid.clone());
        let is_current = self
            .origin
            .has_uid(name, cached.as_deref())
            .await
            .map_err(|error| api_error(&error))?;
        if !is_current {
            tracing::info!("the cache is stale, keeping the charts until it is updated");
        }
        Ok(is_current)
    }

    /// Returns the time of the tombstone of an object that exists: the API server was restored from a backup.
    pub(super) async fn outdated_tombstone(
        &self,
        name: &NamespacedName,
        meta: &ObjectMeta,
    ) -> Result<Option<i64>, TombstoneError> {
        let uid = meta.uid.as_deref().unwrap_or_default();
        // Before the API server is asked: a deletion afterwards has another time.
        let Some(deleted_at) = self.catalog.deleted_at(uid).await? else {
            return Ok(None);
        };
        Ok(self.origin.is_live(name, meta).await?.then_some(deleted_at))
    }

    /// Lets an object that was restored be synced again.
    pub(super) async fn forget_deletion(&self, name: &NamespacedName, meta: &ObjectMeta) -> Result<(), TombstoneError> {
        if let Some(deleted_at) = self.outdated_tombstone(name, meta).await? {
            let uid = meta.uid.as_deref().unwrap_or_default();
            self.catalog.forget_deletion(name, uid, deleted_at).await?;
        }
        Ok(())
    }

    /// Returns true if the store still has this object, and it is not being deleted.
    pub(super) fn is_current(&self, name: &NamespacedName, meta: &ObjectMeta) -> bool {
        self.store.get(name).is_some_and(|seen| is_same(seen.meta(), meta))
    }

    /// Returns the record if it belongs to this object, and the UID stored in the database.
    async fn own_record(
        &self,
        spec: &RepositorySpec,
        record: Option<Record>,
    ) -> Result<(Option<Record>, Option<String>), catalog::Error> {
        let Some(record) = record else {
            return Ok((None, None));
        };
        let expected_uid = Some(record.uid.clone());
        match identity(spec, Some(&record)) {
            Identity::New | Identity::Same => Ok((Some(record), expected_uid)),
            Identity::Restored => Ok((Some(without_server_state(record)), expected_uid)),
            Identity::Replaced => {
                tracing::info!("removing charts of a previous repository with the same name");
                let fence = Fence::Uid(expected_uid.as_deref());
                self.catalog.remove(&spec.name, fence).await?;
                Ok((None, None))
            }
        }
    }
}

/// Returns the class whose workers sync a repository. No other class does, so that a repository has one worker.
const fn class(is_slow: bool) -> &'static str {
    if is_slow { SLOW } else { NAME }
}

pub(super) fn is_same(current: &ObjectMeta, meta: &ObjectMeta) -> bool {
    current.uid == meta.uid && current.deletion_timestamp.is_none()
}

/// Drops what the record says about the server, for an object that was recreated. The rows stay, and the baseline of the
/// shrink guard with its source.
fn without_server_state(record: Record) -> Record {
    Record {
        etag: None,
        last_modified: None,
        index_digest: String::new(),
        refused: None,
        handled: Handled::default(),
        change_key: ChangeKey::source_of(&record.change_key).to_owned(),
        last_attempt: None,
        ..record
    }
}

/// Treats NotFound as success: the object was deleted.
pub(super) fn ignore_not_found(error: ApiError) -> Result<(), ReconcileError> {
    if error.is_not_found() {
        return Ok(());
    }
    Err(api_error(&error))
}

pub(super) fn api_error(error: &ApiError) -> ReconcileError {
    let message = format!("request to the API server failed: {error}");
    if error.is_conflict() {
        return ReconcileError::Conflict { message };
    }
    ReconcileError::transient(message, Backoff::CONFLICT)
}

/// Returns true if the object does not exist or is being deleted.
pub(super) fn is_gone(seen: Option<&Cached<CachedRepository>>) -> bool {
    seen.is_none_or(|seen| seen.meta().deletion_timestamp.is_some())
}

/// Requeues for the schedule at low priority, even if a user's change caused this reconcile.
pub(super) fn scheduled(delay: Duration) -> Action {
    Action::RequeueAfter {
        delay,
        priority: Some(Priority::LOW),
    }
}
