use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{WorkloadKind, schema};
use crate::api::lenient::{self, is_false, null_as_default};

/// Observed state of an application.
// Invalid parts are ignored and overwritten.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApplicationStatus {
    #[serde(deserialize_with = "lenient::valid_elements", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,

    /// Generation of the spec that this status describes.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Phase, for example `running`.
    #[serde(
        rename = "status",
        deserialize_with = "lenient::or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub phase: String,

    /// Health of the components.
    #[serde(deserialize_with = "lenient::valid_elements", skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceStatus>,

    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowStatus>,

    /// Time at which the workflow runs again.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub workflow_restart_scheduled_at: Option<Time>,

    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub latest_revision: Option<LatestRevision>,

    /// Objects that the application manages.
    #[serde(deserialize_with = "lenient::valid_elements", skip_serializing_if = "Vec::is_empty")]
    pub applied_resources: Vec<AppliedResource>,

    /// Policies of the application's scope. Not written.
    #[serde(deserialize_with = "lenient::valid_elements", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::objects")]
    pub applied_application_policies: Vec<Value>,

    /// ConfigMap with the results of such policies. Not written.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "String::is_empty")]
    pub application_policies_config_map: String,

    /// Deprecated. Not written.
    #[serde(deserialize_with = "lenient::valid_elements", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::objects")]
    pub components: Vec<Value>,

    /// Deprecated. Not written.
    #[serde(
        rename = "policy",
        deserialize_with = "lenient::valid_elements",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(schema_with = "schema::objects")]
    pub policies: Vec<Value>,
}

/// Type of the condition that says whether the specification was understood.
pub const PARSED: &str = "Parsed";

/// A condition, as Crossplane defines it.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[schemars(extend("required" = ["status", "type"]))]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type", deserialize_with = "null_as_default")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "null_as_default")]
    pub status: String,
    /// Time of the last change of the status.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Health of a component in one place.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[schemars(extend("required" = ["healthy", "name"]))]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceStatus {
    /// Name of the component.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub env: String,
    /// Kind of the workload.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub workload_definition: Option<WorkloadKind>,
    /// Health of the workload and its traits.
    #[serde(deserialize_with = "null_as_default")]
    pub healthy: bool,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_false")]
    pub workload_healthy: bool,
    #[serde(deserialize_with = "lenient::map", skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub traits: Vec<TraitStatus>,
    /// Deprecated. Not written.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::objects")]
    pub scopes: Vec<Value>,
}

/// Health of a trait.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[schemars(extend("required" = ["healthy", "type"]))]
#[serde(rename_all = "camelCase", default)]
pub struct TraitStatus {
    #[serde(rename = "type", deserialize_with = "null_as_default")]
    pub type_: String,
    #[serde(deserialize_with = "null_as_default")]
    pub healthy: bool,
    /// Waits for the component to be healthy.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_false")]
    pub pending: bool,
    #[serde(deserialize_with = "lenient::map", skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// State of a run of the workflow.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[schemars(extend("required" = ["finished", "mode", "suspend", "terminated"]))]
#[serde(rename_all = "camelCase", default)]
pub struct WorkflowStatus {
    /// Revision or published version that runs.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub app_revision: String,
    /// Mode of steps and sub-steps, for example `DAG-DAG`.
    #[serde(deserialize_with = "null_as_default")]
    pub mode: String,
    /// Phase, for example `executing`.
    #[serde(
        rename = "status",
        deserialize_with = "null_as_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub phase: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(deserialize_with = "null_as_default")]
    pub suspend: bool,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub suspend_state: String,
    #[serde(deserialize_with = "null_as_default")]
    pub terminated: bool,
    #[serde(deserialize_with = "null_as_default")]
    pub finished: bool,
    /// ConfigMap with the values of the workflow.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub context_backend: Option<ObjectReference>,
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepStatus>,
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
}

/// State of a step.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[schemars(extend("required" = ["id"]))]
#[serde(rename_all = "camelCase", default)]
pub struct StepStatus {
    #[serde(deserialize_with = "null_as_default")]
    pub id: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(
        rename = "type",
        deserialize_with = "null_as_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub type_: String,
    /// Phase, for example `succeeded`.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub phase: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub first_execute_time: Option<Time>,
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub last_execute_time: Option<Time>,
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::objects")]
    pub sub_steps: Vec<StepStatus>,
}

/// A revision with its number.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(extend("required" = ["name", "revision"]))]
#[serde(rename_all = "camelCase", default)]
pub struct LatestRevision {
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    #[serde(deserialize_with = "lenient::integer")]
    #[schemars(schema_with = "schema::integer")]
    pub revision: i64,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub revision_hash: String,
}

/// An object that the application manages.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AppliedResource {
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// `workflow` or `policy`.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub creator: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub uid: String,
}
