//! Whole objects, kept as compact text and parsed on demand.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::Object;
use crate::api::{Metadata, impl_resource};

/// A whole object without `managedFields`, and without what does not count as a change or is the same for the whole kind:
/// the resource version, `apiVersion` and `kind`. Lists lack the last two, and watch events have them.
#[derive(Clone, PartialEq, Eq)]
pub struct Document(Box<str>);

/// Objects may be Secrets.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({} bytes)", self.0.len())
    }
}

impl Document {
    /// Returns the text, for a quick search.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Object<Document> {
    /// Converts a response of the API server.
    #[must_use]
    pub fn of(object: Map<String, Value>) -> Self {
        let Whole { meta, document } = Whole::of(object);
        Self::new(meta, document)
    }

    /// Returns the object as the API server sends it, without `managedFields`.
    #[must_use]
    pub fn to_value(&self, api_version: &str, kind: &str) -> Option<Value> {
        let mut object: Map<String, Value> = serde_json::from_str(&self.projection.0).ok()?;
        object.insert("apiVersion".to_owned(), api_version.into());
        object.insert("kind".to_owned(), kind.into());
        let meta = object.get_mut("metadata")?.as_object_mut()?;
        meta.insert("resourceVersion".to_owned(), (*self.version).into());
        Some(Value::Object(object))
    }
}

/// An object while it is decoded.
#[derive(Clone, Debug)]
pub(in crate::runtime::watch) struct Whole {
    pub(in crate::runtime::watch) meta: ObjectMeta,
    pub(in crate::runtime::watch) document: Document,
}

impl_resource!([] Whole, as DynamicObject, metadata_only: false, |this| &this.meta, &mut this.meta);

impl Whole {
    fn of(mut object: Map<String, Value>) -> Self {
        object.remove("apiVersion");
        object.remove("kind");
        let metadata = object.get("metadata").unwrap_or(&Value::Null);
        // An object without a name is skipped. An error would fail the whole list, and kube logs the text of such a list.
        let meta = Metadata::<IgnoredAny>::deserialize(metadata).map(|meta| meta.into_meta(|_| None));
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
            metadata.remove("resourceVersion");
        }
        Self {
            meta: meta.unwrap_or_default(),
            document: Document(Value::Object(object).to_string().into_boxed_str()),
        }
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(Self::of)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(version: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": "a", "namespace": "shop", "uid": "u", "resourceVersion": version,
                "labels": { "l": "1" }, "annotations": { "a": "2" },
                "managedFields": [{ "manager": version, "time": "9999-12-31T00:00:00Z" }]
            },
            "data": { "password": "c2VjcmV0" }
        })
    }

    fn object(value: Value) -> Object<Document> {
        let Whole { meta, document } = serde_json::from_value(value).unwrap();
        Object::new(meta, document)
    }

    #[test]
    fn an_object_is_restored_without_managed_fields() {
        let mut expected = secret("7");
        expected["metadata"].as_object_mut().unwrap().remove("managedFields");
        let restored = object(secret("7")).to_value("v1", "Secret");
        assert_eq!(restored, Some(expected.clone()));
        let mut listed = secret("7");
        for key in ["apiVersion", "kind"] {
            listed.as_object_mut().unwrap().remove(key);
        }
        assert_eq!(object(listed).to_value("v1", "Secret"), Some(expected));
    }

    #[test]
    fn another_version_of_the_same_content_is_no_change() {
        assert_eq!(object(secret("7")), object(secret("8")));
        let mut changed = secret("8");
        changed["metadata"]["annotations"]["a"] = json!("3");
        assert_ne!(object(secret("7")), object(changed));
    }

    #[test]
    fn the_content_of_an_object_is_not_printed() {
        let printed = format!("{:?}", object(secret("7")));
        assert!(!printed.contains("c2VjcmV0"), "{printed}");
    }

    #[test]
    fn malformed_metadata_does_not_fail_a_list() {
        for metadata in [json!(null), json!({ "name": 7 }), json!("text")] {
            assert!(object(json!({ "metadata": metadata })).name.is_empty());
        }
        assert!(object(json!({})).name.is_empty());
    }
}
