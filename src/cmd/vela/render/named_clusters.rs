//! The joined clusters of an Application, as far as it names them: without a cluster, no others are known.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::api::oam::AppPolicy;
use crate::controllers::oam::clusters::JoinedCluster;
use crate::controllers::oam::parse::Parsed;
use crate::controllers::oam::policies::TOPOLOGY;
use crate::controllers::oam::trackers::is_local;

pub struct NamedClusters {
    /// Sorted by name. They have no labels.
    pub clusters: Vec<JoinedCluster>,
    /// The policies and steps that select clusters by labels.
    selections: BTreeSet<String>,
}

impl NamedClusters {
    pub fn of(parsed: &Parsed) -> Self {
        let mut names = BTreeSet::new();
        let mut selections = BTreeSet::new();
        for (properties, place) in topologies(parsed) {
            let clusters = properties["clusters"].as_array().into_iter().flatten();
            names.extend(clusters.filter_map(Value::as_str).map(str::to_owned));
            if properties["clusters"].is_null() && properties["clusterLabelSelector"].is_object() {
                selections.insert(place);
            }
        }
        let joined = names.into_iter().filter(|name| !is_local(name));
        let clusters = joined.map(|name| JoinedCluster {
            name,
            labels: BTreeMap::new(),
        });
        Self {
            clusters: clusters.collect(),
            selections,
        }
    }

    /// Returns a line for each selection that the cluster decides about.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let selections = self.selections.iter();
        selections.map(|place| format!("{place}: labels of joined clusters are not looked up"))
    }
}

/// Returns the properties of topologies, with the policy or step that has them.
fn topologies(parsed: &Parsed) -> Vec<(Value, String)> {
    let policies = parsed.all_policies.iter();
    let policies = policies.map(|policy| (policy.clone(), format!("policy {}", policy.name)));
    let inline = parsed.all_steps().flat_map(|step| {
        let policies = step.properties.as_ref().map(|properties| &properties["inlinePolicies"]);
        let policies = policies.and_then(Value::as_array).into_iter().flatten();
        let decoded = policies.filter_map(|policy| serde_json::from_value::<AppPolicy>(policy.clone()).ok());
        decoded.map(move |policy| (policy, format!("step {}", step.name)))
    });
    let topologies = policies.chain(inline).filter(|(policy, _)| policy.type_ == TOPOLOGY);
    let with_properties = topologies.filter_map(|(policy, place)| Some((policy.properties?, place)));
    with_properties.collect()
}
