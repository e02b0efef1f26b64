//! The objects of an Application: decide, dry run, record, write, and read again.

pub(super) mod keep;
mod plan;
mod record;
mod write;

use std::collections::{BTreeSet, HashMap};

use futures::FutureExt;
use serde_json::Value;

use super::cluster::Cluster;
use super::env::Env;
use super::failure::{Failure, FailureKind, Stop};
use crate::api::oam::{AppliedResource, ManagedResource, RawManifest};
use crate::controllers::oam::ApplyOnceMode;
use crate::controllers::oam::dispatch::admission::Forbidden;
use crate::controllers::oam::dispatch::decide::{DispatchDecision, DispatchRefusal, Occasion};
use crate::controllers::oam::dispatch::order::waves;
use crate::controllers::oam::metrics::PassStage;
use crate::controllers::oam::objects::{ObjectError, ObjectId};
use crate::controllers::oam::policies::{GarbageCollectStrategy, Policies, PolicyTarget};
use crate::controllers::oam::trackers::{ResourceKey, TrackerType};
pub(super) use keep::FightKey;
use plan::Applier;
pub(super) use record::{Ledger, TAKEN_RETRY};

#[derive(Clone, Debug)]
pub(super) struct ToApply {
    pub(super) manifest: Value,
    pub(super) component: String,
    pub(super) trait_: String,
    /// Empty if no step or policy names a cluster, which means the controller's own.
    pub(super) cluster: String,
    pub(super) creator: Creator,
}

impl ToApply {
    fn id(&self) -> ObjectId {
        ObjectId::of(&self.manifest).in_cluster(&self.cluster)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Creator {
    Workflow,
    Policy,
}

struct PlannedWrite {
    id: ObjectId,
    object: ToApply,
    occasion: Occasion,
    decision: DispatchDecision,
    /// The object exists, and belongs to no Application so far.
    is_taken_over: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum ApplyError {
    #[error("cannot get object: {0}")]
    Get(ObjectError),
    #[error("cannot create object: {0}")]
    Create(ObjectError),
    #[error("cannot patch object: {0}")]
    Patch(ObjectError),
    #[error("cannot delete object: {0}")]
    Delete(ObjectError),
    #[error("{kind} {name} is still being deleted")]
    Deleting { kind: String, name: String },
    #[error("{0}")]
    Refused(DispatchRefusal),
    /// It belongs to another Application, whatever policies say.
    #[error("forbidden resource: {0}")]
    Record(String),
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
}

pub(super) struct AppObjects<'p> {
    pub(super) env: &'p Env<'p>,
    pub(super) cluster: Cluster<'p>,
    pub(super) ledger: Ledger<'p>,
    /// Objects as written in this pass.
    written: HashMap<ObjectId, Value>,
}

impl<'p> AppObjects<'p> {
    pub(super) fn new(cluster: Cluster<'p>, ledger: Ledger<'p>) -> Self {
        Self {
            env: cluster.env,
            cluster,
            ledger,
            written: HashMap::new(),
        }
    }

    fn applier<'x>(&'x self, policies: &'x Policies) -> Applier<'x> {
        Applier {
            env: self.env,
            cluster: &self.cluster,
            inventory: &self.ledger.inventory,
            policies,
        }
    }

    /// Returns the error of each batch, if any. A batch is written only if all its objects can be; others go on. At
    /// most `parallelism` batches, and as many objects, are written at the same time. They are recorded for `revision`.
    pub(super) async fn apply(
        &mut self,
        revision: &str,
        policies: &Policies,
        batches: Vec<Vec<ToApply>>,
        parallelism: Option<usize>,
    ) -> Result<Vec<Result<(), String>>, Stop> {
        let _timer = self.env.reconciler.metrics.time(PassStage::Dispatch);
        let clusters = batches.iter().flatten().map(|object| object.cluster.as_str());
        self.env.use_clusters(clusters).await?;
        let mut results = Vec::new();
        let mut accepted = Vec::new();
        for (batch, objects) in batches.into_iter().enumerate() {
            match self.applier(policies).plan(objects).await {
                Ok(planned) => {
                    results.push(Ok(()));
                    accepted.extend(planned.into_iter().map(|planned| (batch, planned)));
                }
                Err(message) => results.push(Err(message)),
            }
        }
        let planned: Vec<&PlannedWrite> = accepted.iter().map(|(_, planned)| planned).collect();
        self.record_all(revision, policies, &planned).await?;
        for wave in waves(accepted, |(_, planned)| &planned.object.manifest) {
            let applier = self.applier(policies);
            let write = |(batch, planned): (usize, PlannedWrite)| {
                let written = async move {
                    let live = applier.write(&planned).await;
                    (batch, live.map(|live| (planned.id, live)))
                };
                written.boxed()
            };
            let writes = wave.into_iter().map(write).collect();
            for (batch, result) in self.env.run_limited(writes, parallelism).await {
                match (result, results.get_mut(batch)) {
                    (Ok((id, Some(live))), _) => drop(self.written.insert(id, live)),
                    (Err(error), Some(result)) => add_error(result, &error),
                    _ => {}
                }
            }
        }
        Ok(results)
    }

    /// Returns the live object of a manifest; none if it is missing, or its kind is, or its cluster can't be reached.
    pub(super) async fn live(&self, cluster: &str, manifest: &Value) -> Option<Value> {
        let objects = &self.cluster.objects;
        let id = self.cluster.id_of(cluster, manifest).await;
        // A template could name any object.
        let mut entries = self.ledger.inventory.in_order().flat_map(|tracker| &tracker.entries);
        if !entries.any(|entry| id.is_of(entry)) {
            return None;
        }
        let live = match self.written.get(&id) {
            // The watch may be behind our own write, or ahead of it.
            Some(written) => Some(objects.newer(&id, written.clone())),
            None => objects.get(&id).await.ok().flatten(),
        };
        live.map(|live| self.cluster.without_foreign_data(&id, live))
    }

    pub(super) async fn live_status(&self, cluster: &str, manifest: &Value) -> Option<Value> {
        let mut live = self.live(cluster, manifest).await?;
        Some(live.get_mut("status")?.take())
    }

    /// Returns true if the trackers of this version record an object.
    pub(super) async fn is_recorded(&self, cluster: &str, manifest: &Value) -> bool {
        let id = self.cluster.id_of(cluster, manifest).await;
        let mut entries = self.ledger.current_entries();
        entries.any(|entry| !entry.deleted && id.is_of(entry))
    }

    /// Returns true if the trackers of this version record an object with this manifest.
    pub(super) async fn records_manifest(&self, cluster: &str, manifest: &Value) -> bool {
        let (id, mut manifest) = (self.cluster.id_of(cluster, manifest).await, manifest.clone());
        if id.namespace.is_empty()
            && let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("namespace");
        }
        let mut entries = self.ledger.current_entries();
        let entry = entries.find(|entry| !entry.deleted && id.is_of(entry));
        entry.is_some_and(|entry| match &entry.raw {
            Some(raw) => raw.parse().is_ok_and(|recorded: Value| recorded == manifest),
            // Applied once.
            None => true,
        })
    }

    pub(super) fn applied(&self) -> Vec<AppliedResource> {
        let entries = self.ledger.current_entries().filter(|entry| !entry.deleted);
        let resources = entries.map(|entry| AppliedResource {
            cluster: entry.cluster.clone(),
            creator: if self.ledger.of_policies.contains(&ResourceKey::of(entry)) {
                "policy".to_owned()
            } else {
                "workflow".to_owned()
            },
            api_version: entry.api_version.clone(),
            kind: entry.kind.clone(),
            namespace: entry.namespace.clone(),
            name: entry.name.clone(),
            uid: String::new(),
        });
        resources.collect()
    }

    async fn record_all(&mut self, revision: &str, policies: &Policies, planned: &[&PlannedWrite]) -> Result<(), Stop> {
        let (mut root, mut versioned) = (Vec::new(), Vec::new());
        for planned in planned {
            if planned.object.creator == Creator::Policy {
                self.ledger.of_policies.insert(planned.id.key());
            }
            let target = PolicyTarget::of(&planned.object.manifest);
            let strategy = policies.garbage_collect.strategy(&target);
            let is_kept = strategy == GarbageCollectStrategy::Never || self.is_released_at_end(policies, planned);
            let entry = self.entry(policies, planned, is_kept)?;
            match strategy {
                GarbageCollectStrategy::OnAppUpdate => versioned.push(entry),
                GarbageCollectStrategy::Never | GarbageCollectStrategy::OnAppDelete => root.push(entry),
            }
        }
        if !root.is_empty() {
            self.ledger.record(TrackerType::Root, revision, &root).await?;
        }
        if !versioned.is_empty() {
            self.ledger.record(TrackerType::Versioned, revision, &versioned).await?;
        }
        Ok(())
    }

    /// Returns true for a Namespace or CRD that was taken over, unless a rule of garbage collection names it. Its
    /// deletion would delete objects that the Application never had.
    fn is_released_at_end(&self, policies: &Policies, planned: &PlannedWrite) -> bool {
        let target = PolicyTarget::of(&planned.object.manifest);
        if !holds_others(&planned.id) || policies.garbage_collect.has_strategy(&target) {
            return false;
        }
        let mut entries = self.ledger.inventory.in_order().flat_map(|tracker| &tracker.entries);
        planned.is_taken_over || entries.any(|entry| planned.id.is_of(entry) && entry.skip_gc)
    }

    fn entry(&self, policies: &Policies, planned: &PlannedWrite, skip_gc: bool) -> Result<ManagedResource, Failure> {
        let omits_manifest =
            policies.apply_once.omits_manifests() || self.env.options().apply_once == ApplyOnceMode::Force;
        let raw = if omits_manifest {
            None
        } else {
            let raw = RawManifest::of(&planned.object.manifest);
            Some(raw.map_err(|error| Failure::new(FailureKind::Apply, error.to_string()))?)
        };
        let id = &planned.id;
        Ok(ManagedResource {
            kind: id.kind.clone(),
            namespace: id.namespace.clone(),
            name: id.name.clone(),
            api_version: id.api_version.clone(),
            component: planned.object.component.clone(),
            trait_: planned.object.trait_.clone(),
            cluster: planned.object.cluster.clone(),
            raw,
            skip_gc,
            ..ManagedResource::default()
        })
    }
}

/// Returns true for kinds whose deletion deletes objects of others.
fn holds_others(id: &ObjectId) -> bool {
    let group = id.api_version.split_once('/').map_or("", |(group, _)| group);
    [("", "Namespace"), ("apiextensions.k8s.io", "CustomResourceDefinition")].contains(&(group, id.kind.as_str()))
}

/// Joins errors as KubeVela does.
fn joined<E: ToString>(errors: &[E]) -> String {
    let texts: BTreeSet<String> = errors.iter().map(ToString::to_string).collect();
    let texts: Vec<String> = texts.into_iter().map(|text| format!("({text})")).collect();
    format!("Found {} errors. [{}]", texts.len(), texts.join(", "))
}

fn add_error(result: &mut Result<(), String>, error: &ApplyError) {
    match result {
        Ok(()) => *result = Err(error.to_string()),
        Err(message) => {
            message.push_str("; ");
            message.push_str(&error.to_string());
        }
    }
}
