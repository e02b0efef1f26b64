//! The objects that Applications manage: watched, read and written, in the controller's own cluster and in joined ones.
//!
//! ```text
//!  ObjectId ─► Objects ─► ClusterObjects of its cluster
//!
//!  subscribe(application, kinds) ─► one watch per kind, label app.oam.dev/name ─► cache ─► changed(application)
//!  get ─► cache, or else a request          create, patch, replace, delete ─► request ─► cache
//!  as_user ─► the same with the rights of a user: requests, and the part of the cache that the user may read
//! ```

mod autoscalers;
mod id;
mod joined;
mod lists;
mod one_cluster;
mod requests;
mod subscribers;
#[cfg(test)]
mod tests;
mod user;
mod watches;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Client;
use serde_json::Value;

pub use self::autoscalers::Autoscalers;
pub use self::id::ObjectId;
use self::joined::JoinedObjects;
pub use self::joined::JoinedSettings;
pub use self::one_cluster::ClusterObjects;
pub use self::user::CacheScope;
use self::user::UserClients;
use crate::api::NamespacedName;
use crate::controllers::oam::clusters::{ClusterError, IdentityKinds, JoinedClusters};
use crate::controllers::oam::trackers::{LOCAL, is_local};
use crate::runtime::kube_client::ApiError;
use crate::runtime::watch::{GroupKind, Resource};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    #[error("no matches for kind {kind:?} in version {version:?}")]
    NotInstalled { kind: String, version: String },
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

/// An object as the watch of its kind knows it.
#[derive(Clone, Debug, PartialEq)]
pub enum CachedObject {
    Found(Value),
    /// No object with the label of an Application.
    Absent,
    /// The kind is not watched (yet), or in another version, or the object is not held.
    Unknown,
}

/// The kinds of an Application by cluster.
pub type ClusterKinds = BTreeMap<String, BTreeSet<GroupKind>>;

/// The objects of all Applications in all clusters. Clones share the watches.
#[derive(Clone)]
pub struct Objects {
    local: ClusterObjects,
    joined: Arc<JoinedObjects>,
    /// The user who sends the requests to joined clusters; the controller if `None`.
    user: Option<Arc<UserClients>>,
}

impl Objects {
    #[must_use]
    pub fn new(local: ClusterObjects, settings: JoinedSettings) -> Self {
        Self {
            local,
            joined: JoinedObjects::new(settings),
            user: None,
        }
    }

    /// Runs the watches of the controller's own cluster. Never returns.
    pub async fn run(self) {
        self.local.run().await;
    }

    #[must_use]
    pub fn clusters(&self) -> &JoinedClusters {
        &self.joined.settings.clusters
    }

    /// Returns the objects of a cluster, with the rights that requests have there.
    fn of(&self, cluster: &str) -> Result<Cow<'_, ClusterObjects>, ClusterError> {
        if is_local(cluster) {
            return Ok(Cow::Borrowed(&self.local));
        }
        let (objects, connection) = self.joined.objects(cluster)?;
        Ok(Cow::Owned(match &self.user {
            Some(user) if user.impersonates(cluster, connection.can_impersonate)? => {
                user.objects(&objects, cluster, &connection)
            }
            _ => objects,
        }))
    }

    /// Returns the objects with the rights of a user of these kinds, as whom `impersonate` sends requests. The watches keep
    /// the rights of the controller; objects outside of the `readable` part of the cache are read with a request each time.
    #[must_use]
    pub fn as_user(
        &self,
        kinds: IdentityKinds,
        impersonate: impl Fn(&Client) -> Client + Send + Sync + 'static,
        readable: BTreeSet<CacheScope>,
    ) -> Self {
        let controller = self.local.as_controller();
        let client = impersonate(controller.client());
        Self {
            local: controller.as_user(client, readable),
            joined: Arc::clone(&self.joined),
            user: Some(Arc::new(UserClients::new(kinds, impersonate))),
        }
    }

    #[must_use]
    pub fn as_controller(&self) -> Self {
        Self {
            local: self.local.as_controller(),
            joined: Arc::clone(&self.joined),
            user: None,
        }
    }

    /// Returns true if requests to a cluster have the rights of a user. Without the right to impersonate there, they have
    /// those of the cluster's credential.
    #[must_use]
    pub fn has_user(&self, cluster: &str) -> bool {
        let Some(user) = &self.user else {
            return false;
        };
        let connection = || self.clusters().connection(cluster);
        let can_impersonate = || connection().map_or(IdentityKinds::NONE, |one| one.can_impersonate);
        // Requests to a cluster that impersonates others only fail.
        is_local(cluster) || user.impersonates(cluster, can_impersonate()).unwrap_or(false)
    }

    /// Returns the client for the controller's own cluster.
    #[must_use]
    pub fn client(&self) -> &Client {
        self.local.client()
    }

    /// Returns the client for a cluster.
    pub fn client_of(&self, cluster: &str) -> Result<Client, ObjectError> {
        Ok(self.of(cluster)?.client().clone())
    }

    /// Watches these kinds for an Application, and no others.
    pub fn subscribe(&self, application: &NamespacedName, mut kinds: ClusterKinds) {
        let local = kinds.remove(LOCAL).unwrap_or_default();
        self.local.subscribe(application, local);
        self.joined.subscribe(application, kinds);
    }

    /// Reports the Application when a cluster is joined or can be reached again.
    pub fn expect(&self, application: &NamespacedName, cluster: &str) {
        if !is_local(cluster) {
            self.joined.expect(application, cluster);
        }
    }

    pub fn unsubscribe(&self, application: &NamespacedName) {
        self.local.unsubscribe(application);
        self.joined.subscribe(application, ClusterKinds::new());
    }

    /// Waits until the watches of these subscribed kinds are complete or failed, and for the first attempts to reach
    /// their clusters; not for clusters that can't be reached.
    pub async fn wait_until_settled(&self, kinds: &ClusterKinds) {
        let wait = async |cluster: &str, kinds: &BTreeSet<GroupKind>| {
            if !is_local(cluster) {
                self.clusters()
                    .wait_until_tried(&BTreeSet::from([cluster.to_owned()]))
                    .await;
            }
            if let Ok(objects) = self.of(cluster) {
                objects.wait_until_settled(kinds).await;
            }
        };
        futures::future::join_all(kinds.iter().map(|(cluster, kinds)| wait(cluster, kinds))).await;
    }

    pub async fn is_namespaced(&self, id: &ObjectId) -> Result<bool, ObjectError> {
        self.of(&id.cluster)?.is_namespaced(id).await
    }

    #[must_use]
    pub fn cached(&self, id: &ObjectId) -> CachedObject {
        self.of(&id.cluster)
            .map_or(CachedObject::Unknown, |objects| objects.cached(id))
    }

    /// Returns the size of an object in the cache, in bytes of JSON.
    #[must_use]
    pub fn cached_bytes(&self, id: &ObjectId) -> usize {
        self.of(&id.cluster).map_or(0, |objects| objects.cached_bytes(id))
    }

    /// Reads from the API server if the cache does not have the object.
    pub async fn get(&self, id: &ObjectId) -> Result<Option<Value>, ObjectError> {
        self.of(&id.cluster)?.get(id).await
    }

    pub async fn read(&self, id: &ObjectId) -> Result<Option<Value>, ObjectError> {
        self.of(&id.cluster)?.read(id).await
    }

    /// Ignores the name of `id`; without a namespace, lists all. Fails beyond 1,000 objects or 4 MiB.
    pub async fn list(&self, id: &ObjectId, selector: &str) -> Result<Vec<Value>, ObjectError> {
        self.of(&id.cluster)?.list(id, selector).await
    }

    /// Returns the cached object if it is newer than `object`, or else `object`.
    #[must_use]
    pub fn newer(&self, id: &ObjectId, object: Value) -> Value {
        match self.of(&id.cluster) {
            Ok(objects) => objects.newer(id, object),
            Err(_) => object,
        }
    }

    /// Returns the number of watches, and of objects in memory.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        self.sum(ClusterObjects::size)
    }

    /// Returns the kinds beyond the limit of watches, and the unwatchable kinds. Their objects are read one by one.
    #[must_use]
    pub fn unwatched_kinds(&self) -> (usize, usize) {
        self.sum(ClusterObjects::unwatched_kinds)
    }

    fn sum(&self, of: impl Fn(&ClusterObjects) -> (usize, usize)) -> (usize, usize) {
        let joined = self.joined.all();
        let all = std::iter::once(&self.local).chain(&joined).map(of);
        all.fold((0, 0), |(left, right), (a, b)| (left + a, right + b))
    }

    /// Fails with a conflict (409, reason AlreadyExists) if it exists.
    pub async fn create(&self, id: &ObjectId, object: &Value, is_dry_run: bool) -> Result<Value, ObjectError> {
        self.of(&id.cluster)?.create(id, object, is_dry_run).await
    }

    /// Applies a JSON merge patch. Returns the object as stored.
    pub async fn patch(&self, id: &ObjectId, patch: &Value, is_dry_run: bool) -> Result<Value, ObjectError> {
        self.of(&id.cluster)?.patch(id, patch, is_dry_run).await
    }

    /// Replaces the resource version that the object names. Returns the object as stored.
    pub async fn replace(&self, id: &ObjectId, object: &Value, is_dry_run: bool) -> Result<Value, ObjectError> {
        self.of(&id.cluster)?.replace(id, object, is_dry_run).await
    }

    /// Deletes the object with this UID, then its dependents. No error if it is gone, or has another UID. The cache has
    /// it until the watch delivers its deletion.
    pub async fn delete(&self, id: &ObjectId, uid: &str) -> Result<(), ObjectError> {
        self.of(&id.cluster)?.delete(id, uid).await
    }

    /// Returns version and kind of a resource of the own cluster, in singular or plural such as `configmap`. An empty
    /// group means any.
    pub async fn kind_of(&self, group: &str, name: &str) -> Result<Option<(String, String)>, ObjectError> {
        self.local.kind_of(group, name).await
    }

    pub async fn resource(&self, id: &ObjectId) -> Result<Resource, ObjectError> {
        self.of(&id.cluster)?.resource(id).await
    }
}
