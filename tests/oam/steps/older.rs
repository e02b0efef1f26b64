//! Steps for versions of CUE that have `+` and `*` on lists.

use serde_json::json;

use super::*;

#[tokio::test]
async fn arguments_that_add_lists_are_read() {
    let template = r#"
import "vela/kube"

arguments: ["--verbose"] + parameter.args
first: kube.#Apply & {$params: value: spec: args: arguments}
second: kube.#Apply & {$params: value: spec: args: first.$returns.value.args + ["last"]}
parameter: args: [...string]
"#;
    let answer = json!({ "value": { "args": ["first"] } });
    let ended = Step::new(template, json!({ "args": ["run"] }))
        .run(|_| returned(answer.clone()))
        .await;
    assert_eq!(ended.end, succeeded());
    let args = ended.calls.iter().map(|call| &call.params["value"]["spec"]["args"]);
    let args: Vec<&Value> = args.collect();
    assert_eq!(args, [&json!(["--verbose", "run"]), &json!(["first", "last"])]);
}

#[tokio::test]
async fn an_error_explains_operators_on_what_is_not_known_to_be_a_list() {
    let template = r#"
import "vela/kube"

hidden: _
hidden: {list: ["a"]}.list
apply: kube.#Apply & {$params: value: spec: args: hidden + hidden}
"#;
    let ended = Step::new(template, json!({})).run(nothing).await;
    let StepResult::Failed { message, .. } = ended.end else {
        panic!("{:?}", ended.end);
    };
    assert!(
        message.contains("apply.$params.value.spec.args: Addition of lists is superseded")
            && message.contains("(a template for CUE before 0.11 needs changes"),
        "{message}"
    );
}
