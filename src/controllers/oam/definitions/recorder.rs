//! Finds the revision that records the current contents of a definition, or creates it.

use std::sync::Arc;

use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};

use super::cached::{CachedDefinition, LoadError};
use super::caches::DefinitionCaches;
use super::decide::{Naming, RecordedDefinition, RevisionDecision, decide, is_object_name, naming};
use super::failure::{DefinitionFailure, conflict};
use super::kinds::{ChangedKind, ReconciledKind};
use super::record::{is_owned_by, is_recorded_in, revision_of};
use super::schema::CurrentRevision;
use crate::api::Raw;
use crate::api::oam::{DefinitionRevision, LatestRevision, labels};
use crate::budget::Budgets;
use crate::controllers::FIELD_MANAGER;
use crate::runtime::kube_client::call;

/// Memory that a reconcile takes for a definition without a reservation.
pub(super) const SMALL_BYTES: u64 = 1 << 20;

pub(super) type CachedDefinitionRevision = CachedDefinition<DefinitionRevision>;

pub(super) struct Recorder {
    pub(super) client: Client,
    pub(super) budgets: Budgets,
    pub(super) caches: DefinitionCaches,
}

impl Recorder {
    /// Returns the revisions of the definition. The cache may lack a revision that was just created.
    pub(super) async fn revisions<D: ReconciledKind>(
        &self,
        definition: &D,
    ) -> Result<Vec<Arc<CachedDefinitionRevision>>, DefinitionFailure> {
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

    async fn read_revision<D: ReconciledKind>(
        &self,
        definition: &D,
        name: &str,
    ) -> Result<Option<Arc<CachedDefinitionRevision>>, DefinitionFailure> {
        let namespace = definition.namespace().unwrap_or_default();
        let api: Api<Raw<DefinitionRevision>> = Api::namespaced(self.client.clone(), &namespace);
        let raw = call(api.get_opt(name))
            .await
            .map_err(|error| DefinitionFailure::of("get", name, &error))?;
        let revision = raw.and_then(|raw| self.caches.convert(raw).object().cloned());
        let owner = (ChangedKind::Definition(D::DEFINITION), definition.name_any());
        Ok(revision.filter(|revision| revision.used_as() == Some(&owner) && is_owned_by(&**revision, definition)))
    }

    async fn is_current<D: ReconciledKind>(
        &self,
        definition: &D,
        revision: &CachedDefinitionRevision,
    ) -> Result<bool, DefinitionFailure> {
        let (namespace, bytes) = (definition.namespace().unwrap_or_default(), revision.decoded_bytes());
        let memory = if bytes > SMALL_BYTES {
            Some(self.budgets.memory.try_reserve_more(&namespace, bytes).ok_or_else(|| {
                DefinitionFailure::Transient(format!(
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
                LoadError::Invalid { .. } => DefinitionFailure::Reported(error.to_string()),
                LoadError::Api { .. } | LoadError::Work(_) => DefinitionFailure::Transient(error.to_string()),
            })?;
        let is_current = is_recorded_in(definition, &*loaded.ok_or(DefinitionFailure::Stale)?);
        drop(memory);
        Ok(is_current)
    }

    /// Compares the revisions that may record the current contents: one at a time is decoded.
    async fn recorded<'r, D: ReconciledKind>(
        &self,
        definition: &D,
        naming: &Naming,
        revisions: &'r [Arc<CachedDefinitionRevision>],
    ) -> Result<Vec<RecordedDefinition<'r>>, DefinitionFailure> {
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
            recorded.push(RecordedDefinition {
                name,
                number: *number,
                is_current: may_record && self.is_current(definition, revision).await?,
            });
        }
        Ok(recorded)
    }

    /// Returns the revision that records the definition, and creates it unless it exists.
    pub(super) async fn record<D: ReconciledKind>(
        &self,
        definition: &D,
        revisions: &[Arc<CachedDefinitionRevision>],
    ) -> Result<CurrentRevision, DefinitionFailure> {
        let annotation = definition
            .annotations()
            .get(labels::DEFINITION_REVISION_NAME)
            .map(String::as_str);
        let naming = naming(&definition.name_any(), definition.version(), annotation)
            .map_err(|error| DefinitionFailure::Reported(error.to_string()))?;
        let is_named = naming != Naming::Numbered;
        let namespace = definition.namespace().unwrap_or_default();
        let existing = |name: &str| self.caches.revisions.find(&namespace, name);
        let recorded = self.recorded(definition, &naming, revisions).await?;
        let latest = definition.status().and_then(|status| status.latest_revision.as_ref());
        let is_taken = |name: &str| self.caches.revisions.contains(&namespace, name);
        match decide(&definition.name_any(), naming, latest, &recorded, is_taken) {
            RevisionDecision::Keep(name) => {
                let mut revisions = revisions.iter();
                let kept = revisions.find(|revision| revision.latest_revision().name == name);
                let kept = kept.ok_or(DefinitionFailure::Stale)?;
                Ok(CurrentRevision::new(kept.latest_revision().clone(), &**kept))
            }
            RevisionDecision::Create { name, number } => self.create(definition, &name, number, is_named).await,
            RevisionDecision::Conflict(name)
                if existing(&name).is_some_and(|other| !is_owned_by(&*other, definition)) =>
            {
                let message = format!("DefinitionRevision {name} of an earlier definition is not deleted yet");
                Err(DefinitionFailure::Transient(message))
            }
            RevisionDecision::Conflict(name) => Err(conflict(&name)),
        }
    }

    async fn create<D: ReconciledKind>(
        &self,
        definition: &D,
        name: &str,
        number: i64,
        is_named: bool,
    ) -> Result<CurrentRevision, DefinitionFailure> {
        let revision = revision_of(definition, name, number)
            .map_err(|error| DefinitionFailure::Reported(format!("failed to serialize the definition: {error}")))?;
        let parameters = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let namespace = definition.namespace().unwrap_or_default();
        let api: Api<DefinitionRevision> = Api::namespaced(self.client.clone(), &namespace);
        match call(api.create(&parameters, &revision)).await {
            Ok(created) => {
                tracing::info!(kind = D::KIND, revision = name, "created revision of definition");
                Ok(CurrentRevision::new(latest_revision(&created), &created))
            }
            // An earlier reconcile may have created it, and the cache doesn't have it yet.
            Err(error) if error.is_conflict() => match self.read_revision(definition, name).await? {
                Some(stored) if self.is_current(definition, &stored).await? => {
                    Ok(CurrentRevision::new(stored.latest_revision().clone(), &*stored))
                }
                _ if is_named => Err(conflict(name)),
                _ => Err(DefinitionFailure::Stale),
            },
            Err(error) => Err(DefinitionFailure::of("create", name, &error)),
        }
    }
}

fn latest_revision(revision: &DefinitionRevision) -> LatestRevision {
    LatestRevision {
        name: revision.name_any(),
        revision: revision.spec.revision,
        revision_hash: revision.spec.revision_hash.clone(),
    }
}
