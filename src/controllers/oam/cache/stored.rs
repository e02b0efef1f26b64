//! Revisions and trackers in memory: only what passes need.

use std::sync::Arc;

use kube::ResourceExt;
use kube::core::ObjectMeta;

use crate::api::oam::{ApplicationRevision, ResourceTracker, labels};
use crate::api::{Partial, impl_resource};
use crate::budget::{Budget, Reservation};
use crate::controllers::oam::trackers::{decoded_bytes, pack};

/// Memory of an object besides its entries, names, labels and annotations.
const OBJECT_BYTES: usize = 1024;
/// Type of compression of entries that are left out. Decoding them is an error.
const OMITTED: &str = "omitted";

/// What the metadata of a revision say about it. Its contents are read when a pass needs them.
#[derive(Clone, Debug)]
pub struct CachedRevision(ObjectMeta);

impl_resource!([] CachedRevision, as ApplicationRevision, metadata_only: true, |this| &this.0, &mut this.0);

impl From<Partial<ApplicationRevision>> for CachedRevision {
    fn from(revision: Partial<ApplicationRevision>) -> Self {
        Self::of(&revision.metadata)
    }
}

impl CachedRevision {
    #[must_use]
    pub fn of(meta: &ObjectMeta) -> Self {
        let labels = meta.labels.iter().flatten();
        let labels = labels.filter(|(name, _)| [labels::APP_NAME, labels::APP_REVISION_HASH].contains(&name.as_str()));
        let annotations = meta.annotations.iter().flatten();
        let annotations = annotations.filter(|(name, _)| *name == labels::PUBLISH_VERSION);
        let pair = |(name, value): (&String, &String)| (name.clone(), value.clone());
        Self(ObjectMeta {
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            labels: Some(labels.map(pair).collect()),
            annotations: Some(annotations.map(pair).collect()),
            owner_references: meta.owner_references.clone(),
            ..ObjectMeta::default()
        })
    }

    #[must_use]
    pub fn hash(&self) -> &str {
        self.labels().get(labels::APP_REVISION_HASH).map_or("", String::as_str)
    }

    #[must_use]
    pub fn publish_version(&self) -> Option<&str> {
        self.annotations().get(labels::PUBLISH_VERSION).map(String::as_str)
    }
}

/// A tracker in memory, with its entries as compressed text if they are large. Those of a namespace that holds too much
/// are left out and read when a pass needs them.
#[derive(Clone, Debug)]
pub struct CachedTracker {
    object: Arc<ResourceTracker>,
    decoded_bytes: u64,
    /// `None` if the entries are left out.
    memory: Option<Arc<Reservation>>,
}

impl_resource!([] CachedTracker, as ResourceTracker, metadata_only: false,
    |this| &this.object.metadata, &mut Arc::make_mut(&mut this.object).metadata);

impl CachedTracker {
    /// Converts a tracker as the API server sends it.
    #[must_use]
    pub fn new(mut object: ResourceTracker, budget: &Budget) -> Self {
        object.metadata.managed_fields = None;
        object.status = None;
        let json_bytes = pack(&mut object.spec);
        let namespace = object.labels().get(labels::APP_NAMESPACE).map_or("", String::as_str);
        let texts = object.labels().iter().chain(object.annotations());
        let texts: usize = texts.map(|(name, value)| name.len() + value.len()).sum();
        let entries = match object.spec.managed_resources.is_empty() {
            true => object.spec.compression.data.len() as u64,
            false => decoded_bytes(json_bytes),
        };
        let memory = budget.try_share(namespace, (OBJECT_BYTES + texts) as u64 + entries);
        if memory.is_none() {
            object.spec.managed_resources = Vec::new();
            object.spec.compression.data = String::new();
            OMITTED.clone_into(&mut object.spec.compression.type_);
        }
        Self {
            object: Arc::new(object),
            decoded_bytes: decoded_bytes(json_bytes),
            memory: memory.map(Arc::new),
        }
    }

    /// Returns the tracker, unless its entries are left out.
    #[must_use]
    pub fn whole(&self) -> Option<&Arc<ResourceTracker>> {
        self.memory.is_some().then_some(&self.object)
    }

    /// Returns the memory that decoding takes.
    #[must_use]
    pub const fn decoded_bytes(&self) -> u64 {
        self.decoded_bytes
    }
}
