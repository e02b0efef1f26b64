//! What an Application's status says.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::lenient;

/// How ready an application's components are.
// What can't be read of a status is as if it was not there: it is written anew.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApplicationStatus {
    /// The generation of the spec that this status is about.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Ready, and Error: what has kept the status from being complete.
    // Not a map by type: the neighbour's definition lets a type stand twice.
    #[serde(deserialize_with = "lenient::readable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ApplicationCondition>,

    /// The components, in the order of their kinds, and by name within a kind.
    #[serde(deserialize_with = "lenient::readable", skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<ComponentStatus>,

    /// How many components are ready, of how many: `2/3`.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub components_ready: Option<String>,
}

/// One aspect of an application's state. It is not Kubernetes' own type, which has an observed generation and no time of
/// update.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[schemars(extend("required" = ["status", "type"]))]
#[serde(rename_all = "camelCase", default)]
pub struct ApplicationCondition {
    /// The aspect: `Ready` or `Error`.
    #[serde(rename = "type", deserialize_with = "lenient::null_as_default")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "lenient::null_as_default")]
    pub status: String,
    /// The reason in one word, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When status, reason or message last changed.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// When the status last changed.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

/// How one component is.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ComponentStatus {
    /// Its path in the API; Kubernetes has stopped telling it, and it is not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its API group; absent for the core group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// `Ready`, `InProgress` or `Unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}
