//! Steps that end the workflow, and steps with values of the workflow.

use serde_json::json;

use super::*;

#[tokio::test]
async fn a_break_ends_the_workflow_before_later_calls() {
    for template in [
        r#"
import "vela/op"

if parameter.stop {
	stop: op.#Break & {message: "enough"}
}
read: op.#Read & {value: name: "a"}
parameter: stop: bool
"#,
        r#"
import (
	"vela/builtin"
	"vela/kube"
)

if parameter.stop {
	stop: builtin.#Break & {$params: message: "enough"}
}
read: kube.#Read & {$params: value: name: "a"}
parameter: stop: bool
"#,
    ] {
        let ended = Step::new(template, json!({ "stop": true })).run(nothing).await;
        let expected = StepResult::Terminated {
            message: "enough".to_owned(),
        };
        assert_eq!(ended.end, expected);
        let ended = Step::new(template, json!({ "stop": false }))
            .run(|call| object(call, json!({})))
            .await;
        assert_eq!(ended.names(), ["read kube.read"]);
        assert_eq!(ended.end, succeeded());
    }
}

#[tokio::test]
async fn values_of_the_workflow_are_read_and_written() {
    for template in [
        r#"
import "vela/op"

get: op.#DoVar & {path: "db.host"}
put: op.#DoVar & {method: "Put", path: "web.url", value: "http://\(get.value)"}
"#,
        r#"
import "vela/builtin"

get: builtin.#DoVar & {$params: {method: "Get", path: "db.host"}}
put: builtin.#DoVar & {$params: {method: "Put", path: "web.url", value: "http://\(get.$returns.value)"}}
"#,
    ] {
        let answer = |call: &Call| match call.path.as_str() {
            "get" => returned(json!({ "value": "10.0.0.1" })),
            _ => returned(json!({})),
        };
        let ended = Step::new(template, json!({})).run(answer).await;
        assert_eq!(ended.names(), ["get builtin.var", "put builtin.var"]);
        assert_eq!(ended.calls[0].params["path"], "db.host");
        let put = json!({ "method": "Put", "path": "web.url", "value": "http://10.0.0.1" });
        assert_eq!(ended.calls[1].params, put);
        assert_eq!(ended.end, succeeded());
    }
}

#[tokio::test]
async fn a_package_of_the_cluster_is_refused_by_name() {
    let template = "import \"ext/bank\"\npay: bank.#Pay & {$params: sum: 1}\n";
    let ended = Step::new(template, json!({})).run(nothing).await;
    let message = "package ext/bank is not supported by this controller: it is a package of the cluster";
    assert_eq!(ended.end, failed(FailureReason::Rendering, message));
}
