//! Reconciles one AppRepository: cleanup if it is gone or being deleted, otherwise read its rows, plan, and act on the plan.
//!
//! Each step may be the last before the process dies. The finalizer is added before the first row is written. Rows and
//! their record are committed together, and each reconcile derives the status from them.

mod cleanup;
mod in_jobs;
mod in_process;
mod report;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::api::ObjectMeta;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::CLEANUP;
use super::CachedRepository;
use super::chart_files::ImportQueue;
use super::database_faults::DatabaseFaults;
use super::decision::{next_attempt, next_success};
use super::event_handler::cleanup_key;
use super::garbage::GarbageMetrics;
use super::jobs::{Declared, JobRunner};
use super::kubeapps_cronjobs::CronJobRemover;
use super::metrics::{Due, RepositoryMetrics};
use super::origin::Origin;
use super::plan::{ObservedRepository, Replaced, Rows, SyncPlan, adopt, plan};
use super::running_syncs::RunningSyncs;
use super::spec::{Defaults, RepositorySpec};
use super::state::RepositoryStates;
use super::sync::Syncer;
use super::tombstones::Tombstones;
use crate::api::{AppRepository, NamespacedName};
use crate::catalog::{Catalog, Fence, Record};
use crate::runtime::controller::{Action, Key, Reconcile, ReconcileError};
use crate::runtime::kube_client::ApiError;
use crate::runtime::ownership::OwnershipFilter;
use crate::runtime::watch::{Cached, Store};
use crate::runtime::workqueue::{Backoff, Priority, Queue};

const STALE_CACHE_RETRY: Duration = Duration::from_secs(5);

pub struct RepositoryReconciler {
    pub store: Store<Cached<CachedRepository>>,
    pub origin: Arc<Origin>,
    pub catalog: Catalog,
    pub tombstones: Tombstones,
    pub faults: Arc<DatabaseFaults>,
    pub syncer: Syncer,
    pub defaults: Defaults,
    pub running_syncs: RunningSyncs,
    pub queue: Queue<Key>,
    pub states: RepositoryStates,
    /// Notified when the catalog must be compared with the declared repositories.
    pub listed: Arc<Notify>,
    pub metrics: RepositoryMetrics,
    pub garbage_metrics: GarbageMetrics,
    /// `None` if chart files are not imported.
    pub imports: Option<ImportQueue>,
    /// Removes Kubeapps' CronJobs; `None` if they stay.
    pub cronjob_remover: Option<CronJobRemover>,
    /// Runs syncs as Jobs; `None` if this process runs all of them.
    pub job_runner: Option<JobRunner>,
    /// Canceled at shutdown; queued keys are left for the next start.
    pub stopping: CancellationToken,
    pub ownership: OwnershipFilter,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SyncCause<'a> {
    Key(&'a Key, Priority),
    /// A sync is due whatever the schedule says.
    Forced,
}

impl Reconcile for RepositoryReconciler {
    fn reconcile<'a>(&'a self, key: &'a Key, priority: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>> {
        async move {
            match key.class {
                CLEANUP => self.clean_up(&key.name).await,
                _ => {
                    self.reconcile_repository(&key.name, SyncCause::Key(key, priority))
                        .await
                }
            }
        }
        .boxed()
    }
}

impl RepositoryReconciler {
    /// Syncs `name` even if it is not due, as `run --once` does.
    pub async fn sync_now(&self, name: &NamespacedName) -> Result<Action, ReconcileError> {
        if is_gone(self.store.get(name).as_ref()) {
            return self.clean_up(name).await;
        }
        self.reconcile_repository(name, SyncCause::Forced).await
    }

    /// Returns the cached object, after a reset of the state of another object of its name.
    fn look_up(&self, name: &NamespacedName) -> Option<Cached<CachedRepository>> {
        let cached = self.store.get(name);
        let uid = cached.as_ref().and_then(|cached| cached.meta().uid.clone());
        let is_other = self.states.update(name, |state| state.reset_unless_same(uid));
        if let Some(imports) = self.imports.as_ref().filter(|_| is_other) {
            imports.forget(name);
        }
        cached
    }

    async fn reconcile_repository(
        &self,
        name: &NamespacedName,
        cause: SyncCause<'_>,
    ) -> Result<Action, ReconcileError> {
        if self.stopping.is_cancelled() {
            return Ok(Action::Done);
        }
        let Some(cached) = self.look_up(name).filter(|cached| !is_gone(Some(cached))) else {
            self.queue.add(cleanup_key(name), Priority::USER);
            return Ok(Action::Done);
        };
        match cached {
            Cached::Invalid { meta, error } => self.report_invalid_object(name, &meta, &error).await,
            Cached::Object(object) => self.reconcile_object(name, &object, cause).await,
        }
    }

    async fn reconcile_object(
        &self,
        name: &NamespacedName,
        object: &AppRepository,
        cause: SyncCause<'_>,
    ) -> Result<Action, ReconcileError> {
        self.revoke_removal(name, &object.metadata);
        let spec = RepositorySpec::of(object, &self.defaults, self.origin.is_directory());
        match self.origin.add_finalizer(&object.metadata).await {
            Ok(()) => {}
            // The deletion event is on its way.
            Err(error) if error.is_not_found() => return Ok(Action::Done),
            Err(error) => return Err(api_error(&error)),
        }
        let declared = Declared { object, spec: &spec };
        let Some(rows) = self.own_rows(declared).await? else {
            return Ok(Action::requeue_after(STALE_CACHE_RETRY));
        };
        self.observe(declared, rows.record.as_ref());
        let observed = ObservedRepository {
            spec: &spec,
            rows: &rows,
            created: created(object),
            class: match cause {
                SyncCause::Key(key, _) => Some(key.class),
                SyncCause::Forced => None,
            },
            force_sync: self.states.read(name, |state| state.force_sync),
        };
        if let Some(runner) = &self.job_runner
            && let Some(action) = self.act_on_jobs(runner, object, observed).await?
        {
            return Ok(action);
        }
        match plan(observed, Timestamp::now()) {
            SyncPlan::HandOver(class) => {
                self.hand_over(cause, class);
                Ok(Action::Done)
            }
            SyncPlan::Wait(until) => self.wait(declared, rows.record.as_ref(), until).await,
            SyncPlan::Sync(request) => self.sync(object, *request).await,
        }
    }

    /// Keeps the charts of an object that is declared again.
    fn revoke_removal(&self, name: &NamespacedName, meta: &ObjectMeta) {
        self.states.update(name, |state| {
            state.approved_removal = None;
            state.last_event = None;
            state.last_status = None;
        });
        if !self.is_current(name, meta) {
            // The object is gone again, and the approval that was just revoked may have been for that deletion.
            self.listed.notify_one();
        }
    }

    /// Removes the rows of another object of the name, and returns its own. `None` while the cache is stale.
    async fn own_rows(&self, declared: Declared<'_>) -> Result<Option<Rows>, ReconcileError> {
        let name = &declared.spec.name;
        let record = match self.catalog.record(name).await {
            Ok(record) => record,
            Err(error) => return Err(self.report_database_error(declared, None, &error).await),
        };
        let uid = match adopt(declared.spec, record) {
            Ok(rows) => return Ok(Some(rows)),
            Err(Replaced { uid }) => uid,
        };
        if !self.is_cache_current(name).await? {
            return Ok(None);
        }
        tracing::info!("removing charts of a previous repository with the same name");
        match self.catalog.remove(name, Fence::Uid(Some(&uid))).await {
            Ok(_) => Ok(Some(Rows::default())),
            Err(error) => Err(self.report_database_error(declared, None, &error).await),
        }
    }

    fn hand_over(&self, cause: SyncCause<'_>, class: &'static str) {
        if let SyncCause::Key(key, priority) = cause {
            self.queue.add(Key { class, ..key.clone() }, priority);
        }
    }

    /// Updates the metrics of a repository that is not deleted meanwhile.
    fn observe(&self, declared: Declared<'_>, record: Option<&Record>) {
        let (spec, now) = (declared.spec, Timestamp::now());
        // A manifest has no time of creation.
        let created = created(declared.object).unwrap_or(now);
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

    /// Asks the API server before charts are removed: the cache may be stale after an interrupted watch, and another
    /// replica may have synced a newer object.
    async fn is_cache_current(&self, name: &NamespacedName) -> Result<bool, ReconcileError> {
        let cached = self.store.get(name).and_then(|cached| cached.meta().uid.clone());
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

    /// Returns true if the store still has this object, and it is not being deleted.
    fn is_current(&self, name: &NamespacedName, meta: &ObjectMeta) -> bool {
        self.store.get(name).is_some_and(|cached| is_same(cached.meta(), meta))
    }
}

fn created(object: &AppRepository) -> Option<Timestamp> {
    object.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

fn is_same(current: &ObjectMeta, meta: &ObjectMeta) -> bool {
    current.uid == meta.uid && current.deletion_timestamp.is_none()
}

/// Treats NotFound as success: the object was deleted.
fn ignore_not_found(error: ApiError) -> Result<(), ReconcileError> {
    if error.is_not_found() {
        return Ok(());
    }
    Err(api_error(&error))
}

fn api_error(error: &ApiError) -> ReconcileError {
    let message = format!("request to the API server failed: {error}");
    if error.is_conflict() {
        return ReconcileError::Conflict { message };
    }
    ReconcileError::transient(message, Backoff::CONFLICT)
}

fn is_gone(cached: Option<&Cached<CachedRepository>>) -> bool {
    cached.is_none_or(|cached| cached.meta().deletion_timestamp.is_some())
}
