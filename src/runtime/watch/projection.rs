//! An object as far as it is of interest, decoded without ever holding the rest.

use std::borrow::Cow;
use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::compact_owner_refs::OwnerReferences;
use crate::api::Metadata;

/// How much of an object has to be fetched and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Its metadata alone: the API server is not asked for anything else.
    Metadata,
    /// Its status too.
    Status,
    /// Its spec and status too.
    SpecAndStatus,
}

/// What is kept of an object beside its metadata. It is made while the object is decoded.
pub trait Project: Clone + Debug + Send + Sync + 'static {
    /// What of the object it is made of.
    const READS: Reads;

    /// Makes it. What [`Project::READS`] leaves out, and what the object has not, is nothing. It can't fail: what is wrong with an
    /// object is something to keep of it.
    fn keep(generation: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Self;
}

/// An object of any kind, as far as it is of interest.
#[derive(Clone, Debug)]
pub struct Object<K> {
    /// Its namespace; none, where its kind has none.
    pub namespace: Option<Arc<str>>,
    /// Its name.
    pub name: Box<str>,
    /// Its UID: another object of the same name has another.
    pub uid: Box<str>,
    /// Its version when it was seen last.
    pub version: Box<str>,
    /// Its labels.
    pub labels: Labels,
    /// Its owners.
    pub owner_references: OwnerReferences,
    /// Whether it is being deleted.
    pub is_being_deleted: bool,
    /// What is kept of the rest.
    pub kept: K,
}

/// Two sights of an object are equal if they say the same. The version alone says nothing: most changes are of no interest.
impl<K: PartialEq> PartialEq for Object<K> {
    fn eq(&self, other: &Self) -> bool {
        (&self.namespace, &self.name, &self.uid) == (&other.namespace, &other.name, &other.uid)
            && self.labels == other.labels
            && self.owner_references == other.owner_references
            && self.is_being_deleted == other.is_being_deleted
            && self.kept == other.kept
    }
}

/// Labels in little room: there are several for each object, and few of them are ever looked at. Clones share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Arc<str>);

/// What stands behind each key and each value. The API server lets it be in none of them.
const END: char = '\0';

impl Labels {
    /// The value of a label, if it is there.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut parts = self.0.split_terminator(END);
        while let (Some(own), Some(value)) = (parts.next(), parts.next()) {
            if own == key {
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
            // Who lets it in all the same means another key or value than any that is asked for.
            text.extend(
                part.chars()
                    .map(|c| if c == END { char::REPLACEMENT_CHARACTER } else { c }),
            );
            text.push(END);
        }
        Self(text.into())
    }
}

impl<K> Object<K> {
    /// Shares what it has in common with another one: objects that stand side by side are often parts of one thing, with the same
    /// labels and the same owner.
    pub(super) fn share(&mut self, other: &Self) {
        if self.namespace == other.namespace {
            self.namespace = other.namespace.clone();
        }
        if self.labels == other.labels {
            self.labels = other.labels.clone();
        }
        if self.owner_references == other.owner_references {
            self.owner_references = other.owner_references.clone();
        }
    }

    /// The object that these metadata and `kept` make.
    #[must_use]
    pub fn new(meta: ObjectMeta, kept: K) -> Self {
        Self {
            namespace: meta.namespace.filter(|namespace| !namespace.is_empty()).map(Into::into),
            name: meta.name.unwrap_or_default().into(),
            uid: meta.uid.unwrap_or_default().into(),
            version: meta.resource_version.unwrap_or_default().into(),
            labels: meta.labels.unwrap_or_default().into_iter().collect(),
            owner_references: meta.owner_references.unwrap_or_default().into(),
            is_being_deleted: meta.deletion_timestamp.is_some(),
            kept,
        }
    }
}

/// An object just decoded, in the form that the client's watch wants.
#[derive(Clone, Debug)]
pub(in crate::runtime) struct Decoded<K> {
    /// The metadata of interest; the others are left out.
    pub(in crate::runtime) meta: ObjectMeta,
    pub(super) kept: K,
}

impl<K: Project> Resource for Decoded<K> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn metadata_api() -> bool {
        K::READS == Reads::Metadata
    }

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.kind)
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.group)
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.version)
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.api_version)
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&resource.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

impl<'de, K: Project> Deserialize<'de> for Decoded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Decode(PhantomData))
    }
}

struct Decode<K>(PhantomData<K>);

impl<'de, K: Project> Visitor<'de> for Decode<K> {
    type Value = Decoded<K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Decoded<K>, A::Error> {
        let (mut meta, mut spec, mut status) = (ObjectMeta::default(), None, None);
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            // Spec and status stay text, of which no more than one object's is there at a time: whatever is in them, it can't
            // fail the list that the object is in.
            match (&*key, K::READS) {
                // Annotations may be most of an object, and a page of objects is held at a time.
                ("metadata", _) => {
                    meta = ObjectMeta {
                        annotations: None,
                        ..map.next_value::<Metadata>()?.into()
                    }
                }
                ("spec", Reads::SpecAndStatus) => spec = map.next_value::<Option<Box<RawValue>>>()?,
                ("status", Reads::Status | Reads::SpecAndStatus) => {
                    status = map.next_value::<Option<Box<RawValue>>>()?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let kept = K::keep(meta.generation.unwrap_or_default(), spec.as_deref(), status.as_deref());
        Ok(Decoded { meta, kept })
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
        const READS: Reads = Reads::SpecAndStatus;

        fn keep(generation: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Self {
            let text = |raw: &RawValue| raw.get().to_owned();
            Self(generation, spec.map(text), status.map(text))
        }
    }

    #[derive(Clone, Debug, PartialEq)]
    struct StatusOnly(bool);

    impl Project for StatusOnly {
        const READS: Reads = Reads::Status;

        fn keep(_: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Self {
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
    fn what_is_of_interest_is_decoded_and_the_rest_is_passed_over() {
        let decoded: Decoded<Raw> = serde_json::from_str(&object().to_string()).unwrap();
        assert_eq!(decoded.meta.annotations, None);
        assert_eq!(decoded.meta.managed_fields, None);
        assert_eq!(decoded.meta.resource_version.as_deref(), Some("7"));
        let object = Object::new(decoded.meta, decoded.kept);
        assert_eq!((&*object.name, object.namespace.as_deref()), ("web", Some("shop")));
        assert_eq!((object.labels.get("a"), object.labels.get("c")), (Some("1"), None));
        assert!(object.owner_references.has("u-2"));
        let spec = r#"{"replicas":2,"template":{}}"#.to_owned();
        assert_eq!(object.kept, Raw(3, Some(spec), None));
    }

    #[test]
    fn a_label_is_found_by_its_whole_key_and_may_be_empty() {
        let labels: Labels = [("app", "web"), ("app.kubernetes.io/name", ""), ("a\0b", "c\0d")]
            .into_iter()
            .collect();
        assert_eq!(labels.get("app"), Some("web"));
        assert_eq!(labels.get("app.kubernetes.io/name"), Some(""));
        for other in ["web", "ap", "", "a", "b", "d"] {
            assert_eq!(labels.get(other), None, "{other:?}");
        }
        let turned = [("app.kubernetes.io/name", ""), ("a\0b", "c\0d"), ("app", "web")];
        assert_eq!(turned.into_iter().collect::<Labels>(), labels, "they have no order");
    }

    #[test]
    fn times_beyond_what_can_be_held_fail_no_object() {
        let mut object = object();
        object["metadata"]["managedFields"][0]["time"] = json!("9999-12-31T00:00:00Z");
        for (time, is_being_deleted) in [(json!("10000-01-01T00:00:00Z"), true), (json!(null), false)] {
            object["metadata"]["deletionTimestamp"] = time;
            let decoded: Decoded<StatusOnly> = serde_json::from_str(&object.to_string()).unwrap();
            let object = Object::new(decoded.meta, decoded.kept);
            assert_eq!(object.is_being_deleted, is_being_deleted);
        }
    }

    #[test]
    fn nothing_is_read_that_is_not_asked_for() {
        let mut object = object();
        object["status"] = json!("odd");
        let decoded: Decoded<StatusOnly> = serde_json::from_str(&object.to_string()).unwrap();
        assert!(decoded.kept.0);
    }

    #[test]
    fn lists_and_events_of_the_client_hold_such_objects() {
        let list =
            json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": [object(), { "metadata": {} }] });
        let list: ObjectList<Decoded<Raw>> = serde_json::from_str(&list.to_string()).unwrap();
        assert_eq!(list.items.len(), 2);
        let event = json!({ "type": "MODIFIED", "object": object() }).to_string();
        // The API server writes the type first; sorted by name it would come last.
        let event = event
            .replacen('{', "{\"type\":\"MODIFIED\",", 1)
            .replace(",\"type\":\"MODIFIED\"}", "}");
        let event: WatchEvent<Decoded<Raw>> = serde_json::from_str(&event).unwrap();
        assert!(matches!(event, WatchEvent::Modified(object) if object.meta.name.as_deref() == Some("web")));
    }
}
