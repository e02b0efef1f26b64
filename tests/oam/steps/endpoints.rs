//! Steps that collect the addresses of an Application.

use serde_json::json;

use super::*;

/// The definition of KubeVela calls the function in this form.
const OLD: &str = r#"
import (
	"vela/op"
	"vela/ql"
)

collect: ql.#CollectServiceEndpoints & {
	app: {
		name:      *context.name | string
		namespace: *context.namespace | string
		if parameter.name != _|_ {
			name: parameter.name
		}
		filter: {
			if parameter.components != _|_ {
				components: parameter.components
			}
		}
	}
} @step(1)
outputs: endpoints: collect.list
wait: op.#ConditionalWait & {continue: len(outputs.endpoints) > 0} @step(2)
value: {
	if len(outputs.endpoints) > 0 {
		endpoint: outputs.endpoints[0].endpoint
		url:      "http://\(endpoint.host):\(endpoint.port)"
	}
}
parameter: {
	name?: string
	components?: [...string]
}
"#;

fn list() -> Value {
    let endpoint = |host: &str, port: u64, name: &str, is_inner: bool| {
        let mut endpoint = json!({ "host": host, "port": port, "portName": name, "protocol": "TCP" });
        if is_inner {
            endpoint["inner"] = true.into();
        }
        json!({ "endpoint": endpoint, "cluster": "local", "component": "web", "ref": { "kind": "Service" } })
    };
    json!([
        endpoint("web.team", 80, "http", true),
        endpoint("1.2.3.4", 443, "https", false),
        endpoint("1.2.3.4", 9090, "metrics", false),
    ])
}

#[tokio::test]
async fn a_step_waits_for_endpoints_and_gives_the_first_one() {
    let in_package = Step::of_type("collect-service-endpoints", json!({ "components": ["web"] }));
    let old = Step::new(OLD, json!({ "components": ["web"] }));
    for (step, message) in [(in_package, "waiting for endpoints"), (old, "")] {
        let ended = step.run(|_| returned(json!({ "list": [] }))).await;
        assert_eq!(ended.names(), ["collect query.collectServiceEndpoints"]);
        let app = json!({ "name": "shop", "namespace": "team", "filter": { "components": ["web"] } });
        assert_eq!(ended.calls[0].params["app"], app);
        assert_eq!(ended.end, waiting(message));
        let step = step.output("value.endpoint.host").output("value.url");
        let ended = step.run(|_| returned(json!({ "list": list() }))).await;
        let StepResult::Succeeded { outputs, .. } = ended.end else {
            panic!("{:?}", ended.end);
        };
        assert_eq!(outputs, [Ok(json!("web.team")), Ok(json!("http://web.team:80"))]);
    }
}

#[tokio::test]
async fn endpoints_are_selected_by_port_name_of_port_and_reach() {
    for (properties, expected) in [
        (json!({}), vec![80, 443, 9090]),
        (json!({ "port": 9090 }), vec![9090]),
        (json!({ "portName": "https", "protocal": "https" }), vec![443]),
        (json!({ "outer": true }), vec![443, 9090]),
        (json!({ "outer": true, "port": 80 }), vec![]),
    ] {
        let step = Step::of_type("collect-service-endpoints", properties.clone());
        let step = step.output("[for one in outputs.endpoints {one.endpoint.port}]");
        let ended = step.run(|_| returned(json!({ "list": list() }))).await;
        match ended.end {
            StepResult::Succeeded { outputs, .. } => assert_eq!(outputs, [Ok(json!(expected))], "{properties}"),
            end => assert!(
                expected.is_empty() && end == waiting("waiting for endpoints"),
                "{end:?}"
            ),
        }
    }
    let named = Step::of_type(
        "collect-service-endpoints",
        json!({ "name": "other", "namespace": "prod" }),
    );
    let ended = named.run(|_| Answer::failed("not found")).await;
    let app = json!({ "name": "other", "namespace": "prod", "filter": {} });
    assert_eq!(ended.calls[0].params, json!({ "app": app }));
}
