use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::workflow::{StepInput, StepOutput, WorkflowSource};
use super::{ApplicationStatus, absent_as_default, schema};
use crate::api::lenient::{self, null_as_default};

/// Components of an application, and how they are deployed.
#[expect(clippy::duplicated_attributes, reason = "several columns have the same type")]
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "core.oam.dev",
    version = "v1beta1",
    kind = "Application",
    plural = "applications",
    shortname = "app",
    shortname = "velaapp",
    category = "oam",
    namespaced,
    status = "ApplicationStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "An application that is rendered from definitions and deployed.",
    printcolumn(name = "COMPONENT", type_ = "string", json_path = ".spec.components[*].name"),
    printcolumn(name = "TYPE", type_ = "string", json_path = ".spec.components[*].type"),
    printcolumn(name = "PHASE", type_ = "string", json_path = ".status.status"),
    printcolumn(name = "HEALTHY", type_ = "boolean", json_path = ".status.services[*].healthy"),
    printcolumn(name = "STATUS", type_ = "string", json_path = ".status.services[*].message"),
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(extend("required" = ["components"]))]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct ApplicationSpec {
    /// Components to deploy.
    #[serde(deserialize_with = "lenient::list")]
    pub components: Vec<Component>,

    /// Policies for all components.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<AppPolicy>,

    /// Steps that deploy the components. Without steps, one is generated for each component.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowSource>,

    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Map<String, Value>,
}

absent_as_default!(ApplicationSpec);

/// A component, rendered by the ComponentDefinition of its type.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[schemars(extend("required" = ["name", "type"]))]
#[serde(rename_all = "camelCase", default)]
pub struct Component {
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,

    /// Name of a ComponentDefinition, or a revision of one: `webservice@v2`.
    #[serde(rename = "type", deserialize_with = "null_as_default")]
    pub type_: String,

    /// Name of a component revision. Not used.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub external_revision: String,

    /// Parameters of the definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub properties: Option<Value>,

    /// Components that must be healthy first.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,

    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<StepInput>,

    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<StepOutput>,

    /// Traits, applied in this order.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub traits: Vec<Trait>,

    /// Scopes by type. Not used.
    #[serde(deserialize_with = "lenient::map", skip_serializing_if = "BTreeMap::is_empty")]
    pub scopes: BTreeMap<String, String>,

    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Map<String, Value>,
}

/// A trait of a component, rendered by the TraitDefinition of its type.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[schemars(extend("required" = ["type"]))]
#[serde(rename_all = "camelCase", default)]
pub struct Trait {
    /// Name of a TraitDefinition, or a revision of one: `scaler@v2`.
    #[serde(rename = "type", deserialize_with = "null_as_default")]
    pub type_: String,

    /// Parameters of the definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub properties: Option<Value>,

    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Map<String, Value>,
}

/// A policy of an application.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[schemars(extend("required" = ["type"]))]
#[serde(rename_all = "camelCase", default)]
pub struct AppPolicy {
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub name: String,

    /// A built-in type such as `garbage-collect`, or the name of a PolicyDefinition.
    #[serde(rename = "type", deserialize_with = "null_as_default")]
    pub type_: String,

    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub properties: Option<Value>,

    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Map<String, Value>,
}
