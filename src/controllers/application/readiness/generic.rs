//! All kinds that have no rule of their own: judged by the two conditions that custom resources agree on.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

use super::decode::{Record, describe, without_position};
use super::{NotReady, Reads, Rule};
use crate::text::truncate;

/// How many bytes of a value of the wrong type are shown.
const SHOWN: usize = 64;

/// Any other kind: ready unless its condition `Ready` is `False` or its condition `InProgress` is `True`.
///
/// So a kind without status or conditions is ready, and so is one whose `Ready` is `Unknown`. Values are compared exactly,
/// and of two conditions of one type the first counts. A status that is no object, or conditions that are no list, can't be
/// judged.
#[derive(Debug)]
pub struct Generic;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status<'a> {
    #[serde(borrow)]
    conditions: Option<&'a RawValue>,
}

/// A condition before anything is known of the types of its fields.
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

/// The conditions that count. The list is walked, not held: a custom resource may hold any number of elements.
#[derive(Default)]
struct Decisive<'a> {
    ready: Option<Stated<'a>>,
    in_progress: Option<Stated<'a>>,
}

struct Stated<'a> {
    status: Cow<'a, str>,
    reason: Cow<'a, str>,
}

impl Rule for Generic {
    const READS: Reads = Reads::Status;

    fn check(_: i64, _: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), NotReady> {
        let Some(status) = status.filter(|status| !is_null(status)) else {
            return Ok(());
        };
        if !status.get().starts_with('{') {
            return Err(accessor_error(status, "map[string]interface{}"));
        }
        let Status { conditions } = serde_json::from_str(status.get()).map_err(|error| unreadable("status", &error))?;
        let Some(conditions) = conditions else { return Ok(()) };
        if !conditions.get().starts_with('[') {
            return Err(accessor_error(conditions, "[]interface{}"));
        }
        let Decisive { ready, in_progress } =
            serde_json::from_str(conditions.get()).map_err(|error| unreadable("status.conditions", &error))?;
        if let Some(ready) = ready.filter(|ready| ready.status == "False") {
            return Err(NotReady::missing(describe("Ready", &ready.status, &ready.reason)));
        }
        if let Some(in_progress) = in_progress.filter(|in_progress| in_progress.status == "True") {
            return Err(NotReady::missing(describe(
                "InProgress",
                &in_progress.status,
                &in_progress.reason,
            )));
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Decisive<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Walk;

        impl<'de> de::Visitor<'de> for Walk {
            type Value = Decisive<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut decisive = Decisive::default();
                while let Some(element) = list.next_element::<&'de RawValue>()? {
                    decisive.consider(element);
                }
                Ok(decisive)
            }
        }

        deserializer.deserialize_seq(Walk)
    }
}

impl<'a> Decisive<'a> {
    /// Takes an element that is the first of a type that counts. What is no condition, or has a status that is no text, is
    /// passed over: the peer's process ends here. A reason decides nothing, so an odd one is only not shown.
    fn consider(&mut self, element: &'a RawValue) {
        let Ok(Record(element)) = serde_json::from_str::<Record<Element<'a>>>(element.get()) else {
            return;
        };
        let place = match element.type_.and_then(text).as_deref() {
            Some("Ready") => &mut self.ready,
            Some("InProgress") => &mut self.in_progress,
            _ => return,
        };
        if place.is_some() {
            return;
        }
        *place = element.status.and_then(text).map(|status| Stated {
            status,
            reason: element.reason.and_then(text).unwrap_or_default(),
        });
    }
}

fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

fn text(value: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

    serde_json::from_str(value.get()).ok().map(|Text(text)| text)
}

fn unreadable(field: &str, error: &serde_json::Error) -> NotReady {
    NotReady::Unreadable(format!("{field} can't be read: {}", without_position(error)))
}

/// The words of Kubernetes' accessors of untyped objects, which users of the peer know, with the names of Go's types.
fn accessor_error(value: &RawValue, expected: &str) -> NotReady {
    let shown = truncate(&text(value).unwrap_or(Cow::Borrowed(value.get())), SHOWN);
    let found = match value.get().as_bytes().first() {
        Some(b'"') => "string",
        Some(b'{') => "map[string]interface {}",
        Some(b'[') => "[]interface {}",
        Some(b't' | b'f') => "bool",
        _ if value.get().parse::<i64>().is_ok() => "int64",
        _ => "float64",
    };
    NotReady::Unreadable(format!(
        ".status.conditions accessor error: {shown} is of the type {found}, expected {expected}"
    ))
}
