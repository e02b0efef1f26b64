use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::compression::Compressed;
use super::{
    Application, ComponentDefinition, Policy, PolicyDefinition, TraitDefinition, Workflow, WorkflowStatus,
    WorkflowStepDefinition, WorkloadDefinition, absent_as_default, schema,
};
use crate::api::lenient::{self, null_as_default};

/// A recorded version of an application, with all that it was rendered from.
#[expect(clippy::duplicated_attributes, reason = "several columns have the same type")]
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "core.oam.dev",
    version = "v1beta1",
    kind = "ApplicationRevision",
    plural = "applicationrevisions",
    shortname = "apprev",
    category = "oam",
    namespaced,
    status = "ApplicationRevisionStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A recorded version of an application.",
    printcolumn(name = "AGE", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "PUBLISH_VERSION",
        type_ = "string",
        json_path = r".metadata.annotations['app\.oam\.dev\/publishVersion']"
    ),
    printcolumn(name = "SUCCEEDED", type_ = "string", json_path = ".status.succeeded")
)]
#[schemars(extend("required" = ["application"]))]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct ApplicationRevisionSpec {
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(schema_with = "schema::object")]
    pub application: Application,

    #[serde(deserialize_with = "lenient::map", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::object")]
    pub component_definitions: BTreeMap<String, ComponentDefinition>,

    #[serde(deserialize_with = "lenient::map", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::object")]
    pub workload_definitions: BTreeMap<String, WorkloadDefinition>,

    #[serde(deserialize_with = "lenient::map", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::object")]
    pub trait_definitions: BTreeMap<String, TraitDefinition>,

    #[serde(deserialize_with = "lenient::map", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::object")]
    pub policy_definitions: BTreeMap<String, PolicyDefinition>,

    #[serde(deserialize_with = "lenient::map", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::object")]
    pub workflow_step_definitions: BTreeMap<String, WorkflowStepDefinition>,

    /// Policy objects that the workflow names.
    #[serde(deserialize_with = "lenient::map", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::object")]
    pub policies: BTreeMap<String, Policy>,

    /// Workflow object that the application refers to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub workflow: Option<Workflow>,

    /// Objects of ref-objects components.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::objects")]
    pub referred_objects: Vec<Value>,

    /// All of the above, compressed. The fields themselves are then empty.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Compressed::is_empty")]
    pub compression: Compressed,
}

absent_as_default!(ApplicationRevisionSpec);

/// Result of the run of the workflow.
// Invalid parts are ignored and overwritten.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[schemars(extend("required" = ["succeeded"]))]
#[serde(rename_all = "camelCase", default)]
pub struct ApplicationRevisionStatus {
    #[serde(deserialize_with = "lenient::or_default")]
    pub succeeded: bool,

    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowStatus>,

    /// Values of the workflow.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub workflow_context: BTreeMap<String, String>,

    /// Versions of policies. Not written.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub policy_versions: Option<Value>,
}
