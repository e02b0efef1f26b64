//! Steps of type `restart-workflow`, which ask for another run by the annotation that users set. Their template is not
//! used: KubeVela's runs a pod with the rights of its controller.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::execute_failure;
use crate::api::oam::WorkflowStep;
use crate::controllers::oam::reconciler::observed::annotate;
use crate::controllers::oam::reconciler::observed::requests::RESTART;
use crate::controllers::oam::reconciler::rollout::Rollout;
use crate::controllers::oam::workflow::{FailureReason, StepResult};

const RESTART_WORKFLOW: &str = "restart-workflow";
const UNITS: [(char, u64); 3] = [('m', 60), ('h', 3_600), ('d', 86_400)];
/// The longest interval, ten years in seconds.
const MAX_SECONDS: u64 = 10 * 365 * 86_400;

pub(super) fn is_restart(step: &WorkflowStep) -> bool {
    step.type_.split('@').next() == Some(RESTART_WORKFLOW)
}

pub(super) async fn request_restart(rollout: &mut Rollout<'_, '_>, properties: Option<&Value>) -> StepResult {
    let text = match requested(properties.unwrap_or(&Value::Null), Timestamp::now()) {
        Ok(text) => text,
        Err(message) => {
            return StepResult::Failed {
                reason: FailureReason::Action,
                message: crate::text::sanitize(&message),
            };
        }
    };
    let uid = &rollout.objects.ledger.identity.uid;
    if let Err(error) = annotate(rollout.env(), uid, RESTART, &text).await {
        return execute_failure(format!("failed to set the annotation {RESTART}: {error}"));
    }
    // The next pass reads it. This pass may be the last that an event starts.
    rollout.outcome.look_again_in(Duration::ZERO);
    StepResult::Succeeded {
        outputs: Vec::new(),
        message: String::new(),
    }
}

/// Returns the annotation that the properties of a step ask for: a time, or a duration after the end of each run.
fn requested(properties: &Value, now: Timestamp) -> Result<String, String> {
    let parameters = ["at", "after", "every"].map(|name| (name, &properties[name]));
    let named: Vec<_> = parameters.into_iter().filter(|(_, value)| !value.is_null()).collect();
    let [(name, value)] = named.as_slice() else {
        return Err(format!(
            "exactly one of the parameters at, after and every is required, not {}",
            named.len()
        ));
    };
    let text = value
        .as_str()
        .ok_or_else(|| format!("parameter.{name} is not a text"))?;
    if *name == "at" {
        let time = text.parse::<Timestamp>().map(|time| time.to_string());
        return time.map_err(|_| "parameter.at is not a time such as 2026-01-15T14:30:00Z".to_owned());
    }
    let (seconds, unit) = interval(text)
        .ok_or_else(|| format!("parameter.{name} is not a duration such as 5m, 1h or 2d, of at most ten years"))?;
    if *name == "after" {
        let time = i64::try_from(seconds)
            .ok()
            .and_then(|seconds| now.as_second().checked_add(seconds));
        let time = time.and_then(|time| Timestamp::from_second(time).ok());
        return time
            .map(|time| time.to_string())
            .ok_or_else(|| "parameter.after is too long".to_owned());
    }
    // The annotation is a duration of Go, which has no days.
    Ok(match unit {
        'd' => format!("{}h", seconds / 3_600),
        _ => text.to_owned(),
    })
}

/// Returns a duration in seconds, with its unit.
fn interval(text: &str) -> Option<(u64, char)> {
    let (unit, seconds) = UNITS.into_iter().find(|(unit, _)| text.ends_with(*unit))?;
    let number = text.strip_suffix(unit)?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = number.parse::<u64>().ok().filter(|_| is_number)?.checked_mul(seconds)?;
    (seconds <= MAX_SECONDS).then_some((seconds, unit))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::controllers::oam::reconciler::observed::requests::RestartRequest;

    fn now() -> Timestamp {
        "2026-01-02T03:00:00.5Z".parse().unwrap()
    }

    #[rstest]
    #[case(json!({ "at": "2026-01-15T14:30:00+02:00" }), "2026-01-15T12:30:00Z")]
    #[case(json!({ "after": "5m" }), "2026-01-02T03:05:00Z")]
    #[case(json!({ "after": "2d", "every": null }), "2026-01-04T03:00:00Z")]
    #[case(json!({ "every": "90m" }), "90m")]
    #[case(json!({ "every": "2d" }), "48h")]
    fn a_step_asks_for_a_run_at_a_time_or_after_each_run(#[case] properties: Value, #[case] expected: &str) {
        let text = requested(&properties, now()).unwrap();
        assert_eq!(text, expected);
        assert!(
            RestartRequest::parse(&text, now(), Some(now())).is_some(),
            "the annotation is valid"
        );
    }

    #[rstest]
    #[case(json!(null), "not 0")]
    #[case(json!({ "at": "2026-01-15T14:30:00Z", "every": "1h" }), "not 2")]
    #[case(json!({ "at": "soon" }), "parameter.at is not a time")]
    #[case(json!({ "after": 5 }), "parameter.after is not a text")]
    #[case(json!({ "after": "+5m" }), "parameter.after is not a duration")]
    #[case(json!({ "after": "m" }), "parameter.after is not a duration")]
    #[case(json!({ "every": "-1h" }), "parameter.every is not a duration")]
    #[case(json!({ "every": "1w" }), "parameter.every is not a duration")]
    #[case(json!({ "every": "18446744073709551615d" }), "at most ten years")]
    #[case(json!({ "every": "3651d" }), "at most ten years")]
    fn invalid_parameters_are_named(#[case] properties: Value, #[case] why: &str) {
        let error = requested(&properties, now()).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}
