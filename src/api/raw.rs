//! Objects as text, decoded one at a time.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::DeserializeGuard;
use kube::core::error_boundary::InvalidObject;
use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::metadata::{impl_resource, metadata};

/// Fields at the top level of an object, besides its metadata.
pub type RawFields<'a> = BTreeMap<String, &'a RawValue>;

/// Never fails the list that contains it. A page of objects is in memory at a time. Decoded, each may take a hundred
/// times its text.
#[derive(Clone, Debug)]
pub struct Raw<K> {
    meta: ObjectMeta,
    text: Box<RawValue>,
    kind: PhantomData<fn() -> K>,
}

#[derive(Deserialize)]
struct Outline {
    #[serde(default, deserialize_with = "metadata")]
    metadata: ObjectMeta,
}

impl<'de, K> Deserialize<'de> for Raw<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(Box::<RawValue>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl<K> Raw<K> {
    /// Fails if it is no object, or its metadata can't be decoded.
    pub fn new(text: Box<RawValue>) -> Result<Self, serde_json::Error> {
        let Outline { metadata } = serde_json::from_str(text.get())?;
        Ok(Self {
            meta: metadata,
            text,
            kind: PhantomData,
        })
    }

    #[must_use]
    pub const fn metadata(&self) -> &ObjectMeta {
        &self.meta
    }

    #[must_use]
    pub fn text(&self) -> &str {
        self.text.get()
    }

    #[must_use]
    pub fn fields(&self) -> RawFields<'_> {
        // The text was found to be an object before.
        let mut fields: RawFields<'_> = serde_json::from_str(self.text.get()).unwrap_or_default();
        fields.remove("metadata");
        fields
    }

    /// Returns the metadata of the object as one that can't be decoded.
    #[must_use]
    pub fn invalid(self, error: String) -> InvalidObject {
        InvalidObject {
            error,
            metadata: self.meta,
        }
    }
}

impl<K: DeserializeOwned + Resource> Raw<K> {
    #[must_use]
    pub fn decode(self) -> DeserializeGuard<K> {
        let decoded = decode::<K>(self.fields());
        DeserializeGuard(match decoded {
            Ok(mut object) => {
                *object.meta_mut() = self.meta;
                Ok(object)
            }
            Err(error) => Err(self.invalid(error)),
        })
    }
}

/// Decodes an object without metadata.
pub fn decode<K: DeserializeOwned + Resource>(fields: RawFields<'_>) -> Result<K, String> {
    let none = RawValue::from_string("{}".to_owned()).map_err(|error| error.to_string())?;
    let metadata = [("metadata", &*none)];
    let fields = fields.iter().map(|(name, value)| (name.as_str(), *value));
    let object = MapDeserializer::<_, serde_json::Error>::new(fields.chain(metadata));
    K::deserialize(object).map_err(|error| without_position(&error.to_string()).to_owned())
}

/// Positions are those in a field.
fn without_position(error: &str) -> &str {
    let position = error.rfind(" at line ").filter(|_| error.contains(" column "));
    position.and_then(|end| error.get(..end)).unwrap_or(error)
}

impl_resource!([K: Resource] Raw<K>, as K, metadata_only: K::metadata_api(), |this| &this.meta, &mut this.meta);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::AppRepository;

    fn raw(spec: &serde_json::Value) -> Raw<AppRepository> {
        let object = json!({ "metadata": { "name": "a", "uid": "u" }, "spec": spec });
        serde_json::from_str(&object.to_string()).unwrap()
    }

    #[test]
    fn an_object_has_metadata_before_it_is_decoded() {
        let object = raw(&json!({ "type": "helm", "url": "https://charts.example.com" }));
        assert_eq!(object.metadata().name.as_deref(), Some("a"));
        assert_eq!(object.fields().len(), 1);
        let decoded = object.decode().0.unwrap();
        assert_eq!(
            (decoded.metadata.uid.as_deref(), decoded.spec.type_.as_str()),
            (Some("u"), "helm")
        );
    }

    #[test]
    fn an_invalid_object_has_an_error_without_a_position() {
        let invalid = raw(&json!({ "type": "helm", "url": 7 })).decode().0.unwrap_err();
        assert_eq!(invalid.metadata.uid.as_deref(), Some("u"));
        assert_eq!(invalid.error, "invalid type: integer `7`, expected a string");
    }

    #[test]
    fn metadata_are_decoded_leniently() {
        let text = json!({ "metadata": { "name": "a", "deletionTimestamp": "10000-01-01T00:00:00Z" },
            "spec": { "type": "helm", "url": "" } });
        let object: Raw<AppRepository> = serde_json::from_value(text).unwrap();
        assert!(object.decode().0.unwrap().metadata.deletion_timestamp.is_some());
    }
}
