//! AdmissionReviews as the API server sends and reads them (admission.k8s.io/v1).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::authentication::v1::UserInfo;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::api::is_object_name;
use crate::budget::parsed_bytes;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// Bytes of a user with all groups as JSON, which may take many times as much once it is decoded.
const MAX_USER: usize = 256 << 10;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionReview {
    api_version: String,
    kind: String,
    request: Option<AdmissionRequest>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest {
    pub uid: String,
    pub resource: ResourceName,
    #[serde(default)]
    pub namespace: String,
    pub operation: Operation,
    #[serde(default, deserialize_with = "limited_user")]
    pub user_info: UserInfo,
    /// Text, because most of it may belong to no review.
    object: Option<Box<RawValue>>,
    old_object: Option<Box<RawValue>>,
    /// Nothing may be written.
    #[serde(default)]
    pub dry_run: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ResourceName {
    #[serde(default)]
    pub group: String,
    pub version: String,
    /// In plural.
    pub resource: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Allowed {
        patch: json_patch::Patch,
        warnings: Vec<String>,
    },
    /// The object can't be read, or KubeVela answers 400.
    Invalid(String),
    /// A rule forbids the object.
    Denied(String),
    /// The review failed for a reason outside of the object, such as an API server that does not answer.
    Failed(String),
}

#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    #[error("invalid AdmissionReview: {0}")]
    Json(#[from] serde_json::Error),
    #[error("expected a review of {API_VERSION}, got {kind} of {api_version}")]
    Version { api_version: String, kind: String },
    #[error("the AdmissionReview has no request")]
    NoRequest,
    /// Requests to the API server have it in their path.
    #[error("the request has no valid namespace")]
    Namespace,
}

fn limited_user<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UserInfo, D::Error> {
    let user = Box::<RawValue>::deserialize(deserializer)?;
    if user.get().len() > MAX_USER {
        return Err(D::Error::custom(format!("the user takes more than {MAX_USER} bytes")));
    }
    serde_json::from_str(user.get()).map_err(D::Error::custom)
}

impl AdmissionReview {
    /// # Errors
    /// The text is no review of the supported version, or has no request in a namespace.
    pub fn parse(text: &[u8]) -> Result<AdmissionRequest, ReviewError> {
        let review: Self = serde_json::from_slice(text)?;
        if review.api_version != API_VERSION || review.kind != KIND {
            return Err(ReviewError::Version {
                api_version: review.api_version,
                kind: review.kind,
            });
        }
        let request = review.request.ok_or(ReviewError::NoRequest)?;
        if is_object_name(&request.namespace) {
            Ok(request)
        } else {
            Err(ReviewError::Namespace)
        }
    }
}

impl AdmissionRequest {
    /// Decodes the object of the request.
    ///
    /// # Errors
    /// There is no object, or it does not have this type.
    pub fn object<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        decode(self.object.as_deref())
    }

    /// Decodes the object before an update.
    ///
    /// # Errors
    /// There is no object, or it does not have this type.
    pub fn old_object<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        decode(self.old_object.as_deref())
    }

    #[must_use]
    pub fn has_old_object(&self) -> bool {
        self.old_object.is_some()
    }

    /// Returns the memory that the object, and the object before an update, take once they are decoded.
    #[must_use]
    pub fn decoded_bytes(&self) -> [u64; 2] {
        let objects = [self.object.as_deref(), self.old_object.as_deref()];
        objects.map(|object| object.map_or(0, |object| parsed_bytes(object.get())))
    }

    #[must_use]
    pub fn user(&self) -> &str {
        self.user_info.username.as_deref().unwrap_or_default()
    }
}

fn decode<T: DeserializeOwned>(object: Option<&RawValue>) -> Result<T, serde_json::Error> {
    serde_json::from_str(object.map_or("null", RawValue::get))
}

impl Verdict {
    #[must_use]
    pub fn allowed() -> Self {
        Self::Allowed {
            patch: json_patch::Patch::default(),
            warnings: Vec::new(),
        }
    }

    /// Returns the code and the reason that tools show.
    const fn status(&self) -> (u16, &'static str) {
        match self {
            Self::Allowed { .. } => (200, ""),
            Self::Invalid(_) => (400, "BadRequest"),
            Self::Denied(_) => (403, "Forbidden"),
            Self::Failed(_) => (500, "InternalError"),
        }
    }

    /// Returns the review to send.
    #[must_use]
    pub fn into_response(self, uid: &str) -> Vec<u8> {
        let (code, reason) = self.status();
        let mut response = ReviewResponse {
            uid,
            allowed: matches!(self, Self::Allowed { .. }),
            status: Status {
                code,
                reason,
                message: "",
            },
            patch: None,
            patch_type: None,
            warnings: &[],
        };
        let text = match &self {
            Self::Allowed { patch, warnings } => {
                if !patch.is_empty() {
                    // A patch of JSON values can't fail.
                    response.patch = Some(STANDARD.encode(serde_json::to_vec(patch).unwrap_or_default()));
                    response.patch_type = Some("JSONPatch");
                }
                response.warnings = warnings;
                ""
            }
            Self::Invalid(message) | Self::Denied(message) | Self::Failed(message) => message,
        };
        response.status.message = text;
        let review = ResponseReview {
            api_version: API_VERSION,
            kind: KIND,
            response,
        };
        // Texts and numbers only.
        serde_json::to_vec(&review).unwrap_or_default()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResponseReview<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: ReviewResponse<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewResponse<'a> {
    uid: &'a str,
    allowed: bool,
    status: Status<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

#[derive(Serialize)]
struct Status<'a> {
    code: u16,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn review(request: Value) -> Result<AdmissionRequest, ReviewError> {
        let review = json!({ "apiVersion": API_VERSION, "kind": KIND, "request": request });
        AdmissionReview::parse(review.to_string().as_bytes())
    }

    #[test]
    fn a_request_has_what_the_api_server_sends() {
        let request = review(json!({
            "uid": "1", "operation": "UPDATE", "namespace": "ns", "name": "a", "dryRun": true,
            "kind": { "group": "core.oam.dev", "version": "v1beta1", "kind": "Application" },
            "resource": { "group": "core.oam.dev", "version": "v1beta1", "resource": "applications" },
            "userInfo": { "username": "alice", "groups": ["dev"], "extra": { "a": ["b"] } },
            "object": { "spec": 1 }, "oldObject": null, "options": { "kind": "UpdateOptions" },
        }))
        .unwrap();
        assert_eq!(
            (request.operation, request.user(), request.dry_run),
            (Operation::Update, "alice", true)
        );
        assert_eq!(request.object::<Value>().unwrap(), json!({ "spec": 1 }));
        assert!(!request.has_old_object() && request.old_object::<Operation>().is_err());
    }

    #[test]
    fn other_texts_are_refused() {
        let error = |text: &str| AdmissionReview::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error("{").starts_with("invalid AdmissionReview: EOF"));
        assert_eq!(
            error(r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#),
            "expected a review of admission.k8s.io/v1, got AdmissionReview of admission.k8s.io/v1beta1"
        );
        assert_eq!(
            error(r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#),
            "the AdmissionReview has no request"
        );
        assert!(review(json!({ "uid": "1" })).is_err());
    }

    fn of_user(namespace: &str, groups: &[String]) -> Result<AdmissionRequest, ReviewError> {
        review(json!({
            "uid": "1", "operation": "CREATE", "namespace": namespace, "object": {}, "userInfo": { "groups": groups },
            "resource": { "group": "core.oam.dev", "version": "v1beta1", "resource": "applications" },
        }))
    }

    #[test]
    fn a_namespace_that_would_change_the_path_of_a_request_is_refused() {
        assert!(of_user("team", &[]).is_ok());
        for namespace in ["", "a/b", "..", "a?b", "a/../../kube-system/secrets"] {
            let refused = of_user(namespace, &[]);
            assert!(matches!(refused, Err(ReviewError::Namespace)), "{namespace}");
        }
    }

    #[test]
    fn a_user_of_unusual_size_is_refused() {
        let groups = |count: usize| vec!["a group of a directory".to_owned(); count];
        assert_eq!(
            of_user("team", &groups(5_000)).unwrap().user_info.groups.unwrap().len(),
            5_000
        );
        let error = of_user("team", &groups(50_000)).unwrap_err().to_string();
        assert!(error.contains("the user takes more than 262144 bytes"), "{error}");
    }

    #[test]
    fn verdicts_are_reviews_with_the_codes_of_kubevela() {
        let response = |verdict: Verdict| serde_json::from_slice::<Value>(&verdict.into_response("7")).unwrap();
        assert_eq!(
            response(Verdict::allowed()),
            json!({
                "apiVersion": API_VERSION, "kind": KIND,
                "response": { "uid": "7", "allowed": true, "status": { "code": 200 } },
            })
        );
        let refused = |verdict: Verdict| response(verdict)["response"]["status"].take();
        assert_eq!(
            refused(Verdict::Invalid("a".to_owned())),
            json!({ "code": 400, "reason": "BadRequest", "message": "a" })
        );
        assert_eq!(refused(Verdict::Denied("b".to_owned()))["code"], 403);
        assert_eq!(refused(Verdict::Failed("c".to_owned()))["code"], 500);
        let operation = json!([{ "op": "add", "path": "/a", "value": 1 }]);
        let patched = response(Verdict::Allowed {
            patch: serde_json::from_value(operation.clone()).unwrap(),
            warnings: vec!["w".to_owned()],
        });
        let patch = STANDARD.decode(patched["response"]["patch"].as_str().unwrap()).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&patch).unwrap(), operation);
        assert_eq!(patched["response"]["patchType"], "JSONPatch");
        assert_eq!(patched["response"]["warnings"], json!(["w"]));
    }
}
