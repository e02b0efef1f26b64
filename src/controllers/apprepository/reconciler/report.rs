//! Reports the state of a repository in the status of its object, and in events.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::ObjectMeta;

use super::{RepositoryReconciler, ignore_not_found, is_same};
use crate::api::NamespacedName;
use crate::catalog::{self, Catalog, Record, RecordState};
use crate::controllers::apprepository::event_handler::{key, reconcile_inputs};
use crate::controllers::apprepository::jobs::Declared;
use crate::controllers::apprepository::news;
use crate::controllers::apprepository::origin::Origin;
use crate::controllers::apprepository::status::{self, Facts, ImportProgress, SyncPhase};
use crate::runtime::controller::{Action, ReconcileError};
use crate::runtime::events::Event;
use crate::runtime::watch::Cached;
use crate::runtime::workqueue::Backoff;

/// Backoff of errors of the database that concern one repository.
const DATABASE_BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(5),
    cap: Duration::from_secs(60),
};

/// Reports an error of the database in the status, and returns the error of the reconcile.
pub(super) async fn report_database_error(
    reconciler: &RepositoryReconciler,
    declared: Declared<'_>,
    record: Option<&Record>,
    error: &catalog::Error,
) -> ReconcileError {
    let state = RecordState {
        ready: Some(false),
        stalled: false,
        reason: error.reason().to_owned(),
        message: error.to_string(),
        failures: 1,
        ..RecordState::default()
    };
    let written = write_status(reconciler, declared, record, Some(&state), SyncPhase::Idle).await;
    if let Err(failure) = written {
        tracing::warn!(error = %failure, "failed to update status after database error");
    }
    // A slow repository is handed over to its class by the next reconcile.
    reconciler
        .faults
        .reconcile_error(key(&declared.spec.name), error, DATABASE_BACKOFF)
}

/// Returns false if the CRD is not installed, or has no status subresource, as Kubeapps' CRD.
async fn has_status_subresource(origin: &Origin) -> Result<bool, ReconcileError> {
    let has_status = origin.has_status().await;
    has_status.or_else(|error| ignore_not_found(error).map(|()| false))
}

/// Inserts the news of a stalled repository, if no sync records why. One that was never synced has nothing to recover from.
async fn report_unrecorded(
    catalog: &Catalog,
    sinks: &[String],
    uid: Option<&str>,
    record: Option<&Record>,
    state: &RecordState,
) -> Result<(), catalog::Error> {
    let is_new = |record: &&Record| !record.state.failure_reported && Some(&*record.uid) == uid;
    match record.filter(is_new) {
        Some(record) if !sinks.is_empty() && state.stalled => {
            catalog.report_failure(record, &state.message, sinks).await
        }
        _ => Ok(()),
    }
}

pub(super) async fn write_status(
    reconciler: &RepositoryReconciler,
    declared: Declared<'_>,
    record: Option<&Record>,
    unrecorded: Option<&RecordState>,
    phase: SyncPhase,
) -> Result<(), ReconcileError> {
    let Declared { object, spec } = declared;
    if let Some(state) = unrecorded {
        let reported = report_unrecorded(&reconciler.catalog, &spec.news_sinks, Some(&spec.uid), record, state);
        if let Err(error) = reported.await {
            tracing::warn!(%error, "failed to insert the news of a failure");
        }
    }
    if !has_status_subresource(&reconciler.origin).await? {
        return Ok(());
    }
    let name = &spec.name;
    let cached = reconciler.store.get(name);
    let Some(Cached::Object(current)) = cached.filter(|seen| is_same(seen.meta(), &object.metadata)) else {
        // The object was deleted, recreated, or made invalid.
        return Ok(());
    };
    let imports = reconciler.imports.as_ref();
    let facts = Facts {
        generation: spec.generation,
        suspended: spec.suspended,
        is_new_spec: record.is_some_and(|record| record.spec_hash.as_deref() != Some(spec.spec_hash.as_str())),
        record,
        unrecorded,
        phase,
        files: imports.map_or(ImportProgress::Disabled, |imports| imports.progress(name)),
        now: Timestamp::now(),
    };
    let before = current.status.as_ref();
    let status = status::build(&facts, before);
    if !status::needs_update(before, &status) {
        return Ok(());
    }
    match reconciler.origin.write_status(&current.metadata, &status).await {
        Ok(written) => {
            // Otherwise the object was changed meanwhile: the watch must deliver that first.
            if reconcile_inputs(&written) == reconcile_inputs(&current.metadata) {
                let assumed = current.with_written(written, status);
                reconciler.store.assume(Cached::Object(Arc::new(assumed)));
            }
            Ok(())
        }
        Err(error) => ignore_not_found(error),
    }
}

/// Reports an object that can't be decoded. Its charts stay.
pub(super) async fn report_invalid_object(
    reconciler: &RepositoryReconciler,
    name: &NamespacedName,
    meta: &ObjectMeta,
    error: &str,
) -> Result<Action, ReconcileError> {
    let message = format!("invalid AppRepository: {error}");
    let state = RecordState {
        ready: Some(false),
        stalled: true,
        reason: "InvalidObject".to_owned(),
        message: message.clone(),
        failures: 1,
        ..RecordState::default()
    };
    let catalog = &reconciler.catalog;
    let sinks = news::sinks(meta, reconciler.defaults.news_sinks.as_deref());
    // Without the record, the status has fewer details.
    let (record, reported) = match catalog.record(name).await {
        Ok(record) => {
            let reported = report_unrecorded(catalog, &sinks, meta.uid.as_deref(), record.as_ref(), &state).await;
            (record, reported)
        }
        Err(error) => (None, Err(error)),
    };
    let facts = Facts {
        generation: meta.generation,
        suspended: false,
        is_new_spec: false,
        record: record.as_ref(),
        unrecorded: Some(&state),
        phase: SyncPhase::Idle,
        files: ImportProgress::Disabled,
        now: Timestamp::now(),
    };
    let status = status::build(&facts, None);
    publish_once(reconciler, name, meta, Event::warning("InvalidObject", &message)).await;
    let fingerprint = status::fingerprint(&status);
    let (origin, states) = (&reconciler.origin, &reconciler.states);
    if states.read(name, |state| state.last_status) != Some(fingerprint) && has_status_subresource(origin).await? {
        if let Err(error) = origin.write_status(meta, &status).await {
            ignore_not_found(error)?;
        }
        states.update(name, |state| state.last_status = Some(fingerprint));
    }
    // Nothing else would reconcile the object again.
    if let Err(error) = reported
        && !sinks.is_empty()
    {
        return Err(reconciler.faults.reconcile_error(key(name), &error, DATABASE_BACKOFF));
    }
    Err(ReconcileError::Terminal {
        message,
        retry_after: None,
    })
}

/// Publishes an event unless the last one had the same reason and generation.
pub(super) async fn publish_once(
    reconciler: &RepositoryReconciler,
    name: &NamespacedName,
    meta: &ObjectMeta,
    event: Event,
) {
    let mut hasher = DefaultHasher::new();
    (&event.reason, meta.generation).hash(&mut hasher);
    let fingerprint = hasher.finish();
    let states = &reconciler.states;
    if states.read(name, |state| state.last_event) != Some(fingerprint) {
        reconciler.origin.publish(meta, event).await;
        states.update(name, |state| state.last_event = Some(fingerprint));
    }
}
