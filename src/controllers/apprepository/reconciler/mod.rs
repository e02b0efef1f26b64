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
use cleanup::clean_up;
use in_jobs::act_on_jobs;
use report::{report_database_error, report_invalid_object};

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
                CLEANUP => clean_up(self, &key.name).await,
                _ => reconcile_repository(self, &key.name, SyncCause::Key(key, priority)).await,
            }
        }
        .boxed()
    }
}

impl RepositoryReconciler {
    /// Syncs `name` even if it is not due, as `run --once` does.
    pub async fn sync_now(&self, name: &NamespacedName) -> Result<Action, ReconcileError> {
        if is_gone(self.store.get(name).as_ref()) {
            return clean_up(self, name).await;
        }
        reconcile_repository(self, name, SyncCause::Forced).await
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
        let live = self.origin.has_uid(name, cached.as_deref()).await;
        let is_current = live.map_err(|error| api_error(&error))?;
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

async fn reconcile_repository(
    reconciler: &RepositoryReconciler,
    name: &NamespacedName,
    cause: SyncCause<'_>,
) -> Result<Action, ReconcileError> {
    if reconciler.stopping.is_cancelled() {
        return Ok(Action::Done);
    }
    let Some(cached) = reconciler.look_up(name).filter(|cached| !is_gone(Some(cached))) else {
        reconciler.queue.add(cleanup_key(name), Priority::USER);
        return Ok(Action::Done);
    };
    match cached {
        Cached::Invalid { meta, error } => report_invalid_object(reconciler, name, &meta, &error).await,
        Cached::Object(object) => reconcile_object(reconciler, name, &object, cause).await,
    }
}

async fn reconcile_object(
    reconciler: &RepositoryReconciler,
    name: &NamespacedName,
    object: &AppRepository,
    cause: SyncCause<'_>,
) -> Result<Action, ReconcileError> {
    revoke_removal(reconciler, name, &object.metadata);
    let spec = RepositorySpec::of(object, &reconciler.defaults, reconciler.origin.is_directory());
    match reconciler.origin.add_finalizer(&object.metadata).await {
        Ok(()) => {}
        // The deletion event is on its way.
        Err(error) if error.is_not_found() => return Ok(Action::Done),
        Err(error) => return Err(api_error(&error)),
    }
    let declared = Declared { object, spec: &spec };
    let Some(rows) = own_rows(reconciler, declared).await? else {
        return Ok(Action::requeue_after(STALE_CACHE_RETRY));
    };
    reconciler.observe(declared, rows.record.as_ref());
    let observed = ObservedRepository {
        spec: &spec,
        rows: &rows,
        created: created(object),
        class: match cause {
            SyncCause::Key(key, _) => Some(key.class),
            SyncCause::Forced => None,
        },
        force_sync: reconciler.states.read(name, |state| state.force_sync),
    };
    if let Some(runner) = &reconciler.job_runner
        && let Some(action) = act_on_jobs(reconciler, runner, object, observed).await?
    {
        return Ok(action);
    }
    match plan(observed, Timestamp::now()) {
        SyncPlan::HandOver(class) => {
            if let SyncCause::Key(key, priority) = cause {
                reconciler.queue.add(Key { class, ..key.clone() }, priority);
            }
            Ok(Action::Done)
        }
        SyncPlan::Wait(until) => in_process::wait(reconciler, declared, rows.record.as_ref(), until).await,
        SyncPlan::Sync(request) => in_process::sync(reconciler, object, *request).await,
    }
}

/// Keeps the charts of an object that is declared again.
fn revoke_removal(reconciler: &RepositoryReconciler, name: &NamespacedName, meta: &ObjectMeta) {
    reconciler.states.update(name, |state| {
        state.approved_removal = None;
        state.last_event = None;
        state.last_status = None;
    });
    if !reconciler.is_current(name, meta) {
        // The object is gone again, and the approval that was just revoked may have been for that deletion.
        reconciler.listed.notify_one();
    }
}

/// Removes the rows of another object of the name, and returns its own. `None` while the cache is stale.
async fn own_rows(reconciler: &RepositoryReconciler, declared: Declared<'_>) -> Result<Option<Rows>, ReconcileError> {
    let name = &declared.spec.name;
    let record = match reconciler.catalog.record(name).await {
        Ok(record) => record,
        Err(error) => return Err(report_database_error(reconciler, declared, None, &error).await),
    };
    let uid = match adopt(declared.spec, record) {
        Ok(rows) => return Ok(Some(rows)),
        Err(Replaced { uid }) => uid,
    };
    if !reconciler.is_cache_current(name).await? {
        return Ok(None);
    }
    tracing::info!("removing charts of a previous repository with the same name");
    match reconciler.catalog.remove(name, Fence::Uid(Some(&uid))).await {
        Ok(_) => Ok(Some(Rows::default())),
        Err(error) => Err(report_database_error(reconciler, declared, None, &error).await),
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
