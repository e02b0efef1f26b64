//! Decoding with Go's semantics: null and zero values mean absent fields, as Kubeapps' clients write them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

pub fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Decodes a list, which may be null. Skips null elements.
pub fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let items = Option::<Vec<Option<T>>>::deserialize(deserializer)?;
    Ok(items.into_iter().flatten().flatten().collect())
}

/// Decodes a map, which may be null. Null values become the default.
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

/// Decodes an integer, which may be null or a float such as `3.0`, as the API server accepts it. Saturates out of range.
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
        #[expect(clippy::cast_possible_truncation, reason = "an integral value; `as` saturates")]
        (None, None, Some(n)) if n.fract() == 0.0 => Ok(n as i64),
        _ => Err(serde::de::Error::custom(format!("{number} is not an integer"))),
    }
}

/// Decodes a value, or the default if it is invalid, so that it never fails its object.
pub fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default())
}

/// Decodes the valid elements of a list, so that the others never fail its object.
pub fn valid_elements<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let items = match Value::deserialize(deserializer)? {
        Value::Array(items) => items,
        _ => Vec::new(),
    };
    let decode = |item: Value| (!item.is_null()).then(|| serde_json::from_value(item).ok()).flatten();
    Ok(items.into_iter().filter_map(decode).collect())
}

/// Decodes a label selector, which may be null. Null elements become zero values as in Go; dropping a requirement would select
/// more objects.
pub fn selector<'de, D>(deserializer: D) -> Result<Option<LabelSelector>, D::Error>
where
    D: Deserializer<'de>,
{
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct RawSelector {
        match_labels: Option<BTreeMap<String, Option<String>>>,
        match_expressions: Option<Vec<Option<RawRequirement>>>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct RawRequirement {
        key: Option<String>,
        operator: Option<String>,
        values: Option<Vec<Option<String>>>,
    }

    fn strings(values: Vec<Option<String>>) -> Vec<String> {
        values.into_iter().map(Option::unwrap_or_default).collect()
    }

    fn requirement(raw: Option<RawRequirement>) -> LabelSelectorRequirement {
        let raw = raw.unwrap_or_default();
        LabelSelectorRequirement {
            key: raw.key.unwrap_or_default(),
            operator: raw.operator.unwrap_or_default(),
            values: raw.values.map(strings),
        }
    }

    let selector = Option::<RawSelector>::deserialize(deserializer)?;
    Ok(selector.map(|selector| LabelSelector {
        match_labels: selector.match_labels.map(|labels| {
            let labels = labels.into_iter();
            labels.map(|(name, value)| (name, value.unwrap_or_default())).collect()
        }),
        match_expressions: selector
            .match_expressions
            .map(|requirements| requirements.into_iter().map(requirement).collect()),
    }))
}

/// Returns true for false, which is not serialized.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
pub fn is_false(value: &bool) -> bool {
    !*value
}
