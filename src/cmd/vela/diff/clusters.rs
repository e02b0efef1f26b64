//! The clusters whose objects are compared.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::budget::Budget;
use crate::cmd::vela::joined::Clusters;
use crate::controllers::oam::objects::{Autoscalers, ClusterObjects};
use crate::controllers::oam::trackers::{LOCAL, cluster_name};

/// The period of watches, of which there are none here.
const NO_RESYNC: Duration = Duration::from_secs(3600);

pub struct ComparedCluster {
    pub objects: ClusterObjects,
    pub client: Client,
    pub autoscalers: Autoscalers,
    /// As templates see it.
    pub version: Value,
    /// Discovers kinds. Dropping the set ends the task.
    _discovery: JoinSet<()>,
}

impl ComparedCluster {
    fn new(name: &str, client: Client, version: Value) -> Self {
        let cache = ClusterObjects::cache(Budget::new("objects", u64::MAX), None);
        let objects = ClusterObjects::with_cache(client.clone(), name, NO_RESYNC, None, cache, |_| {});
        let mut discovery = JoinSet::new();
        discovery.spawn(objects.clone().run());
        Self {
            objects,
            client,
            autoscalers: Autoscalers::default(),
            version,
            _discovery: discovery,
        }
    }
}

/// The clusters by name, each connected when it is first compared.
pub struct ComparedClusters {
    pub reached: Clusters,
    compared: Mutex<BTreeMap<String, Arc<ComparedCluster>>>,
}

impl ComparedClusters {
    pub fn new(reached: Clusters) -> Self {
        Self {
            reached,
            compared: Mutex::default(),
        }
    }

    /// Returns a cluster, or the reason why its objects can't be compared.
    pub async fn of(&self, name: &str) -> Result<Arc<ComparedCluster>, String> {
        let name = cluster_name(name);
        let mut compared = self.compared.lock().await;
        if let Some(cluster) = compared.get(name) {
            return Ok(Arc::clone(cluster));
        }
        let reached = self.reached.reach(name).await.map_err(|problem| match name {
            LOCAL => problem,
            joined => format!("cluster {joined} can't be reached: {problem}"),
        })?;
        let cluster = Arc::new(ComparedCluster::new(name, reached.client, reached.version));
        compared.insert(name.to_owned(), Arc::clone(&cluster));
        Ok(cluster)
    }
}
