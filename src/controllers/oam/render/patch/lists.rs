//! Merges lists of a patch: by the key of their elements, or by position.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Markers, PatchError, Path, merge_value, without_markers};
use crate::controllers::oam::render::limits::MAX_KEYS;

/// A change of an element of the base.
enum ElementChange<'a> {
    Keep,
    Merge(&'a Value),
}

/// Merges a list of a patch into the list of the base, which is open.
///
/// # Errors
///
/// Elements that conflict, and a patch without a key that is shorter than the base.
pub fn merge(base: &mut Vec<Value>, patch: &[Value], markers: Markers<'_>, path: &mut Path) -> Result<(), PatchError> {
    let aligned = markers.key().and_then(|keys| align(base, patch, keys));
    let Some((changes, appended)) = aligned else {
        return merge_by_position(base, patch, markers, path);
    };
    for (index, change) in changes.iter().enumerate() {
        match change {
            ElementChange::Merge(patch) if markers.retains_keys() => base[index] = without_markers(patch),
            ElementChange::Merge(patch) => merge_element(&mut base[index], patch, index, markers, path)?,
            ElementChange::Keep => {}
        }
    }
    base.extend(appended.into_iter().map(without_markers));
    Ok(())
}

fn merge_by_position(
    base: &mut Vec<Value>,
    patch: &[Value],
    markers: Markers<'_>,
    path: &mut Path,
) -> Result<(), PatchError> {
    if patch.len() < base.len() && !markers.is_open() {
        return Err(PatchError::Lengths {
            path: path.to_string(),
            base: base.len(),
            patch: patch.len(),
        });
    }
    for (index, patch) in patch.iter().enumerate() {
        match base.get_mut(index) {
            Some(element) => merge_element(element, patch, index, markers, path)?,
            None => base.push(without_markers(patch)),
        }
    }
    Ok(())
}

fn merge_element(
    element: &mut Value,
    patch: &Value,
    index: usize,
    markers: Markers<'_>,
    path: &mut Path,
) -> Result<(), PatchError> {
    path.enter(index.to_string());
    merge_value(element, patch, markers.inherited(), path)?;
    path.leave();
    Ok(())
}

/// Changes of each element of the base, and the elements to append.
type Alignment<'a> = (Vec<ElementChange<'a>>, Vec<&'a Value>);

/// Pairs elements of the base with elements of the patch by the keys. Of several elements of the patch with one key,
/// the last counts. Elements without a key are dropped.
///
/// Returns nothing where the original falls back to positions: one of the keys is in no element of the patch, or is
/// not a scalar.
fn align<'a>(base: &[Value], patch: &'a [Value], keys: &str) -> Option<Alignment<'a>> {
    let mut changes: Vec<ElementChange<'a>> = base.iter().map(|_| ElementChange::Keep).collect();
    let mut appended = BTreeSet::new();
    for key in keys.split(',').take(MAX_KEYS) {
        let mut waiting = BTreeMap::new();
        for (index, element) in patch.iter().enumerate() {
            if let Some(value) = lookup(element, key) {
                waiting.insert(scalar(value)?, index);
            }
        }
        if waiting.is_empty() && !patch.is_empty() {
            return None;
        }
        for (change, element) in changes.iter_mut().zip(base) {
            if let Some(value) = lookup(element, key)
                && let Some(partner) = waiting.remove(&scalar(value)?)
            {
                *change = ElementChange::Merge(&patch[partner]);
            }
        }
        appended.extend(waiting.into_values());
    }
    Some((changes, appended.into_iter().map(|index| &patch[index]).collect()))
}

fn lookup<'a>(element: &'a Value, key: &str) -> Option<&'a Value> {
    key.split('.').try_fold(element, |value, label| value.get(label))
}

/// Returns a scalar as text that differs for the string `1` and the number 1.
fn scalar(value: &Value) -> Option<String> {
    (!value.is_array() && !value.is_object()).then(|| value.to_string())
}
