//! Clusters that an Application selects by their labels. Only the controller's own is served.

use super::conditions::{self, Failure, phase};
use super::pass::Pass;
use crate::api::oam::AppPolicy;
use crate::controllers::oam::clusters::{JoinedCluster, joined_clusters};
use crate::controllers::oam::parse::{Parsed, cluster_selections, may_select_joined, remote_clusters};
use crate::controllers::oam::policies::TOPOLOGY;

impl Pass<'_> {
    /// Returns the joined clusters, if a policy or step may select them.
    pub(super) async fn selectable_clusters(&self, parsed: &Parsed) -> Result<Vec<JoinedCluster>, Failure> {
        let Some(place) = cluster_selections(parsed).into_iter().next() else {
            return Ok(Vec::new());
        };
        self.joined_clusters().await.map_err(|error| {
            let failure = Failure::new(conditions::PARSED, "FailedParse", format!("{place}: {error}"));
            failure.in_phase(phase::RENDERING)
        })
    }

    /// Returns an error if policies that a step computes select a joined cluster.
    pub(super) async fn check_selected(&self, policies: &[AppPolicy]) -> Result<(), String> {
        let topologies = policies.iter().filter(|policy| policy.type_ == TOPOLOGY);
        let topologies = topologies.filter_map(|policy| policy.properties.as_ref());
        let selecting: Vec<_> = topologies.filter(|topology| may_select_joined(topology)).collect();
        if selecting.is_empty() {
            return Ok(());
        }
        let joined = self.joined_clusters().await?;
        let mut selected = selecting
            .into_iter()
            .flat_map(|topology| remote_clusters(topology, &joined));
        match selected.next() {
            Some(cluster) => Err(format!("cluster {cluster} is not supported by this controller")),
            None => Ok(()),
        }
    }

    pub(super) async fn joined_clusters(&self) -> Result<Vec<JoinedCluster>, String> {
        let namespace = &self.reconciler.options.definition_namespace;
        let joined = joined_clusters(&self.reconciler.client, namespace).await;
        joined.map_err(|error| format!("failed to look for joined clusters in namespace {namespace}: {error}"))
    }
}
