//! Components that call functions.

use serde_json::{Value, json};

use super::fake::FakeFunctions;
use super::pending;
use crate::controllers::oam::context::Context;
use crate::controllers::oam::render::component::{DefinitionTemplate, render_template};
use crate::controllers::oam::render::evaluate::Cause;
use crate::controllers::oam::render::tests::fake::{FakeError, FakeEvaluator};
use crate::controllers::oam::steps::{Answer, CallingEvaluator};

const READER: &str = "import \"strings\"\nimport \"vela/kube\"\nread: kube.#Get & {$params: resource: {}}\n\
                      output: x: strings.ToUpper(\"a\")\n";

/// Renders a component whose call has an answer.
async fn render_reader(
    evaluations: Vec<Result<Value, FakeError>>,
    answer: Answer,
) -> (Result<(), Cause<FakeError>>, Vec<String>) {
    let evaluator = CallingEvaluator {
        evaluator: FakeEvaluator::new(evaluations),
        functions: || FakeFunctions::new([answer.clone()]),
    };
    let template = DefinitionTemplate {
        name: "reader",
        source: READER,
        properties: None,
        is_strict: false,
        has_status: false,
    };
    let rendered = render_template(&evaluator, template, &Context::default()).await;
    (rendered.map(drop), evaluator.evaluator.sources())
}

#[tokio::test]
async fn a_component_is_evaluated_with_the_answers_to_its_calls() {
    let evaluations = vec![
        pending("kube", "get", json!({ "resource": {} })),
        Ok(json!({})),
        Ok(json!({ "output": { "x": "A" } })),
    ];
    let answer = Answer::Returned(json!({ "kind": "Pod" }));
    let (rendered, sources) = render_reader(evaluations, answer).await;
    assert!(rendered.is_ok(), "{rendered:?}");
    let last = &sources[2];
    assert!(
        last.starts_with("import strings \"strings\"\n_velaRoot: {\nkube: {\n#Get: {"),
        "{last}"
    );
    let end =
        "read: {\"$returns\":{\"kind\":\"Pod\"}}\n}\n}\n_vela: _velaRoot.velaTemplate\n\"output\": _vela.output\n";
    assert!(last.contains(end) && !last.contains("vela/"), "{last}");
}

#[tokio::test]
async fn a_component_that_waits_for_a_call_is_no_failure_of_its_template() {
    let call = || pending("kube", "get", json!({ "resource": {} }));
    let (waiting, _) = render_reader(vec![call()], Answer::Waiting("later".to_owned())).await;
    assert!(matches!(waiting, Err(Cause::Waiting(_))), "{waiting:?}");
    let (failed, _) = render_reader(vec![call()], Answer::failed("no")).await;
    assert!(
        matches!(&failed, Err(Cause::Call(message)) if message == "read: no"),
        "{failed:?}"
    );
    let refused = pending("kube", "delete", json!({}));
    let (refused, _) = render_reader(vec![refused], Answer::Returned(json!({}))).await;
    let expected = "kube.delete is not supported yet by this controller";
    assert!(
        matches!(&refused, Err(Cause::Call(message)) if message == expected),
        "{refused:?}"
    );
    let (stopped, _) = render_reader(vec![Err(FakeError::Stopped)], Answer::failed("no")).await;
    assert!(matches!(stopped, Err(Cause::Stopped(_))), "{stopped:?}");
    let (missing, _) = render_reader(Vec::new(), Answer::failed("no")).await;
    assert!(matches!(missing, Err(Cause::Evaluator(_))), "{missing:?}");
}

#[tokio::test]
async fn errors_of_a_component_that_calls_don_t_quote_values() {
    let call = pending("kube", "get", json!({ "resource": {} }));
    let invalid = FakeError::Invalid("invalid value \"hunter2\"");
    let (failed, _) = render_reader(vec![call, Err(invalid)], Answer::Returned(json!("hunter2"))).await;
    assert!(
        matches!(&failed, Err(Cause::Call(message)) if message == "invalid value \"…\""),
        "{failed:?}"
    );
}
