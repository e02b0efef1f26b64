//! Removes the charts of deleted repositories, after a deletion event, an orphan check, or for the finalizer.

use std::time::Duration;

use kube::api::ObjectMeta;

use super::report::publish_once;
use super::{RepositoryReconciler, STALE_CACHE_RETRY, ignore_not_found, is_gone};
use crate::api::{NamespacedName, SKIP_CLEANUP};
use crate::catalog::{self, Fence};
use crate::controllers::apprepository::database_faults::DatabaseFaults;
use crate::controllers::apprepository::event_handler::{cleanup_key, key};
use crate::controllers::apprepository::garbage::report::GarbageKind;
use crate::controllers::apprepository::jobs::{Cleanup, Executor};
use crate::runtime::controller::{Action, ReconcileError};
use crate::runtime::events::Event;
use crate::runtime::watch::Cached;
use crate::runtime::workqueue::{Backoff, Priority};

const CLEANUP_BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_secs(5 * 60),
};

/// Removes the charts of a repository that is gone or being deleted, once its canceled sync has ended.
pub(super) async fn clean_up(
    reconciler: &RepositoryReconciler,
    name: &NamespacedName,
) -> Result<Action, ReconcileError> {
    if reconciler.stopping.is_cancelled() {
        return Ok(Action::Done);
    }
    if is_gone(reconciler.store.get(name).as_ref()) {
        reconciler.running_syncs.end(name).await;
    }
    match reconciler.look_up(name) {
        None => remove_orphan(reconciler, name).await,
        Some(seen) if is_gone(Some(&seen)) => clean_up_deleted(reconciler, name, seen.meta()).await,
        Some(_) => {
            // Declared again. Its sync may have been canceled just now.
            reconciler.queue.add(key(name), Priority::USER);
            Ok(Action::Done)
        }
    }
}

/// Removes charts only if that was approved (see [`super::super::garbage::orphans`]), and on one replica: without
/// the object, its shard is unknown.
async fn remove_orphan(reconciler: &RepositoryReconciler, name: &NamespacedName) -> Result<Action, ReconcileError> {
    reconciler.metrics.forget(name);
    let Some(uid) = reconciler.states.read(name, |state| state.approved_removal.clone()) else {
        return Ok(Action::Done);
    };
    if !reconciler.ownership.is_primary() {
        reconciler.states.update(name, |state| state.approved_removal = None);
        return Ok(Action::Done);
    }
    if !reconciler.is_cache_current(name).await? {
        if reconciler.ownership.has_partial_lists() {
            // It exists, and its labels have changed: another process syncs it.
            reconciler.states.update(name, |state| state.approved_removal = None);
            return Ok(Action::Done);
        }
        return Ok(Action::requeue_after(STALE_CACHE_RETRY));
    }
    end_jobs(reconciler, name).await;
    let fence = Fence::Uid(Some(&uid));
    let removed = remove(reconciler, name, fence, Some(&uid)).await;
    let is_removed = removed.map_err(|error| cleanup_error(&reconciler.faults, name, &error))?;
    let metrics = &reconciler.garbage_metrics;
    metrics.count_removed(GarbageKind::Repositories, u64::from(is_removed));
    reconciler.states.update(name, |state| state.approved_removal = None);
    Ok(Action::Done)
}

/// Removes the rows before the finalizer, so that a restart finds the object. Ignores suspension and the spec.
async fn clean_up_deleted(
    reconciler: &RepositoryReconciler,
    name: &NamespacedName,
    meta: &ObjectMeta,
) -> Result<Action, ReconcileError> {
    reconciler.metrics.forget(name);
    end_jobs(reconciler, name).await;
    let skip = meta.annotations.as_ref().and_then(|all| all.get(SKIP_CLEANUP));
    if skip.is_some_and(|value| value == "true") {
        tracing::warn!("skipping the removal of charts, as requested by annotation {SKIP_CLEANUP}");
    } else if let Some(delay) = wait_for_cleanup_job(reconciler, name, meta).await {
        return Ok(Action::requeue_after(delay));
    } else if let Err(error) = remove_deleted(reconciler, name, meta.uid.as_deref()).await? {
        let note = format!(
            "failed to remove the charts, deletion is blocked: {error}; to skip the cleanup, set the annotation {SKIP_CLEANUP}: \"true\""
        );
        publish_once(reconciler, name, meta, Event::warning("CleanupFailed", note)).await;
        return Err(cleanup_error(&reconciler.faults, name, &error));
    }
    let origin = &reconciler.origin;
    origin.remove_finalizer(meta).await.or_else(ignore_not_found)?;
    Ok(Action::Done)
}

/// Ends the Jobs and CronJobs that would write the charts again.
async fn end_jobs(reconciler: &RepositoryReconciler, name: &NamespacedName) {
    if let Some(remover) = &reconciler.cronjob_remover {
        remover.after_deletion(name).await;
    }
    if let Some(runner) = &reconciler.job_runner {
        runner.jobs.end_deleted(name).await;
    }
}

/// Removes rows of the object or of an earlier one of its name. The API server is asked between reading their UID
/// and removing them: if the object is still there, the rows do not belong to a successor.
async fn remove_deleted(
    reconciler: &RepositoryReconciler,
    name: &NamespacedName,
    deleted: Option<&str>,
) -> Result<Result<(), catalog::Error>, ReconcileError> {
    let uid = match reconciler.catalog.stored_uid(name).await {
        Ok(uid) => uid,
        Err(error) => return Ok(Err(error)),
    };
    if !reconciler.is_cache_current(name).await? {
        return Err(ReconcileError::transient(
            "the object was replaced during its deletion".to_owned(),
            CLEANUP_BACKOFF,
        ));
    }
    let removed = remove(reconciler, name, Fence::Uid(uid.as_deref()), deleted).await;
    Ok(removed.map(drop))
}

/// Removes the rows, and returns true if there were any. Late Jobs of the `deleted` UID can't write them again.
async fn remove(
    reconciler: &RepositoryReconciler,
    name: &NamespacedName,
    fence: Fence<'_>,
    deleted: Option<&str>,
) -> Result<bool, catalog::Error> {
    let is_removed = match deleted.filter(|_| reconciler.job_runner.is_some()) {
        Some(uid) => reconciler.catalog.remove_deleted(name, fence, uid).await?,
        None => reconciler.catalog.remove(name, fence).await?,
    };
    if is_removed {
        tracing::info!("removed charts");
    }
    Ok(is_removed)
}

fn cleanup_error(faults: &DatabaseFaults, name: &NamespacedName, error: &catalog::Error) -> ReconcileError {
    faults.reconcile_error(cleanup_key(name), error, CLEANUP_BACKOFF)
}

/// Returns the delay of the next check while the Job that removes the charts runs.
async fn wait_for_cleanup_job(
    reconciler: &RepositoryReconciler,
    name: &NamespacedName,
    meta: &ObjectMeta,
) -> Option<Duration> {
    let (runner, uid) = (reconciler.job_runner.as_ref()?, meta.uid.as_deref()?);
    let cached = reconciler.store.get(name);
    let object = cached.as_ref().and_then(Cached::object);
    if runner.executor(object.map(|object| &***object)) != Executor::Job {
        return None;
    }
    let deleted = meta.deletion_timestamp.as_ref().map(|time| time.0);
    match runner.jobs.clean_up(name, uid, deleted).await {
        Cleanup::Wait(delay) => Some(delay),
        Cleanup::Finish => None,
    }
}
