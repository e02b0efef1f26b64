//! What people need in order to reach an application, or where that stands. It is data only: no reference is followed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::lenient;

/// One piece of information.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InfoItem {
    /// Its title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `Value` where the value stands here, `Reference` where it stands elsewhere.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// The value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Where the value stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_from: Option<InfoSource>,
}

/// Where a value stands.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InfoSource {
    /// Which of the references counts: `SecretKeyRef`, `ConfigMapKeyRef`, `ServiceRef` or `IngressRef`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// A key of a Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyReference>,
    /// A key of a ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyReference>,
    /// A Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_ref: Option<ServiceReference>,
    /// An Ingress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress_ref: Option<IngressReference>,
}

/// A key of a Secret or ConfigMap.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyReference {
    /// The Secret or ConfigMap.
    #[serde(flatten)]
    pub object: ObjectReference,
    /// The key in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A place that a Service serves.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceReference {
    /// The Service.
    #[serde(flatten)]
    pub object: ObjectReference,
    /// The port.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// The path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// A place that an Ingress serves.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IngressReference {
    /// The Ingress.
    #[serde(flatten)]
    pub object: ObjectReference,
    /// The host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// An object of the cluster, with the fields of Kubernetes' own type of that name.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// Its API version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its UID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The resource version that is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// The part of the object that is meant, as `spec.containers[2]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_path: Option<String>,
}
