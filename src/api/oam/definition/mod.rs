//! Definitions: the templates that components, traits, policies and steps are rendered by.

mod kinds;

use kube::core::ObjectMeta;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Condition, LatestRevision, labels, schema};
use crate::api::lenient::{self, null_as_default};

pub use kinds::{
    ComponentDefinition, ComponentDefinitionSpec, PolicyDefinition, PolicyDefinitionSpec, TraitDefinition,
    TraitDefinitionSpec, WorkflowStepDefinition, WorkflowStepDefinitionSpec, WorkloadDefinition,
    WorkloadDefinitionSpec,
};

/// Kinds of definitions that have revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DefinitionKind {
    Component,
    Trait,
    Policy,
    WorkflowStep,
}

impl DefinitionKind {
    pub const ALL: [Self; 4] = [Self::Component, Self::Trait, Self::Policy, Self::WorkflowStep];

    /// Returns the value of `spec.definitionType` of a DefinitionRevision.
    #[must_use]
    pub const fn type_name(self) -> &'static str {
        match self {
            Self::Component => "Component",
            Self::Trait => "Trait",
            Self::Policy => "Policy",
            Self::WorkflowStep => "WorkflowStep",
        }
    }

    /// Returns the label of a DefinitionRevision that holds the name of the definition.
    #[must_use]
    pub const fn name_label(self) -> &'static str {
        match self {
            Self::Component => labels::COMPONENT_DEFINITION,
            Self::Trait => labels::TRAIT_DEFINITION,
            Self::Policy => labels::POLICY_DEFINITION,
            Self::WorkflowStep => labels::WORKFLOW_STEP_DEFINITION,
        }
    }
}

/// The common parts of all kinds of definitions.
pub trait Definition: Clone {
    /// Name of the kind, for error texts.
    const KIND: &'static str;
    type Spec: Clone + PartialEq + Serialize + DeserializeOwned;

    fn metadata(&self) -> &ObjectMeta;
    fn spec(&self) -> &Self::Spec;
    fn schematic(&self) -> Option<&Schematic>;

    /// Returns the extension of a definition from before schematics, which may hold a template.
    fn extension(&self) -> Option<&Value>;

    /// Returns the texts for health and status.
    fn status_templates(&self) -> Option<&StatusTemplates>;

    /// Returns the definition as revisions record it, without status and managed fields.
    #[must_use]
    fn recorded(&self) -> Self;

    /// Returns the CUE template. A schematic wins over an extension.
    fn template(&self) -> Option<&str> {
        let schematic = self.schematic().and_then(|schematic| schematic.cue.as_ref());
        let template = schematic
            .map(|cue| cue.template.as_str())
            .filter(|text| !text.is_empty());
        template.or_else(|| self.extension()?.get("template")?.as_str())
    }
}

/// The template of a definition.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[serde(rename_all = "camelCase", default)]
pub struct Schematic {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cue: Option<Cue>,

    /// A Terraform module, which wins over a template.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub terraform: Option<Value>,

    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Map<String, Value>,
}

/// A template in CUE.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cue {
    #[serde(deserialize_with = "null_as_default")]
    pub template: String,

    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Map<String, Value>,
}

/// CUE texts that compute health and status from live objects.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusTemplates {
    /// Values for the next two.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub details: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub health_policy: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub custom_status: String,

    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Map<String, Value>,
}

/// Observed state of a definition.
// Invalid parts are ignored and overwritten.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DefinitionStatus {
    #[serde(deserialize_with = "lenient::valid_elements", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// ConfigMap with the schema of the parameters.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "String::is_empty")]
    pub config_map_ref: String,
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub latest_revision: Option<LatestRevision>,
}

/// Kind of a workload, by name or embedded.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadDescriptor {
    /// Name of a WorkloadDefinition.
    #[serde(
        rename = "type",
        deserialize_with = "null_as_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub type_: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "WorkloadKind::is_empty")]
    pub definition: WorkloadKind,
}

#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(extend("required" = ["apiVersion", "kind"]))]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadKind {
    #[serde(deserialize_with = "null_as_default")]
    pub api_version: String,
    #[serde(deserialize_with = "null_as_default")]
    pub kind: String,
}

impl WorkloadKind {
    fn is_empty(&self) -> bool {
        self.api_version.is_empty() && self.kind.is_empty()
    }
}

/// Reference to a CRD.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(extend("required" = ["name"]))]
#[serde(rename_all = "camelCase", default)]
pub struct DefinitionReference {
    /// Name of the CRD, for example `deployments.apps`.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// Version of the CRD. The first one by default.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub version: String,
}

impl DefinitionReference {
    fn is_empty(&self) -> bool {
        self.name.is_empty() && self.version.is_empty()
    }
}
