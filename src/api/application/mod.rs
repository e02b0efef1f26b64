//! The Application of kubernetes-sigs/application. KubeVela's group `core.oam.dev` has the same kind and short name, so
//! requests must include the group.

mod descriptor;
mod info;
mod status;
#[cfg(test)]
mod tests;

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::lenient::{self, is_false, null_as_default};

pub use descriptor::{Contact, Descriptor, Icon, Link};
pub use info::{InfoItem, InfoSource, IngressReference, KeyReference, ServiceReference};
pub use status::{ApplicationCondition, ApplicationStatus, ComponentStatus};

/// CRDs in `k8s.io` groups require this annotation: <https://github.com/kubernetes/enhancements/pull/1111>.
const APPROVED: (&str, &str) = (
    "api-approved.kubernetes.io",
    "https://github.com/kubernetes-sigs/application/pull/2",
);

/// Components and description of an application.
#[expect(clippy::duplicated_attributes, reason = "several columns have the same type")]
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "app.k8s.io",
    version = "v1beta1",
    kind = "Application",
    plural = "applications",
    shortname = "app",
    category = "all",
    namespaced,
    status = "ApplicationStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "An application with its components and their readiness.",
    printcolumn(
        name = "Type",
        type_ = "string",
        json_path = ".spec.descriptor.type",
        description = "The type of the application"
    ),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".spec.descriptor.version",
        description = "The version of the application"
    ),
    printcolumn(
        name = "Owner",
        type_ = "boolean",
        json_path = ".spec.addOwnerRef",
        description = "True if the application owns its components"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.componentsReady",
        description = "Number of ready components and total number"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
// Remote, so that the implementations below can accept a null or absent spec. kube derives the field itself.
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct ApplicationSpec {
    /// Kinds of the application's components.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub component_kinds: Vec<ComponentKind>,

    /// Description for users.
    // Informational, so invalid values must not fail the object.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub descriptor: Option<Descriptor>,

    /// Label selector of the components. No selector selects no objects; an empty selector selects all objects of the kinds.
    #[serde(deserialize_with = "lenient::selector", skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,

    /// Adds an owner reference to the components, so that they are garbage collected with the application.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_false")]
    pub add_owner_ref: bool,

    /// Information for users. References are not resolved.
    // Informational, like the descriptor.
    #[serde(deserialize_with = "lenient::valid_elements", skip_serializing_if = "Vec::is_empty")]
    pub info: Vec<InfoItem>,

    /// Phase of the installer: `Pending`, `Succeeded` or `Failed`. Empty means `Succeeded`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assembly_phase: Option<String>,
}

/// A kind of component, in any version.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(extend("required" = ["group", "kind"]))]
#[serde(default)]
pub struct ComponentKind {
    /// API group, empty for the core group. May include a version, as in `apps/v1`.
    #[serde(deserialize_with = "null_as_default")]
    pub group: String,
    #[serde(deserialize_with = "null_as_default")]
    pub kind: String,
}

impl Serialize for ApplicationSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Calls the inherent function that the remote derive generates, not the trait's.
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for ApplicationSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SpecWrapper(ApplicationSpec);

        impl<'de> Deserialize<'de> for SpecWrapper {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                ApplicationSpec::deserialize(deserializer).map(SpecWrapper)
            }
        }

        // serde treats an absent optional field as null.
        let spec = Option::<SpecWrapper>::deserialize(deserializer)?;
        Ok(spec.map(|SpecWrapper(spec)| spec).unwrap_or_default())
    }
}

/// Returns the definition with an optional spec and the approval annotation.
pub(super) fn definition() -> CustomResourceDefinition {
    // Set here, because kube's derive would also add the annotation to objects.
    let mut crd = Application::crd();
    let annotation = (APPROVED.0.to_owned(), APPROVED.1.to_owned());
    crd.metadata.annotations.get_or_insert_default().extend([annotation]);
    for version in &mut crd.spec.versions {
        let schema = version.schema.as_mut();
        if let Some(schema) = schema.and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            schema.required = None;
        }
    }
    crd
}
