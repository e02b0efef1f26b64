//! Decoding that takes nulls and zero values for absent fields, as Go's decoder does.
//!
//! The objects come through Kubeapps' clients, which are written in Go and TypeScript: there a null is the zero value.

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
pub fn map<'de, D, T>(deserializer: D) -> Result<std::collections::BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    let entries = Option::<std::collections::BTreeMap<String, Option<T>>>::deserialize(deserializer)?;
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
