//! Lenient decoding of the fields that rules read, like Go's typed decoder: null is the zero value, and an error names
//! the field of the wrong type.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

use super::NotReady;
use crate::api::lenient::null_as_default;

pub(super) fn decode<'de, T>(name: &str, raw: Option<&'de RawValue>) -> Result<T, NotReady>
where
    T: Deserialize<'de> + Default,
{
    let Some(raw) = raw else { return Ok(T::default()) };
    let mut json = serde_json::Deserializer::from_str(raw.get());
    match serde_path_to_error::deserialize::<_, LenientRecord<T>>(&mut json) {
        Ok(LenientRecord(fields)) => Ok(fields),
        Err(error) => {
            let path = match error.path().to_string() {
                at if at == "." => name.to_owned(),
                below => format!("{name}.{below}"),
            };
            Err(NotReady::Unreadable(format!(
                "failed to decode {path}: {}",
                without_position(error.inner())
            )))
        }
    }
}

/// Returns the error text without line and column, which refer to a text that users never see.
pub(super) fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&position).unwrap_or(&text).to_owned()
}

/// An object, or null for an empty one. Plain serde would also accept a list of the fields.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LenientRecord<T>(pub(super) T);

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for LenientRecord<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de> + Default> de::Visitor<'de> for FieldsVisitor<T> {
            type Value = LenientRecord<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(LenientRecord(T::default()))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(LenientRecord)
            }
        }

        deserializer.deserialize_any(FieldsVisitor(PhantomData))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LenientCondition {
    #[serde(rename = "type", deserialize_with = "null_as_default")]
    pub(super) type_: String,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) status: String,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) reason: String,
    #[serde(deserialize_with = "null_as_default")]
    pub(super) message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct Conditions(#[serde(deserialize_with = "null_as_default")] Vec<LenientRecord<LenientCondition>>);

impl Conditions {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all conditions of a type; the API does not enforce that there is only one.
    pub(super) fn of_type<'a>(&'a self, type_: &'a str) -> impl Iterator<Item = &'a LenientCondition> {
        let conditions = self.0.iter().map(|LenientRecord(condition)| condition);
        conditions.filter(move |condition| condition.type_ == type_)
    }

    pub(super) fn holding<'a>(&'a self, type_: &'a str) -> Option<&'a LenientCondition> {
        self.of_type(type_).find(|condition| condition.status == "True")
    }
}

/// Requires that the controller of the object has observed its current generation.
pub(super) fn expect_generation(observed: i64, generation: i64) -> Result<(), NotReady> {
    if observed == generation {
        return Ok(());
    }
    Err(NotReady::missing(format!("generation {generation} not observed yet")))
}

pub(super) fn describe(type_: &str, status: &str, reason: &str) -> String {
    let status = if status.is_empty() { "without a status" } else { status };
    joined(&[&format!("condition {type_} is {status}"), reason])
}

pub(super) fn joined(texts: &[&str]) -> String {
    let texts = texts.iter().map(|text| text.trim());
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ")
}
