use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use serde_json::Value;
use tokio::sync::watch;

use super::requests::{self, ClusterRequest, Route};
use super::subscribers::Subscribers;
use super::user::User;
use super::{CachedObject, ObjectError, ObjectId, watches};
use crate::api::{NamespacedName, is_older};
use crate::budget::Budget;
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::trackers::LOCAL;
use crate::runtime::kube_client::ApiError;
use crate::runtime::watch::{Document, DocumentCache, GroupKind, ObjectState, Resource, WatchManager};

/// Memory for objects of a joined cluster that is over its share, in bytes. One alone gets half of a budget.
const OMITTED_BYTES: u64 = 128 << 20;
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// The objects of all Applications in one cluster. Clones share the watches.
#[derive(Clone)]
pub struct ClusterObjects {
    /// The name of the cluster, for IDs of another would reach the wrong objects.
    cluster: Arc<str>,
    pub(super) client: Client,
    /// The user who sends the requests; the controller if `None`.
    pub(super) user: Option<User>,
    watches: WatchManager<NamespacedName, Document>,
    cache: DocumentCache,
    subscribers: Arc<Subscribers>,
    kind_changed: Arc<watch::Sender<()>>,
}

impl ClusterObjects {
    /// `changed` gets the Application of a changed object; it must not block. Each `resync` lists unwatchable kinds.
    #[must_use]
    pub fn new(client: Client, resync: Duration, changed: impl Fn(NamespacedName) + Send + Sync + 'static) -> Self {
        let cache = Self::cache(Budget::new("objects", u64::MAX), None);
        Self::with_cache(client, LOCAL, resync, None, cache, changed)
    }

    /// Returns a cache for the namespaces of objects, each with a share of the budget, or for one `owner`: a joined
    /// cluster, which could have objects without end.
    #[must_use]
    pub fn cache(budget: Budget, owner: Option<Arc<str>>) -> DocumentCache {
        DocumentCache {
            budget,
            omitted: owner.as_ref().map(|_| Budget::new("omitted_objects", OMITTED_BYTES)),
            owner,
            labels: watches::LABELS,
        }
    }

    /// Objects beyond the budget of the cache are read from the API server when they are needed. Kinds that are watched
    /// are listed every `relist` too.
    #[must_use]
    pub fn with_cache(
        client: Client,
        cluster: &str,
        resync: Duration,
        relist: Option<Duration>,
        cache: DocumentCache,
        changed: impl Fn(NamespacedName) + Send + Sync + 'static,
    ) -> Self {
        let subscribers = Arc::<Subscribers>::default();
        let kind_changed = Arc::<watch::Sender<()>>::default();
        let listener = watches::listener(Arc::clone(&subscribers), Arc::clone(&kind_changed), changed);
        Self {
            cluster: cluster.into(),
            watches: WatchManager::new(
                client.clone(),
                watches::settings(resync, relist),
                watches::open(cache.clone()),
                listener,
            ),
            client,
            user: None,
            cache,
            subscribers,
            kind_changed,
        }
    }

    /// Runs the watches. Never returns.
    pub async fn run(self) {
        self.watches.run().await;
    }

    pub fn subscribe(&self, application: &NamespacedName, kinds: BTreeSet<GroupKind>) {
        self.subscribers.set(application, kinds.clone());
        self.watches
            .subscribe(application.clone(), &application.namespace, kinds);
    }

    pub fn unsubscribe(&self, application: &NamespacedName) {
        self.subscribers.remove(application);
        self.watches.unsubscribe(application);
    }

    /// Waits until the watches of these subscribed kinds are complete or failed, at most [`SETTLE_TIMEOUT`].
    pub async fn wait_until_settled(&self, kinds: &BTreeSet<GroupKind>) {
        let mut changes = self.kind_changed.subscribe();
        let are_settled = |(): &()| kinds.iter().all(|kind| self.watches.is_settled(kind));
        // Kinds that are not settled by then are read from the API server.
        let _ = tokio::time::timeout(SETTLE_TIMEOUT, changes.wait_for(are_settled)).await;
    }

    pub async fn is_namespaced(&self, id: &ObjectId) -> Result<bool, ObjectError> {
        Ok(self.resource(id).await?.is_namespaced)
    }

    #[must_use]
    pub fn cached(&self, id: &ObjectId) -> CachedObject {
        let kind = id.group_kind();
        let user = self.user.as_ref();
        let may_read = user.is_none_or(|user| user.may_read_cached(&kind, &id.namespace));
        if !may_read || self.check_cluster(id).is_err() {
            return CachedObject::Unknown;
        }
        match self.watches.object(&kind, &id.api_version, &id.namespace, &id.name) {
            ObjectState::Found(object) => {
                let value = object.to_value(&id.api_version, &id.kind);
                value.map_or(CachedObject::Unknown, CachedObject::Found)
            }
            ObjectState::Absent => CachedObject::Absent,
            ObjectState::Unknown => CachedObject::Unknown,
        }
    }

    /// Returns the size of an object in the cache, in bytes of JSON.
    #[must_use]
    pub fn cached_bytes(&self, id: &ObjectId) -> usize {
        match self
            .watches
            .object(&id.group_kind(), &id.api_version, &id.namespace, &id.name)
        {
            ObjectState::Found(object) => object.projection.text().map_or(0, str::len),
            ObjectState::Absent | ObjectState::Unknown => 0,
        }
    }

    /// Reads from the API server if the cache does not have the object.
    pub async fn get(&self, id: &ObjectId) -> Result<Option<Value>, ObjectError> {
        if let CachedObject::Found(object) = self.cached(id) {
            return Ok(Some(object));
        }
        self.read(id).await
    }

    pub async fn read(&self, id: &ObjectId) -> Result<Option<Value>, ObjectError> {
        match self.route(id).await?.send(self.client(), ClusterRequest::Get).await {
            Err(ObjectError::Api(error)) if error.is_not_found() => Ok(None),
            result => result.map(Some),
        }
    }

    /// Returns the cached object if it is newer than `object`, or else `object`.
    #[must_use]
    pub fn newer(&self, id: &ObjectId, object: Value) -> Value {
        let version = |object: &Value| {
            let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            version.unwrap_or_default().to_owned()
        };
        match self.cached(id) {
            CachedObject::Found(cached) if is_older(&version(&object), &version(&cached)) => cached,
            _ => object,
        }
    }

    /// Returns the number of watches, and of objects in memory.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        self.watches.size()
    }

    /// Returns the kinds beyond the limit of watches, and the unwatchable kinds. Their objects are read one by one.
    #[must_use]
    pub fn unwatched_kinds(&self) -> (usize, usize) {
        self.watches.unwatched_kinds()
    }

    /// Fails with a conflict (409, reason AlreadyExists) if it exists.
    pub async fn create(&self, id: &ObjectId, object: &Value, is_dry_run: bool) -> Result<Value, ObjectError> {
        let request = ClusterRequest::Create(object, parameters(is_dry_run));
        let created = self.route(id).await?.send(self.client(), request).await?;
        Ok(self.assume_written(id, created, is_dry_run, true))
    }

    /// Applies a JSON merge patch. Returns the object as stored.
    pub async fn patch(&self, id: &ObjectId, patch: &Value, is_dry_run: bool) -> Result<Value, ObjectError> {
        let parameters = PatchParams {
            dry_run: is_dry_run,
            ..PatchParams::apply(FIELD_MANAGER)
        };
        let request = ClusterRequest::Patch(Patch::Merge(patch), parameters);
        let patched = self.route(id).await?.send(self.client(), request).await?;
        Ok(self.assume_written(id, patched, is_dry_run, false))
    }

    /// Replaces the resource version that the object names. Returns the object as stored.
    pub async fn replace(&self, id: &ObjectId, object: &Value, is_dry_run: bool) -> Result<Value, ObjectError> {
        let request = ClusterRequest::Replace(object, parameters(is_dry_run));
        let replaced = self.route(id).await?.send(self.client(), request).await?;
        Ok(self.assume_written(id, replaced, is_dry_run, false))
    }

    /// Deletes the object with this UID, then its dependents. No error if it is gone, or has another UID. The cache has
    /// it until the watch delivers its deletion.
    pub async fn delete(&self, id: &ObjectId, uid: &str) -> Result<(), ObjectError> {
        // No object has an empty UID, so that the deletion would seem to succeed.
        if uid.is_empty() {
            let message = format!("failed to delete {} {:?}: its UID is unknown", id.kind, id.name);
            return Err(ApiError::bad_request(message).into());
        }
        let parameters = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let route = self.route(id).await?;
        match route.send(self.client(), ClusterRequest::Delete(parameters)).await {
            Err(ObjectError::Api(error)) if error.is_not_found() || requests::is_other_uid(&error) => Ok(()),
            result => result.map(drop),
        }
    }

    /// Returns version and kind of a resource, in singular or plural such as `configmap`. An empty group means any.
    pub async fn kind_of(&self, group: &str, name: &str) -> Result<Option<(String, String)>, ObjectError> {
        let resolved = self
            .watches
            .resolve_name(group, name)
            .await
            .map_err(|error| ApiError::unavailable(error.to_string()))?;
        Ok(resolved.map(|resource| (resource.api.api_version, resource.api.kind)))
    }

    pub async fn resource(&self, id: &ObjectId) -> Result<Resource, ObjectError> {
        self.check_cluster(id)?;
        let resolved = self
            .watches
            .resolve(&id.group_kind())
            .await
            .map_err(|error| ApiError::unavailable(error.to_string()))?;
        resolved.ok_or_else(|| id.not_installed())
    }

    /// Fails for an ID of another cluster, where another object has it.
    fn check_cluster(&self, id: &ObjectId) -> Result<(), ObjectError> {
        if *id.cluster == *self.cluster {
            return Ok(());
        }
        let message = format!("{id} is in cluster {}, not in {}", id.cluster, self.cluster);
        Err(ApiError::bad_request(message).into())
    }

    async fn route(&self, id: &ObjectId) -> Result<Route, ObjectError> {
        Route::new(id, &self.resource(id).await?)
    }

    fn assume_written(&self, id: &ObjectId, response: Value, is_dry_run: bool, is_created: bool) -> Value {
        if !is_dry_run
            && watches::is_selected(&response)
            && let Some(object) = response.as_object()
            && let Some(object) = self.cache.object(object.clone())
        {
            self.watches
                .assume_object(&id.group_kind(), &id.api_version, object, is_created);
        }
        response
    }
}

fn parameters(is_dry_run: bool) -> PostParams {
    PostParams {
        dry_run: is_dry_run,
        field_manager: Some(FIELD_MANAGER.to_owned()),
    }
}
