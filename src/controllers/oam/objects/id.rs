use serde_json::Value;

use super::ObjectError;
use crate::api::oam::ManagedResource;
use crate::controllers::oam::dispatch::decide::ObjectIdentity;
use crate::controllers::oam::trackers::{Inventory, LOCAL, ResourceKey, cluster_name};
use crate::runtime::watch::GroupKind;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The name of a joined cluster, or [`LOCAL`].
    pub cluster: String,
    pub api_version: String,
    pub kind: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    pub name: String,
}

impl ObjectId {
    /// Returns the ID of an object in the controller's own cluster.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        let ObjectIdentity {
            api_version,
            kind,
            namespace,
            name,
        } = ObjectIdentity::of(object);
        Self {
            cluster: LOCAL.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    #[must_use]
    pub fn of_entry(entry: &ManagedResource) -> Self {
        Self {
            cluster: cluster_name(&entry.cluster).to_owned(),
            api_version: entry.api_version.clone(),
            kind: entry.kind.clone(),
            namespace: entry.namespace.clone(),
            name: entry.name.clone(),
        }
    }

    /// Returns the ID of the object in another cluster. An empty name means the controller's own.
    #[must_use]
    pub fn in_cluster(mut self, cluster: &str) -> Self {
        let cluster = cluster_name(cluster);
        if self.cluster != cluster {
            cluster.clone_into(&mut self.cluster);
        }
        self
    }

    #[must_use]
    pub fn is_local(&self) -> bool {
        self.cluster == LOCAL
    }

    /// Compares the version too. Clones nothing, since trackers hold thousands of entries.
    #[must_use]
    pub fn is_of(&self, entry: &ManagedResource) -> bool {
        self.name == entry.name
            && self.namespace == entry.namespace
            && self.kind == entry.kind
            && self.api_version == entry.api_version
            && self.cluster == cluster_name(&entry.cluster)
    }

    #[must_use]
    pub fn group_kind(&self) -> GroupKind {
        let group = self.api_version.split_once('/').map_or("", |(group, _)| group);
        GroupKind::new(group, self.kind.as_str())
    }

    #[must_use]
    pub fn key(&self) -> ResourceKey {
        ResourceKey {
            group: self.group_kind().group.to_string(),
            kind: self.kind.clone(),
            cluster: self.cluster.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }

    /// Returns the manifests that trackers record for the object, the oldest first. Some may never have been applied.
    #[must_use]
    pub fn recorded_in(&self, inventory: &Inventory) -> Vec<Value> {
        let is_same = |entry: &&ManagedResource| self.is_of(entry);
        let trackers = inventory.in_order();
        let entries = trackers.filter_map(|tracker| tracker.entries.iter().find(is_same));
        entries.filter_map(|entry| entry.raw.as_ref()?.parse().ok()).collect()
    }

    pub(super) fn not_installed(&self) -> ObjectError {
        ObjectError::NotInstalled {
            kind: self.kind.clone(),
            version: self.api_version.clone(),
        }
    }
}

impl std::fmt::Display for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            api_version,
            kind,
            namespace,
            name,
            cluster,
        } = self;
        write!(f, "{api_version} {kind} {namespace}/{name}")?;
        if self.is_local() {
            Ok(())
        } else {
            write!(f, " in cluster {cluster}")
        }
    }
}
