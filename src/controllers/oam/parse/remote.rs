//! Clusters that an application as parsed names, with its generated or referenced workflow and external policies.

use std::collections::BTreeSet;

use serde_json::Value;

use super::application::Parsed;
use super::unsupported::Unsupported;
use crate::api::oam::{AppPolicy, WorkflowStep};
use crate::controllers::oam::clusters::JoinedCluster;
use crate::controllers::oam::placement::{cluster_selector, named_clusters};
use crate::controllers::oam::policies::TOPOLOGY;
use crate::controllers::oam::references::REF_OBJECTS;
use crate::controllers::oam::trackers::is_local;
use crate::controllers::oam::workflow::{APPLY_COMPONENT, BUILTIN_APPLY_COMPONENT, DEPLOY};

/// Types whose property `cluster` names the cluster of their objects. In other steps, functions refuse other clusters.
const OF_CLUSTER: [&str; 7] = [
    APPLY_COMPONENT,
    BUILTIN_APPLY_COMPONENT,
    "apply-deployment",
    "apply-object",
    "export2config",
    "export2secret",
    "read-object",
];

#[must_use]
pub fn unsupported_clusters(parsed: &Parsed, joined: &[JoinedCluster]) -> Vec<Unsupported> {
    let mut unsupported = BTreeSet::new();
    let mut add = |cluster: &str, place: &str| {
        unsupported.insert(Unsupported::Cluster {
            cluster: cluster.to_owned(),
            place: place.to_owned(),
        });
    };
    for (topology, place) in topologies(parsed) {
        for cluster in remote_clusters(&topology, joined) {
            add(cluster, &place);
        }
    }
    for step in parsed.all_steps().filter(|step| OF_CLUSTER.contains(&type_of(step))) {
        let properties = step.properties.as_ref().unwrap_or(&Value::Null);
        if let Some(cluster) = remote_cluster(properties) {
            add(cluster, &format!("step {}", step.name));
        }
    }
    for component in parsed.spec.components.iter().filter(|one| one.type_ == REF_OBJECTS) {
        let objects = component.properties.as_ref().map(|properties| &properties["objects"]);
        let objects = objects.and_then(Value::as_array).into_iter().flatten();
        for cluster in objects.filter_map(remote_cluster) {
            add(cluster, &format!("component {}", component.name));
        }
    }
    unsupported.into_iter().collect()
}

/// Returns the policies and steps that select clusters by labels which a joined cluster may have.
#[must_use]
pub fn cluster_selections(parsed: &Parsed) -> Vec<String> {
    let selecting = topologies(parsed)
        .into_iter()
        .filter(|(topology, _)| may_select_joined(topology));
    selecting.map(|(_, place)| place).collect()
}

/// Returns true if a topology selects clusters by labels which a joined cluster may have.
#[must_use]
pub fn may_select_joined(topology: &Value) -> bool {
    cluster_selector(topology).is_some_and(|selector| selector.may_select_joined())
}

#[must_use]
pub fn remote_clusters<'a>(topology: &'a Value, joined: &'a [JoinedCluster]) -> Vec<&'a str> {
    match cluster_selector(topology) {
        Some(selector) => {
            let selected = joined.iter().filter(|cluster| selector.selects(cluster));
            selected.map(|cluster| cluster.name.as_str()).collect()
        }
        None => named_clusters(topology),
    }
}

/// Returns the properties of all topologies, with the policy or step that has them.
fn topologies(parsed: &Parsed) -> Vec<(Value, String)> {
    let is_topology = |policy: &&AppPolicy| policy.type_ == TOPOLOGY;
    let policies = parsed.all_policies.iter().filter(is_topology);
    let policies = policies.map(|policy| (policy.properties.clone(), format!("policy {}", policy.name)));
    let mut topologies: Vec<_> = policies.collect();
    for step in parsed.all_steps().filter(|step| type_of(step) == DEPLOY) {
        let inline = step.properties.as_ref().map(|properties| &properties["inlinePolicies"]);
        for policy in inline.and_then(Value::as_array).into_iter().flatten() {
            let policy = serde_json::from_value::<AppPolicy>(policy.clone()).unwrap_or_default();
            if is_topology(&&policy) {
                topologies.push((policy.properties, format!("step {}", step.name)));
            }
        }
    }
    let with_properties = topologies
        .into_iter()
        .filter_map(|(properties, place)| Some((properties?, place)));
    with_properties.collect()
}

/// Returns the type of a step without its version.
fn type_of(step: &WorkflowStep) -> &str {
    step.type_.split('@').next().unwrap_or_default()
}

/// Returns the cluster that properties name, unless it is the controller's own.
fn remote_cluster(properties: &Value) -> Option<&str> {
    properties["cluster"].as_str().filter(|cluster| !is_local(cluster))
}
