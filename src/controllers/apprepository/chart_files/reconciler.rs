//! The reconcile of a repository's chart files: one turn at a time, so that no repository keeps the others waiting.

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

/// How often a status is brought up to date while an import is under way.
const REPORT_INTERVAL: Duration = Duration::from_secs(15);
/// How soon, and how late, a turn that the database has failed is repeated.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_secs(5),
    cap: Duration::from_secs(15 * 60),
};

/// What reconciles of chart files work with.
pub struct FilesReconciler {
    /// The declarations.
    pub store: Store<AppRepository>,
    /// Whether they are manifests in a folder.
    pub folder_mode: bool,
    /// What the declarations that say nothing get.
    pub defaults: Defaults,
    /// The database.
    pub catalog: Catalog,
    /// What does the work.
    pub importer: Importer,
    /// The queue and the progress of imports.
    pub imports: ImportQueue,
    /// Cancelled when the process is to end: a turn under way has nothing to lose.
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

    /// Imports all that can be had now, turn after turn, without being asked again for what has failed.
    ///
    /// # Errors
    /// The database fails.
    pub async fn import_all(&self, name: &NamespacedName) -> Result<(), catalog::Error> {
        let Some(object) = self.declared(name) else {
            return Ok(());
        };
        let mut worklist = Worklist::default();
        while let Some(Turn::More) = self.turn(&object, &mut worklist).await? {}
        Ok(())
    }

    /// What is declared, where it is not being deleted.
    fn declared(&self, name: &NamespacedName) -> Option<Arc<AppRepository>> {
        match self.store.get(name)? {
            Seen::Object(object) if object.metadata.deletion_timestamp.is_none() => Some(object),
            _ => None,
        }
    }

    /// One turn; none where syncs are held, have failed, or have written rows of another declaration: the next sync that
    /// succeeds puts the key back.
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

    /// Has the status show how far the import is. Where that can't be found out it shows what it did.
    async fn tell(&self, name: &NamespacedName, object: &AppRepository) {
        let declaration = RepositorySpec::of(object, &self.defaults, self.folder_mode);
        match self.importer.progress(&declaration).await {
            Ok(Some(files)) => self.imports.report(name, files),
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "failed to count chart files"),
        }
    }
}
