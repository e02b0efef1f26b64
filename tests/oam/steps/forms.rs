//! Forms of calls, and how steps end.

use std::time::Duration;

use serde_json::json;

use super::*;

#[tokio::test]
async fn a_deployment_that_is_not_automatic_asks_first() {
    let mut step = Step::of_type("deploy", json!({ "auto": false, "policies": ["east"] }));
    let ended = step.run(nothing).await;
    let expected = StepResult::Suspended {
        message: "Waiting approval to the deploy step \"deploy\"".to_owned(),
        duration: None,
    };
    assert_eq!(ended.end, expected);
    step.resumptions = 1;
    let ended = step.run(|_| returned(json!({}))).await;
    assert_eq!(ended.names(), ["deploy multicluster.deploy"]);
    let params = json!({
        "policies": ["east"], "parallelism": 5, "ignoreTerraformComponent": true, "inlinePolicies": [],
    });
    assert_eq!(ended.calls[0].params, params);
    assert_eq!(ended.end, succeeded());
}

#[tokio::test]
async fn a_parameter_of_another_type_never_skips_an_approval() {
    for auto in [json!("false"), json!(0), json!(null)] {
        let ended = Step::of_type("deploy", json!({ "auto": auto })).run(nothing).await;
        let StepResult::Failed { reason, message } = ended.end else {
            panic!("{:?}", ended.end);
        };
        assert_eq!(reason, FailureReason::Execute);
        assert!(message.starts_with("parameter.auto: "), "{message}");
    }
}

#[tokio::test]
async fn a_condition_on_a_parameter_that_is_not_given_is_no_success() {
    let template = r#"
import "vela/kube"

if parameter.ask == true {
	ask: kube.#Read & {$params: value: name: "ask"}
}
apply: kube.#Apply & {$params: value: name: "a"}
parameter: ask: bool
"#;
    let ended = Step::new(template, json!({})).run(nothing).await;
    let StepResult::Failed { message, .. } = ended.end else {
        panic!("{:?}", ended.end);
    };
    assert!(message.contains("non-concrete value bool"), "{message}");
}

#[tokio::test]
async fn calls_in_front_of_a_condition_on_their_answers_are_done() {
    let template = r#"
import (
	"list"
	"vela/kube"
	"vela/op"
)

first: kube.#Read & {$params: value: name: "first"}
names: [for item in first.$returns.value.items {item.name}]
if !list.Contains(names, "b") {
	missing: kube.#Read & {$params: value: name: "missing"}
}
group: op.#Steps & {
	second: op.#Read & {value: name: "second"}
	if second.value.count > 1 {
		third: op.#Read & {value: name: "third"}
	}
	for item in second.value.items if item.name != "a" {
		(item.name): op.#Read & {value: name: item.name}
	}
}
"#;
    let answer = json!({ "items": [{ "name": "a" }, { "name": "b" }], "count": 2 });
    let ended = Step::new(template, json!({}))
        .run(|call| object(call, answer.clone()))
        .await;
    let names = [
        "first kube.read",
        "group.second kube.read",
        "group.third kube.read",
        "group.b kube.read",
    ];
    assert_eq!(
        (ended.names(), ended.end),
        (names.map(str::to_owned).to_vec(), succeeded())
    );
    let ended = Step::new(template, json!({}))
        .run(|call| object(call, json!({ "items": [], "count": 1 })))
        .await;
    let names = ["first kube.read", "missing kube.read", "group.second kube.read"];
    assert_eq!(
        (ended.names(), ended.end),
        (names.map(str::to_owned).to_vec(), succeeded())
    );
}

#[tokio::test]
async fn a_deployment_waits_with_the_message_of_the_function() {
    let ended = Step::of_type("deploy", json!({}))
        .run(|_| Answer::Waiting("web is not healthy".to_owned()))
        .await;
    assert_eq!(ended.end, waiting("web is not healthy"));
}

#[tokio::test]
async fn a_suspension_takes_its_parameters() {
    let ended = Step::of_type("suspend", json!({ "duration": "10s" }))
        .run(nothing)
        .await;
    let expected = StepResult::Suspended {
        message: "Suspended by field suspend".to_owned(),
        duration: Some(Duration::from_secs(10)),
    };
    assert_eq!(ended.end, expected);
}

#[tokio::test]
async fn a_message_stands_in_the_status_of_a_succeeded_step() {
    let properties = json!({ "message": "hello" });
    let expected = StepResult::Succeeded {
        outputs: Vec::new(),
        message: "hello".to_owned(),
    };
    let step = Step::of_type("print-message-in-status", properties.clone());
    assert_eq!(step.run(nothing).await.end, expected);
    for template in [
        "import \"vela/op\"\nmsg: op.#Message & {message: parameter.message}\nparameter: message: string",
        "import b \"vela/builtin\"\nmsg: b.#Message & {$params: parameter}\nparameter: message: string",
    ] {
        let ended = Step::new(template, properties.clone()).run(nothing).await;
        assert_eq!(ended.end, expected, "{template}");
    }
}

#[tokio::test]
async fn objects_of_the_old_form_stand_beside_the_call() {
    let template = r#"
import "vela/op"

read: op.#Read & {value: {kind: "ConfigMap", metadata: name: "a"}, cluster: parameter.cluster}
apply: op.#Apply & {value: {kind: "Secret", stringData: read.value.data}}
list: op.#List & {resource: {apiVersion: "v1", kind: "Pod"}, filter: namespace: "team"}
config: op.#ReadConfig & {name: "c", namespace: context.namespace}
gate: op.#ConditionalWait & {continue: len(list.list.items) == config.config.count}
parameter: cluster: *"" | string
"#;
    let answer = |call: &Call| match call.path.as_str() {
        "read" => object(call, json!({ "data": { "a": "b" } })),
        "list" => returned(json!({ "values": { "items": [{}, {}] } })),
        "config" => returned(json!({ "config": { "count": 2 } })),
        _ => object(call, json!({})),
    };
    let ended = Step::new(template, json!({})).run(answer).await;
    assert_eq!(
        ended.names(),
        [
            "read kube.read",
            "apply kube.apply",
            "list kube.list",
            "config config.read"
        ]
    );
    let applied = json!({ "cluster": "", "value": { "kind": "Secret", "stringData": { "a": "b" } } });
    assert_eq!(ended.calls[1].params, applied);
    let listed =
        json!({ "cluster": "", "resource": { "apiVersion": "v1", "kind": "Pod" }, "filter": { "namespace": "team" } });
    assert_eq!(ended.calls[2].params, listed);
    assert_eq!(ended.end, succeeded());
}

#[tokio::test]
async fn calls_may_be_hidden_local_definitions_or_quoted() {
    let template = r#"
import "vela/kube"

#Get: kube.#Read & {$params: value: {kind: "Pod", metadata: name: string}}
_first: #Get & {$params: value: metadata: name: "a"}
"second-one": {
	if _first.$returns.value.spec.next != _|_ {
		kube.#Read & {$params: value: {kind: "Pod", metadata: name: _first.$returns.value.spec.next}}
	}
}
"#;
    let ended = Step::new(template, json!({}))
        .run(|call| object(call, json!({ "spec": { "next": "b" } })))
        .await;
    assert_eq!(ended.names(), ["_first kube.read", "second-one kube.read"]);
    assert_eq!(ended.calls[1].params["value"]["metadata"]["name"], "b");
    assert_eq!(ended.end, succeeded());
}

#[tokio::test]
async fn a_list_has_the_names_of_both_forms() {
    let template = r#"
import (
	"vela/kube"
	"vela/builtin"
)

list: kube.#List & {$params: resource: {apiVersion: "v1", kind: "Pod"}}
say: builtin.#Message & {$params: message: "\(len(list.$returns.values.items))"}
"#;
    let ended = Step::new(template, json!({}))
        .run(|_| returned(json!({ "values": { "items": [1] } })))
        .await;
    let expected = StepResult::Succeeded {
        outputs: Vec::new(),
        message: "1".to_owned(),
    };
    assert_eq!(ended.end, expected);
}

#[tokio::test]
async fn a_patch_is_applied_by_its_markers() {
    let template = r#"
import (
	"vela/util"
	"vela/builtin"
)

base: {containers: [{name: "a", image: "x"}, {name: "b"}]}
patched: util.#PatchK8sObject & {$params: {
	value: base
	patch: {
		// +patchKey=name
		containers: [{name: "b", image: "y"}]
	}
}}
say: builtin.#Message & {$params: message: patched.$returns.result.containers[1].image}
"#;
    let ended = Step::new(template, json!({})).run(nothing).await;
    let expected = StepResult::Succeeded {
        outputs: Vec::new(),
        message: "y".to_owned(),
    };
    assert_eq!(ended.end, expected);
}

#[tokio::test]
async fn a_call_in_front_is_never_passed_over() {
    let template = r#"
import "vela/kube"

first: kube.#Read & {$params: value: name: second.$returns.value.name}
second: kube.#Read & {$params: value: name: "b"}
"#;
    let ended = Step::new(template, json!({})).run(nothing).await;
    let StepResult::Failed { reason, message } = ended.end else {
        panic!("{:?}", ended.end);
    };
    assert_eq!(reason, FailureReason::Execute);
    assert!(message.starts_with("first.$params.value.name: "), "{message}");
}

#[tokio::test]
async fn a_field_of_several_conditions_is_done_in_the_order_of_the_one_that_holds() {
    let template = r#"
import "vela/kube"

both: {
	if parameter.forward {
		a: kube.#Read & {$params: value: name: "first"}
		b: kube.#Read & {$params: value: name: "after " + a.$returns.value.name}
	}
	if !parameter.forward {
		b: kube.#Read & {$params: value: name: "first"}
		a: kube.#Read & {$params: value: name: "after " + b.$returns.value.name}
	}
}
parameter: forward: bool
"#;
    for (forward, order) in [(true, ["both.a", "both.b"]), (false, ["both.b", "both.a"])] {
        let step = Step::new(template, json!({ "forward": forward }));
        let ended = step.run(|call| object(call, json!({}))).await;
        let done: Vec<&str> = ended.calls.iter().map(|call| call.path.as_str()).collect();
        assert_eq!(done, order);
        assert_eq!(ended.calls[1].params["value"]["name"], "after first");
        assert_eq!(ended.end, succeeded());
    }
}

#[tokio::test]
async fn errors_that_no_call_needs_are_ignored() {
    let template = "import \"vela/builtin\"\nbad: 1 & 2\nmsg: builtin.#Message & {$params: message: \"ok\"}\n";
    let ended = Step::new(template, json!({})).run(nothing).await;
    assert!(matches!(ended.end, StepResult::Succeeded { .. }), "{:?}", ended.end);
}

#[tokio::test]
async fn broken_templates_fail_and_say_why() {
    for (template, expected) in [
        ("a: {", "invalid template: line 1: "),
        ("a: b", "reference \"b\" not found"),
        ("import \"vela/kube\"\na: kube.Read", ""),
    ] {
        let ended = Step::new(template, json!({})).run(nothing).await;
        match ended.end {
            StepResult::Failed { reason, message } => {
                assert_eq!(reason, FailureReason::Execute);
                assert!(message.contains(expected) && !message.contains("vela"), "{message}");
            }
            // A field that no call needs.
            end => assert!(expected.is_empty(), "{template}: {end:?}"),
        }
    }
}

#[tokio::test]
async fn a_step_without_calls_succeeds() {
    let ended = Step::new("a: parameter.x", json!({ "x": 1 }))
        .output("a")
        .run(nothing)
        .await;
    let expected = StepResult::Succeeded {
        outputs: vec![Ok(json!(1))],
        message: String::new(),
    };
    assert_eq!(ended.end, expected);
}

#[tokio::test]
async fn answers_can_not_become_code() {
    let template = r#"
import (
	"vela/kube"
	"vela/builtin"
)

read: kube.#Read & {$params: value: name: parameter.name}
say: builtin.#Message & {$params: message: read.$returns.value.text}
parameter: name: string
"#;
    let hostile = "\"}\nread: kube.#Delete // \\(parameter.name) \u{2028}\0";
    let step = Step::new(template, json!({ "name": hostile }));
    let ended = step.run(|call| object(call, json!({ "text": hostile }))).await;
    assert_eq!(ended.calls[0].params["value"]["name"], hostile);
    let expected = StepResult::Succeeded {
        outputs: Vec::new(),
        message: "\"} read: kube.#Delete // \\(parameter.name)   ".to_owned(),
    };
    assert_eq!(ended.end, expected);
}

#[tokio::test]
async fn a_condition_on_an_answer_does_not_hide_the_calls() {
    let template = r#"
import (
	"vela/builtin"
	"vela/kube"
)

read: kube.#Read & {$params: value: {kind: "ConfigMap", metadata: name: "a"}}
if read.$returns.value.data.key == "bad" {
	fail: builtin.#Fail & {$params: message: "the key is bad"}
}
group: {
	if read.$returns.value.data.key == "good" for name, text in read.$returns.value.data {
		(name): kube.#Apply & {$params: value: {kind: "Secret", stringData: "\(name)": text}}
	}
}
"#;
    let answer = |key: &'static str| move |call: &Call| object(call, json!({ "data": { "key": key } }));
    let ended = Step::new(template, json!({})).run(answer("bad")).await;
    assert_eq!(ended.names(), ["read kube.read"]);
    let expected = StepResult::Failed {
        reason: FailureReason::Action,
        message: "the key is bad".to_owned(),
    };
    assert_eq!(ended.end, expected);
    let ended = Step::new(template, json!({})).run(answer("good")).await;
    assert_eq!(ended.names(), ["read kube.read", "group.key kube.apply"]);
    assert_eq!(ended.end, succeeded());
}
