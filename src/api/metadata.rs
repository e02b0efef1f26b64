//! Lenient decoding of object metadata. Times in `managedFields` or `deletionTimestamp` may exceed what `jiff` can
//! represent, and a strict decoder would fail the whole list because of one object.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Display};
use std::marker::PhantomData;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use kube::Resource;
use kube::core::DeserializeGuard;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::raw::Raw;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespacedName {
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    pub name: String,
}

impl NamespacedName {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Returns `None` if the metadata has no name.
    #[must_use]
    pub fn of(meta: &ObjectMeta) -> Option<Self> {
        let name = meta.name.clone().filter(|name| !name.is_empty())?;
        Some(Self::new(meta.namespace.clone().unwrap_or_default(), name))
    }
}

impl Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[must_use]
pub fn is_object_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    !name.is_empty() && name.len() <= 253 && !name.starts_with('.') && name.bytes().all(is_allowed)
}

/// Versions that are not integers, as in some aggregated API servers, have no order.
#[must_use]
pub fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(version), Ok(than)) if version < than)
}

/// Metadata without `managedFields`, and without annotations if `A` ignores them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata<A = Annotations> {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<A>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<OwnerReference>>,
    #[serde(default, deserialize_with = "time")]
    creation_timestamp: Option<Time>,
    #[serde(default, deserialize_with = "time")]
    deletion_timestamp: Option<Time>,
}

/// Decodes a time, or the latest possible one if it is out of range. Often only its presence matters.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Time>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.map(|text| Time(text.parse().unwrap_or(Timestamp::MAX))))
}

type Annotations = BTreeMap<String, String>;

impl<A> Metadata<A> {
    pub(crate) fn into_meta(self, annotations: impl FnOnce(A) -> Option<Annotations>) -> ObjectMeta {
        ObjectMeta {
            name: self.name,
            namespace: self.namespace,
            uid: self.uid,
            resource_version: self.resource_version,
            generation: self.generation,
            labels: self.labels,
            annotations: self.annotations.and_then(annotations),
            finalizers: self.finalizers,
            owner_references: self.owner_references,
            creation_timestamp: self.creation_timestamp,
            deletion_timestamp: self.deletion_timestamp,
            ..ObjectMeta::default()
        }
    }
}

pub(super) fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let meta = Option::<Metadata>::deserialize(deserializer)?;
    Ok(meta.map(|meta| meta.into_meta(Some)).unwrap_or_default())
}

/// The metadata of an object of kind `K`, from a metadata-only request.
#[derive(Clone, Debug, Deserialize)]
pub struct Partial<K> {
    #[serde(default, deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    #[serde(skip)]
    kind: PhantomData<K>,
}

impl<K> From<ObjectMeta> for Partial<K> {
    fn from(metadata: ObjectMeta) -> Self {
        Self {
            metadata,
            kind: PhantomData,
        }
    }
}

/// An object of kind `K`, or the metadata of one that failed to decode. Never fails the list that contains it.
#[derive(Clone, Debug)]
pub struct Guarded<K>(pub DeserializeGuard<K>);

impl<'de, K: DeserializeOwned + Resource> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Raw::deserialize(deserializer)?.decode()))
    }
}

/// Implements [`Resource`] with the names of another kind.
macro_rules! impl_resource {
    ([$($parameter:tt)*] $type:ty, as $kind:ty, metadata_only: $metadata_only:expr, |$this:ident| $meta:expr, $meta_mut:expr) => {
        impl<$($parameter)*> kube::Resource for $type {
            type DynamicType = <$kind as kube::Resource>::DynamicType;
            type Scope = <$kind as kube::Resource>::Scope;

            fn metadata_api() -> bool {
                $metadata_only
            }

            fn kind(kind: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                <$kind as kube::Resource>::kind(kind)
            }

            fn group(kind: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                <$kind as kube::Resource>::group(kind)
            }

            fn version(kind: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                <$kind as kube::Resource>::version(kind)
            }

            fn api_version(kind: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                <$kind as kube::Resource>::api_version(kind)
            }

            fn plural(kind: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                <$kind as kube::Resource>::plural(kind)
            }

            fn meta(&self) -> &ObjectMeta {
                let $this = self;
                $meta
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                let $this = self;
                $meta_mut
            }
        }
    };
}
pub(crate) use impl_resource;

impl_resource!([K: Resource] Partial<K>, as K, metadata_only: true, |this| &this.metadata, &mut this.metadata);
impl_resource!([K: Resource] Guarded<K>, as K, metadata_only: K::metadata_api(), |this| this.0.meta(), this.0.meta_mut());

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::AppRepository;

    fn object(url: &Value) -> Value {
        json!({
            "apiVersion": "kubeapps.com/v1alpha1", "kind": "AppRepository",
            "metadata": {
                "name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 3,
                "labels": { "l": "1" }, "annotations": { "a": "2" }, "finalizers": ["f"],
                "ownerReferences": [{ "apiVersion": "v1", "kind": "X", "name": "x", "uid": "o" }],
                "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "10000-01-01T00:00:00Z",
                "managedFields": [{ "manager": "m", "operation": "Update", "time": "9999-12-31T00:00:00Z" }]
            },
            "spec": { "type": "helm", "url": url }
        })
    }

    fn assert_metadata(meta: &ObjectMeta) {
        assert_eq!(
            (meta.name.as_deref(), meta.namespace.as_deref()),
            (Some("a"), Some("shop"))
        );
        assert_eq!((meta.uid.as_deref(), meta.generation), (Some("u"), Some(3)));
        assert_eq!(meta.resource_version.as_deref(), Some("7"));
        assert_eq!(meta.labels.as_ref().unwrap()["l"], "1");
        assert_eq!(meta.annotations.as_ref().unwrap()["a"], "2");
        assert_eq!(meta.finalizers.as_deref(), Some(&["f".to_owned()][..]));
        assert_eq!(meta.owner_references.as_ref().unwrap()[0].uid, "o");
        let created = meta.creation_timestamp.as_ref().unwrap();
        assert_eq!(created.0.to_string(), "2026-01-02T03:04:05Z");
        assert!(meta.deletion_timestamp.is_some(), "the object is being deleted");
        assert!(meta.managed_fields.is_none());
    }

    #[test]
    fn only_integer_resource_versions_have_an_order() {
        assert!(is_older("9", "10") && !is_older("10", "9") && !is_older("9", "9"));
        assert!(!is_older("", "1") && !is_older("1", "a") && !is_older("a", "b"));
    }

    #[test]
    fn times_out_of_range_do_not_fail_an_object() {
        let text = object(&json!("https://charts.example.com")).to_string();
        let guarded: Guarded<AppRepository> = serde_json::from_str(&text).unwrap();
        assert_metadata(guarded.meta());
        let object = guarded.0.0.unwrap();
        assert_eq!(object.spec.url, "https://charts.example.com");
        let partial: Partial<Secret> = serde_json::from_str(&text).unwrap();
        assert_metadata(&partial.metadata);
    }

    #[test]
    fn an_undecodable_object_keeps_its_metadata() {
        let guarded: Guarded<AppRepository> = serde_json::from_value(object(&json!(["not a string"]))).unwrap();
        assert_metadata(guarded.meta());
        assert!(guarded.0.0.unwrap_err().error.contains("string"));
    }

    #[test]
    fn an_object_without_metadata_has_no_name() {
        for text in ["{}", r#"{"metadata": null}"#] {
            let partial: Partial<Secret> = serde_json::from_str(text).unwrap();
            assert_eq!(partial.metadata, ObjectMeta::default());
            let guarded: Guarded<AppRepository> = serde_json::from_str(text).unwrap();
            assert_eq!(guarded.meta(), &ObjectMeta::default());
        }
    }
}
