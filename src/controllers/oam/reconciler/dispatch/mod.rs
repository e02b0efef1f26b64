//! Applies objects: decide, dry run, record, write.

mod write;

use std::collections::{BTreeSet, HashSet};

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use jiff::Timestamp;
use serde_json::Value;

use super::conditions::Failure;
use super::pass::{Pass, Stop};
use super::revision::Current;
use crate::api::oam::{ManagedResource, RawManifest, labels};
use crate::budget::leave_runtime_if_large;
use crate::controllers::oam::ApplyOnceMode;
use crate::controllers::oam::dispatch::admission::Forbidden;
use crate::controllers::oam::dispatch::bookkeeping::label;
use crate::controllers::oam::dispatch::decide::{Decision, ObjectPolicy, Occasion, Refusal, Request, decide};
use crate::controllers::oam::dispatch::order::waves;
use crate::controllers::oam::metrics::PassStage;
use crate::controllers::oam::objects::{CachedObject, ObjectError, ObjectId};
use crate::controllers::oam::policies::{GarbageCollectStrategy, Policies, Target};
use crate::controllers::oam::render::identity::render_hash::render_hash;
use crate::controllers::oam::trackers::TrackerType;

/// An object to apply.
#[derive(Clone, Debug)]
pub(super) struct ToApply {
    pub(super) manifest: Value,
    pub(super) component: String,
    pub(super) trait_: String,
    /// Empty if no step or policy names one.
    pub(super) cluster: String,
    pub(super) creator: Creator,
}

/// The part of an Application that an object comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Creator {
    Workflow,
    Policy,
}

/// An object with the decision about it.
pub(super) struct Planned {
    pub(super) id: ObjectId,
    pub(super) object: ToApply,
    pub(super) occasion: Occasion,
    pub(super) decision: Decision,
    /// The object exists, and belongs to no Application so far.
    pub(super) is_taken_over: bool,
}

/// The reason why an object can't be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ApplyError {
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
    Refused(Refusal),
    /// It belongs to another Application, whatever policies say.
    #[error("forbidden resource: {0}")]
    Record(String),
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
}

impl Pass<'_> {
    /// Applies batches of objects that belong together. Returns the error of each batch, if any; one that fails does not
    /// keep the others from being applied. A batch is written only if all its objects can be. At most `parallelism` batches,
    /// and so at most as many objects, are written at the same time.
    pub(super) async fn dispatch(
        &mut self,
        current: &Current,
        policies: &Policies,
        batches: Vec<Vec<ToApply>>,
        parallelism: Option<usize>,
    ) -> Result<Vec<Result<(), String>>, Stop> {
        let _timer = self.reconciler.metrics.time(PassStage::Dispatch);
        let mut results = Vec::new();
        let mut accepted = Vec::new();
        for (batch, objects) in batches.into_iter().enumerate() {
            match self.plan(policies, objects).await {
                Ok(planned) => {
                    results.push(Ok(()));
                    accepted.extend(planned.into_iter().map(|planned| (batch, planned)));
                }
                Err(message) => results.push(Err(message)),
            }
        }
        let planned: Vec<&Planned> = accepted.iter().map(|(_, planned)| planned).collect();
        self.record_all(current, policies, &planned).await?;
        for wave in waves(accepted, |(_, planned)| &planned.object.manifest) {
            let pass = &*self;
            let write = |(batch, planned): (usize, Planned)| {
                let written = async move {
                    let live = pass.write(policies, &planned).await;
                    (batch, live.map(|live| (planned.id, live)))
                };
                written.boxed()
            };
            let written = pass.limited(wave.into_iter().map(write).collect(), parallelism).await;
            for (batch, result) in written {
                match (result, results.get_mut(batch)) {
                    (Ok((id, Some(live))), _) => drop(self.written.insert(id, live)),
                    (Err(error), Some(result)) => add_error(result, &error),
                    _ => {}
                }
            }
        }
        Ok(results)
    }

    /// Decides about a batch, and checks it by dry runs.
    async fn plan(&self, policies: &Policies, objects: Vec<ToApply>) -> Result<Vec<Planned>, String> {
        let options = &self.reconciler.options;
        let objects = objects
            .into_iter()
            .map(|object| self.without_foreign_namespace(object).boxed());
        let objects = self.concurrently(objects.collect()).await;
        let mut errors: Vec<ApplyError> = objects
            .iter()
            .filter_map(|object| object.as_ref().err().cloned())
            .collect();
        let objects: Vec<ToApply> = objects.into_iter().filter_map(Result::ok).collect();
        self.check_admission(objects.iter().map(|object| &object.manifest))?;
        let planned = objects
            .into_iter()
            .map(|object| self.plan_object(policies, object, Occasion::Dispatch).boxed());
        let planned = self.concurrently(planned.collect()).await;
        let mut accepted = Vec::new();
        for planned in planned {
            match planned {
                Ok(planned) => accepted.push(planned),
                Err(error) => errors.push(error),
            }
        }
        if options.has_dry_run && errors.is_empty() {
            let created = namespaces_created(&accepted);
            let dry_runs = accepted
                .iter()
                .filter(|planned| !created.contains(&planned.id.namespace));
            let dry_runs = dry_runs.map(|planned| self.dry_run(policies, planned)).collect();
            let dry_runs = self.concurrently(dry_runs).await;
            errors.extend(dry_runs.into_iter().filter_map(Result::err));
        }
        match errors.is_empty() {
            true => Ok(accepted),
            false => Err(format!("pre-dispatch dryrun failed: {}", joined(&errors))),
        }
    }

    /// Runs futures, at most as many at the same time as objects may be written. Results have the order of the futures.
    pub(super) async fn concurrently<T>(&self, futures: Vec<BoxFuture<'_, T>>) -> Vec<T> {
        self.limited(futures, None).await
    }

    /// Runs futures, at most `limit` at the same time, and never more than objects may be written.
    async fn limited<T>(&self, futures: Vec<BoxFuture<'_, T>>, limit: Option<usize>) -> Vec<T> {
        let writes = self.reconciler.options.max_concurrent_writes;
        let limit = limit.map_or(writes, |limit| limit.min(writes)).max(1);
        stream::iter(futures).buffered(limit).collect().await
    }

    /// Removes the namespace of a cluster-scoped object.
    async fn without_foreign_namespace(&self, mut object: ToApply) -> Result<ToApply, ApplyError> {
        let id = ObjectId::of(&object.manifest);
        let is_namespaced = self.objects.is_namespaced(&id).await.map_err(ApplyError::Get)?;
        if !is_namespaced && let Some(metadata) = object.manifest.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("namespace");
        }
        Ok(object)
    }

    /// Decides about an object by the cache. Absence there is checked by the request to create it, unless a policy gives a
    /// meaning to an object without the labels of an Application, which the cache does not have.
    pub(super) async fn plan_object(
        &self,
        policies: &Policies,
        object: ToApply,
        occasion: Occasion,
    ) -> Result<Planned, ApplyError> {
        let id = ObjectId::of(&object.manifest);
        let objects = &self.objects;
        let policy = ObjectPolicy::of(policies, &object.manifest, occasion);
        leave_runtime_if_large(objects.cached_bytes(&id)).await;
        let live = match objects.cached(&id) {
            CachedObject::Found(live) => Some(live),
            CachedObject::Absent if !policy.concerns_existing(self.reconciler.options.dispatch) => None,
            _ => objects.get(&id).await.map_err(ApplyError::Get)?,
        };
        self.decide_with(policies, object, id, live.as_ref(), occasion).await
    }

    async fn decide_with(
        &self,
        policies: &Policies,
        object: ToApply,
        id: ObjectId,
        live: Option<&Value>,
        occasion: Occasion,
    ) -> Result<Planned, ApplyError> {
        if let Some(live) = live {
            self.check_record(live).map_err(ApplyError::Record)?;
        }
        self.check_control(&object.manifest, live)?;
        let hash = render_hash(&object.manifest);
        let recorded = id.recorded_in(&self.inventory);
        let decide_if = |is_autoscaled| {
            decide(&Request {
                application: (&self.name.namespace, &self.name.name),
                manifest: &object.manifest,
                render_hash: &hash,
                live,
                recorded: &recorded,
                occasion,
                policy: ObjectPolicy::of(policies, &object.manifest, occasion),
                is_autoscaled,
                settings: self.reconciler.options.dispatch,
                now: Timestamp::now(),
            })
        };
        let mut decision = decide_if(false).map_err(ApplyError::Refused)?;
        if decision.changes_replicas()
            && self.reconciler.options.respects_autoscalers
            && self.is_autoscaled(&id).await?
        {
            decision = decide_if(true).map_err(ApplyError::Refused)?;
        }
        Ok(Planned {
            is_taken_over: live.is_some_and(|live| label(live, labels::APP_NAME).is_none_or(str::is_empty)),
            id,
            object,
            occasion,
            decision,
        })
    }

    /// Returns true if an autoscaler sets the replicas of an object. Without the right to list them, none does.
    async fn is_autoscaled(&self, id: &ObjectId) -> Result<bool, ApplyError> {
        let targets = self
            .reconciler
            .autoscalers
            .targets(&self.reconciler.client, &id.namespace)
            .await;
        let targets = targets.map_err(|error| ApplyError::Get(error.into()))?;
        Ok(targets.contains(&(id.kind.clone(), id.name.clone())))
    }

    /// Records all objects before any is written.
    async fn record_all(&mut self, current: &Current, policies: &Policies, planned: &[&Planned]) -> Result<(), Stop> {
        let (mut root, mut versioned) = (Vec::new(), Vec::new());
        for planned in planned {
            if planned.object.creator == Creator::Policy {
                self.of_policies.insert(planned.id.key());
            }
            let target = Target::of(&planned.object.manifest);
            let strategy = policies.garbage_collect.strategy(&target);
            let is_kept = strategy == GarbageCollectStrategy::Never || self.is_released_at_end(policies, planned);
            let entry = self.entry(policies, planned, is_kept)?;
            match strategy {
                GarbageCollectStrategy::OnAppUpdate => versioned.push(entry),
                GarbageCollectStrategy::Never | GarbageCollectStrategy::OnAppDelete => root.push(entry),
            }
        }
        if !root.is_empty() {
            self.record(TrackerType::Root, current, &root).await?;
        }
        if !versioned.is_empty() {
            self.record(TrackerType::Versioned, current, &versioned).await?;
        }
        Ok(())
    }

    /// Returns true for a Namespace or a CustomResourceDefinition that was taken over, unless a rule of garbage collection
    /// names it. With it, objects would be deleted that the Application never had.
    fn is_released_at_end(&self, policies: &Policies, planned: &Planned) -> bool {
        if !holds_others(&planned.id)
            || policies
                .garbage_collect
                .has_strategy(&Target::of(&planned.object.manifest))
        {
            return false;
        }
        let mut entries = self.inventory.in_order().flat_map(|tracker| &tracker.entries);
        planned.is_taken_over || entries.any(|entry| planned.id.is_of(entry) && entry.skip_gc)
    }

    fn entry(&self, policies: &Policies, planned: &Planned, skip_gc: bool) -> Result<ManagedResource, Failure> {
        let omits_manifest =
            policies.apply_once.omits_manifests() || self.reconciler.options.apply_once == ApplyOnceMode::Force;
        let raw = match omits_manifest {
            true => None,
            false => {
                let raw = RawManifest::of(&planned.object.manifest);
                Some(raw.map_err(|error| Failure::synced("FailedApply", error.to_string()))?)
            }
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

/// Returns the namespaces that a batch creates: objects in them can't be checked before.
fn namespaces_created(planned: &[Planned]) -> HashSet<String> {
    let creates = planned
        .iter()
        .filter(|planned| matches!(planned.decision, Decision::Create(_)));
    let namespaces = creates.filter(|planned| planned.id.api_version == "v1" && planned.id.kind == "Namespace");
    namespaces.map(|planned| planned.id.name.clone()).collect()
}

/// Joins errors as KubeVela does.
pub(super) fn joined<E: ToString>(errors: &[E]) -> String {
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
