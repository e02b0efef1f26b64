//! Functions that need nothing but their arguments: `vela/builtin`, `vela/time`, and `vela/util` without logs; for components,
//! `vela/base64` and `vela/cue`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::types::{Answer, Call, Caller};
use crate::controllers::oam::render::patch::{apply_patch, check_size, without_markers};
use crate::controllers::oam::workflow::FailureReason;
use crate::runtime::cron::parse_duration;

/// The state of a run that functions use.
#[derive(Debug)]
pub struct StepState {
    /// The message for the status, which each function that has one replaces.
    pub message: String,
    /// The number of further calls that suspend and return. A run begins with the first call again.
    pub resumptions: u32,
}

/// Returns true for a function that [`answer`] does.
#[must_use]
pub fn is_builtin(caller: Caller, provider: &str, function: &str) -> bool {
    if caller == Caller::Component {
        return matches!(
            (provider, function),
            ("base64", "encode" | "decode") | ("cue", "strategyUnify")
        );
    }
    match provider {
        "builtin" => matches!(function, "break" | "wait" | "suspend" | "fail" | "message"),
        "time" => matches!(function, "date" | "timestamp"),
        "util" => matches!(function, "string" | "patch-k8s-object"),
        _ => false,
    }
}

/// Does a call.
#[must_use]
pub fn answer(call: &Call, state: &mut StepState) -> Answer {
    let params = &call.params;
    let message = text(params, "message");
    let nothing = Answer::Returned(Value::Null);
    match call.function.as_str() {
        "message" => {
            state.note(message);
            nothing
        }
        "break" => Answer::Terminated(state.note(message)),
        "wait" if params.get("continue") == Some(&Value::Bool(true)) => nothing,
        "wait" => Answer::Waiting(state.note(message)),
        "fail" => Answer::Failed {
            reason: FailureReason::Action,
            message: state.note(message),
        },
        "suspend" if state.resumptions > 0 => {
            state.resumptions -= 1;
            nothing
        }
        "suspend" => suspend(&call.path, message, text(params, "duration")),
        "string" => convert_string(params),
        "timestamp" => convert_date(params),
        "date" => convert_timestamp(params),
        "encode" => Answer::Returned(STANDARD.encode(params.as_str().unwrap_or_default()).into()),
        "decode" => decode_text(params),
        "strategyUnify" => patch_object(params.get("value").cloned().unwrap_or_default(), params).into(),
        _ => Answer::Returned(
            match patch_object(params.get("value").cloned().unwrap_or_default(), params) {
                Ok(result) => json!({ "result": result }),
                Err(error) => json!({ "err": error }),
            },
        ),
    }
}

impl StepState {
    /// Takes a new message, unless it is empty, and returns the current one.
    fn note(&mut self, message: &str) -> String {
        if !message.is_empty() {
            message.clone_into(&mut self.message);
        }
        self.message.clone()
    }
}

fn suspend(path: &str, message: &str, duration: &str) -> Answer {
    let label = path.rsplit('.').next().unwrap_or_default();
    let message = match message {
        "" => format!("Suspended by field {label}"),
        message => message.to_owned(),
    };
    let duration = match duration {
        "" => None,
        text => match parse_duration(text) {
            Some(duration) => Some(duration),
            None => return Answer::failed(format!("duration {text:?} is invalid: write it as 30s, 5m or 1h30m")),
        },
    };
    Answer::Suspended { message, duration }
}

/// Converts bytes, which the evaluator exports as base64.
fn convert_string(params: &Value) -> Answer {
    match STANDARD.decode(text(params, "bt")) {
        Ok(bytes) => Answer::Returned(json!({ "str": String::from_utf8_lossy(&bytes) })),
        Err(error) => Answer::failed(format!("bt is not base64: {error}")),
    }
}

/// Decodes base64, to text whatever the bytes are.
fn decode_text(params: &Value) -> Answer {
    match STANDARD.decode(params.as_str().unwrap_or_default()) {
        Ok(bytes) => Answer::Returned(Value::from(String::from_utf8_lossy(&bytes))),
        // The error would quote a part of what may be a Secret.
        Err(_) => Answer::failed("$params is not base64"),
    }
}

/// Converts a date, which the package has read by its layout as `value`, to seconds since 1970.
fn convert_date(params: &Value) -> Answer {
    match text(params, "value").parse::<Timestamp>() {
        Ok(time) => Answer::Returned(json!({ "timestamp": time.as_second() })),
        Err(error) => {
            let layout = Some(text(params, "layout")).filter(|layout| !layout.is_empty());
            let (date, layout) = (text(params, "date"), layout.unwrap_or("RFC 3339"));
            Answer::failed(format!("date {date:?} can't be read with layout {layout:?}: {error}"))
        }
    }
}

/// Returns the date that the package has written by its layout as `value`.
fn convert_timestamp(params: &Value) -> Answer {
    match text(params, "value") {
        "" => Answer::failed("timestamp is not between the years 0 and 9999"),
        date => Answer::Returned(json!({ "date": date })),
    }
}

/// Applies `patch` of the arguments of `kube.#Patch` or `util.#PatchK8sObject` to an object, by the markers in it.
///
/// # Errors
///
/// Values that conflict, and results beyond the limits.
pub fn patch_object(mut object: Value, params: &Value) -> Result<Value, String> {
    let no_markers = Map::new();
    let marked = params.as_object().unwrap_or(&no_markers);
    if let Some(patch) = params.get("patch") {
        apply_patch(&mut object, patch, marked).map_err(|error| error.to_string())?;
    }
    check_size(object.as_object()).map_err(|error| error.to_string())?;
    Ok(without_markers(&object))
}

fn text<'a>(params: &'a Value, field: &str) -> &'a str {
    params.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn call(function: &str, params: Value) -> Call {
        Call {
            path: "a.gate".to_owned(),
            provider: "builtin".to_owned(),
            function: function.to_owned(),
            params,
        }
    }

    fn answer_to(function: &str, params: Value) -> (Answer, String) {
        let mut state = StepState {
            message: "before".to_owned(),
            resumptions: 0,
        };
        let answer = answer(&call(function, params), &mut state);
        (answer, state.message)
    }

    #[test]
    fn a_wait_ends_when_it_may_continue() {
        let nothing = Answer::Returned(Value::Null);
        assert_eq!(answer_to("wait", json!({ "continue": true })).0, nothing);
        let (waiting, message) = answer_to("wait", json!({ "continue": false, "message": "soon" }));
        assert_eq!(
            (waiting, message.as_str()),
            (Answer::Waiting("soon".to_owned()), "soon")
        );
        assert_eq!(answer_to("wait", json!({})).0, Answer::Waiting("before".to_owned()));
    }

    #[test]
    fn a_message_stays_until_another_one() {
        assert_eq!(answer_to("message", json!({ "message": "new" })).1, "new");
        assert_eq!(answer_to("message", json!({})).1, "before");
    }

    #[test]
    fn a_failure_is_an_action_with_its_message() {
        let (answer, _) = answer_to("fail", json!({ "message": "broken" }));
        let expected = Answer::Failed {
            reason: FailureReason::Action,
            message: "broken".to_owned(),
        };
        assert_eq!(answer, expected);
    }

    #[test]
    fn a_break_ends_the_workflow_with_its_message() {
        let (answer, message) = answer_to("break", json!({ "message": "enough" }));
        assert_eq!(
            (answer, message.as_str()),
            (Answer::Terminated("enough".to_owned()), "enough")
        );
        assert_eq!(answer_to("break", json!({})).0, Answer::Terminated("before".to_owned()));
    }

    #[test]
    fn a_suspension_has_a_duration_and_a_default_message() {
        let suspended = |message: &str, duration| Answer::Suspended {
            message: message.to_owned(),
            duration,
        };
        let (answer, _) = answer_to("suspend", json!({ "duration": "1m30s" }));
        assert_eq!(
            answer,
            suspended("Suspended by field gate", Some(Duration::from_secs(90)))
        );
        assert_eq!(
            answer_to("suspend", json!({ "message": "ask" })).0,
            suspended("ask", None)
        );
        let (invalid, _) = answer_to("suspend", json!({ "duration": "soon" }));
        assert!(
            matches!(
                invalid,
                Answer::Failed {
                    reason: FailureReason::Execute,
                    ..
                }
            ),
            "{invalid:?}"
        );
    }

    #[test]
    fn as_many_suspensions_return_as_were_resumed() {
        let mut state = StepState {
            message: String::new(),
            resumptions: 2,
        };
        let mut next = || answer(&call("suspend", json!({})), &mut state);
        assert_eq!(
            [next(), next()],
            [Answer::Returned(Value::Null), Answer::Returned(Value::Null)]
        );
        assert!(matches!(next(), Answer::Suspended { .. }));
    }

    #[test]
    fn bytes_become_text_whatever_they_are() {
        let (answer, _) = answer_to("string", json!({ "bt": "aGk=" }));
        assert_eq!(answer, Answer::Returned(json!({ "str": "hi" })));
        assert_eq!(
            answer_to("string", json!({ "bt": "/w==" })).0,
            Answer::Returned(json!({ "str": "\u{fffd}" }))
        );
        assert!(matches!(
            answer_to("string", json!({ "bt": "!" })).0,
            Answer::Failed { .. }
        ));
    }

    #[test]
    fn texts_are_encoded_and_decoded() {
        assert_eq!(answer_to("encode", json!("hi")).0, Answer::Returned(json!("aGk=")));
        assert_eq!(answer_to("decode", json!("aGk=")).0, Answer::Returned(json!("hi")));
        assert!(matches!(answer_to("decode", json!("!")).0, Answer::Failed { .. }));
    }

    #[test]
    fn values_are_unified_by_their_markers_and_a_conflict_fails() {
        let value = json!({ "list": [{ "name": "a", "x": 1 }] });
        let patch = json!({ "$+list": { "patchKey": "name" }, "list": [{ "name": "b" }] });
        let (unified, _) = answer_to("strategyUnify", json!({ "value": value, "patch": patch }));
        let expected = json!({ "list": [{ "name": "a", "x": 1 }, { "name": "b" }] });
        assert_eq!(unified, Answer::Returned(expected));
        let (conflict, _) = answer_to("strategyUnify", json!({ "value": { "a": 1 }, "patch": { "a": 2 } }));
        assert!(matches!(conflict, Answer::Failed { .. }));
    }

    #[test]
    fn components_have_no_functions_of_workflows() {
        assert!(is_builtin(Caller::Step, "builtin", "suspend") && !is_builtin(Caller::Step, "base64", "encode"));
        assert!(
            !is_builtin(Caller::Component, "builtin", "suspend")
                && is_builtin(Caller::Component, "cue", "strategyUnify")
        );
    }

    #[test]
    fn dates_that_the_package_could_not_read_or_write_fail_by_name() {
        let (read, _) = answer_to("timestamp", json!({ "date": "x", "value": "1969-12-31T23:59:50Z" }));
        assert_eq!(read, Answer::Returned(json!({ "timestamp": -10 })));
        let (unread, _) = answer_to("timestamp", json!({ "date": "soon", "layout": "2006", "value": "" }));
        let Answer::Failed { message, .. } = unread else {
            panic!("{unread:?}");
        };
        assert!(
            message.starts_with(r#"date "soon" can't be read with layout "2006""#),
            "{message}"
        );
        let (written, _) = answer_to("date", json!({ "timestamp": 0, "value": "1970" }));
        assert_eq!(written, Answer::Returned(json!({ "date": "1970" })));
        assert!(matches!(
            answer_to("date", json!({ "value": "" })).0,
            Answer::Failed { .. }
        ));
    }

    #[test]
    fn a_patch_aligns_lists_by_their_markers_and_returns_conflicts() {
        let value = json!({ "list": [{ "name": "a", "x": 1 }, { "name": "b" }] });
        let patch = json!({ "$+list": { "patchKey": "name" }, "list": [{ "name": "b", "y": 2 }] });
        let (patched, _) = answer_to("patch-k8s-object", json!({ "value": value, "patch": patch }));
        let expected = json!({ "result": { "list": [{ "name": "a", "x": 1 }, { "name": "b", "y": 2 }] } });
        assert_eq!(patched, Answer::Returned(expected));
        let (conflict, _) = answer_to("patch-k8s-object", json!({ "value": { "a": 1 }, "patch": { "a": 2 } }));
        let Answer::Returned(conflict) = conflict else {
            panic!("{conflict:?}");
        };
        assert!(
            conflict["err"].as_str().unwrap().contains("conflicting values"),
            "{conflict}"
        );
    }
}
