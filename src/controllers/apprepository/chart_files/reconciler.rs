//! Reconciles the chart files of a repository, one batch at a time for fairness.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::ImportQueue;
use super::import::{Importer, Turn, Worklist};
use crate::api::AppRepository;
use crate::api::NamespacedName;
use crate::catalog::{self, Catalog};
use crate::controllers::apprepository::decision::has_charts;
use crate::controllers::apprepository::spec::{Defaults, RepositorySpec};
use crate::runtime::controller::{Action, Key, Reconcile, ReconcileError};
use crate::runtime::informer::{Seen, Store};
use crate::runtime::workqueue::{Backoff, Priority};

const REPORT_INTERVAL: Duration = Duration::from_secs(15);
const BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(5),
    cap: Duration::from_secs(15 * 60),
};

pub struct FilesReconciler {
    pub store: Store<AppRepository>,
    pub folder_mode: bool,
    pub defaults: Defaults,
    pub catalog: Catalog,
    pub importer: Importer,
    pub imports: ImportQueue,
    /// Canceled at shutdown; a running batch has nothing to lose.
    pub stopping: CancellationToken,
}

impl Reconcile for FilesReconciler {
    fn reconcile<'a>(&'a self, key: &'a Key, _priority: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>> {
        async move {
            let turn = self.stopping.run_until_cancelled(self.look_at(&key.name)).await;
            turn.unwrap_or(Ok(Action::Done))
        }
        .boxed()
    }
}

impl FilesReconciler {
    async fn look_at(&self, name: &NamespacedName) -> Result<Action, ReconcileError> {
        let (mut worklist, mut reported) = self.imports.resume(name);
        let Some(object) = self.declared(name) else {
            self.imports.forget(name);
            return Ok(Action::Done);
        };
        let turn = match self.turn(&object, &mut worklist).await {
            Ok(Some(turn)) => turn,
            Ok(None) => {
                self.imports.abandon(name);
                return Ok(Action::Done);
            }
            Err(error) => {
                return Err(ReconcileError::Transient {
                    message: error.to_string(),
                    backoff: BACKOFF,
                    at_least: Duration::ZERO,
                    at_most: Duration::MAX,
                });
            }
        };
        let is_under_way = turn == Turn::More;
        if !is_under_way || reported.is_none_or(|reported| reported.elapsed() >= REPORT_INTERVAL) {
            self.tell(name, &object).await;
            reported = is_under_way.then(Instant::now);
        }
        Ok(match turn {
            Turn::More => {
                self.imports.suspend(name, worklist, reported);
                Action::requeue_after(Duration::ZERO)
            }
            Turn::Held(time) => {
                self.imports.suspend(name, worklist, None);
                Action::requeue_after(time)
            }
            Turn::Done(Some(time)) => {
                let wait = Duration::try_from(time.duration_since(Timestamp::now())).unwrap_or_default();
                Action::requeue_after(wait)
            }
            Turn::Done(None) => Action::Done,
        })
    }

    /// Imports everything that is available now, without retrying failures.
    pub async fn import_all(&self, name: &NamespacedName) -> Result<(), catalog::Error> {
        let Some(object) = self.declared(name) else {
            return Ok(());
        };
        let mut worklist = Worklist::default();
        while let Some(Turn::More) = self.turn(&object, &mut worklist).await? {}
        Ok(())
    }

    fn declared(&self, name: &NamespacedName) -> Option<Arc<AppRepository>> {
        match self.store.get(name)? {
            Seen::Object(object) if object.metadata.deletion_timestamp.is_none() => Some(object),
            _ => None,
        }
    }

    /// Imports one batch. Returns `None` if the repository is suspended or its rows are not from this spec; the next
    /// successful sync enqueues it again.
    async fn turn(&self, object: &AppRepository, worklist: &mut Worklist) -> Result<Option<Turn>, catalog::Error> {
        let declaration = RepositorySpec::of(object, &self.defaults, self.folder_mode);
        if declaration.suspended {
            return Ok(None);
        }
        let record = self.catalog.record(&declaration.name).await?;
        let is_synced = record.as_ref().is_some_and(|record| {
            has_charts(record)
                && record.uid == declaration.uid
                && declaration.change_key.has_source_of(&record.change_key)
        });
        if !is_synced {
            return Ok(None);
        }
        self.importer
            .turn(&declaration, &declaration.uid, worklist)
            .await
            .map(Some)
    }

    async fn tell(&self, name: &NamespacedName, object: &AppRepository) {
        let declaration = RepositorySpec::of(object, &self.defaults, self.folder_mode);
        match self.importer.progress(&declaration).await {
            Ok(Some(files)) => self.imports.report(name, files),
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "failed to count chart files"),
        }
    }
}
