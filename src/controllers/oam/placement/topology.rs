//! Placements by topology policies: the controller's own cluster, and those that are joined to it.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;
use serde_json::Value;

use super::properties::decode;
use super::{PlacementError, PlacementSettings};
use crate::api::lenient::null_as_default;
use crate::api::oam::AppPolicy;
use crate::controllers::oam::clusters::{ClusterSelector, JoinedCluster};
use crate::controllers::oam::policies::TOPOLOGY;
use crate::controllers::oam::trackers::{LOCAL, is_local};
use crate::text::sanitize;

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

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Placement {
    pub(super) cluster: String,
    pub(super) namespace: String,
}

/// Returns the placements of topology policies in order, each once.
pub(super) fn placements(
    policies: &[Cow<'_, AppPolicy>],
    settings: &PlacementSettings<'_>,
) -> Result<Vec<Placement>, PlacementError> {
    let mut topologies = policies.iter().filter(|policy| policy.type_ == TOPOLOGY).peekable();
    if topologies.peek().is_none() {
        return Ok(vec![Placement {
            cluster: LOCAL.to_owned(),
            namespace: String::new(),
        }]);
    }
    let (mut placements, mut seen) = (Vec::new(), HashSet::new());
    for policy in topologies {
        let topology: Topology = decode(policy, TOPOLOGY)?;
        for cluster in clusters(&topology, settings)? {
            let namespace = topology.namespace.clone();
            let is_outside = !namespace.is_empty() && namespace != settings.namespace;
            if is_outside && !settings.allow_cross_namespace {
                return Err(PlacementError::OtherNamespace);
            }
            let cluster = cluster.to_owned();
            let placement = Placement { cluster, namespace };
            if seen.insert(placement.clone()) {
                placements.push(placement);
            }
        }
    }
    Ok(placements)
}

/// Returns the clusters of a topology: as it names them, or the controller's own and then the others by name.
fn clusters<'c>(topology: &'c Topology, settings: &PlacementSettings<'c>) -> Result<Vec<&'c str>, PlacementError> {
    if let Some(names) = &topology.clusters {
        return named(names, settings);
    }
    let Some(labels) = &topology.cluster_label_selector else {
        return Ok(vec![LOCAL]);
    };
    let selector = ClusterSelector(labels.clone());
    let mut selected: Vec<&str> = selector.selects_local().then_some(LOCAL).into_iter().collect();
    if selector.may_select_joined() {
        let joined = joined(settings)?.iter().filter(|cluster| selector.selects(cluster));
        selected.extend(joined.map(|cluster| cluster.name.as_str()));
    }
    if selected.is_empty() && !topology.allow_empty {
        return Err(PlacementError::NoCluster);
    }
    Ok(selected)
}

/// Returns the clusters of these names. All but the controller's own must be joined.
fn named<'c>(names: &'c [String], settings: &PlacementSettings<'c>) -> Result<Vec<&'c str>, PlacementError> {
    let needs_list = !settings.accepts_any_cluster && names.iter().any(|name| !is_local(name));
    if needs_list {
        let joined: HashSet<&str> = joined(settings)?.iter().map(|cluster| cluster.name.as_str()).collect();
        let is_missing = |name: &&String| !is_local(name) && !joined.contains(name.as_str());
        if let Some(missing) = names.iter().find(is_missing) {
            return Err(PlacementError::NoSuchCluster(sanitize(missing)));
        }
    }
    let names = names
        .iter()
        .map(|name| if is_local(name) { LOCAL } else { name.as_str() });
    Ok(names.collect())
}

fn joined<'c>(settings: &PlacementSettings<'c>) -> Result<&'c [JoinedCluster], PlacementError> {
    let unknown = |reason: &str| PlacementError::ClustersUnknown(reason.to_owned());
    settings.clusters.map_err(unknown)
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
