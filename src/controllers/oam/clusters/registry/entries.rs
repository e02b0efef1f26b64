//! The joined clusters by name, with the monitors of those in use.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::task::AbortHandle;

use crate::controllers::oam::clusters::JoinedCluster;
use crate::controllers::oam::clusters::link::Link;
use crate::controllers::oam::clusters::managed::ClusterSource;

#[derive(Default)]
pub(super) struct Clusters {
    pub(super) entries: BTreeMap<String, Entry>,
    /// Of all entries; none after a change.
    list: Option<Arc<[JoinedCluster]>>,
}

/// A cluster has a Secret, a ManagedCluster, or both. The Secret wins.
#[derive(Default)]
pub(super) struct Entry {
    secret: Option<Arc<ObjectMeta>>,
    managed: Option<Arc<ObjectMeta>>,
    /// Starts with the first use of the cluster.
    pub(super) monitor: Option<MonitorHandle>,
}

/// Ends the monitor when it is dropped.
pub(super) struct MonitorHandle {
    pub(super) link: Arc<Link>,
    /// Ends before only by a panic.
    pub(super) task: AbortHandle,
}

impl Drop for MonitorHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Entry {
    pub(super) fn source(&self) -> ClusterSource {
        match self.secret {
            Some(_) => ClusterSource::Secret,
            None => ClusterSource::ManagedCluster,
        }
    }

    fn labels(&self) -> Option<&BTreeMap<String, String>> {
        self.secret.as_ref().or(self.managed.as_ref())?.labels.as_ref()
    }

    fn meta_mut(&mut self, source: ClusterSource) -> &mut Option<Arc<ObjectMeta>> {
        match source {
            ClusterSource::Secret => &mut self.secret,
            ClusterSource::ManagedCluster => &mut self.managed,
        }
    }
}

impl Clusters {
    /// Returns true if the cluster is new, or has another source or other labels.
    pub(super) fn join(&mut self, source: ClusterSource, name: &str, meta: Arc<ObjectMeta>) -> bool {
        self.list = None;
        let Some(entry) = self.entries.get_mut(name) else {
            let mut entry = Entry::default();
            *entry.meta_mut(source) = Some(meta);
            self.entries.insert(name.to_owned(), entry);
            return true;
        };
        let (before, labels) = (entry.source(), entry.labels().cloned());
        *entry.meta_mut(source) = Some(meta);
        if before != entry.source() {
            entry.monitor = None;
            return true;
        }
        if let (ClusterSource::Secret, Some(monitor)) = (source, &entry.monitor) {
            monitor.link.notify_secret_changed();
        }
        entry.labels() != labels.as_ref()
    }

    /// Returns true if the cluster is not joined any more, or by another source.
    pub(super) fn remove(&mut self, source: ClusterSource, name: &str) -> bool {
        let Some(entry) = self.entries.get_mut(name) else {
            return false;
        };
        let before = entry.source();
        *entry.meta_mut(source) = None;
        if entry.secret.is_none() && entry.managed.is_none() {
            self.entries.remove(name);
        } else if entry.source() == before {
            return false;
        } else {
            entry.monitor = None;
        }
        self.list = None;
        true
    }

    /// Returns the clusters that were joined by a ManagedCluster only.
    pub(super) fn remove_managed(&mut self) -> Vec<String> {
        let mut names: Vec<String> = self.entries.keys().cloned().collect();
        names.retain(|name| self.remove(ClusterSource::ManagedCluster, name));
        names
    }

    pub(super) fn list(&mut self) -> Arc<[JoinedCluster]> {
        let joined = self.entries.iter().map(|(name, entry)| JoinedCluster {
            name: name.clone(),
            labels: entry.labels().cloned().unwrap_or_default(),
        });
        Arc::clone(self.list.get_or_insert_with(|| joined.collect()))
    }
}
