use std::collections::HashSet;

use futures::FutureExt;
use jiff::Timestamp;
use serde_json::Value;

use super::{ApplyError, PlannedWrite, ToApply, joined};
use crate::api::oam::labels;
use crate::budget::leave_runtime_if_large;
use crate::controllers::oam::dispatch::admission::check_release;
use crate::controllers::oam::dispatch::bookkeeping::label;
use crate::controllers::oam::dispatch::decide::{
    DispatchDecision, DispatchRequest, ObjectIdentity, ObjectPolicy, Occasion, decide,
};
use crate::controllers::oam::objects::{CachedObject, ObjectId};
use crate::controllers::oam::policies::Policies;
use crate::controllers::oam::reconciler::cluster::Cluster;
use crate::controllers::oam::reconciler::env::Env;
use crate::controllers::oam::render::identity::render_hash::render_hash;
use crate::controllers::oam::trackers::Inventory;

#[derive(Clone, Copy)]
pub(super) struct Applier<'x> {
    pub(super) env: &'x Env<'x>,
    pub(super) cluster: &'x Cluster<'x>,
    pub(super) inventory: &'x Inventory,
    pub(super) policies: &'x Policies,
}

impl Applier<'_> {
    pub(super) async fn plan(&self, objects: Vec<ToApply>) -> Result<Vec<PlannedWrite>, String> {
        let env = self.env;
        let objects = objects.into_iter().map(|object| self.clear_namespace(object).boxed());
        let objects = env.concurrently(objects.collect()).await;
        let (objects, mut errors) = split(objects);
        let manifests = objects.iter().map(|object| (object.id(), &object.manifest));
        self.cluster.check_admission(self.inventory, manifests)?;
        for object in &objects {
            check_release(&ObjectIdentity::of(&object.manifest)).map_err(|forbidden| forbidden.to_string())?;
        }
        let planned = objects
            .into_iter()
            .map(|object| self.plan_object(object, Occasion::Dispatch).boxed());
        let (accepted, refused) = split(env.concurrently(planned.collect()).await);
        errors.extend(refused);
        if env.options().has_dry_run && errors.is_empty() {
            let created = namespaces_created(&accepted);
            let dry_runs = accepted
                .iter()
                .filter(|planned| !created.contains(&(planned.id.cluster.as_str(), planned.id.namespace.as_str())));
            let dry_runs = dry_runs.map(|planned| self.dry_run(planned)).collect();
            errors.extend(split(env.concurrently(dry_runs).await).1);
        }
        if errors.is_empty() {
            Ok(accepted)
        } else {
            Err(format!("pre-dispatch dryrun failed: {}", joined(&errors)))
        }
    }

    /// Removes the namespace of a cluster-scoped object.
    async fn clear_namespace(&self, mut object: ToApply) -> Result<ToApply, ApplyError> {
        let id = object.id();
        let is_namespaced = self.cluster.objects.is_namespaced(&id).await;
        if !is_namespaced.map_err(ApplyError::Get)?
            && let Some(metadata) = object.manifest.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("namespace");
        }
        Ok(object)
    }

    /// Decides by the cache. A create request checks absence, unless a policy gives a meaning to an object without the
    /// labels of an Application, which the cache does not have.
    pub(super) async fn plan_object(&self, object: ToApply, occasion: Occasion) -> Result<PlannedWrite, ApplyError> {
        let id = object.id();
        let objects = &self.cluster.objects;
        let policy = ObjectPolicy::of(self.policies, &object.manifest, occasion);
        leave_runtime_if_large(objects.cached_bytes(&id)).await;
        let live = match objects.cached(&id) {
            CachedObject::Found(live) => Some(live),
            CachedObject::Absent if !policy.concerns_existing(self.env.options().dispatch) => None,
            _ => objects.get(&id).await.map_err(ApplyError::Get)?,
        };
        self.decide_with(object, id, live.as_ref(), occasion).await
    }

    pub(super) async fn decide_with(
        &self,
        object: ToApply,
        id: ObjectId,
        live: Option<&Value>,
        occasion: Occasion,
    ) -> Result<PlannedWrite, ApplyError> {
        if let Some(live) = live {
            let checked = self.cluster.check_record(&id.cluster, live);
            checked.map_err(ApplyError::Record)?;
        }
        self.cluster.check_control(&id, &object.manifest, live)?;
        let (name, options) = (self.env.name, self.env.options());
        let hash = render_hash(&object.manifest);
        let recorded = id.recorded_in(self.inventory);
        let decide_if = |is_autoscaled| {
            decide(&DispatchRequest {
                application: (&name.namespace, &name.name),
                manifest: &object.manifest,
                render_hash: &hash,
                live,
                recorded: &recorded,
                occasion,
                policy: ObjectPolicy::of(self.policies, &object.manifest, occasion),
                is_autoscaled,
                settings: options.dispatch,
                now: Timestamp::now(),
            })
        };
        let mut decision = decide_if(false).map_err(ApplyError::Refused)?;
        if decision.changes_replicas() && options.respects_autoscalers && self.is_autoscaled(&id).await? {
            decision = decide_if(true).map_err(ApplyError::Refused)?;
        }
        Ok(PlannedWrite {
            is_taken_over: live.is_some_and(|live| label(live, labels::APP_NAME).is_none_or(str::is_empty)),
            id,
            object,
            occasion,
            decision,
        })
    }

    /// Returns true if an autoscaler sets the replicas of an object. Without the right to list them, none does.
    async fn is_autoscaled(&self, id: &ObjectId) -> Result<bool, ApplyError> {
        let reconciler = self.env.reconciler;
        let client = reconciler.objects.client_of(&id.cluster).map_err(ApplyError::Get)?;
        let targets = reconciler.autoscalers.targets(&client, id).await;
        let targets = targets.map_err(|error| ApplyError::Get(error.into()))?;
        Ok(targets.contains(&(id.kind.clone(), id.name.clone())))
    }
}

fn split<T, E>(results: Vec<Result<T, E>>) -> (Vec<T>, Vec<E>) {
    let (mut values, mut errors) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(error) => errors.push(error),
        }
    }
    (values, errors)
}

/// Returns the namespaces that a batch creates, with their clusters: objects in them can't be checked before.
fn namespaces_created(planned: &[PlannedWrite]) -> HashSet<(&str, &str)> {
    let creates = planned
        .iter()
        .filter(|planned| matches!(planned.decision, DispatchDecision::Create(_)));
    let namespaces = creates.filter(|planned| planned.id.api_version == "v1" && planned.id.kind == "Namespace");
    let names = namespaces.map(|planned| (planned.id.cluster.as_str(), planned.id.name.as_str()));
    names.collect()
}
