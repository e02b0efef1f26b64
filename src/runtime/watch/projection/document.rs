//! Whole objects, kept as compact text and parsed on demand.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::Object;
use crate::api::{Metadata, Raw, impl_resource};
use crate::budget::{Budget, Reservation, parsed_bytes};
use crate::runtime::watch::MAX_DECODED_BYTES;

/// Memory of an object besides its text.
const OBJECT_BYTES: usize = 512;

/// A whole object without `managedFields`, and without the resource version, `apiVersion` and `kind`: they are no
/// change, or the same for the whole kind. Lists lack the last two, and watch events have them. If the namespace holds
/// too much, only a digest is kept. Clones share the text.
#[derive(Clone)]
pub struct Document(Arc<Text>);

enum Text {
    Whole {
        text: Box<str>,
        _memory: Reservation,
    },
    Omitted {
        digest: [u8; 32],
        _memory: Option<Reservation>,
    },
}

/// Objects may be Secrets.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Document({} bytes)", self.text().map_or(0, str::len))
    }
}

impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        match (self.text(), other.text()) {
            (Some(text), Some(other)) => text == other,
            _ => self.digest() == other.digest(),
        }
    }
}

impl Document {
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &*self.0 {
            Text::Whole { text, .. } => Some(text),
            Text::Omitted { .. } => None,
        }
    }

    fn digest(&self) -> [u8; 32] {
        match &*self.0 {
            Text::Whole { text, .. } => digest(text),
            Text::Omitted { digest, .. } => *digest,
        }
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// Converts objects to documents, as long as their owner has a share of the budget.
#[derive(Clone, Debug)]
pub struct DocumentCache {
    pub budget: Budget,
    /// Memory for what is kept of other objects; no limit if `None`.
    pub omitted: Option<Budget>,
    /// The owner of all objects; each namespace owns its own if `None`.
    pub owner: Option<Arc<str>>,
    /// The labels that are kept beside the document.
    pub labels: &'static [&'static str],
}

impl DocumentCache {
    /// Returns `None` for an object that is omitted, if there are too many.
    #[must_use]
    pub fn object(&self, object: Map<String, Value>) -> Option<Object<Document>> {
        self.convert(Whole::of(object))
    }

    pub(in crate::runtime::watch) fn convert(&self, Whole { mut meta, text }: Whole) -> Option<Object<Document>> {
        // The text has them, and they may be large.
        meta.owner_references = None;
        if let Some(labels) = &mut meta.labels {
            labels.retain(|name, _| self.labels.contains(&name.as_str()));
        }
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let owner = self.owner.as_deref().unwrap_or(namespace);
        let share = |text: &str| self.budget.try_share(owner, (OBJECT_BYTES + text.len()) as u64);
        let document = match text.map(|text| (share(&text), text)) {
            Ok((Some(memory), text)) => Text::Whole { text, _memory: memory },
            Ok((None, text)) => self.omit(owner, &meta, digest(&text))?,
            Err(digest) => self.omit(owner, &meta, digest)?,
        };
        Some(Object::new(meta, Document(Arc::new(document))))
    }

    fn omit(&self, owner: &str, meta: &ObjectMeta, digest: [u8; 32]) -> Option<Text> {
        let memory = match &self.omitted {
            None => None,
            Some(budget) => Some(budget.try_share(owner, meta_bytes(meta))?),
        };
        Some(Text::Omitted {
            digest,
            _memory: memory,
        })
    }
}

/// Returns the memory of an object without its text.
fn meta_bytes(meta: &ObjectMeta) -> u64 {
    let names = [&meta.namespace, &meta.name, &meta.uid, &meta.resource_version];
    let names = names.into_iter().flatten().map(String::len);
    let labels = meta
        .labels
        .iter()
        .flatten()
        .map(|(name, value)| name.len() + value.len());
    (OBJECT_BYTES + names.chain(labels).sum::<usize>()) as u64
}

impl Object<Document> {
    /// Returns the object as the API server sends it, without `managedFields`, unless it is omitted.
    #[must_use]
    pub fn to_value(&self, api_version: &str, kind: &str) -> Option<Value> {
        let mut object: Map<String, Value> = serde_json::from_str(self.projection.text()?).ok()?;
        object.insert("apiVersion".to_owned(), api_version.into());
        object.insert("kind".to_owned(), kind.into());
        let meta = object.get_mut("metadata")?.as_object_mut()?;
        meta.insert("resourceVersion".to_owned(), (*self.version).into());
        Some(Value::Object(object))
    }
}

#[derive(Clone, Debug)]
pub(in crate::runtime::watch) struct Whole {
    meta: ObjectMeta,
    /// The digest of an object that would take too much memory to be parsed.
    text: Result<Box<str>, [u8; 32]>,
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
            text: Ok(Value::Object(object).to_string().into_boxed_str()),
        }
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        if parsed_bytes(text.get()) <= MAX_DECODED_BYTES {
            let object = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
            return Ok(Self::of(object));
        }
        let digest = digest(text.get());
        // As below, an object with malformed metadata is skipped.
        let meta = Raw::<DynamicObject>::new(text).map(|raw| raw.metadata().clone());
        Ok(Self {
            meta: ObjectMeta {
                annotations: None,
                ..meta.unwrap_or_default()
            },
            text: Err(digest),
        })
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

    fn cache(limit: u64) -> DocumentCache {
        DocumentCache {
            owner: None,
            omitted: None,
            budget: Budget::new("test", limit),
            labels: &["l"],
        }
    }

    fn object(value: Value) -> Object<Document> {
        let object = serde_json::from_value(value).unwrap();
        cache(1 << 20).convert(object).unwrap()
    }

    #[test]
    fn a_namespace_that_holds_too_much_has_digests_that_still_show_changes() {
        let cache = cache(64 << 10);
        let large = |namespace: &str, name: &str, content: char| {
            let mut object = secret("7");
            object["metadata"]["namespace"] = json!(namespace);
            object["metadata"]["name"] = json!(name);
            object["metadata"]["labels"]["other"] = json!("x".repeat(1000));
            object["data"] = json!(content.to_string().repeat(8 << 10));
            cache.convert(serde_json::from_value(object).unwrap()).unwrap()
        };
        let held: Vec<_> = (0..9)
            .map(|number| large("greedy", &format!("a-{number}"), 'a'))
            .collect();
        let whole = held.iter().filter(|object| object.to_value("v1", "Secret").is_some());
        assert_eq!(whole.count(), 3);
        assert!(
            large("shop", "a", 'a').to_value("v1", "Secret").is_some(),
            "others have their share"
        );
        let omitted = &held[8];
        assert_eq!(omitted.labels.get("l"), Some("1"));
        assert_eq!(omitted.labels.get("other"), None);
        assert_eq!(*omitted, large("greedy", "a-8", 'a'));
        assert_ne!(*omitted, large("greedy", "a-8", 'b'));
        drop(held);
        assert_eq!(cache.budget.used(), 0);
        assert!(large("greedy", "a-8", 'a').to_value("v1", "Secret").is_some());
    }

    #[test]
    fn objects_that_are_omitted_have_a_limit_too() {
        let cache = DocumentCache {
            owner: Some("hostile".into()),
            omitted: Some(Budget::new("omitted", 8 << 10)),
            ..cache(0)
        };
        let convert = |name: &str| {
            let mut object = secret("7");
            object["metadata"]["name"] = json!(name);
            cache.convert(serde_json::from_value(object).unwrap())
        };
        assert!(convert(&"a".repeat(8 << 10)).is_none(), "names count");
        let kept: Vec<_> = (0..100).map_while(|number| convert(&number.to_string())).collect();
        assert!((2..10).contains(&kept.len()), "{}", kept.len());
        drop(kept);
        assert!(convert("a").is_some());
    }

    #[test]
    fn an_object_that_takes_too_much_memory_is_not_parsed_and_still_shows_changes() {
        let hostile = |number: u64| {
            let mut object = secret("7");
            object["data"] = json!({ "number": number, "list": vec![json!({ "a": 0 }); 50_000] });
            object
        };
        let omitted = object(hostile(1));
        assert_eq!((&*omitted.name, omitted.labels.get("l")), ("a", Some("1")));
        assert!(omitted.to_value("v1", "Secret").is_none());
        assert_eq!(omitted, object(hostile(1)));
        assert_ne!(omitted, object(hostile(2)));
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
