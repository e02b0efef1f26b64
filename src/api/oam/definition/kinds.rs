use kube::CustomResource;
use kube::core::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Definition, DefinitionReference, DefinitionStatus, Schematic, StatusTemplates, WorkloadDescriptor};
use crate::api::lenient::{self, is_false, null_as_default};
use crate::api::oam::{absent_as_default, schema};

/// Implements [`Definition`] for a kind. The last argument is the field with the texts for health and status, if any.
macro_rules! impl_definition {
    ($kind:ident, $spec:ident, $extension:expr, $status:expr) => {
        impl Definition for $kind {
            const KIND: &'static str = stringify!($kind);
            type Spec = $spec;

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn spec(&self) -> &$spec {
                &self.spec
            }

            fn schematic(&self) -> Option<&Schematic> {
                self.spec.schematic.as_ref()
            }

            fn extension(&self) -> Option<&Value> {
                let extension: fn(&$spec) -> Option<&Value> = $extension;
                extension(&self.spec)
            }

            fn status_templates(&self) -> Option<&StatusTemplates> {
                let status: fn(&$spec) -> Option<&StatusTemplates> = $status;
                status(&self.spec)
            }

            fn recorded(&self) -> Self {
                let mut recorded = Self {
                    metadata: self.metadata.clone(),
                    spec: self.spec.clone(),
                    status: None,
                };
                recorded.metadata.managed_fields = None;
                recorded
            }
        }
    };
}

/// Template of a type of components.
#[expect(clippy::duplicated_attributes, reason = "several columns have the same type")]
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "core.oam.dev",
    version = "v1beta1",
    kind = "ComponentDefinition",
    plural = "componentdefinitions",
    shortname = "comp",
    category = "oam",
    namespaced,
    status = "DefinitionStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A type of components.",
    printcolumn(
        name = "WORKLOAD-KIND",
        type_ = "string",
        json_path = ".spec.workload.definition.kind"
    ),
    printcolumn(
        name = "DESCRIPTION",
        type_ = "string",
        json_path = r".metadata.annotations.definition\.oam\.dev/description"
    )
)]
#[schemars(extend("required" = ["workload"], "x-kubernetes-preserve-unknown-fields" = true))]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct ComponentDefinitionSpec {
    /// Kind of the workload.
    #[serde(deserialize_with = "null_as_default")]
    pub workload: WorkloadDescriptor,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<StatusTemplates>,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub schematic: Option<Schematic>,

    /// Free-form data; in old definitions, the template.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub extension: Option<Value>,

    /// Version as a semantic version.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub version: String,

    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Map<String, Value>,
}

absent_as_default!(ComponentDefinitionSpec);

impl ComponentDefinition {
    /// Returns true if terraform-controller makes the components.
    #[must_use]
    pub fn is_terraform(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        let type_ = annotations.and_then(|annotations| annotations.get("type"));
        self.terraform_module().is_some() || type_.is_some_and(|type_| type_ == "terraform")
    }

    #[must_use]
    pub fn terraform_module(&self) -> Option<&Value> {
        self.spec.schematic.as_ref()?.terraform.as_ref()
    }
}

impl_definition!(
    ComponentDefinition,
    ComponentDefinitionSpec,
    |spec| spec.extension.as_ref(),
    |spec| spec.status.as_ref()
);

/// Template of a type of traits.
#[expect(clippy::duplicated_attributes, reason = "several columns have the same type")]
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "core.oam.dev",
    version = "v1beta1",
    kind = "TraitDefinition",
    plural = "traitdefinitions",
    shortname = "trait",
    category = "oam",
    namespaced,
    status = "DefinitionStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A type of traits.",
    printcolumn(name = "APPLIES-TO", type_ = "string", json_path = ".spec.appliesToWorkloads"),
    printcolumn(
        name = "DESCRIPTION",
        type_ = "string",
        json_path = r".metadata.annotations.definition\.oam\.dev/description"
    )
)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct TraitDefinitionSpec {
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "DefinitionReference::is_empty"
    )]
    pub definition_ref: DefinitionReference,

    /// Path of the trait's object that takes a reference to the workload.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub workload_ref_path: String,

    /// Kinds of workloads that the trait fits: `deployments.apps`, `*.apps`, `*`, or names of ComponentDefinitions.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub applies_to_workloads: Vec<String>,

    /// Traits that can't be used beside this one.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub conflicts_with: Vec<String>,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub schematic: Option<Schematic>,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<StatusTemplates>,

    /// Free-form data; in old definitions, the template.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub extension: Option<Value>,

    /// The trait creates the workload, so the component's is not applied.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_false")]
    pub manage_workload: bool,

    /// Objects of the trait go to the controller's own cluster.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_false")]
    pub control_plane_only: bool,

    /// `PreDispatch`, `DefaultDispatch` or `PostDispatch`.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub stage: String,

    /// Version as a semantic version.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub version: String,

    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Map<String, Value>,
}

absent_as_default!(TraitDefinitionSpec);
impl_definition!(
    TraitDefinition,
    TraitDefinitionSpec,
    |spec| spec.extension.as_ref(),
    |spec| spec.status.as_ref()
);

/// Template of a type of policies.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "core.oam.dev",
    version = "v1beta1",
    kind = "PolicyDefinition",
    plural = "policydefinitions",
    shortname = "def-policy",
    category = "oam",
    namespaced,
    status = "DefinitionStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A type of policies."
)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct PolicyDefinitionSpec {
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "DefinitionReference::is_empty"
    )]
    pub definition_ref: DefinitionReference,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub schematic: Option<Schematic>,

    /// The policy decides the health of the application.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_false")]
    pub manage_health_check: bool,

    /// Empty for a policy with objects; `Application` for one that changes the application before it is parsed.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub scope: String,

    /// Version as a semantic version.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub version: String,

    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Map<String, Value>,
}

absent_as_default!(PolicyDefinitionSpec);
impl_definition!(PolicyDefinition, PolicyDefinitionSpec, |_| None, |_| None);

/// Template of a type of workflow steps.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "core.oam.dev",
    version = "v1beta1",
    kind = "WorkflowStepDefinition",
    plural = "workflowstepdefinitions",
    shortname = "workflowstep",
    category = "oam",
    namespaced,
    status = "DefinitionStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A type of workflow steps."
)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct WorkflowStepDefinitionSpec {
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "DefinitionReference::is_empty"
    )]
    pub definition_ref: DefinitionReference,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub schematic: Option<Schematic>,

    /// Version as a semantic version.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub version: String,

    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Map<String, Value>,
}

absent_as_default!(WorkflowStepDefinitionSpec);
impl_definition!(WorkflowStepDefinition, WorkflowStepDefinitionSpec, |_| None, |_| None);

/// A kind of workloads, from before ComponentDefinitions.
#[expect(clippy::duplicated_attributes, reason = "several columns have the same type")]
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "core.oam.dev",
    version = "v1beta1",
    kind = "WorkloadDefinition",
    plural = "workloaddefinitions",
    shortname = "workload",
    category = "oam",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    doc = "A kind of workloads.",
    printcolumn(name = "DEFINITION-NAME", type_ = "string", json_path = ".spec.definitionRef.name"),
    printcolumn(
        name = "DESCRIPTION",
        type_ = "string",
        json_path = r".metadata.annotations.definition\.oam\.dev/description"
    )
)]
#[schemars(extend("required" = ["definitionRef"], "x-kubernetes-preserve-unknown-fields" = true))]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct WorkloadDefinitionSpec {
    #[serde(deserialize_with = "null_as_default")]
    pub definition_ref: DefinitionReference,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<StatusTemplates>,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub schematic: Option<Schematic>,

    /// Free-form data; in old definitions, the template.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub extension: Option<Value>,

    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Map<String, Value>,
}

absent_as_default!(WorkloadDefinitionSpec);
