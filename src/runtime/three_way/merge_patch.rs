//! The API server's side of a patch, for tests.

use serde_json::{Map, Value};

/// Applies a JSON merge patch (RFC 7386).
pub fn apply_merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Map::new().into();
    }
    for (name, change) in changes {
        let Some(fields) = target.as_object_mut() else { return };
        if change.is_null() {
            fields.remove(name);
        } else {
            apply_merge_patch(fields.entry(name).or_insert(Value::Null), change);
        }
    }
}
