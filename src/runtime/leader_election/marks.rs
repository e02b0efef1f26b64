//! Labels and annotations by which replicas recognize Leases of another division of the objects.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ObjectMeta;

use crate::api::jobs::{LEASE, MANAGED_BY, MANAGER};

const SHARDS: &str = "portolan.dev/shards";
const SELECTOR: &str = "portolan.dev/watch-label-selector";
/// The size limit of the value of a label, in bytes. Names of objects may be longer.
const MAX_LABEL: usize = 63;

/// The division of the objects among Leases. Without shards and selector, the Lease is only labeled as ours.
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
    pub(super) fn of(lease: &Lease, name: &str) -> Option<Self> {
        let labels = lease.metadata.labels.as_ref();
        let label = |key| labels.and_then(|labels| labels.get(key));
        // An earlier release wrote no labels.
        let is_single = lease.metadata.name.as_deref() == Some(name);
        if !is_single && label(LEASE).is_none_or(|label| label != name) {
            return None;
        }
        let annotations = lease.metadata.annotations.as_ref();
        Some(Self {
            lease: name.to_owned(),
            shards: label(SHARDS).and_then(|shards| shards.parse().ok()).unwrap_or(1),
            selector: annotations
                .and_then(|annotations| annotations.get(SELECTOR).cloned())
                .unwrap_or_default(),
        })
    }

    pub(super) fn apply(&self, metadata: &mut ObjectMeta) {
        let labels = metadata.labels.get_or_insert_default();
        labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
        if self.shards > 1 || (1..=MAX_LABEL).contains(&self.lease.len()) {
            labels.insert(LEASE.to_owned(), self.lease.clone());
        }
        if self.shards > 1 {
            labels.insert(SHARDS.to_owned(), self.shards.to_string());
        } else {
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

    #[must_use]
    pub fn lease_name(&self, shard: u32) -> String {
        if self.shards > 1 {
            format!("{}-{shard}", self.lease)
        } else {
            self.lease.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::api::jobs::is_lease;

    fn labels(marks: &Marks) -> BTreeMap<String, String> {
        let mut meta = ObjectMeta::default();
        marks.apply(&mut meta);
        assert!(is_lease(&meta));
        meta.labels.unwrap_or_default()
    }

    #[test]
    fn each_lease_has_labels_by_which_it_is_recognized() {
        let mut marks = Marks {
            lease: "portolan".to_owned(),
            ..Marks::default()
        };
        let ours = [(MANAGED_BY, MANAGER), (LEASE, "portolan")];
        let ours = BTreeMap::from(ours.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert_eq!(labels(&marks), ours);
        marks.shards = 3;
        let mut shards = ours;
        shards.insert(SHARDS.to_owned(), "3".to_owned());
        assert_eq!(labels(&marks), shards);
    }

    #[test]
    fn the_name_of_a_lease_that_is_too_long_for_a_label_is_left_out() {
        let marks = Marks {
            lease: "x".repeat(64),
            ..Marks::default()
        };
        assert_eq!(labels(&marks).into_keys().collect::<Vec<_>>(), [MANAGED_BY]);
    }
}
