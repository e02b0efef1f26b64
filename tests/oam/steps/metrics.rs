//! Steps that check metrics.

use serde_json::json;

use super::*;

/// The definition of KubeVela has this form.
const OLD: &str = r#"
import "vela/op"

check: op.#PromCheck & {
	query:          parameter.query
	metricEndpoint: parameter.metricEndpoint
	condition:      parameter.condition
	stepID:         context.stepSessionID
	duration:       parameter.duration
	failDuration:   parameter.failDuration
}
fail: op.#Steps & {
	if check.failed != _|_ {
		if check.failed == true {
			end: op.#Fail & {message: check.message}
		}
	}
}
wait: op.#ConditionalWait & {
	continue: check.result
	if check.message != _|_ {
		message: check.message
	}
}
parameter: {
	query:           string
	metricEndpoint?: string
	condition:       string
	duration?:       *"5m" | string
	failDuration?:   *"2m" | string
}
"#;

fn properties() -> Value {
    json!({
        "query": "up", "metricEndpoint": "http://prometheus:9090", "condition": ">=0.95", "duration": "5m",
        "failDuration": "2m",
    })
}

#[tokio::test]
async fn a_check_waits_succeeds_or_fails_by_its_answer_in_both_forms() {
    for step in [
        Step::of_type("check-metrics", properties()),
        Step::new(OLD, properties()),
    ] {
        for (result, has_failed, end) in [
            (false, false, waiting("so far")),
            (true, false, succeeded()),
            (false, true, failed(FailureReason::Action, "so far")),
        ] {
            let answer = json!({ "result": result, "failed": has_failed, "message": "so far" });
            let ended = step.run(|_| returned(answer.clone())).await;
            assert_eq!(ended.names(), ["check metrics.promCheck"]);
            let params = ended.calls[0].params.as_object().unwrap();
            for (name, value) in properties().as_object().unwrap() {
                assert_eq!(params.get(name), Some(value));
            }
            assert_eq!(ended.end, end);
        }
    }
}

#[tokio::test]
async fn a_check_has_defaults() {
    let step = Step::of_type("check-metrics", json!({ "query": "up", "condition": "> 0" }));
    let ended = step.run(|_| Answer::failed("no route")).await;
    let expected = json!({
        "query": "up", "metricEndpoint": "http://prometheus-server.o11y-system.svc:9090", "condition": "> 0",
        "duration": "5m", "failDuration": "2m",
    });
    assert_eq!(ended.calls[0].params, expected);
    assert_eq!(ended.end, failed(FailureReason::Execute, "check: no route"));
}
