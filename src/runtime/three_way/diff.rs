//! The JSON merge patch between two objects.

use serde_json::{Map, Value};

use super::MergePatch;

/// Returns the patch that changes `live` into `merged`, or `None` if they are equal.
pub(super) fn diff(live: &Map<String, Value>, merged: &Map<String, Value>) -> Option<MergePatch> {
    let mut replaces_lists = false;
    let body = diff_objects(live, merged, &mut replaces_lists);
    (!body.is_empty()).then_some(MergePatch { body, replaces_lists })
}

fn diff_objects(live: &Map<String, Value>, merged: &Map<String, Value>, has_lists: &mut bool) -> Map<String, Value> {
    let mut patch = Map::new();
    for (name, value) in live.iter().filter(|(name, _)| !merged.contains_key(*name)) {
        *has_lists |= value.is_array();
        patch.insert(name.clone(), Value::Null);
    }
    for (name, merged) in merged {
        let change = match (live.get(name), merged) {
            (Some(live), merged) if live == merged => continue,
            (Some(Value::Object(live)), Value::Object(merged)) => diff_objects(live, merged, has_lists).into(),
            (live, merged) => {
                *has_lists |= merged.is_array() || live.is_some_and(Value::is_array);
                merged.clone()
            }
        };
        patch.insert(name.clone(), change);
    }
    patch
}
