use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::schema;
use crate::api::lenient::{self, null_as_default};

/// Workflow of an application: its own steps, or a reference.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkflowSource {
    /// Name of a Workflow in the same namespace.
    #[serde(
        rename = "ref",
        deserialize_with = "null_as_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub reference: String,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<WorkflowMode>,

    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<WorkflowStep>,

    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Map<String, Value>,
}

/// Order of execution: `StepByStep` or `DAG`.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkflowMode {
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub steps: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub sub_steps: String,
}

/// A step of a workflow.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[schemars(extend("required" = ["type"]))]
#[serde(rename_all = "camelCase", default)]
pub struct WorkflowStep {
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub name: String,

    /// A built-in type such as `apply-component`, or the name of a WorkflowStepDefinition.
    #[serde(rename = "type", deserialize_with = "null_as_default")]
    pub type_: String,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<StepMeta>,

    /// Condition as a CUE expression, or `always`.
    #[serde(
        rename = "if",
        deserialize_with = "null_as_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub condition: String,

    /// Duration such as `5m`, after which the step fails.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub timeout: String,

    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,

    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<StepInput>,

    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<StepOutput>,

    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub properties: Option<Value>,

    /// Order of execution of the sub-steps.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub mode: String,

    /// Steps of a group.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "sub_steps")]
    pub sub_steps: Vec<WorkflowStep>,

    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Map<String, Value>,
}

/// Free-form, because the schema of a CRD can't be recursive.
fn sub_steps(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": {
        "type": "object", "required": ["type"], "x-kubernetes-preserve-unknown-fields": true,
        "properties": { "name": { "type": "string" }, "type": { "type": "string" } },
    } })
}

#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StepMeta {
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub alias: String,
}

/// A parameter that takes a value of the workflow.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(extend("required" = ["from"]))]
#[serde(rename_all = "camelCase", default)]
pub struct StepInput {
    /// Path of the parameter.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub parameter_key: String,
    /// Name of the value.
    #[serde(deserialize_with = "null_as_default")]
    pub from: String,
}

/// A value that a step or component provides.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(extend("required" = ["name", "valueFrom"]))]
#[serde(rename_all = "camelCase", default)]
pub struct StepOutput {
    /// Name of the value.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// CUE expression over the rendered objects or the step.
    #[serde(deserialize_with = "null_as_default")]
    pub value_from: String,
}
