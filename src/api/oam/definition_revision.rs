use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    ComponentDefinition, PolicyDefinition, TraitDefinition, WorkflowStepDefinition, absent_as_default, schema,
};
use crate::api::lenient::{self, null_as_default};

/// A recorded version of a definition.
#[expect(clippy::duplicated_attributes, reason = "several columns have the same type")]
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "core.oam.dev",
    version = "v1beta1",
    kind = "DefinitionRevision",
    plural = "definitionrevisions",
    shortname = "defrev",
    category = "oam",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    doc = "A recorded version of a definition.",
    printcolumn(name = "REVISION", type_ = "integer", json_path = ".spec.revision"),
    printcolumn(name = "HASH", type_ = "string", json_path = ".spec.revisionHash"),
    printcolumn(name = "TYPE", type_ = "string", json_path = ".spec.definitionType")
)]
#[schemars(extend("required" = ["definitionType", "revision", "revisionHash"]))]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct DefinitionRevisionSpec {
    #[serde(deserialize_with = "lenient::integer")]
    #[schemars(schema_with = "schema::integer")]
    pub revision: i64,

    #[serde(deserialize_with = "null_as_default")]
    pub revision_hash: String,

    /// `Component`, `Trait`, `Policy` or `WorkflowStep`.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(extend("enum" = ["Component", "Trait", "Policy", "WorkflowStep"]))]
    pub definition_type: String,

    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub component_definition: Option<ComponentDefinition>,

    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub trait_definition: Option<TraitDefinition>,

    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub policy_definition: Option<PolicyDefinition>,

    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub workflow_step_definition: Option<WorkflowStepDefinition>,
}

absent_as_default!(DefinitionRevisionSpec);
