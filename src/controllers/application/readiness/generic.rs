//! Readiness of kinds without a rule of their own, by the two condition types that custom resources agree on.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

use super::decode::{LenientRecord, describe, without_position};
use super::{FieldSet, NotReady, ReadinessRule};
use crate::text::truncate;

const MAX_QUOTED: usize = 64;

/// Ready unless the condition `Ready` is `False` or `InProgress` is `True`: also without conditions, and if `Ready` is
/// `Unknown`. The first condition of a type counts. Wrong types give `Unknown`.
#[derive(Debug)]
pub struct Generic;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status<'a> {
    #[serde(borrow)]
    conditions: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Element<'a> {
    #[serde(borrow, rename = "type")]
    type_: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    reason: Option<&'a RawValue>,
}

/// The first condition of each relevant type. Streams the list, which may be of any length.
#[derive(Default)]
struct DecisiveConditions<'a> {
    ready: Option<DecisiveCondition<'a>>,
    in_progress: Option<DecisiveCondition<'a>>,
}

struct DecisiveCondition<'a> {
    status: Cow<'a, str>,
    reason: Cow<'a, str>,
}

impl ReadinessRule for Generic {
    const FIELDS: FieldSet = FieldSet::Status;

    fn check(_: i64, _: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), NotReady> {
        let Some(status) = status.filter(|status| status.get() != "null") else {
            return Ok(());
        };
        if !status.get().starts_with('{') {
            return Err(accessor_error(status, "map[string]interface{}"));
        }
        let Status { conditions } =
            serde_json::from_str(status.get()).map_err(|error| decode_error("status", &error))?;
        let Some(conditions) = conditions else { return Ok(()) };
        if !conditions.get().starts_with('[') {
            return Err(accessor_error(conditions, "[]interface{}"));
        }
        let DecisiveConditions { ready, in_progress } =
            serde_json::from_str(conditions.get()).map_err(|error| decode_error("status.conditions", &error))?;
        if let Some(ready) = ready.filter(|ready| ready.status == "False") {
            return Err(NotReady::missing(describe("Ready", "False", &ready.reason)));
        }
        if let Some(in_progress) = in_progress.filter(|in_progress| in_progress.status == "True") {
            return Err(NotReady::missing(describe("InProgress", "True", &in_progress.reason)));
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for DecisiveConditions<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ConditionsVisitor;

        impl<'de> de::Visitor<'de> for ConditionsVisitor {
            type Value = DecisiveConditions<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut conditions = DecisiveConditions::default();
                while let Some(element) = list.next_element::<&'de RawValue>()? {
                    conditions.consider(element);
                }
                Ok(conditions)
            }
        }

        deserializer.deserialize_seq(ConditionsVisitor)
    }
}

impl<'a> DecisiveConditions<'a> {
    /// Skips malformed elements, which crash kubernetes-sigs' controller, and malformed reasons.
    fn consider(&mut self, element: &'a RawValue) {
        let Ok(LenientRecord(element)) = serde_json::from_str::<LenientRecord<Element<'a>>>(element.get()) else {
            return;
        };
        let slot = match element.type_.and_then(text).as_deref() {
            Some("Ready") => &mut self.ready,
            Some("InProgress") => &mut self.in_progress,
            _ => return,
        };
        if slot.is_some() {
            return;
        }
        *slot = element.status.and_then(text).map(|status| DecisiveCondition {
            status,
            reason: element.reason.and_then(text).unwrap_or_default(),
        });
    }
}

fn text(value: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

    serde_json::from_str(value.get()).ok().map(|BorrowedText(text)| text)
}

fn decode_error(field: &str, error: &serde_json::Error) -> NotReady {
    NotReady::Unreadable(format!("failed to decode {field}: {}", without_position(error)))
}

/// Formats an error like Kubernetes' accessors of untyped objects, with the names of Go's types.
fn accessor_error(value: &RawValue, expected: &str) -> NotReady {
    let shown = truncate(&text(value).unwrap_or(Cow::Borrowed(value.get())), MAX_QUOTED);
    let actual = match value.get().as_bytes().first() {
        Some(b'"') => "string",
        Some(b'{') => "map[string]interface {}",
        Some(b'[') => "[]interface {}",
        Some(b't' | b'f') => "bool",
        _ if value.get().parse::<i64>().is_ok() => "int64",
        _ => "float64",
    };
    NotReady::Unreadable(format!(
        ".status.conditions accessor error: {shown} is of the type {actual}, expected {expected}"
    ))
}
