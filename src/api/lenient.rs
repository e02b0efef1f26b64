//! Decoding that takes nulls and zero values for absent fields, as Go's decoder does.
//!
//! The objects come through Kubeapps' clients, which are written in Go and TypeScript: there a null is the zero value.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

/// A null is the type's default.
pub fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A list that may be null, and may hold nulls, which are left out.
pub fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let items = Option::<Vec<Option<T>>>::deserialize(deserializer)?;
    Ok(items.into_iter().flatten().flatten().collect())
}

/// A map that may be null; a null value in it is the type's default.
pub fn map<'de, D, T>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    let entries = Option::<BTreeMap<String, Option<T>>>::deserialize(deserializer)?;
    Ok(entries
        .into_iter()
        .flatten()
        .map(|(key, value)| (key, value.unwrap_or_default()))
        .collect())
}

/// An integer that may be null or written as a float: the API server takes `3.0` for an integer, and Kubeapps' counter
/// was once unsigned. What is out of range is held at the range's end, since only a change of the number has a meaning.
pub fn integer<'de, D>(deserializer: D) -> Result<i64, D::Error>
where
    D: Deserializer<'de>,
{
    let Some(number) = Option::<serde_json::Number>::deserialize(deserializer)? else {
        return Ok(0);
    };
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(n), _, _) => Ok(n),
        (None, Some(_), _) => Ok(i64::MAX),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a whole number; `as` holds it at the range's end"
        )]
        (None, None, Some(n)) if n.fract() == 0.0 => Ok(n as i64),
        _ => Err(serde::de::Error::custom(format!("{number} is not an integer"))),
    }
}

/// A value that decides nothing: if it can't be decoded it is as good as absent, and never fails the object it stands in.
pub fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default())
}

/// A list that decides nothing: what can't be decoded in it is left out, and never fails the object it stands in.
pub fn readable<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let items = match Value::deserialize(deserializer)? {
        Value::Array(items) => items,
        _ => Vec::new(),
    };
    let readable = |item: Value| (!item.is_null()).then(|| serde_json::from_value(item).ok()).flatten();
    Ok(items.into_iter().filter_map(readable).collect())
}

/// A label selector that may be null. A null in it is the zero value, as in Go, and never a requirement left out: with one
/// less it would select more.
pub fn selector<'de, D>(deserializer: D) -> Result<Option<LabelSelector>, D::Error>
where
    D: Deserializer<'de>,
{
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Selector {
        match_labels: Option<BTreeMap<String, Option<String>>>,
        match_expressions: Option<Vec<Option<Requirement>>>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Requirement {
        key: Option<String>,
        operator: Option<String>,
        values: Option<Vec<Option<String>>>,
    }

    fn zeros(values: Vec<Option<String>>) -> Vec<String> {
        values.into_iter().map(Option::unwrap_or_default).collect()
    }

    fn requirement(given: Option<Requirement>) -> LabelSelectorRequirement {
        let given = given.unwrap_or_default();
        LabelSelectorRequirement {
            key: given.key.unwrap_or_default(),
            operator: given.operator.unwrap_or_default(),
            values: given.values.map(zeros),
        }
    }

    let given = Option::<Selector>::deserialize(deserializer)?;
    Ok(given.map(|selector| LabelSelector {
        match_labels: selector.match_labels.map(|labels| {
            let labels = labels.into_iter();
            labels.map(|(name, value)| (name, value.unwrap_or_default())).collect()
        }),
        match_expressions: selector
            .match_expressions
            .map(|requirements| requirements.into_iter().map(requirement).collect()),
    }))
}

/// Whether a flag is unset, and so is left out when it is written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
pub fn is_false(value: &bool) -> bool {
    !*value
}
