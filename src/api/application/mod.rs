//! The Application: an application's parts, chosen by kind and label, whose readiness is summed up in its status.
//!
//! It is the resource of kubernetes-sigs/application, field by field. KubeVela has a resource of the same kind and short
//! name in the group `core.oam.dev`, so whoever asks an API server for one names the group too.

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

use super::lenient;

pub use descriptor::{Contact, Descriptor, Icon, Link};
pub use info::{InfoItem, InfoSource, IngressReference, KeyReference, ObjectReference, ServiceReference};
pub use status::{ApplicationCondition, ApplicationStatus, ComponentStatus};

/// Groups below `k8s.io` are the Kubernetes project's: the API server takes a definition in one only with a link to
/// where it was approved, <https://github.com/kubernetes/enhancements/pull/1111>.
const APPROVED: (&str, &str) = (
    "api-approved.kubernetes.io",
    "https://github.com/kubernetes-sigs/application/pull/2",
);

/// Which objects are the application's, and what people are told about it.
#[expect(clippy::duplicated_attributes, reason = "the columns are alike in their types")]
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
    doc = "An application's parts, and how ready they are.",
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
        description = "Whether the application owns its components"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.componentsReady",
        description = "How many components are ready, of how many"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
// Remote: what stands below adds that a spec may be null or absent, which can't be said of a field that `kube` derives.
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct ApplicationSpec {
    /// The kinds of the application's components.
    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub component_kinds: Vec<ComponentKind>,

    /// What the application is, for people.
    // It decides nothing, so nothing in it may fail the object.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub descriptor: Option<Descriptor>,

    /// The labels of the application's components. Without a selector it has none; an empty one selects all objects of
    /// the kinds.
    #[serde(deserialize_with = "lenient::selector", skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,

    /// Makes the application an owner of its components, so that they are deleted with it.
    #[serde(
        deserialize_with = "lenient::null_as_default",
        skip_serializing_if = "lenient::is_false"
    )]
    pub add_owner_ref: bool,

    /// How to reach and use the application, for people; nothing here is looked up.
    // It decides nothing either.
    #[serde(deserialize_with = "lenient::readable", skip_serializing_if = "Vec::is_empty")]
    pub info: Vec<InfoItem>,

    /// How far whoever puts the application together has come: `Pending`, `Succeeded` (as when it is empty) or `Failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assembly_phase: Option<String>,
}

/// A kind of component, of whichever version.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[schemars(extend("required" = ["group", "kind"]))]
#[serde(default)]
pub struct ComponentKind {
    /// The API group: empty for the core group. People also write a group with a version, as in `apps/v1`.
    #[serde(deserialize_with = "lenient::null_as_default")]
    pub group: String,
    /// The kind.
    #[serde(deserialize_with = "lenient::null_as_default")]
    pub kind: String,
}

impl Serialize for ApplicationSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The function that is derived for the type itself, not that of the trait.
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for ApplicationSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Given(ApplicationSpec);

        impl<'de> Deserialize<'de> for Given {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                ApplicationSpec::deserialize(deserializer).map(Given)
            }
        }

        // To serde a field that is absent and may be null is one that is null.
        let given = Option::<Given>::deserialize(deserializer)?;
        Ok(given.map(|Given(spec)| spec).unwrap_or_default())
    }
}

/// The definition, as far as it can't be derived: a spec is not required, and the group is approved.
pub(super) fn definition() -> CustomResourceDefinition {
    // The annotation is not the derive's, which would put it on the objects too.
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
