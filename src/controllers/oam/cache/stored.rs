//! Revisions and trackers in memory: only what passes need.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::core::ObjectMeta;

use crate::api::oam::{ApplicationRevision, ResourceTracker, labels};
use crate::api::{Partial, impl_resource};
use crate::budget::{Budget, Reservation};
use crate::controllers::oam::trackers::{decoded_bytes, pack};
use crate::text::truncate;

/// Memory of an object besides its entries, names, labels and annotations.
const OBJECT_BYTES: usize = 1024;
const REVISION_LABELS: [&str; 3] = [labels::APP_NAME, labels::APP_REVISION_HASH, labels::SHARD_ID];
/// Owners of a revision that are kept, and the length of their UIDs. A revision has one owner, its Application.
const MAX_OWNERS: usize = 4;
const MAX_UID_BYTES: usize = 64;
/// A longer version is cut, and does not match any.
const MAX_VERSION_BYTES: usize = 1024;

/// The metadata of a revision. Its contents are read when a pass needs them.
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
        let labels = labels.filter(|(name, _)| REVISION_LABELS.contains(&name.as_str()));
        let annotations = meta.annotations.iter().flatten();
        let annotations = annotations.filter(|(name, _)| *name == labels::PUBLISH_VERSION);
        let pair = |(name, value): (&String, &String)| (name.clone(), truncate(value, MAX_VERSION_BYTES));
        let owners = meta.owner_references.iter().flatten().take(MAX_OWNERS);
        let owners = owners.map(|owner| OwnerReference {
            uid: truncate(&owner.uid, MAX_UID_BYTES),
            ..OwnerReference::default()
        });
        Self(ObjectMeta {
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            labels: Some(labels.map(pair).collect()),
            annotations: Some(annotations.map(pair).collect()),
            owner_references: Some(owners.collect()),
            deletion_timestamp: meta.deletion_timestamp.clone(),
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

/// A tracker with large entries compressed. Beyond the budget of a namespace, only metadata are kept.
#[derive(Clone, Debug)]
pub struct CachedTracker {
    /// Without annotations.
    meta: ObjectMeta,
    decoded_bytes: u64,
    /// `None` if it is left out.
    object: Option<(Arc<ResourceTracker>, Arc<Reservation>)>,
}

impl_resource!([] CachedTracker, as ResourceTracker, metadata_only: false, |this| &this.meta, &mut this.meta);

impl CachedTracker {
    #[must_use]
    pub fn new(mut object: ResourceTracker, budget: &Budget) -> Self {
        object.metadata.managed_fields = None;
        object.status = None;
        let json_bytes = pack(&mut object.spec);
        let namespace = object.labels().get(labels::APP_NAMESPACE).map_or("", String::as_str);
        let texts = object.labels().iter().chain(object.annotations());
        let texts: usize = texts.map(|(name, value)| name.len() + value.len()).sum();
        let entries = if object.spec.managed_resources.is_empty() {
            object.spec.compression.data.len() as u64
        } else {
            decoded_bytes(json_bytes)
        };
        let memory = budget.try_share(namespace, (OBJECT_BYTES + texts) as u64 + entries);
        Self {
            meta: ObjectMeta {
                name: object.metadata.name.clone(),
                uid: object.metadata.uid.clone(),
                resource_version: object.metadata.resource_version.clone(),
                labels: object.metadata.labels.clone(),
                deletion_timestamp: object.metadata.deletion_timestamp.clone(),
                ..ObjectMeta::default()
            },
            decoded_bytes: decoded_bytes(json_bytes),
            object: memory.map(|memory| (Arc::new(object), Arc::new(memory))),
        }
    }

    /// Returns the tracker, unless its entries are left out.
    #[must_use]
    pub fn whole(&self) -> Option<&Arc<ResourceTracker>> {
        self.object.as_ref().map(|(object, _)| object)
    }

    #[must_use]
    pub const fn decoded_bytes(&self) -> u64 {
        self.decoded_bytes
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controllers::oam::trackers::Tracker;

    /// A tracker with a manifest of this many bytes.
    fn tracker(namespace: &str, bytes: usize) -> ResourceTracker {
        // Digits that do not compress well.
        let text: String = (0..bytes / 8)
            .map(|number| format!("{:08x}", number * 2_654_435_761_usize))
            .collect();
        let tracker = json!({
            "metadata": {
                "name": "shop-v1-team",
                "labels": { "app.oam.dev/name": "shop", "app.oam.dev/namespace": namespace },
                "managedFields": [{ "manager": "x" }],
            },
            "spec": {
                "type": "versioned", "applicationGeneration": 1,
                "managedResources": [{ "kind": "ConfigMap", "name": "a", "raw": { "data": { "text": text } } }],
            },
        });
        serde_json::from_value(tracker).unwrap()
    }

    #[test]
    fn a_cached_tracker_has_the_entries_of_the_original_compressed_if_they_are_large() {
        let budget = Budget::new("test", 1 << 20);
        for (bytes, is_compressed) in [(64, false), (64 << 10, true)] {
            let original = tracker("team", bytes);
            let cached = CachedTracker::new(original.clone(), &budget);
            let whole = cached.whole().unwrap();
            assert_eq!(whole.spec.managed_resources.is_empty(), is_compressed);
            assert_eq!(whole.metadata.managed_fields, None);
            assert!(cached.decoded_bytes() > bytes as u64);
            let decoded = Tracker::decode(Arc::clone(whole)).unwrap();
            assert_eq!(decoded.entries, original.spec.managed_resources);
        }
        assert_eq!(budget.used(), 0, "what is dropped is returned");
    }

    #[test]
    fn trackers_beyond_the_share_of_a_namespace_are_left_out() {
        let budget = Budget::new("test", 256 << 10);
        let mut held = Vec::new();
        loop {
            held.push(CachedTracker::new(tracker("greedy", 32 << 10), &budget));
            assert!(held.len() < 20);
            if let Some(last) = held.last().filter(|last| last.whole().is_none()) {
                assert!(last.decoded_bytes() > 32 << 10);
                break;
            }
        }
        assert!(held.len() > 2);
        assert!(
            CachedTracker::new(tracker("other", 32 << 10), &budget)
                .whole()
                .is_some()
        );
    }

    #[test]
    fn of_a_revision_only_what_decides_about_it_is_cached() {
        let meta = json!({
            "name": "shop-v1", "namespace": "team", "uid": "u", "resourceVersion": "7",
            "labels": {
                "app.oam.dev/name": "shop", "app.oam.dev/app-revision-hash": "p1",
                "controller.core.oam.dev/scheduled-shard-id": "red", "other": "x",
            },
            "annotations": { "app.oam.dev/publishVersion": "beta", "kubectl.kubernetes.io/last-applied": "much" },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "X", "name": "x", "uid": "u-2" }],
        });
        let revision = CachedRevision::of(&serde_json::from_value(meta).unwrap());
        assert_eq!((revision.hash(), revision.publish_version()), ("p1", Some("beta")));
        assert_eq!((revision.labels().len(), revision.annotations().len()), (3, 1));
        assert_eq!(revision.owner_references().len(), 1);
        assert_eq!(revision.resource_version().as_deref(), Some("7"));
    }
}
