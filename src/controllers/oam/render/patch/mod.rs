//! Applies the patch of a trait to a rendered object.
//!
//! Markers in the patch say how ([`crate::controllers::oam::source`]); what they don't name is unified as CUE does: objects by key, lists by
//! position, and scalars must be equal.

mod lists;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use super::limits::{MAX_OBJECT_DEPTH, MAX_PATCH_OPERATIONS, MAX_QUOTED_BYTES, MAX_RENDERED_BYTES};
use crate::controllers::oam::source::MARKER;
use crate::text::truncate;

/// The reason why a patch can't be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    #[error("{path}: conflicting values {values}")]
    Conflict { path: String, values: String },
    #[error("{path}: incompatible list lengths ({patch} and {base})")]
    Lengths { path: String, base: usize, patch: usize },
    #[error("invalid operations of the JSON patch: {0}")]
    Operations(String),
    #[error("operation {index} of the JSON patch: {cause}")]
    Operation { index: usize, cause: String },
    #[error("the JSON patch has more than {MAX_PATCH_OPERATIONS} operations")]
    TooManyOperations,
    #[error("the patched object is larger than {} MiB or nested more than {MAX_OBJECT_DEPTH} deep", MAX_RENDERED_BYTES >> 20)]
    TooLarge,
}

impl PatchError {
    /// Returns the error with its path below another.
    #[must_use]
    pub fn below(mut self, parent: &str) -> Self {
        if let Self::Conflict { path, .. } | Self::Lengths { path, .. } = &mut self {
            *path = format!("{parent}.{path}");
        }
        self
    }
}

/// The markers of one field.
#[derive(Clone, Copy, Default)]
pub struct Markers<'a> {
    key: Option<&'a str>,
    strategy: Option<&'a str>,
    is_open: bool,
}

impl<'a> Markers<'a> {
    /// Returns the markers of a field of this object.
    fn of(fields: &'a Map<String, Value>, label: &str) -> Self {
        let markers = fields.get(&format!("{MARKER}{label}"));
        let text = |name: &str| markers.and_then(|markers| markers.get(name)).and_then(Value::as_str);
        Self {
            key: text("patchKey"),
            strategy: text("patchStrategy"),
            is_open: text("open").is_some(),
        }
    }

    pub fn key(self) -> Option<&'a str> {
        self.key
    }

    pub fn is_open(self) -> bool {
        self.is_open
    }

    pub fn retains_keys(self) -> bool {
        self.strategy == Some("retainKeys")
    }

    /// Returns what the elements of a list inherit.
    pub fn inherited(self) -> Self {
        Self {
            key: self.key,
            ..Self::default()
        }
    }
}

/// Applies `patch` of a trait to the workload; `marked` is the result of the trait, which holds the markers of `patch`.
///
/// # Errors
///
/// Conflicts, operations that fail, and results beyond the limits.
pub fn apply_patch(base: &mut Value, patch: &Value, marked: &Map<String, Value>) -> Result<(), PatchError> {
    match Markers::of(marked, "patch").strategy {
        Some("jsonMergePatch") => json_patch::merge(base, &without_markers(patch)),
        Some("jsonPatch") => return apply_operations(base, patch.get("operations").unwrap_or(&Value::Null)),
        _ => merge(base, patch)?,
    }
    Ok(())
}

/// Merges a patch into an object by the markers in the patch.
///
/// # Errors
///
/// Values that conflict.
pub fn merge(base: &mut Value, patch: &Value) -> Result<(), PatchError> {
    merge_value(base, patch, Markers::default(), &mut Path::default())
}

/// Merges a value. `markers` belong to its field, and have the inherited key.
pub fn merge_value(base: &mut Value, patch: &Value, markers: Markers<'_>, path: &mut Path) -> Result<(), PatchError> {
    match (base, patch) {
        (base, Value::Array(_)) if markers.strategy == Some("replace") && base.is_array() => {
            *base = without_markers(patch)
        }
        (Value::Array(base), Value::Array(patch)) => lists::merge(base, patch, markers, path)?,
        (base, patch) if markers.retains_keys() && !patch.is_array() => *base = without_markers(patch),
        (Value::Object(base), Value::Object(patch)) => merge_fields(base, patch, markers.key, path)?,
        (base, patch) => {
            if !is_equal_scalar(base, patch) {
                return Err(PatchError::Conflict {
                    path: path.to_string(),
                    values: conflict(base, patch),
                });
            }
        }
    }
    Ok(())
}

fn merge_fields(
    base: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    inherited_key: Option<&str>,
    path: &mut Path,
) -> Result<(), PatchError> {
    for (label, value) in patch {
        if is_marker(label, value) {
            continue;
        }
        let Some(field) = base.get_mut(label) else {
            base.insert(label.clone(), without_markers(value));
            continue;
        };
        let markers = Markers::of(patch, label);
        let markers = Markers {
            key: markers.key.or(inherited_key),
            ..markers
        };
        path.enter(label.clone());
        merge_value(field, value, markers, path)?;
        path.leave();
    }
    Ok(())
}

fn is_marker(label: &str, value: &Value) -> bool {
    let is_name = |name: &String| matches!(name.as_str(), "patchKey" | "patchStrategy" | "open");
    label.starts_with(MARKER) && value.as_object().is_some_and(|markers| markers.keys().all(is_name))
}

/// Returns a copy without the markers.
#[must_use]
pub fn without_markers(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(clean_fields(fields)),
        Value::Array(items) => items.iter().map(without_markers).collect(),
        scalar => scalar.clone(),
    }
}

/// Returns a copy of an object without the markers.
#[must_use]
pub fn clean_fields(fields: &Map<String, Value>) -> Map<String, Value> {
    let fields = fields.iter().filter(|(label, value)| !is_marker(label, value));
    fields
        .map(|(label, value)| (label.clone(), without_markers(value)))
        .collect()
}

fn is_equal_scalar(base: &Value, patch: &Value) -> bool {
    match (base, patch) {
        (Value::Number(base), Value::Number(patch)) => base == patch || base.as_f64() == patch.as_f64(),
        _ => base == patch,
    }
}

/// Applies the operations of RFC 6902. A copy may double the object, so the limits are checked after each.
fn apply_operations(base: &mut Value, operations: &Value) -> Result<(), PatchError> {
    let operations = without_markers(operations);
    let operations: Vec<json_patch::PatchOperation> =
        serde_json::from_value(operations).map_err(|error| PatchError::Operations(error.to_string()))?;
    if operations.len() > MAX_PATCH_OPERATIONS {
        return Err(PatchError::TooManyOperations);
    }
    for (index, operation) in operations.iter().enumerate() {
        json_patch::patch(base, std::slice::from_ref(operation)).map_err(|error| PatchError::Operation {
            index,
            cause: error.to_string(),
        })?;
        let mut budget = MAX_RENDERED_BYTES;
        if !spend(base, &mut budget, MAX_OBJECT_DEPTH) {
            return Err(PatchError::TooLarge);
        }
    }
    Ok(())
}

/// Checks the size and the depth of objects.
///
/// # Errors
///
/// [`PatchError::TooLarge`].
pub fn check_size<'a>(objects: impl IntoIterator<Item = &'a Map<String, Value>>) -> Result<(), PatchError> {
    let mut budget = MAX_RENDERED_BYTES;
    let fits = objects.into_iter().all(|fields| {
        let mut values = fields.values();
        spend_labels(fields, &mut budget) && values.all(|value| spend(value, &mut budget, MAX_OBJECT_DEPTH))
    });
    if fits { Ok(()) } else { Err(PatchError::TooLarge) }
}

/// Size of separators and numbers in JSON, about.
const OVERHEAD: usize = 4;

/// Takes the approximate size of a value from a budget; returns false if size or depth exceed it.
fn spend(value: &Value, budget: &mut usize, depth: usize) -> bool {
    match value {
        Value::Array(items) => {
            take(budget, OVERHEAD) && depth > 0 && items.iter().all(|item| spend(item, budget, depth - 1))
        }
        Value::Object(fields) => {
            spend_labels(fields, budget) && depth > 0 && fields.values().all(|value| spend(value, budget, depth - 1))
        }
        Value::String(text) => take(budget, text.len() + OVERHEAD),
        _ => take(budget, OVERHEAD),
    }
}

fn spend_labels(fields: &Map<String, Value>, budget: &mut usize) -> bool {
    take(budget, fields.keys().map(|label| label.len() + OVERHEAD).sum())
}

fn take(budget: &mut usize, size: usize) -> bool {
    let left = budget.checked_sub(size);
    *budget = left.unwrap_or_default();
    left.is_some()
}

/// Names two values as CUE does in a conflict.
fn conflict(base: &Value, patch: &Value) -> String {
    let values = format!("{} and {}", summary(base), summary(patch));
    match (type_name(base), type_name(patch)) {
        (base, patch) if base == patch => values,
        (base, patch) => format!("{values} (mismatched types {base} and {patch})"),
    }
}

fn summary(value: &Value) -> String {
    match value {
        Value::Object(_) => "{...}".to_owned(),
        Value::Array(_) => "[...]".to_owned(),
        scalar => truncate(&scalar.to_string(), MAX_QUOTED_BYTES),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "struct",
    }
}

/// The path of the field that is merged, for errors.
#[derive(Default)]
pub struct Path(Vec<String>);

impl Path {
    pub fn enter(&mut self, segment: String) {
        self.0.push(segment);
    }

    pub fn leave(&mut self) {
        self.0.pop();
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0.join("."))
    }
}
