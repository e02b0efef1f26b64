mod components;
mod definitions;
mod goldens;
mod overrides;
mod policies;
mod remote;
mod steps;
mod strict;
mod unsupported;

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::api::oam::{
    Application, ApplicationRevisionSpec, ComponentDefinition, DefinitionKind, DefinitionRevision, Policy,
    PolicyDefinition, TraitDefinition, Workflow, WorkflowStepDefinition, WorkloadDefinition,
};

/// Objects as JSON, by kind, namespace and name.
#[derive(Default)]
pub struct Cluster(Vec<Value>);

impl Cluster {
    /// A cluster with a few definitions in the definition namespace.
    pub fn with_definitions() -> Self {
        let mut cluster = Self::default();
        for (kind, names) in [
            ("ComponentDefinition", &["webservice", "worker"][..]),
            ("TraitDefinition", &["scaler", "expose"]),
            ("PolicyDefinition", &["quota"]),
            ("WorkflowStepDefinition", &["deploy", "notify"]),
        ] {
            for name in names {
                cluster.add(kind, "vela-system", name, &template(&format!("// {name}")));
            }
        }
        cluster
    }

    pub fn add(&mut self, kind: &str, namespace: &str, name: &str, fields: &Value) {
        let mut object = json!({ "kind": kind, "metadata": { "namespace": namespace, "name": name } });
        for (field, value) in fields.as_object().unwrap() {
            match field.as_str() {
                "metadata" => object["metadata"]
                    .as_object_mut()
                    .unwrap()
                    .extend(value.as_object().unwrap().clone()),
                _ => object[field] = value.clone(),
            }
        }
        self.0.push(object);
    }

    /// Adds a revision of a definition with this template.
    pub fn add_revision(&mut self, namespace: &str, kind: DefinitionKind, name: &str, revision: &str, text: &str) {
        let field = match kind {
            DefinitionKind::Component => "componentDefinition",
            DefinitionKind::Trait => "traitDefinition",
            DefinitionKind::Policy => "policyDefinition",
            DefinitionKind::WorkflowStep => "workflowStepDefinition",
        };
        let mut definition = template(text);
        definition["metadata"] = json!({ "name": name });
        let fields = json!({
            "metadata": { "labels": { kind.name_label(): name } },
            "spec": { "definitionType": kind.type_name(), "revision": 1, "revisionHash": "", field: definition },
        });
        self.add("DefinitionRevision", namespace, revision, &fields);
    }

    fn get<T: DeserializeOwned>(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<T>> {
        let metadata = |object: &&Value| {
            object["kind"] == kind && object["metadata"]["namespace"] == namespace && object["metadata"]["name"] == name
        };
        let object = self.0.iter().find(metadata)?;
        Some(Arc::new(serde_json::from_value(object.clone()).unwrap()))
    }
}

/// A definition with a template.
pub fn template(text: &str) -> Value {
    json!({ "spec": { "workload": {}, "schematic": { "cue": { "template": text } } } })
}

impl Lookup for Cluster {
    fn component_definition(&self, namespace: &str, name: &str) -> Option<Arc<ComponentDefinition>> {
        self.get("ComponentDefinition", namespace, name)
    }

    fn workload_definition(&self, namespace: &str, name: &str) -> Option<Arc<WorkloadDefinition>> {
        self.get("WorkloadDefinition", namespace, name)
    }

    fn trait_definition(&self, namespace: &str, name: &str) -> Option<Arc<TraitDefinition>> {
        self.get("TraitDefinition", namespace, name)
    }

    fn policy_definition(&self, namespace: &str, name: &str) -> Option<Arc<PolicyDefinition>> {
        self.get("PolicyDefinition", namespace, name)
    }

    fn workflow_step_definition(&self, namespace: &str, name: &str) -> Option<Arc<WorkflowStepDefinition>> {
        self.get("WorkflowStepDefinition", namespace, name)
    }

    fn definition_revisions(&self, namespace: &str, kind: DefinitionKind, name: &str) -> Vec<String> {
        let objects = self.0.iter().filter(|object| {
            object["kind"] == "DefinitionRevision"
                && object["metadata"]["namespace"] == namespace
                && object["metadata"]["labels"][kind.name_label()] == name
                && object["spec"]["definitionType"] == kind.type_name()
        });
        let names = objects.map(|object| object["metadata"]["name"].as_str().unwrap_or_default());
        names.map(str::to_owned).collect()
    }

    fn definition_revision(&self, namespace: &str, name: &str) -> Option<Arc<DefinitionRevision>> {
        self.get("DefinitionRevision", namespace, name)
    }

    fn policy(&self, namespace: &str, name: &str) -> Option<Arc<Policy>> {
        self.get("Policy", namespace, name)
    }

    fn workflow(&self, namespace: &str, name: &str) -> Option<Arc<Workflow>> {
        self.get("Workflow", namespace, name)
    }
}

pub fn application(spec: &Value) -> Application {
    let object = json!({ "metadata": { "name": "shop", "namespace": "team", "uid": "u1" }, "spec": spec });
    serde_json::from_value(object).unwrap()
}

pub fn live(cluster: &Cluster) -> Definitions<'_> {
    Definitions::live(cluster, "team", "vela-system", false)
}

/// Parses with the definitions of a cluster.
pub fn parse_in(cluster: &Cluster, spec: &Value) -> Result<Parsed, String> {
    parse(&application(spec), &live(cluster)).map_err(|error| error.to_string())
}

pub fn components(types: &[(&str, &str)]) -> Value {
    let components = types.iter().map(|(name, type_)| json!({ "name": name, "type": type_ }));
    json!({ "components": components.collect::<Vec<_>>() })
}

/// Parses, and returns the contents of the revision.
pub fn contents_in(cluster: &Cluster, spec: &Value) -> ApplicationRevisionSpec {
    parse_in(cluster, spec).unwrap().contents(&application(spec))
}
