//! Parts of an application that the controller does not support. It leaves such an application as it is.

use std::collections::BTreeSet;
use std::fmt::{self, Display};

use kube::ResourceExt;
use serde_json::Value;

use super::application::ParsedComponent;
use super::definitions::Workload;
use super::steps::REF_OBJECTS;
use crate::api::oam::{Application, ApplicationSpec, ComponentDefinition, Definition};
use crate::controllers::oam::policies::{DEBUG, ENV_BINDING, OVERRIDE, REPLICATION, TOPOLOGY};
use crate::controllers::oam::trackers::{Inventory, LOCAL};

/// Types of policies that are not supported.
const POLICIES: [&str; 5] = [TOPOLOGY, OVERRIDE, REPLICATION, ENV_BINDING, DEBUG];

/// Annotations of Applications that are applied with the rights of another user.
const IDENTITIES: [&str; 3] = [
    "app.oam.dev/service-account-name",
    "app.oam.dev/username",
    "app.oam.dev/group",
];

/// A part of an application that is not supported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unsupported {
    WorkflowSteps,
    WorkflowReference(String),
    WorkflowMode(String),
    Policy {
        name: String,
        type_: String,
    },
    /// A cluster other than the controller's own.
    Cluster {
        cluster: String,
        place: String,
    },
    Component {
        name: String,
        feature: String,
    },
    /// An annotation by which the Application is applied with other rights.
    Annotation(String),
    /// A setting of the process.
    FeatureGate(String),
}

impl Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WorkflowSteps => f.write_str("a workflow with steps"),
            Self::WorkflowReference(name) => write!(f, "a reference to workflow {name}"),
            Self::WorkflowMode(mode) => write!(f, "the workflow mode {mode}"),
            Self::Policy { name, type_ } => write!(f, "policy {name} of type {type_}"),
            Self::Cluster { cluster, place } => write!(f, "cluster {cluster} in {place}"),
            Self::Component { name, feature } => write!(f, "component {name} with {feature}"),
            Self::Annotation(name) => write!(f, "annotation {name}"),
            Self::FeatureGate(name) => write!(f, "feature gate {name}"),
        }
    }
}

/// Finds what is not supported in an application alone: in its annotations and spec.
#[must_use]
pub fn unsupported_application(application: &Application) -> Vec<Unsupported> {
    let mut found = unsupported_spec(&application.spec);
    let has_value = |name: &&&str| {
        let annotation = application.annotations().get(**name);
        annotation.is_some_and(|value| !value.is_empty())
    };
    let identity = IDENTITIES.iter().find(has_value);
    found.extend(identity.map(|name| Unsupported::Annotation((*name).to_owned())));
    found
}

fn unsupported_spec(spec: &ApplicationSpec) -> Vec<Unsupported> {
    let mut found = Vec::new();
    if let Some(workflow) = &spec.workflow {
        let mode = workflow.mode.as_ref().map_or("", |mode| mode.steps.as_str());
        if !workflow.reference.is_empty() {
            found.push(Unsupported::WorkflowReference(workflow.reference.clone()));
        } else if !workflow.steps.is_empty() {
            found.push(Unsupported::WorkflowSteps);
        } else if mode != "DAG" {
            let mode = if mode.is_empty() { "StepByStep" } else { mode };
            found.push(Unsupported::WorkflowMode(mode.to_owned()));
        }
    }
    for (index, policy) in spec.policies.iter().enumerate() {
        if POLICIES.contains(&policy.type_.as_str()) {
            let name = match policy.name.is_empty() {
                true => format!("{}-auto-gen-{index}", policy.type_),
                false => policy.name.clone(),
            };
            let clusters = remote_clusters(policy.properties.as_ref());
            found.extend(clusters.into_iter().map(|cluster| Unsupported::Cluster {
                cluster,
                place: format!("policy {name}"),
            }));
            found.push(Unsupported::Policy {
                name,
                type_: policy.type_.clone(),
            });
        }
    }
    let refers = spec
        .components
        .iter()
        .filter(|component| component.type_ == REF_OBJECTS);
    found.extend(refers.map(|component| Unsupported::Component {
        name: component.name.clone(),
        feature: "references to existing objects".to_owned(),
    }));
    found
}

/// Returns the other clusters that a topology or an env-binding names.
fn remote_clusters(properties: Option<&Value>) -> BTreeSet<String> {
    let properties = properties.unwrap_or(&Value::Null);
    let topology = properties["clusters"].as_array().into_iter().flatten();
    let environments = properties["envs"].as_array().into_iter().flatten();
    let environments = environments.map(|env| &env["placement"]["clusterSelector"]["name"]);
    let names = topology.chain(environments).filter_map(Value::as_str);
    names.filter(|name| !is_local(name)).map(str::to_owned).collect()
}

fn is_local(cluster: &str) -> bool {
    cluster.is_empty() || cluster == LOCAL
}

/// Finds components whose definitions are not supported.
#[must_use]
pub fn unsupported_definitions(components: &[ParsedComponent]) -> Vec<Unsupported> {
    let mut found = Vec::new();
    for component in components {
        let traits = component.traits.iter().map(|trait_| trait_.definition.template());
        let mut templates = traits.chain([component.definition.template()]).flatten();
        let feature = match &component.definition {
            Workload::Component(definition) if is_terraform(definition) => Some("a Terraform definition"),
            definition if definition.template().is_none() => Some("a definition without a CUE template"),
            _ if templates.any(imports_vela) => Some("an import of vela packages"),
            _ => None,
        };
        found.extend(feature.map(|feature| Unsupported::Component {
            name: component.component.name.clone(),
            feature: feature.to_owned(),
        }));
    }
    found
}

fn is_terraform(definition: &ComponentDefinition) -> bool {
    let annotations = definition.metadata.annotations.as_ref();
    let type_ = annotations.and_then(|annotations| annotations.get("type"));
    let schematic = definition.spec.schematic.as_ref();
    schematic.is_some_and(|schematic| schematic.terraform.is_some()) || type_.is_some_and(|type_| type_ == "terraform")
}

/// Returns true if a template imports a package of KubeVela. Imports stand at its head.
fn imports_vela(template: &str) -> bool {
    let mut is_in_list = false;
    for line in template.lines().map(str::trim) {
        let import = line.strip_prefix("import").map(str::trim_start);
        let paths = match import {
            Some(list) if list.starts_with('(') => {
                is_in_list = !list.contains(')');
                list
            }
            Some(path) => path,
            None if is_in_list => {
                is_in_list = !line.starts_with(')');
                line
            }
            None if line.is_empty() || line.starts_with("//") || line.starts_with("package ") => continue,
            None => return false,
        };
        if paths.contains("\"vela/") {
            return true;
        }
    }
    false
}

/// Finds clusters with tracked objects that the controller does not serve.
#[must_use]
pub fn unsupported_trackers(inventory: &Inventory) -> Vec<Unsupported> {
    let mut found = BTreeSet::new();
    for tracker in inventory.in_order().chain(&inventory.component_revision) {
        let clusters = tracker.entries.iter().map(|entry| entry.cluster.as_str());
        found.extend(
            clusters
                .filter(|cluster| !is_local(cluster))
                .map(|cluster| Unsupported::Cluster {
                    cluster: cluster.to_owned(),
                    place: format!("resourcetracker {}", tracker.name()),
                }),
        );
    }
    found.into_iter().collect()
}
