//! Conversion of objects between versions of the API (`/convert`). All versions have the same fields.

use std::fmt;

use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::api::oam::GROUP;
use crate::text::sanitize;

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "ConversionReview";
/// The API server converts the objects of a list together, of which a page has 500.
const MAX_OBJECTS: usize = 10_000;

#[derive(Debug, thiserror::Error)]
pub enum ConversionError {
    #[error("invalid ConversionReview: {0}")]
    Json(#[from] serde_json::Error),
    #[error("expected a review of {API_VERSION}, got {kind} of {api_version}")]
    Version { api_version: String, kind: String },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConversionReview<'a> {
    api_version: String,
    kind: String,
    #[serde(borrow)]
    request: ConversionRequest<'a>,
}

#[derive(Deserialize)]
struct ConversionRequest<'a> {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired_version: String,
    #[serde(borrow, deserialize_with = "limited")]
    objects: Vec<&'a RawValue>,
}

fn limited<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<&'a RawValue>, D::Error> {
    struct Objects;

    impl<'de> Visitor<'de> for Objects {
        type Value = Vec<&'de RawValue>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list of objects")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut objects = Vec::new();
            while let Some(object) = list.next_element()? {
                if objects.len() == MAX_OBJECTS {
                    return Err(A::Error::custom(format!(
                        "more than {MAX_OBJECTS} objects in one review"
                    )));
                }
                objects.push(object);
            }
            Ok(objects)
        }
    }

    deserializer.deserialize_seq(Objects)
}

/// The part of an object that changes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Versioned<'a> {
    #[serde(borrow)]
    api_version: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResponseReview<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: ConversionResponse<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConversionResponse<'a> {
    uid: &'a str,
    converted_objects: Vec<Box<RawValue>>,
    result: ConversionResult,
}

#[derive(Serialize)]
struct ConversionResult {
    status: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

/// Returns the response to a ConversionReview: its objects with the desired version.
///
/// # Errors
/// The text is no review of the supported version. Objects that can't be converted are an error in the response.
pub fn convert(review: &[u8]) -> Result<Vec<u8>, ConversionError> {
    let review: ConversionReview<'_> = serde_json::from_slice(review)?;
    if review.api_version != API_VERSION || review.kind != KIND {
        return Err(ConversionError::Version {
            api_version: review.api_version,
            kind: review.kind,
        });
    }
    let request = review.request;
    let (converted_objects, result) = match converted(&request) {
        Ok(objects) => (objects, success()),
        Err(message) => (Vec::new(), failure(&message)),
    };
    let review = ResponseReview {
        api_version: API_VERSION,
        kind: KIND,
        response: ConversionResponse {
            uid: &request.uid,
            converted_objects,
            result,
        },
    };
    Ok(serde_json::to_vec(&review)?)
}

fn success() -> ConversionResult {
    ConversionResult {
        status: "Success",
        message: String::new(),
    }
}

fn failure(message: &str) -> ConversionResult {
    ConversionResult {
        status: "Failure",
        message: sanitize(message),
    }
}

fn converted(request: &ConversionRequest<'_>) -> Result<Vec<Box<RawValue>>, String> {
    let version = &request.desired_version;
    if !is_of_group(version) {
        return Err(format!(
            "objects are not converted to {version}: it is no version of {GROUP}"
        ));
    }
    let version = Value::from(version.as_str()).to_string();
    request
        .objects
        .iter()
        .map(|object| with_version(object, &version))
        .collect()
}

/// Replaces the version in the text of an object. `version` is JSON.
fn with_version(object: &RawValue, version: &str) -> Result<Box<RawValue>, String> {
    let text = object.get();
    let invalid = |error: serde_json::Error| format!("invalid object: {error}");
    let old = serde_json::from_str::<Versioned<'_>>(text)
        .map_err(invalid)?
        .api_version;
    let old = old.map_or("null", RawValue::get);
    if !serde_json::from_str::<String>(old).is_ok_and(|old| is_of_group(&old)) {
        return Err(format!("an object is not of the group {GROUP}"));
    }
    // It is a part of the text.
    let start = old.as_ptr() as usize - text.as_ptr() as usize;
    let converted = format!("{}{version}{}", &text[..start], &text[start + old.len()..]);
    RawValue::from_string(converted).map_err(invalid)
}

fn is_of_group(api_version: &str) -> bool {
    api_version.split_once('/').is_some_and(|(group, _)| group == GROUP)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn review(request: &Value) -> Value {
        let review = json!({ "apiVersion": API_VERSION, "kind": KIND, "request": request });
        serde_json::from_slice(&convert(review.to_string().as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn objects_keep_all_but_their_version() {
        let object = json!({
            "apiVersion": "core.oam.dev/v1alpha2", "kind": "Application", "metadata": { "name": "a", "uid": "u" },
            "spec": { "apiVersion": "v1", "n": 1.50, "b": null }, "more": [],
        });
        let response = review(&json!({
            "uid": "7", "desiredAPIVersion": "core.oam.dev/v1beta1", "objects": [object, object],
        }));
        let mut expected = object;
        expected["apiVersion"] = json!("core.oam.dev/v1beta1");
        assert_eq!(
            response,
            json!({
                "apiVersion": API_VERSION, "kind": KIND,
                "response": {
                    "uid": "7", "convertedObjects": [expected, expected], "result": { "status": "Success" },
                },
            })
        );
    }

    #[rstest]
    #[case::other_group("apps/v1", vec![json!({ "apiVersion": "core.oam.dev/v1" })], "no version of core.oam.dev")]
    #[case::object_of_other_group("core.oam.dev/v1", vec![json!({ "apiVersion": "apps/v1" })], "not of the group")]
    #[case::without_version("core.oam.dev/v1", vec![json!({})], "not of the group")]
    #[case::no_object("core.oam.dev/v1", vec![json!(1)], "invalid object")]
    fn other_objects_are_not_converted(#[case] version: &str, #[case] objects: Vec<Value>, #[case] message: &str) {
        let response = review(&json!({ "uid": "7", "desiredAPIVersion": version, "objects": objects }));
        let response = &response["response"];
        assert_eq!(
            (&response["uid"], &response["convertedObjects"]),
            (&json!("7"), &json!([]))
        );
        assert_eq!(response["result"]["status"], "Failure");
        let text = response["result"]["message"].as_str().unwrap();
        assert!(text.contains(message), "{text}");
    }

    #[test]
    fn texts_that_are_no_reviews_are_refused() {
        let error = |text: &str| convert(text.as_bytes()).unwrap_err().to_string();
        assert!(error("{").starts_with("invalid ConversionReview: "));
        let request = json!({ "uid": "7", "desiredAPIVersion": "core.oam.dev/v1", "objects": [] });
        let other = json!({ "apiVersion": "apiextensions.k8s.io/v1beta1", "kind": KIND, "request": request });
        assert_eq!(
            error(&other.to_string()),
            "expected a review of apiextensions.k8s.io/v1, got ConversionReview of apiextensions.k8s.io/v1beta1"
        );
        let request =
            json!({ "uid": "7", "desiredAPIVersion": "core.oam.dev/v1", "objects": vec![0; MAX_OBJECTS + 1] });
        let many = json!({ "apiVersion": API_VERSION, "kind": KIND, "request": request });
        assert!(error(&many.to_string()).contains("more than 10000 objects"));
    }
}
