//! Reports the state of a repository in the status of its object, and in events.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::ObjectMeta;

use super::{RepositoryReconciler, ignore_not_found, is_same};
use crate::api::NamespacedName;
use crate::catalog::{self, Record, RecordState};
use crate::controllers::apprepository::event_handler::{key, reconcile_inputs};
use crate::controllers::apprepository::jobs::Declared;
use crate::controllers::apprepository::news;
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

impl RepositoryReconciler {
    /// Reports an error of the database in the status, and returns the error of the reconcile.
    pub(super) async fn report_database_error(
        &self,
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
        let written = self.write_status(declared, record, Some(&state), SyncPhase::Idle).await;
        if let Err(failure) = written {
            tracing::warn!(error = %failure, "failed to update status after database error");
        }
        // A slow repository is handed over to its class by the next reconcile.
        self.faults
            .reconcile_error(key(&declared.spec.name), error, DATABASE_BACKOFF)
    }

    /// Returns false if the CRD is not installed, or has no status subresource, as Kubeapps' CRD.
    async fn has_status_subresource(&self) -> Result<bool, ReconcileError> {
        let has_status = self.origin.has_status().await;
        has_status.or_else(|error| ignore_not_found(error).map(|()| false))
    }

    /// Inserts the news of a stalled repository, if no sync records why. One that was never synced has nothing to recover from.
    async fn report_unrecorded(
        &self,
        sinks: &[String],
        uid: Option<&str>,
        record: Option<&Record>,
        state: &RecordState,
    ) -> Result<(), catalog::Error> {
        let is_new = |record: &&Record| !record.state.failure_reported && Some(&*record.uid) == uid;
        match record.filter(is_new) {
            Some(record) if !sinks.is_empty() && state.stalled => {
                self.catalog.report_failure(record, &state.message, sinks).await
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn write_status(
        &self,
        declared: Declared<'_>,
        record: Option<&Record>,
        unrecorded: Option<&RecordState>,
        phase: SyncPhase,
    ) -> Result<(), ReconcileError> {
        let Declared { object, spec } = declared;
        if let Some(state) = unrecorded {
            let reported = self.report_unrecorded(&spec.news_sinks, Some(&spec.uid), record, state);
            if let Err(error) = reported.await {
                tracing::warn!(%error, "failed to insert the news of a failure");
            }
        }
        if !self.has_status_subresource().await? {
            return Ok(());
        }
        let name = &spec.name;
        let Some(Cached::Object(current)) = self
            .store
            .get(name)
            .filter(|seen| is_same(seen.meta(), &object.metadata))
        else {
            // The object was deleted, recreated, or made invalid.
            return Ok(());
        };
        let facts = Facts {
            generation: spec.generation,
            suspended: spec.suspended,
            is_new_spec: record.is_some_and(|record| record.spec_hash.as_deref() != Some(spec.spec_hash.as_str())),
            record,
            unrecorded,
            phase,
            files: self
                .imports
                .as_ref()
                .map_or(ImportProgress::Disabled, |imports| imports.progress(name)),
            now: Timestamp::now(),
        };
        let before = current.status.as_ref();
        let status = status::build(&facts, before);
        if !status::needs_update(before, &status) {
            return Ok(());
        }
        match self.origin.write_status(&current.metadata, &status).await {
            Ok(written) => {
                // Otherwise the object was changed meanwhile: the watch must deliver that first.
                if reconcile_inputs(&written) == reconcile_inputs(&current.metadata) {
                    let assumed = current.with_written(written, status);
                    self.store.assume(Cached::Object(Arc::new(assumed)));
                }
                Ok(())
            }
            Err(error) => ignore_not_found(error),
        }
    }

    /// Reports an object that can't be decoded. Its charts stay.
    pub(super) async fn report_invalid_object(
        &self,
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
        let record = self.catalog.record(name).await;
        let sinks = news::sinks(meta, self.defaults.news_sinks.as_deref());
        // Without the record, the status has fewer details.
        let (record, reported) = match record {
            Ok(record) => {
                let uid = meta.uid.as_deref();
                let reported = self.report_unrecorded(&sinks, uid, record.as_ref(), &state).await;
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
        self.publish_once(name, meta, Event::warning("InvalidObject", &message))
            .await;
        let fingerprint = status::fingerprint(&status);
        if self.states.read(name, |state| state.last_status) != Some(fingerprint)
            && self.has_status_subresource().await?
        {
            self.origin
                .write_status(meta, &status)
                .await
                .map(drop)
                .or_else(ignore_not_found)?;
            self.states.update(name, |state| state.last_status = Some(fingerprint));
        }
        // Nothing else would reconcile the object again.
        if let Err(error) = reported
            && !sinks.is_empty()
        {
            return Err(self.faults.reconcile_error(key(name), &error, DATABASE_BACKOFF));
        }
        Err(ReconcileError::Terminal {
            message,
            retry_after: None,
        })
    }

    /// Publishes an event unless the last one had the same reason and generation.
    pub(super) async fn publish_once(&self, name: &NamespacedName, meta: &ObjectMeta, event: Event) {
        let mut hasher = DefaultHasher::new();
        (&event.reason, meta.generation).hash(&mut hasher);
        let fingerprint = hasher.finish();
        if self.states.read(name, |state| state.last_event) != Some(fingerprint) {
            self.origin.publish(meta, event).await;
            self.states.update(name, |state| state.last_event = Some(fingerprint));
        }
    }
}
