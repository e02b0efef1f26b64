//! The contexts of templates.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Release;
use crate::api::oam::{Component, Definition as _};
use crate::controllers::oam::context::Context;
use crate::controllers::oam::parse::{Parsed, ParsedComponent};
use crate::controllers::oam::placement::Place;
use crate::controllers::oam::render::identity::component_hash;
use crate::controllers::oam::trackers::is_local;

/// The field with the version of the cluster that an object goes to.
pub(super) const CLUSTER_VERSION: &str = "clusterVersion";

impl Release {
    /// Returns what the templates of all components and policies see.
    fn context(&self) -> Map<String, Value> {
        fields(&json!({
            "appName": self.name.name,
            "namespace": self.name.namespace,
            "appRevision": self.revision.name,
            "appRevisionNum": self.revision.revision,
            "appLabels": self.labels,
            "appAnnotations": self.annotations,
            CLUSTER_VERSION: self.cluster_version,
        }))
    }

    /// Returns the context of workflow steps, without the fields of one step. As in KubeVela, the fields of components
    /// are there, and empty.
    #[must_use]
    pub fn step_context(&self) -> Context {
        let mut context = self.context();
        context.extend(fields(&json!({
            "name": self.name.name,
            "publishVersion": self.publish_version,
            "workflowName": self.workflow_name,
            "replicaKey": "",
            "cluster": "",
            CLUSTER_VERSION: unknown_version(),
            "components": null,
            "revision": "",
        })));
        Context::new(Arc::new(context), Map::new())
    }

    pub(super) fn policy_context(&self, name: &str) -> Context {
        Context::new(Arc::new(self.context()), fields(&json!({ "name": name })))
    }

    pub(super) fn component_context(&self, parsed: &Parsed, component: &ParsedComponent, place: &Place) -> Context {
        let shared = self
            .shared_context
            .get_or_init(|| Arc::new(self.context_of_components(parsed)));
        let revision = revision_of(parsed, &component.component, place);
        let mut context = fields(&json!({
            "name": component.component.name,
            "componentType": component.component.type_,
            "revision": revision,
        }));
        context.extend(place.context());
        if !is_local(&place.cluster) {
            context.insert(CLUSTER_VERSION.to_owned(), unknown_version());
        }
        Context::new(Arc::clone(shared), context)
    }

    fn context_of_components(&self, parsed: &Parsed) -> Map<String, Value> {
        let mut components = parsed.components.iter();
        let is_named = components.any(|component| {
            let traits = component.traits.iter().filter_map(|one| one.definition.template());
            let mut templates = traits.chain(component.definition.template());
            templates.any(|template| template.contains("components"))
        });
        let components: Vec<Value> = if is_named {
            parsed.spec.components.iter().map(|one| json!(one)).collect()
        } else {
            Vec::new()
        };
        let mut context = self.context();
        context.extend(fields(&json!({
            "components": components,
            "publishVersion": self.publish_version,
            "workflowName": self.workflow_name,
            "replicaKey": "",
        })));
        context
    }
}

/// Returns the hash of a component as KubeVela computes it: of the component that a `deploy` step places, else of the
/// declared component without what its step takes over.
fn revision_of(parsed: &Parsed, component: &Component, place: &Place) -> String {
    if !place.cluster.is_empty() {
        return component_hash(component, &place.replica_key);
    }
    let mut components = parsed.spec.components.iter();
    let declared = components.find(|one| one.name == component.name).unwrap_or(component);
    let component = Component {
        depends_on: Vec::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        ..declared.clone()
    };
    component_hash(&component, "")
}

/// Returns the version of a cluster as templates see it, from the answer of its API server to `/version`.
#[must_use]
pub fn context_version(version: &Value) -> Value {
    let text = |name: &str| version[name].as_str().unwrap_or_default();
    let minor: String = text("minor").chars().take_while(char::is_ascii_digit).collect();
    json!({
        "major": text("major"),
        "minor": minor.parse::<u32>().unwrap_or_default(),
        "gitVersion": text("gitVersion"),
        "platform": text("platform"),
    })
}

/// Returns a version of a cluster with empty fields.
#[must_use]
pub fn unknown_version() -> Value {
    json!({ "major": "", "minor": 0, "gitVersion": "", "platform": "" })
}

/// Returns the fields of a value that serializes as an object.
pub(super) fn fields(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}
