//! Labels and annotations by which replicas recognize Leases of another division of the objects.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ObjectMeta;

use crate::api::jobs::LEASE;

/// The number of shards.
const SHARDS: &str = "portolan.dev/shards";
/// The label selector of the watched objects.
const SELECTOR: &str = "portolan.dev/watch-label-selector";

/// The division of the objects among Leases. Without shards and selector, nothing is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// The name of the Leases without the number of the shard.
    pub lease: String,
    pub shards: u32,
    /// Normalized; empty for all objects.
    pub selector: String,
}

impl Default for Marks {
    fn default() -> Self {
        Self {
            lease: String::new(),
            shards: 1,
            selector: String::new(),
        }
    }
}

impl Marks {
    /// Returns the marks of a Lease if it belongs to the Leases with this name.
    pub(super) fn of(found: &Lease, lease: &str) -> Option<Self> {
        let labels = found.metadata.labels.as_ref();
        let label = |key| labels.and_then(|labels| labels.get(key));
        // An earlier release wrote no labels.
        let is_single = found.metadata.name.as_deref() == Some(lease);
        if !is_single && label(LEASE).is_none_or(|found| found != lease) {
            return None;
        }
        let annotations = found.metadata.annotations.as_ref();
        Some(Self {
            lease: lease.to_owned(),
            shards: label(SHARDS).and_then(|shards| shards.parse().ok()).unwrap_or(1),
            selector: annotations
                .and_then(|annotations| annotations.get(SELECTOR).cloned())
                .unwrap_or_default(),
        })
    }

    pub(super) fn apply(&self, metadata: &mut ObjectMeta) {
        if self.shards > 1 {
            let labels = metadata.labels.get_or_insert_default();
            labels.insert(LEASE.to_owned(), self.lease.clone());
            labels.insert(SHARDS.to_owned(), self.shards.to_string());
        } else if let Some(labels) = &mut metadata.labels {
            labels.remove(SHARDS);
        }
        if !self.selector.is_empty() {
            let annotations = metadata.annotations.get_or_insert_default();
            annotations.insert(SELECTOR.to_owned(), self.selector.clone());
        } else if let Some(annotations) = &mut metadata.annotations {
            annotations.remove(SELECTOR);
        }
    }

    /// Returns true if a replica owns only a part of the objects.
    pub(super) fn is_division(&self) -> bool {
        self.shards > 1 || !self.selector.is_empty()
    }

    /// Returns the name of the Lease of a shard.
    #[must_use]
    pub fn lease_name(&self, shard: u32) -> String {
        if self.shards > 1 {
            format!("{}-{shard}", self.lease)
        } else {
            self.lease.clone()
        }
    }
}
