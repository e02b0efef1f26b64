//! Information for users of an application. References are not resolved.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::lenient;

/// An item of information.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InfoItem {
    /// Title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `Value` for a literal value, `Reference` for a reference.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// Literal value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Reference to the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_from: Option<InfoSource>,
}

/// Reference to a value.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InfoSource {
    /// Type of the reference: `SecretKeyRef`, `ConfigMapKeyRef`, `ServiceRef` or `IngressRef`.
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
    /// Key in the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// An endpoint of a Service.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceReference {
    /// The Service.
    #[serde(flatten)]
    pub object: ObjectReference,
    /// Port.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// Path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// An endpoint of an Ingress.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IngressReference {
    /// The Ingress.
    #[serde(flatten)]
    pub object: ObjectReference,
    /// Host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// An object reference with the fields of Kubernetes' type of the same name.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// API version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// UID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Resource version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// Path of a field, for example `spec.containers[2]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_path: Option<String>,
}
