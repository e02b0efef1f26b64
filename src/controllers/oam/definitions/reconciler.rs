//! Records the revisions of definitions, and stores their schemas. All state is derived from the objects, so a crash between any
//! two steps is safe: a revision is created before the status names it, and deleted only after.

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::cached::{CachedDefinition, LoadError};
use super::caches::DefinitionCaches;
use super::decide::{Decision, Naming, Recorded, decide, expendable, is_object_name, naming};
use super::failure::{BACKOFF, Failure, REFUSED_RETRY, conflict, refused, unusable};
use super::kinds::{ChangedKind, ReconciledKind};
use super::record::{is_owned_by, is_recorded_in, revision_of};
use super::schema::{self, Current, NotStored};
use super::status;
use crate::api::Raw;
use crate::api::oam::{DefinitionKind, DefinitionRevision, LatestRevision, labels};
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

/// Memory that a reconcile takes for a definition without a reservation.
const SMALL_BYTES: u64 = 1 << 20;

type CachedRevision = CachedDefinition<DefinitionRevision>;

/// Returns true if an Application names this revision. Until all Applications are known, it must return true.
pub type IsInUse = Arc<dyn Fn(DefinitionKind, &str) -> bool + Send + Sync>;

#[derive(Clone, Debug)]
pub struct Settings {
    /// Maximum number of revisions of one definition, besides those in use.
    pub revision_limit: usize,
    /// Definitions that require another version are left alone.
    pub compat_version: String,
    /// Definitions that require no version are left alone.
    pub is_version_required: bool,
}

impl From<&Options> for Settings {
    fn from(options: &Options) -> Self {
        Self {
            revision_limit: options.definition_revision_limit,
            compat_version: options.compat_version.clone(),
            is_version_required: options.versions.are_required_of_definitions,
        }
    }
}

impl Settings {
    fn is_ours<D: ReconciledKind>(&self, definition: &D) -> bool {
        match definition.annotations().get(CONTROLLER_VERSION) {
            Some(version) => *version == self.compat_version,
            None => !self.is_version_required,
        }
    }
}

pub(super) struct DefinitionReconciler<D> {
    client: Client,
    budgets: Budgets,
    caches: DefinitionCaches,
    settings: Settings,
    is_in_use: IsInUse,
    evaluator: Evaluator,
    stopping: CancellationToken,
    kind: PhantomData<fn() -> D>,
}

impl<D: ReconciledKind> Reconcile for DefinitionReconciler<D> {
    fn reconcile<'a>(&'a self, key: &'a Key, _priority: Priority) -> BoxFuture<'a, Result<Action, ReconcileError>> {
        async move {
            if self.stopping.is_cancelled() {
                return Ok(Action::Done);
            }
            let synced = async {
                tokio::join!(
                    D::cache(&self.caches).wait_until_synced(),
                    self.caches.revisions.wait_until_synced()
                )
            };
            if timeout(SYNC_WAIT, synced).await.is_err() {
                return Ok(Action::requeue_after(SYNC_WAIT));
            }
            let Some(cached) = D::cache(&self.caches).find(&key.name.namespace, &key.name.name) else {
                // Deleted, or undecodable.
                return Ok(Action::Done);
            };
            let memory = self
                .memory(&key.name.namespace, &cached)
                .await
                .map_err(|error| ReconcileError::transient(error.to_string(), BACKOFF))?;
            let loaded = match cached.load(&self.client, &self.budgets).await {
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
    pub(super) fn new(
        client: &Client,
        budgets: &Budgets,
        caches: &DefinitionCaches,
        settings: &Settings,
        is_in_use: &IsInUse,
        evaluator: &Evaluator,
        stopping: &CancellationToken,
    ) -> Self {
        Self {
            client: client.clone(),
            budgets: budgets.clone(),
            caches: caches.clone(),
            settings: settings.clone(),
            is_in_use: Arc::clone(is_in_use),
            evaluator: evaluator.clone(),
            stopping: stopping.clone(),
            kind: PhantomData,
        }
    }

    fn is_reconciled(&self, definition: &D) -> bool {
        definition.meta().deletion_timestamp.is_none() && self.settings.is_ours(definition)
    }

    async fn apply(&self, definition: &D) -> Result<Action, ReconcileError> {
        let recorded = async {
            let revisions = self.revisions(definition).await?;
            let current = self.record(definition, &revisions).await?;
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
        current: &Current,
        schema: &str,
    ) -> Result<ControlFlow<Action, bool>, ReconcileError> {
        let name = definition.name_any();
        let report = |message: &str| format!("cannot store capability {name} in ConfigMap: {message}");
        // First, because the status tells that this revision needs no more work.
        let (patch, result) = match schema::store(&self.client, &self.evaluator, definition, current).await {
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
        self.budgets.memory(namespace, bytes).await.map(Some)
    }

    /// Returns the revisions of the definition. The cache may lack a revision that was just created.
    async fn revisions(&self, definition: &D) -> Result<Vec<Arc<CachedRevision>>, Failure> {
        let (namespace, name) = (definition.namespace().unwrap_or_default(), definition.name_any());
        let names = self.caches.revision_names(&namespace, D::DEFINITION, &name);
        let cached = names
            .iter()
            .filter_map(|name| self.caches.revisions.find(&namespace, name));
        let mut revisions: Vec<_> = cached.filter(|revision| is_owned_by(&**revision, definition)).collect();
        let latest = definition.status().and_then(|status| status.latest_revision.as_ref());
        let is_known = |name: &str| self.caches.revisions.contains(&namespace, name);
        if let Some(latest) = latest.filter(|latest| is_object_name(&latest.name) && !is_known(&latest.name)) {
            revisions.extend(self.read_revision(definition, &latest.name).await?);
        }
        Ok(revisions)
    }

    async fn read_revision(&self, definition: &D, name: &str) -> Result<Option<Arc<CachedRevision>>, Failure> {
        let namespace = definition.namespace().unwrap_or_default();
        let api: Api<Raw<DefinitionRevision>> = Api::namespaced(self.client.clone(), &namespace);
        let raw = call(api.get_opt(name))
            .await
            .map_err(|error| Failure::of("get", name, &error))?;
        let revision = raw.and_then(|raw| self.caches.convert(raw).object().cloned());
        let owner = (ChangedKind::Definition(D::DEFINITION), definition.name_any());
        Ok(revision.filter(|revision| revision.used_as() == Some(&owner) && is_owned_by(&**revision, definition)))
    }

    async fn is_current(&self, definition: &D, revision: &CachedRevision) -> Result<bool, Failure> {
        let (namespace, bytes) = (definition.namespace().unwrap_or_default(), revision.decoded_bytes());
        let memory = if bytes > SMALL_BYTES {
            Some(self.budgets.memory.try_reserve_more(&namespace, bytes).ok_or_else(|| {
                Failure::Transient(format!(
                    "no memory to compare DefinitionRevision {}",
                    revision.name_any()
                ))
            })?)
        } else {
            None
        };
        let loaded = revision
            .load(&self.client, &self.budgets)
            .await
            .map_err(|error| match error {
                LoadError::Invalid { .. } => Failure::Reported(error.to_string()),
                LoadError::Api { .. } | LoadError::Work(_) => Failure::Transient(error.to_string()),
            })?;
        let is_current = is_recorded_in(definition, &*loaded.ok_or(Failure::Stale)?);
        drop(memory);
        Ok(is_current)
    }

    /// Compares the revisions that may record the current contents: one at a time is decoded.
    async fn recorded<'r>(
        &self,
        definition: &D,
        naming: &Naming,
        revisions: &'r [Arc<CachedRevision>],
    ) -> Result<Vec<Recorded<'r>>, Failure> {
        let latest = definition.status().and_then(|status| status.latest_revision.as_ref());
        let newest = revisions
            .iter()
            .map(|revision| revision.latest_revision().revision)
            .max();
        let mut recorded = Vec::new();
        for revision in revisions {
            let LatestRevision {
                name, revision: number, ..
            } = revision.latest_revision();
            let may_record = match naming {
                Naming::Named(named) => name == named,
                Naming::Numbered => Some(*number) == newest || latest.is_some_and(|latest| latest.name == *name),
            };
            recorded.push(Recorded {
                name,
                number: *number,
                is_current: may_record && self.is_current(definition, revision).await?,
            });
        }
        Ok(recorded)
    }

    async fn record(&self, definition: &D, revisions: &[Arc<CachedRevision>]) -> Result<Current, Failure> {
        let annotation = definition
            .annotations()
            .get(labels::DEFINITION_REVISION_NAME)
            .map(String::as_str);
        let naming = naming(&definition.name_any(), definition.version(), annotation)
            .map_err(|error| Failure::Reported(error.to_string()))?;
        let is_named = naming != Naming::Numbered;
        let namespace = definition.namespace().unwrap_or_default();
        let existing = |name: &str| self.caches.revisions.find(&namespace, name);
        let recorded = self.recorded(definition, &naming, revisions).await?;
        let latest = definition.status().and_then(|status| status.latest_revision.as_ref());
        let is_taken = |name: &str| self.caches.revisions.contains(&namespace, name);
        match decide(&definition.name_any(), naming, latest, &recorded, is_taken) {
            Decision::Keep(name) => {
                let mut revisions = revisions.iter();
                let kept = revisions.find(|revision| revision.latest_revision().name == name);
                let kept = kept.ok_or(Failure::Stale)?;
                Ok(Current::new(kept.latest_revision().clone(), &**kept))
            }
            Decision::Create { name, number } => self.create(definition, &name, number, is_named).await,
            Decision::Conflict(name) if existing(&name).is_some_and(|other| !is_owned_by(&*other, definition)) => {
                let message = format!("DefinitionRevision {name} of an earlier definition is not deleted yet");
                Err(Failure::Transient(message))
            }
            Decision::Conflict(name) => Err(conflict(&name)),
        }
    }

    async fn create(&self, definition: &D, name: &str, number: i64, is_named: bool) -> Result<Current, Failure> {
        let revision = revision_of(definition, name, number)
            .map_err(|error| Failure::Reported(format!("failed to serialize the definition: {error}")))?;
        let parameters = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        match call(self.revision_api(definition).create(&parameters, &revision)).await {
            Ok(created) => {
                tracing::info!(kind = D::KIND, revision = name, "created revision of definition");
                Ok(Current::new(latest_revision(&created), &created))
            }
            // An earlier reconcile may have created it, and the cache doesn't have it yet.
            Err(error) if error.is_conflict() => match self.read_revision(definition, name).await? {
                Some(stored) if self.is_current(definition, &stored).await? => {
                    Ok(Current::new(stored.latest_revision().clone(), &*stored))
                }
                _ if is_named => Err(conflict(name)),
                _ => Err(Failure::Stale),
            },
            Err(error) => Err(Failure::of("create", name, &error)),
        }
    }

    async fn fail(&self, definition: &D, failure: Failure) -> Result<Action, ReconcileError> {
        let message = match failure {
            Failure::Stale => return Ok(Action::requeue_after(STALE_RETRY)),
            Failure::Transient(message) => return Err(ReconcileError::transient(message, BACKOFF)),
            Failure::Reported(message) => {
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
        let api: Api<Raw<D>> = Api::namespaced(self.client.clone(), &definition.namespace().unwrap_or_default());
        let (name, parameters) = (definition.name_any(), PatchParams::apply(FIELD_MANAGER));
        match call(api.patch_status(&name, &parameters, &Patch::Merge(patch))).await {
            Ok(written) => {
                self.caches.assume(D::cache(&self.caches), written);
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
        revisions: &[Arc<CachedRevision>],
        latest: &LatestRevision,
    ) -> Result<Action, ReconcileError> {
        let recorded = revisions.iter().map(|revision| revision.latest_revision());
        let recorded: Vec<_> = recorded
            .map(|revision| Recorded {
                name: &revision.name,
                number: revision.revision,
                is_current: revision.name == latest.name,
            })
            .collect();
        let is_in_use = |name: &str| name == latest.name || (self.is_in_use)(D::DEFINITION, name);
        let expendable = expendable(&recorded, is_in_use, self.settings.revision_limit);
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
            match call(self.revision_api(definition).delete(name, &parameters)).await {
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

    fn revision_api(&self, definition: &D) -> Api<DefinitionRevision> {
        Api::namespaced(self.client.clone(), &definition.namespace().unwrap_or_default())
    }
}

fn latest_revision(revision: &DefinitionRevision) -> LatestRevision {
    LatestRevision {
        name: revision.name_any(),
        revision: revision.spec.revision,
        revision_hash: revision.spec.revision_hash.clone(),
    }
}
