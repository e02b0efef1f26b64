//! Reconciles the chart files of a repository, one batch at a time for fairness.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::import::{BatchOutcome, Importer, Worklist};
use super::{ImportQueue, key};
use crate::api::{AppRepository, NamespacedName};
use crate::catalog::{self, Catalog, Record};
use crate::controllers::apprepository::CachedRepository;
use crate::controllers::apprepository::database_faults::DatabaseFaults;
use crate::controllers::apprepository::decision::has_charts;
use crate::controllers::apprepository::spec::{Defaults, RepositorySpec};
use crate::runtime::controller::{Action, Key, Reconcile, ReconcileError};
use crate::runtime::watch::{Cached, Store};
use crate::runtime::workqueue::{Backoff, Priority};

const REPORT_INTERVAL: Duration = Duration::from_secs(15);
const BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(5),
    cap: Duration::from_secs(15 * 60),
};

pub struct FilesReconciler {
    pub store: Store<Cached<CachedRepository>>,
    pub directory_mode: bool,
    pub defaults: Defaults,
    pub catalog: Catalog,
    pub faults: Arc<DatabaseFaults>,
    pub importer: Importer,
    pub imports: ImportQueue,
    /// Canceled at shutdown; ends a running batch too.
    pub stopping: CancellationToken,
}

impl Reconcile for FilesReconciler {
    fn reconcile<'a>(&'a self, key: &'a Key, _priority: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>> {
        async move {
            let batch = self.stopping.run_until_cancelled(self.reconcile_files(&key.name)).await;
            batch.unwrap_or(Ok(Action::Done))
        }
        .boxed()
    }
}

impl FilesReconciler {
    async fn reconcile_files(&self, name: &NamespacedName) -> Result<Action, ReconcileError> {
        let (mut worklist, mut reported) = self.imports.resume(name);
        let Some(object) = self.object(name) else {
            self.imports.forget(name);
            return Ok(Action::Done);
        };
        let batch = match self.import_batch(&object, &mut worklist).await {
            Ok(Some(batch)) => batch,
            Ok(None) => {
                self.imports.reset_enqueued(name);
                return Ok(Action::Done);
            }
            Err(error) => return Err(self.faults.reconcile_error(key(name), &error, BACKOFF)),
        };
        if let Some(message) = worklist.take_warning() {
            self.imports.warn(name, message);
        }
        match &batch {
            BatchOutcome::QuotaExceeded(message) => self.imports.stop(name, message.clone()),
            BatchOutcome::Done(_) => self.imports.resume_within_quota(name),
            BatchOutcome::More | BatchOutcome::Deferred(_) => {}
        }
        let has_more = batch == BatchOutcome::More;
        if !has_more || reported.is_none_or(|reported| reported.elapsed() >= REPORT_INTERVAL) {
            self.report_progress(name, &object).await;
            reported = has_more.then(Instant::now);
        }
        Ok(match batch {
            BatchOutcome::More => {
                self.imports.suspend(name, worklist, reported);
                Action::requeue_after(Duration::ZERO)
            }
            BatchOutcome::Deferred(time) => {
                self.imports.suspend(name, worklist, None);
                Action::requeue_after(time)
            }
            BatchOutcome::Done(Some(time)) => {
                let wait = Duration::try_from(time.duration_since(Timestamp::now())).unwrap_or_default();
                Action::requeue_after(wait)
            }
            BatchOutcome::Done(None) | BatchOutcome::QuotaExceeded(_) => Action::Done,
        })
    }

    /// Imports everything that is available now, without retrying failures.
    pub async fn import_all(&self, name: &NamespacedName) -> Result<(), catalog::Error> {
        let Some(object) = self.object(name) else {
            return Ok(());
        };
        let mut worklist = Worklist::default();
        loop {
            let batch = self.import_batch(&object, &mut worklist).await?;
            if let Some(message) = worklist.take_warning() {
                tracing::warn!(reason = "DigestMismatch", "{message}");
            }
            match batch {
                Some(BatchOutcome::More) => {}
                Some(BatchOutcome::QuotaExceeded(message)) => {
                    tracing::warn!(reason = "QuotaExceeded", "{message}");
                    return Ok(());
                }
                _ => return Ok(()),
            }
        }
    }

    fn object(&self, name: &NamespacedName) -> Option<Arc<CachedRepository>> {
        match self.store.get(name)? {
            Cached::Object(object) if object.metadata.deletion_timestamp.is_none() => Some(object),
            _ => None,
        }
    }

    /// Returns `None` if the repository is suspended or its rows are from another spec; the next sync enqueues it.
    async fn import_batch(
        &self,
        object: &AppRepository,
        worklist: &mut Worklist,
    ) -> Result<Option<BatchOutcome>, catalog::Error> {
        let spec = RepositorySpec::of(object, &self.defaults, self.directory_mode);
        if spec.suspended {
            return Ok(None);
        }
        let record = self.catalog.record(&spec.name).await?;
        let is_synced = |record: &Record| {
            has_charts(record) && record.uid == spec.uid && spec.change_key.has_source_of(&record.change_key)
        };
        let Some(before) = record.filter(is_synced) else {
            return Ok(None);
        };
        let unchecked = self.imports.take_unchecked(&spec.name);
        if let Err(error) = self.importer.skip_files(&spec.name, &spec.uid, &unchecked).await {
            self.imports.restore_unchecked(&spec.name, unchecked);
            return Err(error);
        }
        let batch = self.importer.import_batch(&spec, &spec.uid, worklist).await?;
        if !matches!(batch, BatchOutcome::Done(_)) {
            self.retry_if_requested(&before).await?;
        }
        Ok(Some(batch))
    }

    /// Retries failures that were recorded after the commit of a requested sync, by tries that began before it.
    async fn retry_if_requested(&self, before: &Record) -> Result<(), catalog::Error> {
        let now = self.catalog.record(&before.name).await?;
        let is_requested = now.is_some_and(|now| now.handled != before.handled || now.change_key != before.change_key);
        if is_requested {
            self.catalog.retry_failures(&before.name, &before.uid).await?;
        }
        Ok(())
    }

    async fn report_progress(&self, name: &NamespacedName, object: &AppRepository) {
        let spec = RepositorySpec::of(object, &self.defaults, self.directory_mode);
        match self.importer.progress(&spec).await {
            Ok(Some(files)) => self.imports.report(name, files),
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "failed to count chart files"),
        }
    }
}
