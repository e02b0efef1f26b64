//! The user with whose rights a pass reads and writes the objects of an Application.

mod ownership;
mod reads;

use std::collections::BTreeSet;

use futures::FutureExt;
use kube::ResourceExt;
use serde_json::Value;

use super::conditions::{self, Failure, phase};
use super::pass::{Pass, Stop};
use crate::controllers::oam::collect::is_managed;
use crate::controllers::oam::dispatch::admission::{Forbidden, check_control};
use crate::controllers::oam::dispatch::decide::Identity as ManifestIdentity;
use crate::controllers::oam::objects::{CacheScope, ObjectId};
use crate::controllers::oam::rights::{Identity, ResourceAccess, identity, impersonating};
use crate::controllers::oam::trackers::ResourceKey;
pub(super) use reads::foreign_secrets;

/// Maximum number of reviews of one pass. Other objects are read one by one.
const MAX_REVIEWS: usize = 200;

impl Pass<'_> {
    /// Impersonates the user that the Application names, in all requests for its objects. Trackers, revisions, values of the
    /// workflow and the status belong to the controller.
    pub(super) async fn take_identity(&mut self) -> Result<(), Stop> {
        let options = &self.reconciler.options.identity;
        let client = &self.reconciler.client;
        let named = match identity(self.app.annotations(), &self.name.namespace, options) {
            // Nothing is left that needs rights.
            Err(_) if self.app.metadata.deletion_timestamp.is_some() && self.inventory.is_empty() => Ok(None),
            named => named,
        };
        let user = named.and_then(|identity| {
            let with_client = |identity| Ok((impersonating(client, &identity)?, identity));
            identity.map(with_client).transpose()
        });
        if let Some((client, identity)) = user.map_err(|error| self.identity_failure(error.to_string()))? {
            let readable = self.readable(&identity).await;
            self.objects = self.reconciler.objects.as_user(client, readable);
        }
        Ok(())
    }

    /// Checks objects before they are created or changed. Of those that a tracker records, [`Self::check_control`] decides
    /// by what exists.
    pub(super) fn check_admission<'m>(
        &self,
        manifests: impl IntoIterator<Item = &'m Value> + Clone,
    ) -> Result<(), String> {
        let admission = &self.reconciler.options.admission;
        let namespace = &self.name.namespace;
        let admitted = admission.check(namespace, manifests.clone());
        admitted.map_err(|error| error.to_string())?;
        for manifest in manifests {
            if let Err(forbidden) = self.check_control(manifest, None)
                && !self.inventory.records(&ObjectId::of(manifest).key())
            {
                return Err(forbidden.to_string());
            }
        }
        Ok(())
    }

    /// Checks that an object does not control this program in another namespace, unless the Application has it already. A
    /// record alone does not prove that: it is written before the object, which its user may have been refused.
    pub(super) fn check_control(&self, manifest: &Value, live: Option<&Value>) -> Result<(), Forbidden> {
        let has_it = live.is_some_and(|live| is_managed(live, self.name));
        if has_it || self.objects.has_user() || self.is_privileged() {
            return Ok(());
        }
        check_control(&self.name.namespace, &ManifestIdentity::of(manifest))
    }

    fn identity_failure(&self, message: String) -> Failure {
        match self.app.metadata.deletion_timestamp {
            Some(_) => Failure::synced("FailedGC", message),
            None => Failure::new(conditions::PARSED, "FailedParse", message).in_phase(phase::RENDERING),
        }
    }

    /// Returns what the user may read of the recorded objects. Without it, each pass would read each of them again.
    async fn readable(&self, identity: &Identity) -> BTreeSet<CacheScope> {
        let entries = self.inventory.in_order().flat_map(|tracker| &tracker.entries);
        let ids = entries
            .filter(|entry| ResourceKey::of(entry).is_local())
            .map(ObjectId::of_entry);
        let scopes: BTreeSet<(CacheScope, String)> = ids
            .map(|id| ((id.group_kind(), id.namespace), id.api_version))
            .collect();
        let reviews = scopes.into_iter().take(MAX_REVIEWS).map(|(scope, api_version)| {
            let review = async move { self.may_read(identity, &scope, api_version).await.then_some(scope) };
            review.boxed()
        });
        self.concurrently(reviews.collect())
            .await
            .into_iter()
            .flatten()
            .collect()
    }

    async fn may_read(&self, identity: &Identity, (kind, namespace): &CacheScope, api_version: String) -> bool {
        let id = ObjectId {
            api_version,
            kind: kind.kind.to_string(),
            namespace: namespace.clone(),
            name: String::new(),
        };
        let Ok(resource) = self.objects.resource(&id).await else {
            return false;
        };
        let access = ResourceAccess {
            verb: "get",
            group: resource.api.group,
            resource: resource.api.plural,
            namespace: id.namespace,
        };
        match self.reconciler.reviews.allows(identity, &access).await {
            Ok(is_allowed) => is_allowed,
            Err(error) => {
                tracing::debug!(application = %self.name, %error, "failed to review access, reading objects one by one");
                false
            }
        }
    }
}
