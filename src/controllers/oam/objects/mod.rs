//! The objects that Applications manage: watched, read and written.
//!
//! ```text
//!  subscribe(application, kinds) ─► one watch per kind, label app.oam.dev/name ─► cache ─► changed(application)
//!  get ─► cache, or else a request          create, patch, replace, delete ─► request ─► cache
//! ```

use std::collections::BTreeSet;

use kube::Client;
use serde_json::Value;

use super::dispatch::decide::Identity;
use crate::api::NamespacedName;
use crate::api::oam::ManagedResource;
use crate::runtime::kube_client::ApiError;
use crate::runtime::watch::GroupKind;

/// An object in a version of its API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    pub api_version: String,
    pub kind: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    pub name: String,
}

impl ObjectId {
    #[must_use]
    pub fn of(object: &Value) -> Self {
        let Identity {
            api_version,
            kind,
            namespace,
            name,
        } = Identity::of(object);
        Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    #[must_use]
    pub fn of_entry(entry: &ManagedResource) -> Self {
        Self {
            api_version: entry.api_version.clone(),
            kind: entry.kind.clone(),
            namespace: entry.namespace.clone(),
            name: entry.name.clone(),
        }
    }

    #[must_use]
    pub fn group_kind(&self) -> GroupKind {
        let group = self.api_version.split_once('/').map_or("", |(group, _)| group);
        GroupKind::new(group, self.kind.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    #[error("no matches for kind {kind:?} in version {version:?}")]
    NotInstalled { kind: String, version: String },
    #[error(transparent)]
    Api(#[from] ApiError),
}

/// An object as the watch of its kind knows it.
#[derive(Clone, Debug, PartialEq)]
pub enum CachedObject {
    Found(Value),
    /// No object with the label of an Application.
    Absent,
    /// The kind is not watched (yet), or in another version.
    Unknown,
}

/// Deletion of the dependents of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
}

/// The objects of all Applications. Clones share the watches.
#[derive(Clone)]
pub struct Objects {}

impl Objects {
    /// Creates the cache without watches. `changed` is called with the name of an Application whose objects may have
    /// changed; it must not block.
    #[must_use]
    pub fn new(client: Client, resync: std::time::Duration, changed: impl Fn(NamespacedName) + Send + Sync + 'static) -> Self {
        let _ = (client, resync, changed);
        unimplemented!()
    }

    /// Runs the watches. Never returns.
    pub async fn run(self) {
        unimplemented!()
    }

    /// Replaces the kinds that are watched for an Application.
    pub fn subscribe(&self, application: &NamespacedName, kinds: BTreeSet<GroupKind>) {
        let _ = (application, kinds);
        unimplemented!()
    }

    pub fn unsubscribe(&self, application: &NamespacedName) {
        let _ = application;
        unimplemented!()
    }

    /// Waits until the watches of these kinds, in this namespace, are complete or have failed, at most a few seconds.
    pub async fn wait_until_settled(&self, kinds: &BTreeSet<GroupKind>) {
        let _ = kinds;
        unimplemented!()
    }

    /// Returns true if the objects of a kind have namespaces. Discovers the kind if necessary.
    ///
    /// # Errors
    /// The kind is not installed, or discovery fails.
    pub async fn is_namespaced(&self, id: &ObjectId) -> Result<bool, ObjectError> {
        let _ = id;
        unimplemented!()
    }

    /// Returns an object from the cache only.
    #[must_use]
    pub fn cached(&self, id: &ObjectId) -> CachedObject {
        let _ = id;
        unimplemented!()
    }

    /// Returns an object from the cache, or from the API server if the cache does not have it.
    ///
    /// # Errors
    /// The kind is not installed, or the request fails.
    pub async fn get(&self, id: &ObjectId) -> Result<Option<Value>, ObjectError> {
        let _ = id;
        unimplemented!()
    }

    /// Creates an object. Returns it as stored.
    ///
    /// # Errors
    /// Conflict (409, reason AlreadyExists) if it exists.
    pub async fn create(&self, object: &Value, is_dry_run: bool) -> Result<Value, ObjectError> {
        let _ = (object, is_dry_run);
        unimplemented!()
    }

    /// Applies a JSON merge patch. Returns the object as stored.
    ///
    /// # Errors
    /// The kind is not installed, or the request fails.
    pub async fn patch(&self, id: &ObjectId, patch: &Value, is_dry_run: bool) -> Result<Value, ObjectError> {
        let _ = (id, patch, is_dry_run);
        unimplemented!()
    }

    /// Replaces an object; it names the resource version that it replaces. Returns the object as stored.
    ///
    /// # Errors
    /// The kind is not installed, or the request fails.
    pub async fn replace(&self, object: &Value, is_dry_run: bool) -> Result<Value, ObjectError> {
        let _ = (object, is_dry_run);
        unimplemented!()
    }

    /// Deletes the object with this UID. An object that is gone, or has another UID, is no error.
    ///
    /// # Errors
    /// The kind is not installed, or the request fails.
    pub async fn delete(&self, id: &ObjectId, uid: &str, propagation: Propagation) -> Result<(), ObjectError> {
        let _ = (id, uid, propagation);
        unimplemented!()
    }
}
