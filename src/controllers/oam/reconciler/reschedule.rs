//! Trackers and revisions have the shard label of their Application: vela-core watches those of its shard only.

use std::fmt::Debug;
use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use kube::core::ObjectMeta;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::env::Env;
use super::failure::{Failure, FailureKind, Stop};
use super::observed::Observed;
use crate::api::Partial;
use crate::api::oam::{ApplicationRevision, ResourceTracker, labels};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::trackers::Inventory;
use crate::runtime::kube_client::call;

/// Moves trackers and revisions to the shard of the Application. The caches have those of all shards, so the new shard
/// finds and moves them, and goes on after a crash. Returns true if a revision was moved, and so has another version.
pub(super) async fn follow_shard(env: &Env<'_>, observed: &Observed, inventory: &mut Inventory) -> Result<bool, Stop> {
    if env.options().shard.is_none() {
        return Ok(false);
    }
    let reconciler = env.reconciler;
    let shard = shard_of(&observed.app.metadata);
    let trackers: Api<Partial<ResourceTracker>> = Api::all(reconciler.client.clone());
    for tracker in inventory.all_mut() {
        if shard_of(&tracker.object.metadata) != shard {
            let metadata = set_shard(env, &trackers, &tracker.object.metadata, shard).await?;
            Arc::make_mut(&mut tracker.object).metadata = metadata;
            reconciler.caches.assume_tracker(&tracker.object, false);
        }
    }
    let revisions: Api<Partial<ApplicationRevision>> = Api::namespaced(reconciler.client.clone(), &env.name.namespace);
    let mut has_moved = false;
    for revision in reconciler.caches.revisions_of(env.name) {
        if shard_of(revision.meta()) != shard && observed.owns(revision.owner_references()) {
            let metadata = set_shard(env, &revisions, revision.meta(), shard).await?;
            reconciler.caches.assume_revision(&metadata, false);
            has_moved = true;
        }
    }
    Ok(has_moved)
}

fn shard_of(meta: &ObjectMeta) -> Option<&str> {
    let labels = meta.labels.as_ref()?;
    let shard = labels.get(labels::SHARD_ID).map(String::as_str);
    shard.filter(|shard| !shard.is_empty())
}

/// Sets or removes the label, if the object still has its version.
async fn set_shard<K>(
    env: &Env<'_>,
    api: &Api<Partial<K>>,
    meta: &ObjectMeta,
    shard: Option<&str>,
) -> Result<ObjectMeta, Stop>
where
    K: Resource<DynamicType = ()> + Clone + Debug,
    Partial<K>: DeserializeOwned,
{
    let (kind, name) = (K::kind(&()), meta.name.as_deref().unwrap_or_default());
    let patch = Patch::Merge(json!({
        "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version, "labels": { labels::SHARD_ID: shard } },
    }));
    let written = call(api.patch(name, &PatchParams::apply(FIELD_MANAGER), &patch)).await;
    env.reconciler.metrics.count_write("patch", &kind);
    match written {
        Ok(written) => Ok(written.metadata),
        // Changed or deleted since; the cache will have it.
        Err(error) if error.is_conflict() || error.is_not_found() => Err(Stop::Stale),
        Err(error) => {
            let kind = kind.to_lowercase();
            let message = format!("failed to move {kind} {name} to the shard of the Application: {error}");
            Err(Failure::new(FailureKind::Apply, message).into())
        }
    }
}
