use k8s_openapi::api::core::v1::ObjectReference;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::lenient;

/// An item of information.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InfoItem {
    /// Title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `Value` for a literal value, `Reference` for a reference.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Reference to the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_from: Option<InfoSource>,
}

/// Reference to a value.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InfoSource {
    /// Type of the reference: `SecretKeyRef`, `ConfigMapKeyRef`, `ServiceRef` or `IngressRef`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_ref: Option<ServiceReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress_ref: Option<IngressReference>,
}

/// A key of a Secret or ConfigMap.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyReference {
    #[serde(flatten)]
    pub object: ObjectReference,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// An endpoint of a Service.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceReference {
    #[serde(flatten)]
    pub object: ObjectReference,
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}

/// An endpoint of an Ingress.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IngressReference {
    #[serde(flatten)]
    pub object: ObjectReference,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
}
