//! Components and traits whose templates call functions.

use std::sync::Mutex;

use portolan::controllers::oam::steps::{Answer, Call, CallingEvaluator, Functions};
use serde_json::{Value, json};

use super::{Case, evaluator};

/// Answers with an object whose data has its name. An object `lost` does not exist.
#[derive(Default)]
struct Objects {
    /// As `path provider.function`.
    calls: Mutex<Vec<String>>,
}

impl Functions for &Objects {
    async fn call(&mut self, call: &Call) -> Answer {
        let Call {
            path,
            provider,
            function,
            params,
        } = call;
        self.calls.lock().unwrap().push(format!("{path} {provider}.{function}"));
        match params["resource"]["metadata"]["name"].as_str() {
            Some("lost") => Answer::failed("lost not found"),
            name => Answer::Returned(json!({ "data": { "key": name } })),
        }
    }
}

/// Renders a case. Returns the calls besides.
async fn rendered(case: &Case) -> (Result<Value, String>, Vec<String>) {
    let objects = Objects::default();
    let evaluator = CallingEvaluator {
        evaluator: evaluator(),
        functions: || &objects,
    };
    let rendered = case.render_by(&evaluator).await;
    (rendered, objects.calls.into_inner().unwrap())
}

const READER: &str = r#"
import (
	"strings"
	"vela/kube"
	b64 "vela/base64"
)

read: kube.#Get & {$params: resource: {apiVersion: "v1", kind: "ConfigMap", metadata: name: parameter.name}}
_encode: b64.#Encode & {$params: read.$returns.data.key}
extra: {
	if read.$returns.data.key == "two" {
		second: kube.#Get & {$params: resource: {apiVersion: "v1", kind: "ConfigMap", metadata: name: "three"}}
	}
}
output: {
	apiVersion: "v1"
	kind:       "ConfigMap"
	// A label with the name of a package.
	metadata: labels: kube: "yes"
	data: {key: strings.ToUpper(read.$returns.data.key), encoded: _encode.$returns}
}
outputs: {
	if extra.second != _|_ {
		more: {kind: "ConfigMap", data: extra.second.$returns.data}
	}
}
parameter: name: string
"#;

#[tokio::test]
async fn a_component_has_the_answers_of_its_calls() {
    let (one, calls) = rendered(&Case::new(READER, json!({"name": "one"}))).await;
    let output = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": {"kube": "yes"}},
        "data": {"key": "ONE", "encoded": "b25l"},
    });
    assert_eq!(one.unwrap(), json!({"output": output}));
    assert_eq!(calls, ["read kube.get"]);
    let (two, calls) = rendered(&Case::new(READER, json!({"name": "two"}))).await;
    let more = json!({"kind": "ConfigMap", "data": {"key": "three"}});
    assert_eq!(two.unwrap()["outputs"]["more"], more);
    assert_eq!(calls, ["read kube.get", "extra.second kube.get"]);
}

#[tokio::test]
async fn a_trait_calls_with_what_is_rendered_before_it() {
    const PATCH: &str = r#"
import "vela/kube"
read: kube.#Get & {$params: resource: metadata: name: context.output.data.key}
patch: data: more: read.$returns.data.key
outputs: own: {kind: "ConfigMap", data: read.$returns.data}
"#;
    const MARKED: &str = r#"
import "vela/kube"
read: kube.#Get & {$params: resource: metadata: name: parameter.name}
patch: {
	// +patchKey=name
	list: [{name: "a", y: read.$returns.data.key}]
	typed: [...{z: read.$returns.data.key}]
}
parameter: name: string
"#;
    let component = r#"output: {data: key: "web", list: [{name: "b"}, {name: "a", x: 1}], typed: [{w: 1}]}"#;
    let case = Case::new(component, json!({})).with(PATCH, Value::Null);
    let (both, calls) = rendered(&case.with(MARKED, json!({"name": "mark"}))).await;
    let output = json!({
        "data": {"key": "web", "more": "web"},
        "list": [{"name": "b"}, {"name": "a", "x": 1, "y": "mark"}],
        "typed": [{"w": 1, "z": "mark"}],
    });
    let own = json!({"kind": "ConfigMap", "data": {"key": "web"}});
    assert_eq!(both.unwrap(), json!({"output": output, "outputs": {"own": own}}));
    assert_eq!(calls, ["read kube.get", "read kube.get"]);
}

#[tokio::test]
async fn values_are_unified_by_the_markers_of_their_patch() {
    const UNIFY: &str = r#"
import "vela/cue"
unify: cue.#StrategyUnify & {$params: {
	value: list: [{name: "a", x: 1}]
	patch: {
		// +patchKey=name
		list: [{name: "b"}]
	}
}}
output: unify.$returns
"#;
    let (unified, calls) = rendered(&Case::new(UNIFY, json!({}))).await;
    let expected = json!({"output": {"list": [{"name": "a", "x": 1}, {"name": "b"}]}});
    assert_eq!((unified.unwrap(), calls.len()), (expected, 0));
}

#[tokio::test]
async fn calls_under_a_computed_label_are_answered_each() {
    const MANY: &str = r#"
import "vela/kube"
reads: {
	for name in parameter.names {
		"\(name)": kube.#Get & {$params: resource: metadata: "name": name}
	}
}
output: data: {
	for name, read in reads {"\(name)": read.$returns.data.key}
}
parameter: names: [...string]
"#;
    let (many, calls) = rendered(&Case::new(MANY, json!({"names": ["a", "b-c"]}))).await;
    assert_eq!(many.unwrap(), json!({"output": {"data": {"a": "a", "b-c": "b-c"}}}));
    assert_eq!(calls, ["reads.a kube.get", "reads.b-c kube.get"]);
}

#[tokio::test]
async fn a_call_that_fails_or_is_not_supported_is_named() {
    let error = async |template: &str, properties: Value| {
        let (rendered, _) = rendered(&Case::new(template, properties)).await;
        rendered.unwrap_err()
    };
    let lost = error(READER, json!({"name": "lost"})).await;
    assert_eq!(lost, "component web: read: lost not found");
    let wrong = error(READER, json!({"name": 1})).await;
    assert!(
        wrong.starts_with("component web: parameter.name: conflicting values"),
        "{wrong}"
    );
    let unknown = error("import \"vela/kube\"\na: kube.#Lost\noutput: {}", json!({})).await;
    assert_eq!(
        unknown,
        "component web: kube.#Lost is not supported yet by this controller"
    );
    let write = "import \"vela/kube\"\na: kube.#Apply & {$params: resource: {}}\noutput: {}";
    let write = error(write, json!({})).await;
    assert!(
        write.contains("kube.apply is not supported by this controller"),
        "{write}"
    );
    let suspend = "import \"vela/kube\"\na: {#do: \"suspend\", #provider: \"builtin\"}\noutput: {}";
    let suspend = error(suspend, json!({})).await;
    assert_eq!(
        suspend,
        "component web: builtin.suspend is not supported yet by this controller"
    );
    let missing = "import \"vela/kube\"\na: kube.#Get & {$params: resource: name: context.lost}\noutput: {}";
    let missing = error(missing, json!({})).await;
    assert!(
        missing.starts_with("component web: a.$params.resource.name: undefined field: lost"),
        "{missing}"
    );
}

#[tokio::test]
async fn errors_of_a_template_with_calls_have_its_paths_and_lines() {
    const WRONG: &str = r#"import "vela/kube"
read: kube.#Get & {$params: resource: metadata: name: "one"}
output: data: read.$returns.data.key & 1
"#;
    let (wrong, _) = rendered(&Case::new(WRONG, json!({}))).await;
    let wrong = wrong.unwrap_err();
    assert!(
        wrong.starts_with("component web: output.data: conflicting values") && !wrong.contains("vela"),
        "{wrong}"
    );
    assert!(wrong.contains("line 3"), "{wrong}");
}

#[tokio::test]
async fn a_strict_template_with_calls_refuses_properties_that_it_does_not_declare() {
    let case = |properties: Value| Case::new(READER, properties).strict();
    assert!(rendered(&case(json!({"name": "one"}))).await.0.is_ok());
    let (refused, _) = rendered(&case(json!({"name": "one", "lost": 1}))).await;
    let refused = refused.unwrap_err();
    assert!(refused.contains("lost") && refused.contains("not allowed"), "{refused}");
}

#[tokio::test]
async fn without_functions_a_template_with_calls_is_refused() {
    let refused = Case::new(READER, json!({"name": "one"})).render().await.unwrap_err();
    assert_eq!(
        refused,
        "component web: functions are called in deployed components and traits only"
    );
}
