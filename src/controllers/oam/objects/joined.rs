//! The objects in joined clusters: watches for each connection, made when an Application needs them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::{ClusterKinds, ClusterObjects};
use crate::api::NamespacedName;
use crate::budget::Budget;
use crate::controllers::oam::clusters::{ClusterError, Connection, JoinedClusters};
use crate::runtime::watch::GroupKind;

pub struct JoinedSettings {
    pub clusters: JoinedClusters,
    pub resync: Duration,
    pub relist: Option<Duration>,
    /// Memory for the objects of all joined clusters, each with a share of it.
    pub budget: Budget,
    /// Gets the Application of a changed object; it must not block.
    pub changed: Arc<dyn Fn(NamespacedName) + Send + Sync>,
}

pub(super) struct JoinedObjects {
    pub(super) settings: JoinedSettings,
    /// Held while watches change. `state` is not: watches report changes, which need it.
    changing: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    clusters: HashMap<String, Watched>,
    /// The kinds of Applications with objects in joined clusters, or that wait for one.
    subscriptions: BTreeMap<NamespacedName, ClusterKinds>,
}

/// The objects of a connection. Its watches end with it.
struct Watched {
    connection: u64,
    objects: ClusterObjects,
    watches: AbortHandle,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watches.abort();
    }
}

impl JoinedObjects {
    pub(super) fn new(settings: JoinedSettings) -> Arc<Self> {
        let joined = Arc::new(Self {
            settings,
            changing: Mutex::default(),
            state: Mutex::default(),
        });
        let weak = Arc::downgrade(&joined);
        joined.settings.clusters.on_change(move |cluster| {
            if let Some(joined) = weak.upgrade() {
                joined.cluster_changed(cluster);
            }
        });
        joined
    }

    /// Returns the objects of a cluster with the rights of its credential, and its connection.
    pub(super) fn objects(self: &Arc<Self>, cluster: &str) -> Result<(ClusterObjects, Arc<Connection>), ClusterError> {
        let connection = self.settings.clusters.connection(cluster)?;
        if let Some(objects) = self.known(cluster, Some(connection.number)) {
            return Ok((objects, connection));
        }
        let _changing = self.changing.lock();
        // Another credential may have replaced it during the wait for the lock, or its Secret is gone.
        let connection = self.settings.clusters.connection(cluster)?;
        if let Some(objects) = self.known(cluster, Some(connection.number)) {
            return Ok((objects, connection));
        }
        let objects = self.watch(cluster, &connection);
        for application in self.applications_of(cluster) {
            let kinds = self.kinds_of(&application, cluster).unwrap_or_default();
            objects.subscribe(&application, kinds);
        }
        let watched = Watched {
            connection: connection.number,
            objects: objects.clone(),
            watches: tokio::spawn(objects.clone().run()).abort_handle(),
        };
        let former = self.state.lock().clusters.insert(cluster.to_owned(), watched);
        drop(former);
        Ok((objects, connection))
    }

    /// Returns the objects of a cluster that are watched already, by this connection or by any.
    fn known(&self, cluster: &str, connection: Option<u64>) -> Option<ClusterObjects> {
        let state = self.state.lock();
        // The watches end only by a panic.
        let watched = state
            .clusters
            .get(cluster)
            .filter(|watched| !watched.watches.is_finished())?;
        let is_current = connection.is_none_or(|number| number == watched.connection);
        is_current.then(|| watched.objects.clone())
    }

    fn watch(self: &Arc<Self>, cluster: &str, connection: &Connection) -> ClusterObjects {
        let JoinedSettings {
            resync, relist, budget, ..
        } = &self.settings;
        let cache = ClusterObjects::cache(budget.clone(), Some(cluster.into()));
        let (joined, name) = (Arc::downgrade(self), cluster.to_owned());
        let changed = move |application| object_changed(&joined, &name, application);
        ClusterObjects::with_cache(connection.client.clone(), cluster, *resync, *relist, cache, changed)
    }

    pub(super) fn all(&self) -> Vec<ClusterObjects> {
        let state = self.state.lock();
        state.clusters.values().map(|watched| watched.objects.clone()).collect()
    }

    /// Watches these kinds for an Application, and no others.
    pub(super) fn subscribe(&self, application: &NamespacedName, kinds: ClusterKinds) {
        // Most Applications have no objects in joined clusters.
        if kinds.is_empty() && !self.state.lock().subscriptions.contains_key(application) {
            return;
        }
        for cluster in kinds.keys() {
            // Starts to connect.
            drop(self.settings.clusters.connection(cluster));
        }
        let _changing = self.changing.lock();
        let former = {
            let subscriptions = &mut self.state.lock().subscriptions;
            if kinds.is_empty() {
                subscriptions.remove(application)
            } else {
                subscriptions.insert(application.clone(), kinds.clone())
            }
        };
        let former = former.unwrap_or_default();
        let clusters: BTreeSet<&String> = former.keys().chain(kinds.keys()).collect();
        for cluster in clusters {
            let Some(objects) = self.known(cluster, None) else {
                continue;
            };
            match kinds.get(cluster) {
                Some(kinds) => objects.subscribe(application, kinds.clone()),
                None => objects.unsubscribe(application),
            }
        }
    }

    /// Reports the Application when the cluster changes, until its next subscription.
    pub(super) fn expect(&self, application: &NamespacedName, cluster: &str) {
        let mut state = self.state.lock();
        let clusters = state.subscriptions.entry(application.clone()).or_default();
        clusters.entry(cluster.to_owned()).or_default();
    }

    fn kinds_of(&self, application: &NamespacedName, cluster: &str) -> Option<BTreeSet<GroupKind>> {
        let state = self.state.lock();
        state.subscriptions.get(application)?.get(cluster).cloned()
    }

    fn cluster_changed(self: &Arc<Self>, cluster: &str) {
        let applications = self.applications_of(cluster);
        if applications.is_empty() && self.known(cluster, None).is_none() {
            // No Application needs a connection.
            return;
        }
        if self.objects(cluster).is_err() {
            self.end_unless_connected(cluster);
        }
        applications.into_iter().for_each(|name| (self.settings.changed)(name));
    }

    /// Ends watches that use a former credential.
    fn end_unless_connected(&self, cluster: &str) {
        let _changing = self.changing.lock();
        let ended = match self.settings.clusters.connection(cluster) {
            // Its watches go on as soon as it can be reached.
            Ok(_) | Err(ClusterError::Unreachable { .. }) => None,
            Err(_) => self.state.lock().clusters.remove(cluster),
        };
        drop(ended);
    }

    /// Returns the Applications with objects in a cluster, or that wait for it.
    fn applications_of(&self, cluster: &str) -> Vec<NamespacedName> {
        let state = self.state.lock();
        let subscribed = state.subscriptions.iter();
        let subscribed = subscribed.filter(|(_, clusters)| clusters.contains_key(cluster));
        subscribed.map(|(application, _)| application.clone()).collect()
    }
}

/// Reports an Application with objects in the cluster. A cluster could name any other to make work.
fn object_changed(joined: &Weak<JoinedObjects>, cluster: &str, application: NamespacedName) {
    if let Some(joined) = joined.upgrade()
        && joined.kinds_of(&application, cluster).is_some()
    {
        (joined.settings.changed)(application);
    }
}
