//! Decoding of objects to identifying metadata and a projection, without holding the rest.

mod document;

use std::borrow::Cow;
use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

pub(super) use document::Whole;
pub use document::{Document, DocumentCache};

use super::compact_owner_refs::OwnerReferences;
use super::store::{ChangeSource, Stored};
use crate::api::{Metadata, impl_resource};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldSet {
    Metadata,
    Status,
    SpecAndStatus,
}

/// Computes the part of an object to keep, while the object is decoded.
pub trait Project: Clone + Debug + Send + Sync + 'static {
    const FIELDS: FieldSet;

    /// Fields outside [`Project::FIELDS`] and absent fields are `None`. Infallible: errors are part of the projection.
    fn project(generation: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Self;
}

impl Project for () {
    const FIELDS: FieldSet = FieldSet::Metadata;

    fn project(_: i64, _: Option<&RawValue>, _: Option<&RawValue>) -> Self {}
}

#[derive(Clone, Debug)]
pub struct Object<K> {
    pub namespace: Option<Arc<str>>,
    pub name: Box<str>,
    pub uid: Box<str>,
    pub version: Box<str>,
    pub labels: Labels,
    pub owner_references: OwnerReferences,
    pub is_being_deleted: bool,
    pub projection: K,
}

/// Ignores the version: most changes do not affect the projection.
impl<K: PartialEq> PartialEq for Object<K> {
    fn eq(&self, other: &Self) -> bool {
        (&self.namespace, &self.name, &self.uid) == (&other.namespace, &other.name, &other.uid)
            && self.labels == other.labels
            && self.owner_references == other.owner_references
            && self.is_being_deleted == other.is_being_deleted
            && self.projection == other.projection
    }
}

/// Compact labels, rarely read. Clones share the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Arc<str>);

/// Follows each key and value. The API server allows it in neither.
const TERMINATOR: char = '\0';

impl Labels {
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut parts = self.0.split_terminator(TERMINATOR);
        while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
            if name == key {
                return Some(value);
            }
        }
        None
    }
}

impl<S: AsRef<str> + Ord> FromIterator<(S, S)> for Labels {
    fn from_iter<I: IntoIterator<Item = (S, S)>>(labels: I) -> Self {
        let mut labels: Vec<_> = labels.into_iter().collect();
        labels.sort();
        let mut text = String::new();
        for part in labels.iter().flat_map(|(key, value)| [key.as_ref(), value.as_ref()]) {
            // A NUL from a lax server yields a label that nothing matches.
            text.extend(part.chars().map(|c| {
                if c == TERMINATOR {
                    char::REPLACEMENT_CHARACTER
                } else {
                    c
                }
            }));
            text.push(TERMINATOR);
        }
        Self(text.into())
    }
}

impl<K> Object<K> {
    #[must_use]
    pub fn new(meta: ObjectMeta, projection: K) -> Self {
        Self {
            namespace: meta.namespace.filter(|namespace| !namespace.is_empty()).map(Into::into),
            name: meta.name.unwrap_or_default().into(),
            uid: meta.uid.unwrap_or_default().into(),
            version: meta.resource_version.unwrap_or_default().into(),
            labels: meta.labels.unwrap_or_default().into_iter().collect(),
            owner_references: meta.owner_references.unwrap_or_default().into(),
            is_being_deleted: meta.deletion_timestamp.is_some(),
            projection,
        }
    }
}

impl<K: PartialEq> Stored for Arc<Object<K>> {
    const REPORTS_FIRST_LIST: bool = false;

    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn is_unchanged(&self, old: &Self, _: ChangeSource) -> bool {
        self == old
    }

    /// Neighboring objects often have the same labels and owners.
    fn share(&mut self, neighbor: &Self) {
        let Some(object) = Self::get_mut(self) else { return };
        if object.namespace == neighbor.namespace {
            object.namespace.clone_from(&neighbor.namespace);
        }
        if object.labels == neighbor.labels {
            object.labels = neighbor.labels.clone();
        }
        if object.owner_references == neighbor.owner_references {
            object.owner_references = neighbor.owner_references.clone();
        }
    }
}

#[derive(Clone, Debug)]
pub(in crate::runtime) struct Decoded<K> {
    /// Without annotations and other unused metadata.
    pub(in crate::runtime) meta: ObjectMeta,
    pub(super) projection: K,
}

impl_resource!([K: Project] Decoded<K>, as DynamicObject, metadata_only: K::FIELDS == FieldSet::Metadata,
    |this| &this.meta, &mut this.meta);

impl<'de, K: Project> Deserialize<'de> for Decoded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(DecodedVisitor(PhantomData))
    }
}

struct DecodedVisitor<K>(PhantomData<K>);

impl<'de, K: Project> Visitor<'de> for DecodedVisitor<K> {
    type Value = Decoded<K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Decoded<K>, A::Error> {
        let (mut meta, mut spec, mut status) = (ObjectMeta::default(), None, None);
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            // Spec and status stay raw text, one object at a time, so their content cannot fail the whole list.
            match (&*key, K::FIELDS) {
                // Annotations may be most of an object, and a page of objects is in memory at a time.
                ("metadata", _) => meta = map.next_value::<Metadata<IgnoredAny>>()?.into_meta(|_| None),
                ("spec", FieldSet::SpecAndStatus) => spec = map.next_value::<Option<Box<RawValue>>>()?,
                ("status", FieldSet::Status | FieldSet::SpecAndStatus) => {
                    status = map.next_value::<Option<Box<RawValue>>>()?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let projection = K::project(meta.generation.unwrap_or_default(), spec.as_deref(), status.as_deref());
        Ok(Decoded { meta, projection })
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{ObjectList, WatchEvent};
    use serde_json::json;

    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Raw(i64, Option<String>, Option<String>);

    impl Project for Raw {
        const FIELDS: FieldSet = FieldSet::SpecAndStatus;

        fn project(generation: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Self {
            let text = |raw: &RawValue| raw.get().to_owned();
            Self(generation, spec.map(text), status.map(text))
        }
    }

    #[derive(Clone, Debug, PartialEq)]
    struct StatusOnly(bool);

    impl Project for StatusOnly {
        const FIELDS: FieldSet = FieldSet::Status;

        fn project(_: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Self {
            Self(spec.is_none() && status.is_some())
        }
    }

    fn object() -> serde_json::Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "u-1", "resourceVersion": "7", "generation": 3,
                "labels": { "b": "2", "a": "1" },
                "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "much" },
                "managedFields": [{ "manager": "kubectl", "fieldsV1": {} }],
                "ownerReferences": [{ "apiVersion": "v1", "kind": "X", "name": "x", "uid": "u-2" }]
            },
            "spec": { "replicas": 2, "template": {} }, "status": null
        })
    }

    #[test]
    fn unused_metadata_is_dropped_while_decoding() {
        let decoded: Decoded<Raw> = serde_json::from_str(&object().to_string()).unwrap();
        assert_eq!(decoded.meta.annotations, None);
        assert_eq!(decoded.meta.managed_fields, None);
        assert_eq!(decoded.meta.resource_version.as_deref(), Some("7"));
        let object = Object::new(decoded.meta, decoded.projection);
        assert_eq!((&*object.name, object.namespace.as_deref()), ("web", Some("shop")));
        assert_eq!((object.labels.get("a"), object.labels.get("c")), (Some("1"), None));
        assert!(object.owner_references.has("u-2"));
        let spec = r#"{"replicas":2,"template":{}}"#.to_owned();
        assert_eq!(object.projection, Raw(3, Some(spec), None));
    }

    #[test]
    fn labels_are_found_by_their_full_key_and_may_be_empty() {
        let labels: Labels = [("app", "web"), ("app.kubernetes.io/name", ""), ("a\0b", "c\0d")]
            .into_iter()
            .collect();
        assert_eq!(labels.get("app"), Some("web"));
        assert_eq!(labels.get("app.kubernetes.io/name"), Some(""));
        for other in ["web", "ap", "", "a", "b", "d"] {
            assert_eq!(labels.get(other), None, "{other:?}");
        }
        let reordered = [("app.kubernetes.io/name", ""), ("a\0b", "c\0d"), ("app", "web")];
        assert_eq!(
            reordered.into_iter().collect::<Labels>(),
            labels,
            "labels are unordered"
        );
    }

    #[test]
    fn out_of_range_times_do_not_fail_decoding() {
        let mut object = object();
        object["metadata"]["managedFields"][0]["time"] = json!("9999-12-31T00:00:00Z");
        for (time, is_being_deleted) in [(json!("10000-01-01T00:00:00Z"), true), (json!(null), false)] {
            object["metadata"]["deletionTimestamp"] = time;
            let decoded: Decoded<StatusOnly> = serde_json::from_str(&object.to_string()).unwrap();
            let object = Object::new(decoded.meta, decoded.projection);
            assert_eq!(object.is_being_deleted, is_being_deleted);
        }
    }

    #[test]
    fn fields_outside_the_field_set_are_not_decoded() {
        let mut object = object();
        object["status"] = json!("malformed");
        let decoded: Decoded<StatusOnly> = serde_json::from_str(&object.to_string()).unwrap();
        assert!(decoded.projection.0);
    }

    #[test]
    fn kube_lists_and_watch_events_decode_to_projections() {
        let list =
            json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": [object(), { "metadata": {} }] });
        let list: ObjectList<Decoded<Raw>> = serde_json::from_str(&list.to_string()).unwrap();
        assert_eq!(list.items.len(), 2);
        let event = json!({ "type": "MODIFIED", "object": object() }).to_string();
        // The API server writes the type first, but serde_json sorts by name.
        let event = event
            .replacen('{', "{\"type\":\"MODIFIED\",", 1)
            .replace(",\"type\":\"MODIFIED\"}", "}");
        let event: WatchEvent<Decoded<Raw>> = serde_json::from_str(&event).unwrap();
        assert!(matches!(event, WatchEvent::Modified(object) if object.meta.name.as_deref() == Some("web")));
    }
}
