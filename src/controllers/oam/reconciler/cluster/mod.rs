//! The cluster with the rights of the user that an Application names, or of this controller within rules for tenants.

mod ownership;
mod passes;
mod reads;
mod secrets;

use std::collections::BTreeSet;

use futures::FutureExt;
use kube::ResourceExt;
use serde_json::Value;

use super::env::Env;
use super::failure::{Failure, FailureKind, Stop};
use super::observed::Observed;
use crate::controllers::oam::collect::is_managed;
use crate::controllers::oam::dispatch::admission::{Forbidden, check_control};
use crate::controllers::oam::dispatch::decide::ObjectIdentity as ManifestIdentity;
use crate::controllers::oam::objects::{CacheScope, ObjectId, Objects};
use crate::controllers::oam::rights::{Identity, Impersonation, ResourceAccess, identity};
use crate::controllers::oam::trackers::{Inventory, LOCAL, ResourceKey};
pub(super) use passes::ClusterPass;
pub use passes::{ClusterPasses, Wake};
pub(super) use secrets::VisibleSecrets;

/// Maximum number of reviews of one pass. Other objects are read one by one.
const MAX_REVIEWS: usize = 200;

pub(super) struct Cluster<'p> {
    pub(super) env: &'p Env<'p>,
    pub(super) objects: Objects,
    uid: Option<String>,
}

impl<'p> Cluster<'p> {
    /// Impersonates the user in all requests for objects of the Application. Trackers, revisions, values and the status
    /// belong to the controller.
    pub(super) async fn of(env: &'p Env<'p>, observed: &Observed, inventory: &Inventory) -> Result<Self, Stop> {
        let app = &observed.app;
        let named = match identity(app.annotations(), &env.name.namespace, &env.options().identity) {
            // Nothing is left that needs rights.
            Err(_) if observed.is_deleting() && inventory.is_empty() => Ok(None),
            named => named,
        };
        let user = named
            .and_then(|identity| {
                let impersonated = |identity| Ok((Impersonation::of(&identity)?, identity));
                identity.map(impersonated).transpose()
            })
            .map_err(|error| match app.metadata.deletion_timestamp {
                Some(_) => Failure::new(FailureKind::Collect, error.to_string()),
                None => Failure::parse(error.to_string()),
            })?;
        let all = &env.reconciler.objects;
        let objects = match user {
            Some((impersonation, identity)) => {
                let readable = readable(env, &identity, inventory).await;
                all.as_user(identity.kinds(), move |client| impersonation.client(client), readable)
            }
            None => all.clone(),
        };
        Ok(Self {
            env,
            objects,
            uid: app.uid(),
        })
    }

    /// Checks objects before they are written. [`Self::check_control`] decides about recorded objects by what exists.
    pub(super) fn check_admission<'m>(
        &self,
        inventory: &Inventory,
        manifests: impl IntoIterator<Item = (ObjectId, &'m Value)>,
    ) -> Result<(), String> {
        let manifests: Vec<_> = manifests.into_iter().collect();
        let admission = &self.env.options().admission;
        let admitted = admission.check(
            &self.env.name.namespace,
            manifests.iter().map(|(_, manifest)| *manifest),
        );
        admitted.map_err(|error| error.to_string())?;
        for (id, manifest) in manifests {
            if let Err(forbidden) = self.check_control(&id, manifest, None)
                && !inventory.records(&id.key())
            {
                return Err(forbidden.to_string());
            }
        }
        Ok(())
    }

    /// Checks that an object does not control this program in another namespace, unless the Application has it already.
    /// A record does not prove that: it is written before the object, which its user may have been refused.
    pub(super) fn check_control(&self, id: &ObjectId, manifest: &Value, live: Option<&Value>) -> Result<(), Forbidden> {
        let has_it = live.is_some_and(|live| is_managed(live, self.env.name));
        if has_it || self.is_privileged() || self.objects.has_user(&id.cluster) {
            return Ok(());
        }
        check_control(&self.env.name.namespace, &ManifestIdentity::of(manifest))
    }

    /// Returns the identity of an object, without a namespace if its kind has none.
    pub(super) async fn id_of(&self, cluster: &str, manifest: &Value) -> ObjectId {
        let mut id = ObjectId::of(manifest).in_cluster(cluster);
        if self.objects.is_namespaced(&id).await == Ok(false) {
            id.namespace.clear();
        }
        id
    }
}

/// Returns what the user may read of the recorded objects. Without it, each pass would read each of them again.
async fn readable(env: &Env<'_>, identity: &Identity, inventory: &Inventory) -> BTreeSet<CacheScope> {
    let entries = inventory.in_order().flat_map(|tracker| &tracker.entries);
    let ids = entries
        .filter(|entry| ResourceKey::of(entry).is_local())
        .map(ObjectId::of_entry);
    let scopes: BTreeSet<(CacheScope, String)> = ids
        .map(|id| ((id.group_kind(), id.namespace), id.api_version))
        .collect();
    let reviews = scopes.into_iter().take(MAX_REVIEWS).map(|(scope, api_version)| {
        let review = async move { may_read(env, identity, &scope, api_version).await.then_some(scope) };
        review.boxed()
    });
    let reviews = env.concurrently(reviews.collect()).await;
    reviews.into_iter().flatten().collect()
}

async fn may_read(env: &Env<'_>, identity: &Identity, (kind, namespace): &CacheScope, api_version: String) -> bool {
    let id = ObjectId {
        cluster: LOCAL.to_owned(),
        api_version,
        kind: kind.kind.to_string(),
        namespace: namespace.clone(),
        name: String::new(),
    };
    let Ok(resource) = env.reconciler.objects.resource(&id).await else {
        return false;
    };
    let access = ResourceAccess {
        verb: "get",
        group: resource.api.group,
        resource: resource.api.plural,
        namespace: id.namespace,
    };
    match env.reconciler.reviews.allows(identity, &access).await {
        Ok(is_allowed) => is_allowed,
        Err(error) => {
            tracing::debug!(application = %env.name, %error, "failed to review access, reading objects one by one");
            false
        }
    }
}
