//! Conversion of objects between versions of the API (`/convert`). There is one version, so objects stay as they are.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::text::sanitize;

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "ConversionReview";
/// The only version of the API.
const VERSION: &str = "core.oam.dev/v1beta1";
const NO_OBJECTS: &str = "[]";

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
    /// Text, since the API server checks the version of each of them.
    #[serde(borrow)]
    objects: &'a RawValue,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConversionResponseReview<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: ConversionResponse<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConversionResponse<'a> {
    uid: &'a str,
    converted_objects: &'a RawValue,
    result: ConversionResult,
}

#[derive(Serialize)]
struct ConversionResult {
    status: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

/// Returns the response to a ConversionReview: its objects.
///
/// # Errors
/// The text is no review of the supported version. Another desired version is an error in the response.
pub fn convert(review: &[u8]) -> Result<Vec<u8>, ConversionError> {
    let review: ConversionReview<'_> = serde_json::from_slice(review)?;
    if review.api_version != API_VERSION || review.kind != KIND {
        return Err(ConversionError::Version {
            api_version: review.api_version,
            kind: review.kind,
        });
    }
    let request = review.request;
    let (converted_objects, result) = if request.desired_version == VERSION {
        (request.objects, success())
    } else {
        (serde_json::from_str(NO_OBJECTS)?, failure(&request.desired_version))
    };
    let review = ConversionResponseReview {
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

fn failure(version: &str) -> ConversionResult {
    ConversionResult {
        status: "Failure",
        message: sanitize(&format!("there is no version {version}, only {VERSION}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn response(version: &str, objects: &Value) -> Value {
        let request = json!({ "uid": "7", "desiredAPIVersion": version, "objects": objects });
        let review = json!({ "apiVersion": API_VERSION, "kind": KIND, "request": request });
        let mut converted: Value = serde_json::from_slice(&convert(review.to_string().as_bytes()).unwrap()).unwrap();
        assert_eq!(
            (&converted["apiVersion"], &converted["kind"]),
            (&json!(API_VERSION), &json!(KIND))
        );
        converted["response"].take()
    }

    #[test]
    fn objects_stay_as_they_are() {
        let objects = json!([
            { "apiVersion": VERSION, "kind": "Application", "metadata": { "name": "a" }, "spec": { "n": 1.5, "b": null } },
            { "apiVersion": VERSION, "kind": "Application", "metadata": { "name": "b" } },
        ]);
        let expected = json!({ "uid": "7", "convertedObjects": objects, "result": { "status": "Success" } });
        assert_eq!(response(VERSION, &objects), expected);
    }

    #[test]
    fn there_is_no_other_version() {
        let message = "there is no version core.oam.dev/v1, only core.oam.dev/v1beta1";
        let result = json!({ "status": "Failure", "message": message });
        let expected = json!({ "uid": "7", "convertedObjects": [], "result": result });
        assert_eq!(response("core.oam.dev/v1", &json!([{}])), expected);
    }

    #[test]
    fn texts_that_are_no_reviews_are_refused() {
        let error = |text: &str| convert(text.as_bytes()).unwrap_err().to_string();
        assert!(error("{").starts_with("invalid ConversionReview: "));
        let request = json!({ "uid": "7", "desiredAPIVersion": VERSION, "objects": [] });
        let other = json!({ "apiVersion": "apiextensions.k8s.io/v1beta1", "kind": KIND, "request": request });
        assert_eq!(
            error(&other.to_string()),
            "expected a review of apiextensions.k8s.io/v1, got ConversionReview of apiextensions.k8s.io/v1beta1"
        );
    }
}
