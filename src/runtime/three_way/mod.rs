//! Three-way merge of a manifest into a live object.
//!
//! ```text
//!  manifests applied before ─┐
//!  new manifest ─────────────┼─ merge ── merged object ── diff with the live object ── JSON merge patch
//!  live object ──────────────┘    │
//!                              lists: which are merged by keys (built-in kinds)
//! ```
//!
//! The result is as with `kubectl apply` on the client side: fields of the manifest are set, fields that only an
//! earlier manifest had are removed, and all other fields stay. The merge takes place here and not in the API server,
//! so a JSON merge patch serves all kinds, and an object as wanted needs no request (docs/explanation/decisions.md).

mod diff;
mod equivalence;
pub mod list_rules;
mod merge;
#[cfg(test)]
pub mod merge_patch;
#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

pub use equivalence::DROPPED_ZEROS;

/// Deepest nesting of an object. The JSON decoders of this crate and of the API server allow less or as much.
const MAX_DEPTH: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThreeWayError {
    #[error("object is nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
    #[error("{0} is not an object")]
    NotAnObject(&'static str),
}

/// A JSON merge patch (RFC 7386) that changes a live object into the merged object.
#[derive(Clone, Debug, PartialEq)]
pub struct MergePatch {
    body: Map<String, Value>,
    replaces_lists: bool,
}

impl MergePatch {
    /// `live` is the object that the patch was computed from. A list is replaced as a whole: its patch names the
    /// resource version, so that a concurrent change is a conflict and not lost. Other patches apply to any version.
    #[must_use]
    pub fn into_body(mut self, live: &Value) -> Value {
        if self.replaces_lists
            && let Some(version) = live.pointer("/metadata/resourceVersion")
            && let Value::Object(metadata) = self.body.entry("metadata").or_insert_with(|| Map::new().into())
        {
            metadata.insert("resourceVersion".to_owned(), version.clone());
        }
        self.body.into()
    }
}

/// Returns `None` if `live` has all that `manifest` asks for. Fields of `applied`, the oldest first, that the manifest
/// lacks are removed. All objects have the version and kind of the manifest.
pub fn patch(applied: &[&Value], manifest: &Value, live: &Value) -> Result<Option<MergePatch>, ThreeWayError> {
    let kind = list_rules::Kind::of(manifest);
    let manifest = normalize(manifest, kind).ok_or(ThreeWayError::NotAnObject("manifest"))?;
    let live = live.as_object().ok_or(ThreeWayError::NotAnObject("live object"))?;
    let mut merged = merge::merge(kind.fields(), None, &manifest, live, 0)?;
    for applied in applied {
        let applied = normalize(applied, kind).map(Value::from);
        merged = merge::merge(kind.fields(), applied.as_ref(), &manifest, &merged, 0)?;
    }
    Ok(diff::diff(live, &merged))
}

/// Returns the JSON merge patch that changes one object into another, or `None` if they are equal.
#[must_use]
pub fn difference(from: &Map<String, Value>, to: &Map<String, Value>) -> Option<Value> {
    diff::diff(from, to).map(|patch| patch.body.into())
}

/// Returns the fields of a manifest as the API server stores them, without the fields that it sets.
fn normalize(manifest: &Value, kind: list_rules::Kind) -> Option<Map<String, Value>> {
    let mut fields = manifest.as_object()?.clone();
    // Identity; the same in all three objects, or a different API version of the same object.
    fields.remove("apiVersion");
    fields.remove("kind");
    if kind.is_built_in() {
        fields.remove("status");
    }
    if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
        metadata.retain(|name, _| ["labels", "annotations", "ownerReferences", "finalizers"].contains(&name.as_str()));
    }
    if kind.is_secret() {
        encode_string_data(&mut fields);
    }
    Some(fields)
}

/// The API server moves `stringData` to `data` and never returns it, so a change could not be seen.
fn encode_string_data(secret: &mut Map<String, Value>) {
    let Some(Value::Object(texts)) = secret.remove("stringData") else {
        return;
    };
    let data = secret.entry("data").or_insert_with(|| Map::new().into());
    if !data.is_object() {
        *data = Map::new().into();
    }
    if let Value::Object(data) = data {
        let encode = |text: &Value| text.as_str().map(|text| STANDARD.encode(text)).into();
        data.extend(texts.iter().map(|(key, text)| (key.clone(), encode(text))));
    }
}
