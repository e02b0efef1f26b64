//! Messages to and from an evaluator, each a line of JSON.
//!
//! | request | response |
//! |---|---|
//! | `{"id": 1, "source": "a: 1 + 1"}` | `{"id": 1, "result": {"a": 2}}` |
//! | | `{"id": 1, "kind": "conflict", "errors": [{"text": "a: conflicting values 1 and 2", "line": 3}], "more": 2}` |
//! | `{"id": 2, "source": "a: [1] + [2]", "inspect": true}` | `{"id": 2, "inspection": {…}}`, an [`Inspection`] |
//! | `{"id": 3, "version": true}` | `{"id": 3, "version": 4}` |
//!
//! A request may have `"template": {"first": 4, "count": 20}`, the lines of its source that are the template. The line of an
//! error counts from the first of them; one outside has none. `more` counts the errors that are not listed.
//!
//! An inspection with `"check": true` compiles the template too, without parameters and context, and may respond with errors.
//! A template that imports `vela/…` or `ext/…` is only parsed.
//!
//! The result of a text for an older version of CUE, which the evaluator has rewritten, has `"rewritten": true`.
//! Requests are answered in order. Fields that are not listed are ignored. A result takes at most [`MAX_RESULT`] bytes.
//!
//! `{"id": 4, "source": "parameter: a?: int", "schema": true}` asks for the OpenAPI 3.0 schema of the field `parameter`, which
//! the response has as `"schema": {…}`.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Error;
use super::error::{TextError, TextErrors};
use super::source::{CueSource, TemplateLines};
use crate::text::truncate;

/// Changes when an evaluator of an older version could not answer.
const VERSION: u32 = 4;
/// Maximum length of a text, several times that of the largest object of Kubernetes.
const MAX_SOURCE: usize = 4 * 1024 * 1024;
const MAX_RESULT: usize = 4 * 1024 * 1024;
/// Length of all errors of a response.
const MAX_ERROR: usize = 4 * 1024;
/// Maximum length of a response.
pub const MAX_RESPONSE: usize = MAX_RESULT + 6 * MAX_ERROR + ENVELOPE;
/// Length of a message besides its text, result or error.
const ENVELOPE: usize = 1024;

/// The reason why a text is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TextErrorKind {
    /// The text can't be compiled.
    Syntax,
    /// Values exclude each other.
    Conflict,
    /// A value is missing or not concrete.
    Incomplete,
    /// The text reports an error, or its result exceeds a limit.
    User,
}

impl TextErrorKind {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::Conflict => "conflict",
            Self::Incomplete => "incomplete",
            Self::User => "user",
        }
    }
}

#[derive(Debug, Default, Serialize)]
struct EvaluationRequest {
    id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<TemplateLines>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    inspect: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    check: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    version: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    schema: bool,
}

#[derive(Debug, Deserialize)]
struct EvaluationResponse<'a> {
    id: u64,
    /// `null` is a result too.
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(default)]
    errors: Vec<TextError>,
    #[serde(default)]
    more: usize,
    kind: Option<TextErrorKind>,
    inspection: Option<Inspection>,
    version: Option<u32>,
    /// The text is for an older version of CUE, and was rewritten.
    #[serde(default)]
    rewritten: bool,
    #[serde(borrow, default)]
    schema: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The properties of a template that do not depend on its parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Inspection {
    /// The template uses `+` or `*` on what may be lists, and is rewritten if CUE refuses that.
    pub may_be_rewritten: bool,
    /// Dotted paths of the parameters that a comment `// +immutable` marks, sorted, at most 256. Nothing is listed below a
    /// marked parameter.
    pub immutable: Vec<String>,
    /// Kinds of `output` and of the fields of `outputs` that are written as literals, at most 64.
    pub kinds: Vec<TemplateKind>,
}

/// The kind of an object in a template.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TemplateKind {
    pub api_version: String,
    pub kind: String,
}

pub(super) fn evaluation(id: u64, source: CueSource) -> Result<Vec<u8>, Error> {
    request(id, source, EvaluationRequest::default())
}

pub(super) fn inspection(id: u64, source: CueSource) -> Result<Vec<u8>, Error> {
    let options = EvaluationRequest {
        inspect: true,
        ..EvaluationRequest::default()
    };
    request(id, source, options)
}

/// Compiles the template besides.
pub(super) fn checked_inspection(id: u64, source: CueSource) -> Result<Vec<u8>, Error> {
    let options = EvaluationRequest {
        inspect: true,
        check: true,
        ..EvaluationRequest::default()
    };
    request(id, source, options)
}

fn request(id: u64, source: CueSource, options: EvaluationRequest) -> Result<Vec<u8>, Error> {
    let length = source.text().len();
    if length > MAX_SOURCE {
        return Err(Error::user(format!(
            "the CUE text has {length} bytes, more than {MAX_SOURCE}"
        )));
    }
    Ok(encode(&EvaluationRequest {
        id,
        template: source.template_lines(),
        source: Some(source.into_text()),
        ..options
    }))
}

pub(super) fn schema_request(id: u64, source: CueSource) -> Result<Vec<u8>, Error> {
    let options = EvaluationRequest {
        schema: true,
        ..EvaluationRequest::default()
    };
    request(id, source, options)
}

pub(super) fn version_request(id: u64) -> Vec<u8> {
    encode(&EvaluationRequest {
        id,
        version: true,
        ..EvaluationRequest::default()
    })
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    // Numbers and text only, so that JSON can't fail.
    serde_json::to_vec(message).unwrap_or_default()
}

/// The result of an evaluation.
#[derive(Debug, PartialEq)]
pub(super) struct Exported {
    pub value: Value,
    pub is_rewritten: bool,
}

/// Returns the result of an evaluation. An error of the kind `Crashed` means that the response is invalid.
pub(super) fn decode_result(id: u64, response: &[u8]) -> Result<Exported, Error> {
    let mut response = decode(id, response)?;
    let is_rewritten = response.rewritten;
    match (response.result, response.failure()) {
        // Numbers beyond 64-bit floats and nesting beyond serde_json's limit are refused here.
        (Some(result), None) => match serde_json::from_str(result.get()) {
            Ok(value) => Ok(Exported { value, is_rewritten }),
            Err(error) => Err(Error::user(format!("the result is not supported: {error}"))),
        },
        (None, Some(error)) => Err(error),
        _ => Err(Error::Crashed("response without a result or an error".to_owned())),
    }
}

pub(super) fn decode_inspection(id: u64, response: &[u8]) -> Result<Inspection, Error> {
    let mut response = decode(id, response)?;
    match (response.inspection.take(), response.failure()) {
        (Some(inspection), None) => Ok(inspection),
        (None, Some(error)) => Err(error),
        _ => Err(Error::Crashed("response without an inspection or an error".to_owned())),
    }
}

/// Returns a schema as JSON.
pub(super) fn decode_schema(id: u64, response: &[u8]) -> Result<String, Error> {
    let mut response = decode(id, response)?;
    match (response.schema, response.failure()) {
        (Some(schema), None) => Ok(schema.get().to_owned()),
        (None, Some(error)) => Err(error),
        _ => Err(Error::Crashed("response without a schema or an error".to_owned())),
    }
}

impl EvaluationResponse<'_> {
    fn failure(&mut self) -> Option<Error> {
        let mut errors = std::mem::take(&mut self.errors);
        let mut left = MAX_ERROR;
        errors.retain_mut(|error| {
            let has_room = left > 0;
            error.text = truncate(&error.text, left);
            left = left.saturating_sub(error.text.len());
            has_room
        });
        let kind = self.kind.unwrap_or(TextErrorKind::User);
        let are_given = !errors.is_empty();
        let errors = TextErrors::new(errors, self.more);
        are_given.then_some(Error::Failed {
            kind,
            errors: if kind == TextErrorKind::Incomplete {
                errors.incomplete()
            } else {
                errors
            },
        })
    }
}

pub(super) fn check_version(id: u64, response: &[u8]) -> Result<(), Error> {
    match decode(id, response)?.version {
        Some(VERSION) => Ok(()),
        Some(other) => Err(Error::Crashed(format!(
            "it speaks version {other} of the protocol, expected {VERSION}"
        ))),
        None => Err(Error::Crashed("response without a version".to_owned())),
    }
}

fn decode(id: u64, response: &[u8]) -> Result<EvaluationResponse<'_>, Error> {
    let invalid = |cause: String| Error::Crashed(format!("invalid response: {cause}"));
    let response: EvaluationResponse = serde_json::from_slice(response).map_err(|error| invalid(error.to_string()))?;
    if response.id == id {
        Ok(response)
    } else {
        Err(invalid(format!("id {}, expected {id}", response.id)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(error: Error) -> String {
        match error {
            Error::Failed { kind, errors } => format!("{}: {errors}", kind.name()),
            other => other.to_string(),
        }
    }

    #[test]
    fn a_request_is_one_line() {
        let request = evaluation(7, "a: 1\nb: \"\0\u{2028}\"".into()).unwrap();
        assert_eq!(
            String::from_utf8(request).unwrap(),
            "{\"id\":7,\"source\":\"a: 1\\nb: \\\"\\u0000\u{2028}\\\"\"}"
        );
        assert_eq!(version_request(8), br#"{"id":8,"version":true}"#);
        let mut source = CueSource::from("t: {\n");
        source.push_template("a: 1");
        assert_eq!(
            String::from_utf8(inspection(9, source).unwrap()).unwrap(),
            r#"{"id":9,"source":"t: {\na: 1","template":{"first":2,"count":1},"inspect":true}"#
        );
        assert_eq!(
            String::from_utf8(checked_inspection(9, "a: 1".into()).unwrap()).unwrap(),
            r#"{"id":9,"source":"a: 1","inspect":true,"check":true}"#
        );
        let longest = evaluation(u64::MAX, "\0".repeat(MAX_SOURCE).into()).unwrap();
        assert!(
            longest.len() <= 6 * MAX_SOURCE + ENVELOPE,
            "the evaluator reads this much"
        );
        let error = evaluation(7, "a".repeat(MAX_SOURCE + 1).into()).unwrap_err();
        assert_eq!(text(error), "user: the CUE text has 4194305 bytes, more than 4194304");
    }

    #[test]
    fn results_are_values() {
        let decoded = |response: &str| decode_result(1, response.as_bytes());
        let exported = |value, is_rewritten| Ok(Exported { value, is_rewritten });
        assert_eq!(
            decoded(r#"{"id":1,"result":{"a":[1]}}"#),
            exported(json!({"a": [1]}), false)
        );
        assert_eq!(
            decoded(r#"{"id":1,"result":null,"more":1,"rewritten":true}"#),
            exported(Value::Null, true)
        );
        let deep = format!(r#"{{"id":1,"result":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        let error = text(decoded(&deep).unwrap_err());
        assert!(
            error.starts_with("user: the result is not supported: recursion limit"),
            "{error}"
        );
        let error = text(decoded(r#"{"id":1,"result":1e400}"#).unwrap_err());
        assert!(
            error.starts_with("user: the result is not supported: number out of range"),
            "{error}"
        );
    }

    #[test]
    fn errors_keep_their_kind_and_their_lines() {
        let failed = |response: &str| text(decode_result(1, response.as_bytes()).unwrap_err());
        let listed = r#"{"id":1,"errors":[{"text":"a: b","line":3},{"text":"c"}],"more":2,"kind":"conflict"}"#;
        assert_eq!(failed(listed), "conflict: a: b (line 3); c (and 2 more errors)");
        assert_eq!(failed(r#"{"id":1,"errors":[{"text":"a"}]}"#), "user: a");
        let long = "a".repeat(10_000);
        let long = format!(r#"{{"id":1,"errors":[{{"text":"{long}"}},{{"text":"{long}"}}]}}"#);
        assert_eq!(failed(&long).len(), MAX_ERROR + "user: ".len());
    }

    #[test]
    fn an_inspection_has_an_answer_or_errors() {
        let decoded = |response: &str| decode_inspection(1, response.as_bytes());
        let kinds = r#"[{"api_version":"apps/v1","kind":"Deployment"}]"#;
        let response =
            format!(r#"{{"id":1,"inspection":{{"may_be_rewritten":true,"immutable":["a.b"],"kinds":{kinds}}}}}"#);
        let expected = Inspection {
            may_be_rewritten: true,
            immutable: vec!["a.b".to_owned()],
            kinds: vec![TemplateKind {
                api_version: "apps/v1".to_owned(),
                kind: "Deployment".to_owned(),
            }],
        };
        assert_eq!(decoded(&response), Ok(expected));
        let incomplete = decoded(r#"{"id":1,"inspection":{"may_be_rewritten":true}}"#);
        assert!(matches!(incomplete, Err(Error::Crashed(_))));
        let error = decoded(r#"{"id":1,"errors":[{"text":"a","line":1}],"kind":"syntax"}"#).unwrap_err();
        assert_eq!(text(error), "syntax: a (line 1)");
        assert!(matches!(decoded(r#"{"id":1,"result":1}"#), Err(Error::Crashed(_))));
    }

    #[test]
    fn a_broken_response_is_a_failure_of_the_evaluator() {
        for response in [
            "",
            "{",
            "[]",
            "{}",
            r#"{"id":2,"result":1}"#,
            r#"{"id":1}"#,
            r#"{"id":1,"result":1,"errors":[{"text":"a"}]}"#,
        ] {
            let error = decode_result(1, response.as_bytes()).unwrap_err();
            assert!(matches!(error, Error::Crashed(_)), "{response}: {error}");
        }
    }

    #[test]
    fn another_version_is_named() {
        assert_eq!(check_version(1, br#"{"id":1,"version":4}"#), Ok(()));
        let error = check_version(1, br#"{"id":1,"version":1}"#).unwrap_err().to_string();
        assert_eq!(
            error,
            "CUE evaluator failed: it speaks version 1 of the protocol, expected 4"
        );
        assert!(check_version(1, br#"{"id":1,"result":1}"#).is_err());
    }
}
