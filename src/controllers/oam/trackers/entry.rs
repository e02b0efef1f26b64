use std::fmt::Write as _;

use crate::api::oam::ManagedResource;

pub const LOCAL: &str = "local";

/// Returns true for the controller's own cluster, which may also be named by an empty text.
#[must_use]
pub fn is_local(cluster: &str) -> bool {
    matches!(cluster, "" | LOCAL)
}

/// Returns the name of a cluster, which is [`LOCAL`] if the text is empty.
#[must_use]
pub fn cluster_name(cluster: &str) -> &str {
    if cluster.is_empty() { LOCAL } else { cluster }
}

/// Key of an entry within a tracker. The creator is no part of it: KubeVela records none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntryKey<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub cluster: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

impl<'a> EntryKey<'a> {
    #[must_use]
    pub fn of(entry: &'a ManagedResource) -> Self {
        Self {
            api_version: &entry.api_version,
            kind: &entry.kind,
            cluster: &entry.cluster,
            namespace: &entry.namespace,
            name: &entry.name,
        }
    }
}

/// Key of an object, in any version of its group. Trackers with the same key record the same object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey {
    /// Empty for the core group.
    pub group: String,
    pub kind: String,
    pub cluster: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    pub name: String,
}

impl ResourceKey {
    #[must_use]
    pub fn of(entry: &ManagedResource) -> Self {
        let group = entry.api_version.split_once('/').map_or("", |(group, _)| group);
        Self {
            group: group.to_owned(),
            kind: entry.kind.clone(),
            cluster: cluster_name(&entry.cluster).to_owned(),
            namespace: entry.namespace.clone(),
            name: entry.name.clone(),
        }
    }

    #[must_use]
    pub fn is_local(&self) -> bool {
        self.cluster == LOCAL
    }
}

#[must_use]
pub fn display_name(entry: &ManagedResource) -> String {
    let mut text = format!("{} {}", entry.kind, entry.name);
    let mut places = Vec::new();
    for (place, value) in [("Cluster", &entry.cluster), ("Namespace", &entry.namespace)] {
        if !value.is_empty() {
            places.push(format!("{place}: {value}"));
        }
    }
    if !places.is_empty() {
        // Writing to a string never fails.
        let _ = write!(text, " ({})", places.join(", "));
    }
    text
}
