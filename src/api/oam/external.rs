//! Policies and Workflows as objects of their own. Their fields stand at the top level.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schema;
use super::workflow::{WorkflowMode, WorkflowStep};
use crate::api::lenient::{self, null_as_default};

/// A policy that several applications use.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "core.oam.dev",
    version = "v1alpha1",
    kind = "Policy",
    plural = "policies",
    category = "oam",
    namespaced,
    no_spec,
    derive = "PartialEq",
    derive = "Default",
    doc = "A policy that several applications use.",
    printcolumn(name = "TYPE", type_ = "string", json_path = ".type")
)]
#[schemars(extend("required" = ["type"]))]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyFields {
    #[serde(rename = "type", deserialize_with = "null_as_default")]
    pub type_: String,

    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub properties: Option<Value>,
}

/// A workflow that several applications use.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "core.oam.dev",
    version = "v1alpha1",
    kind = "Workflow",
    plural = "workflows",
    category = "oam",
    namespaced,
    no_spec,
    derive = "PartialEq",
    derive = "Default",
    doc = "A workflow that several applications use."
)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkflowFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<WorkflowMode>,

    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<WorkflowStep>,
}
