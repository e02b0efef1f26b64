//! Records the revisions of definitions, and stores their schemas. All state is derived from the objects, so a crash between any
//! two steps is safe: a revision is created before the status names it, and deleted only after.

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::cached::{CachedDefinition, LoadError};
use super::caches::DefinitionCaches;
use super::decide::{RecordedDefinition, expendable};
use super::failure::{BACKOFF, DefinitionFailure, REFUSED_RETRY, refused, unusable};
use super::kinds::ReconciledKind;
use super::recorder::{CachedDefinitionRevision, Recorder, SMALL_BYTES};
use super::schema::{self, CurrentRevision, NotStored};
use super::status;
use crate::api::Raw;
use crate::api::oam::{DefinitionKind, DefinitionRevision, LatestRevision};
use crate::budget::{Budgets, Exhausted, Reservation};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::{Options, PASS_COPIES};
use crate::cue::Evaluator;
use crate::runtime::controller::{Action, Key, Reconcile, ReconcileError};
use crate::runtime::kube_client::call;
use crate::runtime::workqueue::Priority;

/// Delay of the retry with a stale cache. Constant, as the event may arrive at any moment.
const STALE_RETRY: Duration = Duration::from_millis(500);
/// Time that a reconcile waits for the caches, and the pause until it looks again.
const SYNC_WAIT: Duration = Duration::from_secs(5);
/// Deletions in one reconcile; the rest follows in the next one.
const MAX_DELETIONS: usize = 20;

/// Annotation of a definition: the version of the controller that reconciles it.
const CONTROLLER_VERSION: &str = "app.oam.dev/controller-version-require";

/// Returns true if an Application names this revision. Until all Applications are known, it must return true.
pub type IsInUse = Arc<dyn Fn(DefinitionKind, &str) -> bool + Send + Sync>;

#[derive(Clone, Debug)]
pub struct DefinitionSettings {
    /// Maximum number of revisions of one definition, besides those in use.
    pub revision_limit: usize,
    /// Definitions that require another version are left alone.
    pub compat_version: String,
    /// Definitions that require no version are left alone.
    pub is_version_required: bool,
}

impl From<&Options> for DefinitionSettings {
    fn from(options: &Options) -> Self {
        Self {
            revision_limit: options.definition_revision_limit,
            compat_version: options.compat_version.clone(),
            is_version_required: options.versions.are_required_of_definitions,
        }
    }
}

impl DefinitionSettings {
    fn is_ours<D: ReconciledKind>(&self, definition: &D) -> bool {
        match definition.annotations().get(CONTROLLER_VERSION) {
            Some(version) => *version == self.compat_version,
            None => !self.is_version_required,
        }
    }
}

/// The parts that the reconcilers of all kinds share.
#[derive(Clone)]
pub struct DefinitionParts {
    pub client: Client,
    pub budgets: Budgets,
    pub caches: DefinitionCaches,
    pub settings: DefinitionSettings,
    pub is_in_use: IsInUse,
    pub evaluator: Evaluator,
    pub stopping: CancellationToken,
}

pub(super) struct DefinitionReconciler<D> {
    parts: DefinitionParts,
    recorder: Recorder,
    kind: PhantomData<fn() -> D>,
}

impl<D: ReconciledKind> Reconcile for DefinitionReconciler<D> {
    fn reconcile<'a>(&'a self, key: &'a Key, _priority: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>> {
        async move {
            if self.parts.stopping.is_cancelled() {
                return Ok(Action::Done);
            }
            let synced = async {
                tokio::join!(
                    D::cache(&self.parts.caches).wait_until_synced(),
                    self.parts.caches.revisions.wait_until_synced()
                )
            };
            if timeout(SYNC_WAIT, synced).await.is_err() {
                return Ok(Action::requeue_after(SYNC_WAIT));
            }
            let Some(cached) = D::cache(&self.parts.caches).find(&key.name.namespace, &key.name.name) else {
                // Deleted, or undecodable.
                return Ok(Action::Done);
            };
            let memory = self
                .memory(&key.name.namespace, &cached)
                .await
                .map_err(|error| ReconcileError::transient(error.to_string(), BACKOFF))?;
            let loaded = match cached.load(&self.parts.client, &self.parts.budgets).await {
                Ok(loaded) => loaded,
                Err(LoadError::Invalid { error, .. }) => return Err(unusable(&error)),
                Err(error) => return Err(ReconcileError::transient(error.to_string(), BACKOFF)),
            };
            let action = match loaded {
                Some(definition) if self.is_reconciled(&*definition) => self.apply(&definition).await,
                // Deleted, being deleted, or of another controller.
                _ => Ok(Action::Done),
            };
            drop(memory);
            action
        }
        .boxed()
    }
}

impl<D: ReconciledKind> DefinitionReconciler<D> {
    pub(super) fn new(parts: &DefinitionParts) -> Self {
        Self {
            parts: parts.clone(),
            recorder: Recorder {
                client: parts.client.clone(),
                budgets: parts.budgets.clone(),
                caches: parts.caches.clone(),
            },
            kind: PhantomData,
        }
    }

    fn is_reconciled(&self, definition: &D) -> bool {
        definition.meta().deletion_timestamp.is_none() && self.parts.settings.is_ours(definition)
    }

    async fn apply(&self, definition: &D) -> Result<Action, ReconcileError> {
        let recorded = async {
            let revisions = self.recorder.revisions(definition).await?;
            let current = self.recorder.record(definition, &revisions).await?;
            Ok((revisions, current))
        };
        let (revisions, current) = match recorded.await {
            Ok(recorded) => recorded,
            Err(failure) => return self.fail(definition, failure).await,
        };
        let schema = schema::config_map_name(D::DEFINITION, &definition.name_any());
        let may_pass = if status::is_complete(definition, &current.latest, &schema) {
            false
        } else {
            match self.complete(definition, &current, &schema).await? {
                ControlFlow::Continue(may_pass) => may_pass,
                ControlFlow::Break(action) => return Ok(action),
            }
        };
        Ok(match self.delete_old(definition, &revisions, &current.latest).await? {
            Action::Done if may_pass => Action::requeue_after(REFUSED_RETRY),
            action => action,
        })
    }

    /// Stores the schema, and writes the status. Returns true if the schema is not stored, and a later attempt may succeed; or
    /// what to do if the definition has changed meanwhile.
    async fn complete(
        &self,
        definition: &D,
        current: &CurrentRevision,
        schema: &str,
    ) -> Result<ControlFlow<Action, bool>, ReconcileError> {
        let name = definition.name_any();
        let report = |message: &str| format!("cannot store capability {name} in ConfigMap: {message}");
        // First, because the status tells that this revision needs no more work.
        let (patch, result) = match schema::store(&self.parts.client, &self.parts.evaluator, definition, current).await
        {
            Ok(()) => (Some(status::recorded(definition, &current.latest, schema)), Ok(false)),
            Err(NotStored::Transient(message)) => {
                // The revision is recorded, however often the schema fails. Later causes are logged only.
                let patch = if status::names(definition.status(), &current.latest) {
                    None
                } else {
                    status::recorded_without_schema(definition, &current.latest, &report(&message))
                };
                (patch, Err(ReconcileError::transient(message, BACKOFF)))
            }
            Err(NotStored::Reported { message, may_pass }) => {
                let message = report(&message);
                let patch = status::recorded_without_schema(definition, &current.latest, &message);
                if patch.is_some() {
                    tracing::warn!(error = message, kind = D::KIND, "schema of definition is not stored");
                }
                (patch, Ok(may_pass))
            }
        };
        if let Some(patch) = patch
            && let Some(action) = self.write_status(definition, &patch).await?
        {
            return Ok(ControlFlow::Break(action));
        }
        result.map(ControlFlow::Continue)
    }

    async fn memory(&self, namespace: &str, cached: &CachedDefinition<D>) -> Result<Option<Reservation>, Exhausted> {
        let bytes = PASS_COPIES * cached.decoded_bytes();
        if bytes <= SMALL_BYTES {
            return Ok(None);
        }
        self.parts.budgets.memory(namespace, bytes).await.map(Some)
    }

    async fn fail(&self, definition: &D, failure: DefinitionFailure) -> Result<Action, ReconcileError> {
        let message = match failure {
            DefinitionFailure::Stale => return Ok(Action::requeue_after(STALE_RETRY)),
            DefinitionFailure::Transient(message) => return Err(ReconcileError::transient(message, BACKOFF)),
            DefinitionFailure::Reported(message) => {
                format!(
                    "cannot generate DefinitionRevision of {}: {message}",
                    definition.name_any()
                )
            }
        };
        if let Some(patch) = status::failed(definition, &message) {
            tracing::warn!(error = message, kind = D::KIND, "definition is not recorded");
            if let Some(action) = self.write_status(definition, &patch).await? {
                return Ok(action);
            }
        }
        Err(ReconcileError::Terminal {
            message,
            retry_after: Some(REFUSED_RETRY),
        })
    }

    /// Applies a merge patch to the status. Returns what to do if the definition has changed meanwhile.
    async fn write_status(&self, definition: &D, patch: &Value) -> Result<Option<Action>, ReconcileError> {
        let api: Api<Raw<D>> = Api::namespaced(self.parts.client.clone(), &definition.namespace().unwrap_or_default());
        let (name, parameters) = (definition.name_any(), PatchParams::apply(FIELD_MANAGER));
        match call(api.patch_status(&name, &parameters, &Patch::Merge(patch))).await {
            Ok(written) => {
                self.parts.caches.assume(D::cache(&self.parts.caches), written);
                Ok(None)
            }
            // Its event will follow.
            Err(error) if error.is_not_found() => Ok(Some(Action::Done)),
            Err(error) if error.is_conflict() => Ok(Some(Action::requeue_after(STALE_RETRY))),
            Err(error) => Err(refused(&format!("failed to update status: {error}"), &error)),
        }
    }

    async fn delete_old(
        &self,
        definition: &D,
        revisions: &[Arc<CachedDefinitionRevision>],
        latest: &LatestRevision,
    ) -> Result<Action, ReconcileError> {
        let recorded = revisions.iter().map(|revision| revision.latest_revision());
        let recorded: Vec<_> = recorded
            .map(|revision| RecordedDefinition {
                name: &revision.name,
                number: revision.revision,
                is_current: revision.name == latest.name,
            })
            .collect();
        let is_in_use = |name: &str| name == latest.name || (self.parts.is_in_use)(D::DEFINITION, name);
        let expendable = expendable(&recorded, is_in_use, self.parts.settings.revision_limit);
        let namespace = definition.namespace().unwrap_or_default();
        let api: Api<DefinitionRevision> = Api::namespaced(self.parts.client.clone(), &namespace);
        let (batch, rest) = expendable.split_at(expendable.len().min(MAX_DELETIONS));
        for name in batch {
            let revision = revisions.iter().find(|revision| revision.name_any() == *name);
            let parameters = DeleteParams {
                preconditions: Some(Preconditions {
                    uid: revision.and_then(|revision| revision.uid()),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            match call(api.delete(name, &parameters)).await {
                Ok(_) => tracing::info!(kind = D::KIND, revision = name, "deleted old revision of definition"),
                // Gone, or created again.
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                Err(error) => {
                    let message = format!("failed to delete DefinitionRevision {name}: {error}");
                    return Err(refused(&message, &error));
                }
            }
        }
        Ok(if rest.is_empty() {
            Action::Done
        } else {
            Action::requeue_after(Duration::ZERO)
        })
    }
}
