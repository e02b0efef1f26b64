//! Merges a manifest into a live value. An equivalent live value is kept as it is, so that the difference is empty.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::equivalence::{are_equivalent, is_stored_as_absent};
use super::list_rules::{ListRule, Rule, RuleFields, RuleKey};
use super::{MAX_DEPTH, ThreeWayError};

/// Returns `live` with the fields of `new`, and without the fields of `applied` that `new` lacks.
pub(super) fn merge(
    fields: RuleFields,
    applied: Option<&Value>,
    new: &Map<String, Value>,
    live: &Map<String, Value>,
    depth: usize,
) -> Result<Map<String, Value>, ThreeWayError> {
    if depth > MAX_DEPTH {
        return Err(ThreeWayError::TooDeep);
    }
    let applied = applied.and_then(Value::as_object);
    let unnamed = live.iter().filter(|(name, _)| !new.contains_key(*name));
    let mut merged: Map<_, _> = unnamed.map(|(name, value)| (name.clone(), value.clone())).collect();
    for (name, value) in new {
        let rule = fields.rule(name);
        let merged_value = match live.get(name) {
            None if value.is_null() || (rule.is_built_in && is_stored_as_absent(name, value)) => None,
            None => Some(without_nulls(value)),
            Some(live) => merge_value(rule, applied.and_then(|applied| applied.get(name)), value, live, depth)?,
        };
        if let Some(value) = merged_value {
            merged.insert(name.clone(), value);
        }
    }
    for (name, value) in applied
        .into_iter()
        .flatten()
        .filter(|(name, _)| !new.contains_key(*name))
    {
        remove_field(fields.rule(name), name, value, &mut merged, depth)?;
    }
    Ok(merged)
}

/// Returns `None` if the value is removed.
fn merge_value(
    rule: Rule,
    applied: Option<&Value>,
    new: &Value,
    live: &Value,
    depth: usize,
) -> Result<Option<Value>, ThreeWayError> {
    Ok(match (new, live) {
        // An explicit null removes a field, as in `kubectl apply`.
        (Value::Null, _) => None,
        (Value::Object(new), Value::Object(live)) => {
            let mut merged = merge(rule.fields, applied, new, live, depth + 1)?;
            if rule.is_union && new.keys().any(|name| merged.get(name) != live.get(name)) {
                merged.retain(|name, _| new.contains_key(name));
            }
            Some(merged.into())
        }
        (Value::Array(new), Value::Array(live)) => Some(merge_list(rule, applied, new, live, depth)?.into()),
        (new, live) if are_equivalent(rule, new, live) => Some(live.clone()),
        (new, _) => Some(without_nulls(new)),
    })
}

/// Removes a field that an earlier manifest had. Elements of others in a merged list stay.
fn remove_field(
    rule: Rule,
    name: &str,
    applied: &Value,
    merged: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), ThreeWayError> {
    let remaining = match (rule.list, merged.get(name)) {
        (ListRule::Set | ListRule::Map(_), Some(Value::Array(live))) => {
            merge_list(rule, Some(applied), &[], live, depth)?
        }
        _ => Vec::new(),
    };
    if remaining.is_empty() {
        merged.remove(name)
    } else {
        merged.insert(name.to_owned(), remaining.into())
    };
    Ok(())
}

fn merge_list(
    rule: Rule,
    applied: Option<&Value>,
    new: &[Value],
    live: &[Value],
    depth: usize,
) -> Result<Vec<Value>, ThreeWayError> {
    let applied = applied.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    match rule.list {
        ListRule::Atomic => merge_atomic(rule, applied, new, live, depth),
        ListRule::Set => Ok(merge_set(applied, new, live)),
        ListRule::Map(keys) => match (Elements::index(keys, new), Elements::index(keys, live)) {
            (Some(new), Some(live)) => merge_map(rule, keys, applied, &new, &live, depth),
            // Keys that are missing or not unique: elements can't be matched.
            _ => merge_atomic(rule, applied, new, live, depth),
        },
    }
}

/// Keeps the live list if only others' settings in its elements differ from the new list, such as defaults.
fn merge_atomic(
    rule: Rule,
    applied: &[Value],
    new: &[Value],
    live: &[Value],
    depth: usize,
) -> Result<Vec<Value>, ThreeWayError> {
    if depth > MAX_DEPTH {
        return Err(ThreeWayError::TooDeep);
    }
    let mut is_unchanged = new.len() == live.len();
    for (at, (new, live)) in new.iter().zip(live).enumerate() {
        is_unchanged = is_unchanged
            && match (new, live) {
                (Value::Null, live) => live.is_null(),
                (new, live) => {
                    merge_value(rule.of_elements(), applied.get(at), new, live, depth + 1)?.as_ref() == Some(live)
                }
            };
    }
    Ok(if is_unchanged {
        live.to_vec()
    } else {
        new.iter().map(without_nulls).collect()
    })
}

fn merge_set(applied: &[Value], new: &[Value], live: &[Value]) -> Vec<Value> {
    let set = |values: &'_ [Value]| values.iter().map(Value::to_string).collect::<HashSet<String>>();
    let (is_applied, is_new, is_live) = (set(applied), set(new), set(live));
    let stays = |value: &&Value| {
        let value = value.to_string();
        is_new.contains(&value) || !is_applied.contains(&value)
    };
    let added = new.iter().filter(|value| !is_live.contains(&value.to_string()));
    live.iter().filter(stays).chain(added).cloned().collect()
}

struct Elements<'a> {
    ordered: Vec<(String, &'a Value)>,
    by_key: HashMap<String, &'a Value>,
}

impl<'a> Elements<'a> {
    /// Returns `None` if a key is missing or not unique.
    fn index(keys: &[RuleKey], list: &'a [Value]) -> Option<Self> {
        let ordered: Vec<_> = list
            .iter()
            .map(|item| Some((identity(keys, item)?, item)))
            .collect::<Option<_>>()?;
        let by_key: HashMap<_, _> = ordered.iter().cloned().collect();
        (by_key.len() == ordered.len()).then_some(Self { ordered, by_key })
    }
}

/// The values of the keys of an element, as one text.
fn identity(keys: &[RuleKey], element: &Value) -> Option<String> {
    let values = keys.iter().map(|key| match element.get(key.name) {
        Some(Value::String(text)) => Some(Value::from(text.as_str())),
        Some(number @ Value::Number(_)) => Some(number.clone()),
        None | Some(Value::Null) => key.default.map(Value::from),
        Some(_) => None,
    });
    Some(Value::Array(values.collect::<Option<_>>()?).to_string())
}

/// Keeps the order of the manifest; an element of others follows its predecessor in the live list.
fn merge_map(
    rule: Rule,
    keys: &[RuleKey],
    applied: &[Value],
    new: &Elements<'_>,
    live: &Elements<'_>,
    depth: usize,
) -> Result<Vec<Value>, ThreeWayError> {
    let applied: HashMap<String, &Value> = applied
        .iter()
        .filter_map(|item| Some((identity(keys, item)?, item)))
        .collect();
    let (mut merged, mut followers) = elements_of_others(&applied, new, live);
    for (key, value) in &new.ordered {
        let value = match live.by_key.get(key) {
            Some(live) => merge_value(rule.of_elements(), applied.get(key).copied(), value, live, depth + 1)?,
            None => Some(without_nulls(value)),
        };
        merged.extend(value);
        merged.extend(followers.remove(key.as_str()).unwrap_or_default());
    }
    Ok(merged)
}

/// Returns elements that neither manifest has: before the first element of the new manifest, and after each element.
fn elements_of_others<'a>(
    applied: &HashMap<String, &Value>,
    new: &Elements<'_>,
    live: &'a Elements<'_>,
) -> (Vec<Value>, HashMap<&'a str, Vec<Value>>) {
    let mut first = Vec::new();
    let mut followers: HashMap<&str, Vec<Value>> = HashMap::new();
    let mut predecessor = None;
    for (key, value) in &live.ordered {
        if new.by_key.contains_key(key) {
            predecessor = Some(key.as_str());
        } else if !applied.contains_key(key) {
            match predecessor {
                Some(predecessor) => followers.entry(predecessor).or_default().push((*value).clone()),
                None => first.push((*value).clone()),
            }
        }
    }
    (first, followers)
}

/// Returns a value without members that are null, as the API server stores it.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let set = fields.iter().filter(|(_, value)| !value.is_null());
            set.map(|(name, value)| (name.clone(), without_nulls(value))).collect()
        }
        Value::Array(elements) => elements.iter().map(without_nulls).collect(),
        scalar => scalar.clone(),
    }
}
