//! Clusters that an application as parsed names, with its generated or referenced workflow and external policies.

use std::collections::BTreeSet;

use serde_json::Value;

use super::application::Parsed;
use super::placed::DEPLOY;
use super::steps::{APPLY_COMPONENT, BUILTIN_APPLY_COMPONENT};
use super::unsupported::Unsupported;
use crate::api::oam::AppPolicy;
use crate::controllers::oam::placement::named_clusters;
use crate::controllers::oam::policies::TOPOLOGY;
use crate::controllers::oam::references::REF_OBJECTS;
use crate::controllers::oam::trackers::is_local;

/// Types of steps whose property `cluster` is that of their objects. Steps of other types may mean anything by it; functions
/// refuse other clusters themselves.
const OF_CLUSTER: [&str; 7] = [
    APPLY_COMPONENT,
    BUILTIN_APPLY_COMPONENT,
    "apply-deployment",
    "apply-object",
    "export2config",
    "export2secret",
    "read-object",
];

/// Finds clusters that policies, steps and references name and the controller does not serve.
#[must_use]
pub fn unsupported_clusters(parsed: &Parsed) -> Vec<Unsupported> {
    let mut found = BTreeSet::new();
    let mut add = |clusters: Vec<&str>, place: String| {
        let clusters = clusters.into_iter().map(|cluster| Unsupported::Cluster {
            cluster: cluster.to_owned(),
            place: place.clone(),
        });
        found.extend(clusters);
    };
    for policy in parsed.all_policies.iter().filter(|policy| policy.type_ == TOPOLOGY) {
        add(
            of_topology(policy.properties.as_ref()),
            format!("policy {}", policy.name),
        );
    }
    let steps = parsed.workflow.steps.iter();
    for step in steps.flat_map(|step| std::iter::once(step).chain(&step.sub_steps)) {
        let place = format!("step {}", step.name);
        let properties = step.properties.as_ref().unwrap_or(&Value::Null);
        // A type may have a version.
        let type_ = step.type_.split('@').next().unwrap_or_default();
        if OF_CLUSTER.contains(&type_) {
            add(named(properties), place.clone());
        }
        let policies = properties["inlinePolicies"].as_array().filter(|_| type_ == DEPLOY);
        for policy in policies.into_iter().flatten() {
            let policy = serde_json::from_value::<AppPolicy>(policy.clone()).unwrap_or_default();
            if policy.type_ == TOPOLOGY {
                add(of_topology(policy.properties.as_ref()), place.clone());
            }
        }
    }
    for component in parsed.spec.components.iter().filter(|one| one.type_ == REF_OBJECTS) {
        let objects = component.properties.as_ref().map(|properties| &properties["objects"]);
        let objects = objects.and_then(Value::as_array).into_iter().flatten();
        add(
            objects.flat_map(named).collect(),
            format!("component {}", component.name),
        );
    }
    found.into_iter().collect()
}

fn of_topology(properties: Option<&Value>) -> Vec<&str> {
    properties.map(named_clusters).unwrap_or_default()
}

/// Returns the cluster that properties name, unless it is the controller's own.
fn named(properties: &Value) -> Vec<&str> {
    let cluster = properties["cluster"].as_str().filter(|cluster| !is_local(cluster));
    cluster.into_iter().collect()
}
