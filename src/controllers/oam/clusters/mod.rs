//! The clusters that are joined to the controller's own: who they are, and connections to them.

mod ask;
mod circuit;
pub mod connection;
pub mod credential;
mod error;
mod gateway;
mod guard;
mod identities;
mod link;
pub mod managed;
mod monitor;
mod registry;
mod shared;
mod upgrade;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};

pub use self::connection::Connection;
pub use self::error::ClusterError;
pub use self::identities::IdentityKinds;
use self::managed::managed_clusters;
pub use self::registry::{ClusterCounts, ClusterSettings, JoinedClusters};
use crate::runtime::kube_client::{ApiError, call};

/// Label of the Secrets of clusters, which are in the namespace of the definitions.
pub const CREDENTIAL_TYPE: &str = "cluster.core.oam.dev/cluster-credential-type";
/// Annotation with another name, for people.
pub const ALIAS: &str = "cluster.core.oam.dev/cluster-alias";
/// Label of clusters, `true` for the controller's own, which has no other label.
pub const CONTROL_PLANE: &str = "cluster.core.oam.dev/control-plane";
const MAX_CLUSTERS: u32 = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedCluster {
    pub name: String,
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSelector(pub BTreeMap<String, String>);

impl ClusterSelector {
    #[must_use]
    pub fn selects_local(&self) -> bool {
        self.0
            .iter()
            .all(|(label, value)| label == CONTROL_PLANE && value == "true")
    }

    #[must_use]
    pub fn may_select_joined(&self) -> bool {
        self.0.get(CONTROL_PLANE).is_none_or(|value| value == "false")
    }

    #[must_use]
    pub fn selects(&self, cluster: &JoinedCluster) -> bool {
        let mut labels = self.0.iter().filter(|(label, _)| *label != CONTROL_PLANE);
        self.may_select_joined() && labels.all(|(label, value)| cluster.labels.get(label) == Some(value))
    }
}

/// Returns the clusters with a Secret, and the ManagedClusters without one. Reads no data of Secrets.
pub async fn joined_clusters(client: &Client, namespace: &str) -> Result<Vec<JoinedCluster>, ApiError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let parameters = ListParams::default().labels(CREDENTIAL_TYPE).limit(MAX_CLUSTERS);
    let listed = call(api.list_metadata(&parameters)).await?;
    if listed.metadata.continue_.is_some_and(|next| !next.is_empty()) {
        return Err(ApiError::bad_request(too_many(namespace)));
    }
    let joined = |meta: ObjectMeta| JoinedCluster {
        name: meta.name.unwrap_or_default(),
        labels: meta.labels.unwrap_or_default(),
    };
    let mut clusters: Vec<_> = listed.items.into_iter().map(|secret| joined(secret.metadata)).collect();
    let names: BTreeSet<String> = clusters.iter().map(|cluster| cluster.name.clone()).collect();
    let managed = managed_clusters(client).await?.into_iter();
    let managed = managed.filter(|cluster| !names.contains(&cluster.name_any()));
    clusters.extend(managed.map(|mut cluster| joined(std::mem::take(cluster.meta_mut()))));
    Ok(clusters)
}

fn too_many(namespace: &str) -> String {
    format!("more than {MAX_CLUSTERS} clusters are joined by Secrets in namespace {namespace} and by ManagedClusters")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
        let labels = labels.iter();
        labels
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    /// Returns true for the local and for the joined cluster if they match.
    fn selected(selector: &[(&str, &str)]) -> (bool, bool) {
        let selector = ClusterSelector(labels(selector));
        let joined = JoinedCluster {
            name: "prod".to_owned(),
            labels: labels(&[("region", "eu"), (CREDENTIAL_TYPE, "X509Certificate")]),
        };
        (selector.selects_local(), selector.selects(&joined))
    }

    #[test]
    fn a_selector_matches_the_local_cluster_joined_ones_or_all() {
        assert_eq!(selected(&[]), (true, true));
        assert_eq!(selected(&[(CONTROL_PLANE, "true")]), (true, false));
        assert_eq!(selected(&[(CONTROL_PLANE, "false")]), (false, true));
        assert_eq!(selected(&[("region", "eu")]), (false, true));
        assert_eq!(selected(&[("region", "us")]), (false, false));
        assert_eq!(selected(&[("region", "eu"), (CONTROL_PLANE, "true")]), (false, false));
        assert_eq!(selected(&[("region", "eu"), (CONTROL_PLANE, "false")]), (false, true));
    }
}
