use std::fmt::{self, Debug};

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::compression::Compressed;
use super::{absent_as_default, schema};
use crate::api::lenient::{self, is_false, null_as_default};

/// Record of the objects that an application manages.
#[expect(clippy::duplicated_attributes, reason = "several columns have the same type")]
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "core.oam.dev",
    version = "v1beta1",
    kind = "ResourceTracker",
    plural = "resourcetrackers",
    shortname = "rt",
    category = "oam",
    status = "TrackerStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A record of the objects that an application manages.",
    printcolumn(name = "TYPE", type_ = "string", json_path = ".spec.type"),
    printcolumn(
        name = "APP",
        type_ = "string",
        json_path = r".metadata.labels['app\.oam\.dev\/name']"
    ),
    printcolumn(
        name = "APP-NS",
        type_ = "string",
        json_path = r".metadata.labels['app\.oam\.dev\/namespace']"
    ),
    printcolumn(name = "APP-GEN", type_ = "number", json_path = ".spec.applicationGeneration")
)]
#[schemars(extend("required" = ["applicationGeneration"]))]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct ResourceTrackerSpec {
    /// `root`, `versioned` or `component-revision`.
    #[serde(
        rename = "type",
        deserialize_with = "null_as_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub type_: String,

    /// Generation of the application, or 0 if the tracker is not versioned.
    #[serde(deserialize_with = "lenient::integer")]
    #[schemars(schema_with = "schema::integer")]
    pub application_generation: i64,

    #[serde(deserialize_with = "lenient::list", skip_serializing_if = "Vec::is_empty")]
    pub managed_resources: Vec<ManagedResource>,

    /// The managed resources, compressed. The list itself is then empty.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Compressed::is_empty")]
    pub compression: Compressed,
}

absent_as_default!(ResourceTrackerSpec);

/// Deprecated. Not written.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TrackerStatus {
    #[serde(deserialize_with = "lenient::valid_elements", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::objects")]
    pub tracked_resources: Vec<Value>,
}

/// An object that is managed.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedResource {
    /// Empty or `local` for the controller's own cluster.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// `workflow` or `policy`, from earlier versions. Not written.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub creator: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub component: String,
    /// Type of the trait, empty for workloads.
    #[serde(
        rename = "trait",
        deserialize_with = "null_as_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub trait_: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub env: String,
    /// Not used.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Not used.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub field_path: String,
    /// The manifest. Without it, the state of the object is not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::object")]
    pub raw: Option<RawManifest>,
    /// The object is deleted by the workflow.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "is_false")]
    pub deleted: bool,
    /// The object is never garbage collected.
    #[serde(
        rename = "skipGC",
        deserialize_with = "null_as_default",
        skip_serializing_if = "is_false"
    )]
    pub skip_gc: bool,
}

/// A manifest as JSON text, which takes a fraction of the memory of a parsed one.
#[derive(Clone)]
pub struct RawManifest(Box<RawValue>);

impl RawManifest {
    pub fn of(manifest: &Value) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(manifest).map(Self)
    }

    #[must_use]
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// Fails if it is nested too deeply.
    pub fn parse(&self) -> Result<Value, serde_json::Error> {
        serde_json::from_str(self.text())
    }
}

/// Compares contents: KubeVela may write keys in another order.
impl PartialEq for RawManifest {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text() || matches!((self.parse(), other.parse()), (Ok(one), Ok(two)) if one == two)
    }
}

/// Manifests may contain Secrets.
impl Debug for RawManifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawManifest({} bytes)", self.text().len())
    }
}

impl Serialize for RawManifest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawManifest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self)
    }
}
