//! Placements by topology policies. Only the controller's own cluster is served.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::properties::decode;
use super::{PlacementError, PlacementSettings};
use crate::api::lenient::null_as_default;
use crate::api::oam::AppPolicy;
use crate::controllers::oam::clusters::ClusterSelector;
use crate::controllers::oam::policies::TOPOLOGY;
use crate::controllers::oam::trackers::{LOCAL, is_local};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Topology {
    /// An empty list places nothing, unlike an absent list.
    clusters: Option<Vec<String>>,
    cluster_label_selector: Option<BTreeMap<String, String>>,
    #[serde(deserialize_with = "null_as_default")]
    allow_empty: bool,
    #[serde(deserialize_with = "null_as_default")]
    namespace: String,
    /// The former name of `clusterLabelSelector`, which KubeVela ignores unless a feature gate is on.
    #[serde(rename = "clusterSelector")]
    _cluster_selector: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) cluster: String,
    pub(super) namespace: String,
}

/// Returns the placements of topology policies in order, each once.
pub(super) fn placements(
    policies: &[Cow<'_, AppPolicy>],
    settings: &PlacementSettings<'_>,
) -> Result<Vec<Placement>, PlacementError> {
    let mut placements = Vec::new();
    let mut topologies = policies.iter().filter(|policy| policy.type_ == TOPOLOGY).peekable();
    if topologies.peek().is_none() {
        return Ok(vec![Placement {
            cluster: LOCAL.to_owned(),
            namespace: String::new(),
        }]);
    }
    for policy in topologies {
        let topology: Topology = decode(policy, TOPOLOGY)?;
        for cluster in clusters(&topology)? {
            let namespace = topology.namespace.clone();
            let is_outside = !namespace.is_empty() && namespace != settings.namespace;
            if is_outside && !settings.allow_cross_namespace {
                return Err(PlacementError::OtherNamespace);
            }
            let placement = Placement { cluster, namespace };
            if !placements.contains(&placement) {
                placements.push(placement);
            }
        }
    }
    Ok(placements)
}

/// Returns the clusters that a topology selects: none, or the controller's own.
fn clusters(topology: &Topology) -> Result<Vec<String>, PlacementError> {
    let local = || vec![LOCAL.to_owned()];
    if let Some(clusters) = &topology.clusters {
        let remote = clusters.iter().find(|cluster| !is_local(cluster));
        return match remote {
            Some(cluster) => Err(PlacementError::UnknownCluster(cluster.clone())),
            None if clusters.is_empty() => Ok(Vec::new()),
            None => Ok(local()),
        };
    }
    let Some(selector) = &topology.cluster_label_selector else {
        return Ok(local());
    };
    if ClusterSelector(selector.clone()).selects_local() {
        Ok(local())
    } else if topology.allow_empty {
        Ok(Vec::new())
    } else {
        Err(PlacementError::NoCluster)
    }
}

/// Returns the labels by which a topology selects clusters. Invalid properties select none.
#[must_use]
pub fn cluster_selector(properties: &Value) -> Option<ClusterSelector> {
    if !properties["clusters"].is_null() {
        return None;
    }
    let labels = properties["clusterLabelSelector"].as_object()?.iter();
    let labels = labels.map(|(label, value)| Some((label.clone(), value.as_str()?.to_owned())));
    labels.collect::<Option<_>>().map(ClusterSelector)
}

/// Returns the other clusters that a topology names. Invalid properties name none.
#[must_use]
pub fn named_clusters(properties: &Value) -> Vec<&str> {
    let clusters = properties["clusters"].as_array().into_iter().flatten();
    let clusters = clusters.filter_map(Value::as_str);
    clusters.filter(|cluster| !is_local(cluster)).collect()
}
