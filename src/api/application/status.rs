use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::lenient;

/// Observed readiness of the components.
// Invalid parts are ignored and overwritten.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApplicationStatus {
    /// Generation of the spec that this status describes.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The conditions Ready, and Error if the status is incomplete.
    // Not a map by type: the upstream definition allows duplicate types.
    #[serde(deserialize_with = "lenient::valid_elements", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ApplicationCondition>,

    /// Components, ordered by kind and name.
    #[serde(deserialize_with = "lenient::valid_elements", skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<ComponentStatus>,

    /// Number of ready components and total number, for example `2/3`.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub components_ready: Option<String>,
}

/// A condition of an application. Unlike Kubernetes' own type, it has an update time and no observed generation.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[schemars(extend("required" = ["status", "type"]))]
#[serde(rename_all = "camelCase", default)]
pub struct ApplicationCondition {
    /// Type: `Ready` or `Error`.
    #[serde(rename = "type", deserialize_with = "lenient::null_as_default")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "lenient::null_as_default")]
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Time of the last change of status, reason or message.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// Time of the last change of the status.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

/// Status of a component.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ComponentStatus {
    /// API path. Deprecated and never set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// API group, absent for the core group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// `Ready`, `InProgress` or `Unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}
