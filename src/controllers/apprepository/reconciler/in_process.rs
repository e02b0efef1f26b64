use std::time::Duration;

use jiff::Timestamp;
use tracing::Instrument;

use super::report::{report_database_error, write_status};
use super::{RepositoryReconciler, api_error};
use crate::api::{AppRepository, NamespacedName};
use crate::catalog::{ChangedCharts, Record};
use crate::controllers::apprepository::decision::{has_charts, is_slow, until_due, until_look};
use crate::controllers::apprepository::events;
use crate::controllers::apprepository::jobs::Declared;
use crate::controllers::apprepository::plan::{
    AbortPlan, after_abort, after_sync, changed_charts, has_used_secrets, metric_label, scheduled,
};
use crate::controllers::apprepository::status::{self, SyncPhase};
use crate::controllers::apprepository::sync::request::{SyncAborted, SyncRequest, SyncResult};
use crate::controllers::apprepository::tombstones::TombstoneError;
use crate::runtime::controller::{Action, ReconcileError};
use crate::runtime::events::Event;
use crate::trace::trace_span;

/// Reports a repository whose next sync is due at `until`, or after an event.
pub(super) async fn wait(
    reconciler: &RepositoryReconciler,
    declared: Declared<'_>,
    record: Option<&Record>,
    until: Option<Timestamp>,
) -> Result<Action, ReconcileError> {
    publish_import_events(reconciler, declared).await;
    follow_up(reconciler, &declared.spec.name, record, ChangedCharts::default()).await;
    write_status(reconciler, declared, record, None, SyncPhase::Idle).await?;
    Ok(until.map_or(Action::Done, |until| {
        scheduled(Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default())
    }))
}

pub(super) async fn sync(
    reconciler: &RepositoryReconciler,
    object: &AppRepository,
    request: SyncRequest,
) -> Result<Action, ReconcileError> {
    let (spec, previous) = (&request.spec, request.previous.as_ref());
    let declared = Declared { object, spec };
    publish_import_events(reconciler, declared).await;
    show_syncing(reconciler, declared, previous).await;
    match run_sync(reconciler, object, &request).await {
        Some(Ok(result)) => report_sync(reconciler, object, &request, result).await,
        // A change before the start enqueued the key again.
        None => Ok(Action::Done),
        Some(Err(aborted)) => match after_abort(aborted) {
            AbortPlan::AwaitEvent => Ok(Action::Done),
            AbortPlan::ForgetTombstone => forget_tombstone(reconciler, declared, previous).await,
            AbortPlan::ReportDatabase(error) => {
                Err(report_database_error(reconciler, declared, previous, &error).await)
            }
        },
    }
}

/// Lets an object that was restored be synced again.
async fn forget_tombstone(
    reconciler: &RepositoryReconciler,
    declared: Declared<'_>,
    previous: Option<&Record>,
) -> Result<Action, ReconcileError> {
    let (name, meta) = (&declared.spec.name, &declared.object.metadata);
    match reconciler.tombstones.forget_outdated(name, meta).await {
        Ok(()) => Ok(Action::Requeue),
        Err(TombstoneError::Api(error)) => Err(api_error(&error)),
        Err(TombstoneError::Catalog(error)) => Err(report_database_error(reconciler, declared, previous, &error).await),
    }
}

/// Shows in the status that a sync starts, if that is news.
async fn show_syncing(reconciler: &RepositoryReconciler, declared: Declared<'_>, previous: Option<&Record>) {
    if !has_to_show_syncing(declared, previous.is_some()) {
        return;
    }
    if let Err(failure) = write_status(reconciler, declared, previous, None, SyncPhase::Syncing).await {
        // Status updates never block a sync; the update after the sync retries.
        tracing::warn!(error = %failure, "failed to set Reconciling condition");
    }
}

/// Runs a sync. Returns `None` if the object has changed before its start.
async fn run_sync(
    reconciler: &RepositoryReconciler,
    object: &AppRepository,
    request: &SyncRequest,
) -> Option<Result<SyncResult, SyncAborted>> {
    let (spec, previous) = (&request.spec, request.previous.as_ref());
    let name = &spec.name;
    let running = if previous.is_some_and(|previous| is_slow(&spec.url, previous)) {
        reconciler.running_syncs.begin_slow(name)
    } else {
        reconciler.running_syncs.begin(name)
    };
    // A change before `begin` canceled nothing, but it enqueued the key again.
    if !reconciler.is_current(name, &object.metadata) {
        return None;
    }
    // Before the sync reads the Secret: a change during the sync forces another sync.
    let states = &reconciler.states;
    let was_forced = states.update(name, |state| std::mem::take(&mut state.force_sync));
    let timer = reconciler.metrics.start();
    let sync = reconciler.syncer.sync(request.clone(), running.attempt().clone());
    let result = sync.instrument(trace_span!("sync")).await;
    drop(running);
    if let Some(label) = metric_label(&result) {
        timer.finish(label);
    }
    if was_forced && !has_used_secrets(&result) {
        states.update(name, |state| state.force_sync = true);
    }
    if reconciler.store.get(name).is_none() {
        // The object was deleted during the sync. The orphan check may have run before the rows were committed.
        reconciler.listed.notify_one();
    }
    Some(result)
}

async fn report_sync(
    reconciler: &RepositoryReconciler,
    object: &AppRepository,
    request: &SyncRequest,
    result: SyncResult,
) -> Result<Action, ReconcileError> {
    let SyncResult { record, outcome } = result;
    let spec = &request.spec;
    let declared = Declared { object, spec };
    reconciler.observe(declared, Some(&record));
    follow_up(reconciler, &spec.name, Some(&record), changed_charts(request, &outcome)).await;
    for event in events::sync_events(spec, request.previous.as_ref(), &record, &outcome) {
        reconciler.origin.publish(&object.metadata, event).await;
    }
    let written = write_status(reconciler, declared, Some(&record), None, SyncPhase::Idle).await;
    let now = Timestamp::now();
    let next_tick = until_due(spec, request.started, now).min(until_look(&record, now));
    match after_sync(outcome, record.state.failures, next_tick) {
        // The backoff of the sync applies even if the status update failed; the next sync retries it.
        Err(retry @ ReconcileError::Transient { .. }) => Err(retry),
        next => written.and(next),
    }
}

async fn publish_import_events(reconciler: &RepositoryReconciler, declared: Declared<'_>) {
    let Some(imports) = &reconciler.imports else { return };
    for (reason, message) in imports.take_events(&declared.spec.name) {
        let event = Event::warning(reason, message);
        reconciler.origin.publish(&declared.object.metadata, event).await;
    }
}

/// Does what follows a sync: enqueues the import of chart files, and removes Kubeapps' CronJobs.
async fn follow_up(
    reconciler: &RepositoryReconciler,
    name: &NamespacedName,
    record: Option<&Record>,
    changed: ChangedCharts,
) {
    let Some(record) = record.filter(|record| has_charts(record)) else {
        return;
    };
    if let Some(imports) = &reconciler.imports {
        imports.enqueue(record, changed);
    }
    // Kubeapps' CronJobs stay until all charts are synced.
    let is_ready = record.state.ready == Some(true);
    if let Some(remover) = reconciler.cronjob_remover.as_ref().filter(|_| is_ready) {
        remover.after_sync(name).await;
    }
}

/// Returns true if the status has to show that a sync starts: the first sync, or a new generation. If the database
/// fails, only the first attempt is shown, since no attempt can be recorded.
fn has_to_show_syncing(declared: Declared<'_>, has_record: bool) -> bool {
    let Some(status) = &declared.object.status else {
        return true;
    };
    let has_failed = || {
        let mut conditions = status.conditions.iter();
        conditions.any(|condition| condition.type_ == status::READY && condition.status == "False")
    };
    status.observed_generation != declared.spec.generation || (!has_record && !has_failed())
}
