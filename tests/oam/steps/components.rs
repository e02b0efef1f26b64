//! Steps that deploy components of the Application.

use serde_json::json;

use super::*;

#[tokio::test]
async fn all_components_or_those_that_remain_are_deployed_by_one_call() {
    let except_web = json!({ "exceptions": ["web"] });
    for (type_, properties, name, params) in [
        (
            "apply-application",
            json!({}),
            "output oam.apply-application",
            json!({}),
        ),
        (
            "apply-application-in-parallel",
            json!({}),
            "output oam.apply-application-in-parallel",
            json!({}),
        ),
        (
            "apply-remaining",
            except_web.clone(),
            "apply oam.apply-remaining",
            except_web,
        ),
        (
            "apply-remaining",
            json!({}),
            "apply oam.apply-remaining",
            json!({ "exceptions": [] }),
        ),
    ] {
        let step = Step::of_type(type_, properties);
        let ended = step.run(|_| Answer::Waiting("wait healthy".to_owned())).await;
        assert_eq!(ended.names(), [name]);
        assert_eq!(ended.calls[0].params, params);
        assert_eq!(ended.end, waiting("wait healthy"));
        let ended = step.run(|_| returned(json!({}))).await;
        assert_eq!(ended.end, succeeded());
    }
}

#[tokio::test]
async fn exceptions_may_be_the_parameters_themselves() {
    let template = r#"
import "vela/op"

apply: op.#ApplyRemaining & {
	parameter
}
parameter: exceptions?: [...string]
"#;
    for properties in [json!({}), json!({ "exceptions": ["web", "api"] })] {
        let ended = Step::new(template, properties.clone())
            .run(|_| returned(json!({})))
            .await;
        assert_eq!(ended.names(), ["apply oam.apply-remaining"]);
        assert_eq!(ended.calls[0].params, properties);
    }
}

#[tokio::test]
async fn components_are_loaded_and_applied_one_by_one() {
    let template = r#"
import "vela/op"

load: op.#Load
apply: op.#Steps & {
	for name, component in load.value if name != parameter.except {
		"\(name)": op.#ApplyComponent & {value: component, waitHealthy: false}
	}
}
parameter: except: string
"#;
    let component = |name: &str| json!({ "name": name, "type": "worker" });
    let answer = |call: &Call| match call.function.as_str() {
        "load" => {
            returned(json!({ "value": { "api": component("api"), "db": component("db"), "web": component("web") } }))
        }
        _ => returned(json!({ "output": { "kind": "Deployment" } })),
    };
    let ended = Step::new(template, json!({ "except": "db" })).run(answer).await;
    let names = [
        "load oam.load",
        "apply.api oam.component-apply",
        "apply.web oam.component-apply",
    ];
    assert_eq!(ended.names(), names);
    let expected = json!({ "value": component("web"), "waitHealthy": false });
    assert_eq!(ended.calls[2].params, expected);
    assert_eq!(ended.end, succeeded());
}

#[tokio::test]
async fn an_applied_component_returns_its_objects_in_both_forms() {
    let live = json!({ "output": { "status": { "phase": "up" } }, "outputs": { "service": { "kind": "Service" } } });
    let answer = |call: &Call| match call.function.as_str() {
        "load" => returned(json!({ "value": { "web": { "name": "web", "type": "worker" } } })),
        _ => returned(live.clone()),
    };
    for template in [
        r#"
import (
	"vela/oam"
	"vela/builtin"
)

components: oam.#LoadComponets
web: oam.#ApplyComponent & {$params: {value: components.$returns.value.web, namespace: "prod"}}
say: builtin.#Message & {$params: message: "\(web.$returns.output.status.phase) \(web.$returns.outputs.service.kind)"}
"#,
        r#"
import "vela/op"

components: op.#LoadComponets
web: op.#ApplyComponent & {value: components.value.web, namespace: "prod"}
say: op.#Message & {message: "\(web.output.status.phase) \(web.outputs.service.kind)"}
"#,
    ] {
        let ended = Step::new(template, json!({})).run(answer).await;
        assert_eq!(ended.names(), ["components oam.load", "web oam.component-apply"]);
        assert_eq!(ended.calls[1].params["namespace"], "prod");
        let expected = StepResult::Succeeded {
            outputs: Vec::new(),
            message: "up Service".to_owned(),
        };
        assert_eq!(ended.end, expected, "{template}");
    }
}
