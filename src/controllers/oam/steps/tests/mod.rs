//! The loop against an evaluator with prepared answers. Templates are evaluated in tests/oam.

mod calling;
mod fake;

use serde_json::{Map, Value, json};

use super::types::{MAX_CALLS, MAX_OUTPUT_BYTES, MAX_OUTPUTS, MAX_RUN_BYTES, MAX_VALUE_BYTES};
use super::*;
use crate::api::oam::StepOutput;
use crate::controllers::oam::render::tests::fake::{FakeError, FakeEvaluator};
use crate::controllers::oam::workflow::{FailureReason, StepResult};
use fake::FakeFunctions;

const READ: &str = "import \"vela/kube\"\nread: kube.#Read & {$params: value: name: parameter.name}\n";

struct Case {
    type_name: &'static str,
    source: &'static str,
    outputs: Vec<StepOutput>,
    resumptions: u32,
}

impl Case {
    fn new(source: &'static str) -> Self {
        Self {
            type_name: "custom",
            source,
            outputs: Vec::new(),
            resumptions: 0,
        }
    }

    async fn run(
        &self,
        evaluator: &FakeEvaluator,
        functions: &mut FakeFunctions,
    ) -> Result<StepResult, StepError<FakeError>> {
        let context = Map::from_iter([("name".to_owned(), json!("shop"))]);
        let step = StepTemplate {
            type_name: self.type_name,
            source: self.source,
            properties: Some(&json!({ "name": "a" })),
            context: &context,
            outputs: &self.outputs,
            resumptions: self.resumptions,
        };
        run(evaluator, functions, &step).await
    }
}

fn pending(provider: &str, function: &str, params: Value) -> Result<Value, FakeError> {
    let call = json!({ "index": 0, "key": "", "provider": provider, "function": function, "params": params });
    Ok(json!({ "call": call }))
}

fn rendering_failure(message: &str) -> StepResult {
    StepResult::Failed {
        reason: FailureReason::Rendering,
        message: message.to_owned(),
    }
}

#[tokio::test]
async fn a_step_does_its_calls_and_evaluates_its_outputs() {
    let mut case = Case::new(READ);
    case.outputs = vec![StepOutput {
        name: "data".to_owned(),
        value_from: "read.$returns.value".to_owned(),
    }];
    let evaluator = FakeEvaluator::new([
        pending("kube", "read", json!({ "value": {} })),
        Ok(json!({})),
        Ok(json!({ "value": [{ "$+a": { "patchKey": "x" }, "a": [] }] })),
    ]);
    let mut functions = FakeFunctions::new([Answer::Returned(json!({ "value": { "kind": "Pod" } }))]);
    let end = case.run(&evaluator, &mut functions).await.unwrap();
    let expected = StepResult::Succeeded {
        outputs: vec![Ok(json!({ "a": [] }))],
        message: String::new(),
    };
    assert_eq!(end, expected);
    assert_eq!(functions.calls.len(), 1);
    assert_eq!(functions.calls[0].path, "read");
    let sources = evaluator.sources();
    let answer = "read: {\"$returns\":{\"value\":{\"kind\":\"Pod\"}}}\n";
    let with_answer: Vec<bool> = sources.iter().map(|source| source.contains(answer)).collect();
    assert_eq!(with_answer, [false, true, true]);
    assert!(sources[0].contains("parameter: {\"name\":\"a\"}\ncontext: {\"name\":\"shop\"}\n"));
    assert!(!sources[1].contains("if velaRoot.velaStep.read.#do"), "{}", sources[1]);
    assert!(sources[2].contains("\"$value\": read.$returns.value\n"));
}

#[tokio::test]
async fn a_run_can_move_between_threads() {
    let run = tokio::spawn(async {
        let evaluator = FakeEvaluator::new([Ok(json!({}))]);
        Case::new(READ)
            .run(&evaluator, &mut FakeFunctions::new([]))
            .await
            .is_ok()
    });
    assert!(run.await.unwrap());
}

#[tokio::test]
async fn a_type_that_is_not_supported_fails_without_an_evaluation() {
    let mut case = Case::new(READ);
    case.type_name = "vela-cli";
    let evaluator = FakeEvaluator::new([]);
    let end = case.run(&evaluator, &mut FakeFunctions::new([])).await.unwrap();
    let expected = "step type vela-cli is not supported by this controller: it runs pods with the rights of the controller; \
                    use a pipeline, and a request to it";
    assert_eq!(end, rendering_failure(expected));
    assert!(evaluator.sources().is_empty());
}

#[tokio::test]
async fn a_package_of_the_cluster_is_refused_without_an_evaluation() {
    let evaluator = FakeEvaluator::new([]);
    let case = Case::new("import \"ext/bank\"\npay: bank.#Pay\n");
    let end = case.run(&evaluator, &mut FakeFunctions::new([])).await.unwrap();
    let expected = "package ext/bank is not supported by this controller: it is a package of the cluster";
    assert_eq!(end, rendering_failure(expected));
    assert!(evaluator.sources().is_empty());
}

#[tokio::test]
async fn a_function_that_is_not_supported_is_named_when_its_turn_comes() {
    let evaluator = FakeEvaluator::new([pending("email", "#SendEmail", json!({}))]);
    let end = Case::new(READ)
        .run(&evaluator, &mut FakeFunctions::new([]))
        .await
        .unwrap();
    assert_eq!(
        end,
        rendering_failure(
            "email.#SendEmail is not supported by this controller: it would log in to mail servers; use a webhook"
        )
    );
}

#[tokio::test]
async fn failures_of_the_evaluator_are_no_failures_of_the_step() {
    let run = async |error| {
        let evaluator = FakeEvaluator::new([Err(error)]);
        Case::new(READ).run(&evaluator, &mut FakeFunctions::new([])).await
    };
    let stopped = run(FakeError::Stopped).await.unwrap_err();
    assert_eq!(
        stopped.to_string(),
        "template of WorkflowStepDefinition custom was stopped: more than 10s"
    );
    assert!(matches!(
        run(FakeError::Missing).await,
        Err(StepError::Evaluator(FakeError::Missing))
    ));
    let invalid = run(FakeError::Invalid("velaRoot.velaStep.a: conflicting values 1 and 2"))
        .await
        .unwrap();
    let expected = StepResult::Failed {
        reason: FailureReason::Execute,
        message: "a: conflicting values 1 and 2".to_owned(),
    };
    assert_eq!(invalid, expected);
}

#[tokio::test]
async fn a_failed_call_names_its_field_and_ends_the_step() {
    let evaluator = FakeEvaluator::new([pending("kube", "read", json!({}))]);
    let failure = Answer::Failed {
        reason: FailureReason::Execute,
        message: "forbidden\u{1b}[31m".to_owned(),
    };
    let end = Case::new(READ)
        .run(&evaluator, &mut FakeFunctions::new([failure]))
        .await
        .unwrap();
    let expected = StepResult::Failed {
        reason: FailureReason::Execute,
        message: "read: forbidden [31m".to_owned(),
    };
    assert_eq!(end, expected);
}

#[tokio::test]
async fn a_step_makes_no_more_calls_than_allowed() {
    let endless = (0..=MAX_CALLS).map(|_| pending("builtin", "message", json!({ "message": "again" })));
    let evaluator = FakeEvaluator::new(endless);
    let end = Case::new(READ)
        .run(&evaluator, &mut FakeFunctions::new([]))
        .await
        .unwrap();
    assert_eq!(end, rendering_failure("the template makes more than 100 calls"));
    assert_eq!(evaluator.sources().len(), MAX_CALLS + 1);
}

#[tokio::test]
async fn arguments_and_answers_are_limited() {
    let huge = json!({ "value": "x".repeat(MAX_VALUE_BYTES) });
    let evaluator = FakeEvaluator::new([pending("kube", "apply", huge.clone())]);
    let mut functions = FakeFunctions::new([]);
    let end = Case::new(READ).run(&evaluator, &mut functions).await.unwrap();
    assert_eq!(end, rendering_failure("arguments of read: more than 1024 KiB"));
    assert!(functions.calls.is_empty());
    let evaluator = FakeEvaluator::new([pending("kube", "read", json!({}))]);
    let end = Case::new(READ)
        .run(&evaluator, &mut FakeFunctions::new([Answer::Returned(huge)]))
        .await
        .unwrap();
    assert_eq!(end, rendering_failure("answer of read: more than 1024 KiB"));
    let large = json!({ "value": "x".repeat(MAX_VALUE_BYTES - 100) });
    let evaluator = FakeEvaluator::new((0..5).map(|_| pending("kube", "read", json!({}))));
    let answers = (0..5).map(|_| Answer::Returned(large.clone()));
    let end = Case::new(READ)
        .run(&evaluator, &mut FakeFunctions::new(answers))
        .await
        .unwrap();
    assert_eq!(
        end,
        rendering_failure("arguments and answers of all calls: more than 4 MiB")
    );
}

#[tokio::test]
async fn arguments_that_are_concrete_once_the_template_is_rewritten_are_used() {
    let call = json!({ "index": 0, "key": "", "provider": "kube", "function": "read" });
    let evaluator = FakeEvaluator::new([
        Ok(json!({ "call": call })),
        Ok(json!({ "value": [{ "value": { "name": "a" } }] })),
        Ok(json!({})),
    ]);
    let mut functions = FakeFunctions::new([Answer::Returned(json!({}))]);
    let end = Case::new(READ).run(&evaluator, &mut functions).await.unwrap();
    assert!(matches!(end, StepResult::Succeeded { .. }), "{end:?}");
    assert_eq!(functions.calls[0].params["value"]["name"], "a");
}

#[tokio::test]
async fn a_call_that_can_not_be_read_is_no_success() {
    for call in [
        json!({}),
        json!({ "index": 7, "key": "", "provider": "kube", "function": "read" }),
        json!(1),
    ] {
        let evaluator = FakeEvaluator::new([Ok(json!({ "call": call }))]);
        let end = Case::new(READ)
            .run(&evaluator, &mut FakeFunctions::new([]))
            .await
            .unwrap();
        let expected = StepResult::Failed {
            reason: FailureReason::Execute,
            message: "the template has an invalid call".to_owned(),
        };
        assert_eq!(end, expected);
    }
}

#[tokio::test]
async fn a_step_has_no_more_outputs_than_allowed() {
    let mut case = Case::new("a: 1");
    let output = StepOutput {
        name: "a".to_owned(),
        value_from: "a".to_owned(),
    };
    case.outputs = vec![output; MAX_OUTPUTS + 1];
    let evaluator = FakeEvaluator::new((0..=MAX_OUTPUTS).map(|_| Ok(json!({ "value": [1] }))));
    let end = case.run(&evaluator, &mut FakeFunctions::new([])).await.unwrap();
    let StepResult::Succeeded { outputs, .. } = end else {
        panic!("{end:?}");
    };
    assert_eq!(
        outputs.last().unwrap(),
        &Err("the step has more than 100 outputs".to_owned())
    );
    assert_eq!(
        outputs.iter().filter(|output| **output == Ok(json!(1))).count(),
        MAX_OUTPUTS
    );
}

#[tokio::test]
async fn large_outputs_are_refused_and_all_of_a_step_are_counted() {
    let mut case = Case::new("a: 1");
    let output = StepOutput {
        name: "a".to_owned(),
        value_from: "a".to_owned(),
    };
    case.outputs = vec![output; 10];
    let text = |bytes: usize| Ok(json!({ "value": ["x".repeat(bytes - 2)] }));
    let most = (0..8).map(|_| text(MAX_OUTPUT_BYTES));
    let texts = [text(MAX_OUTPUT_BYTES + 1)].into_iter().chain(most).chain([text(10)]);
    let evaluator = FakeEvaluator::new([Ok(json!({}))].into_iter().chain(texts));
    let end = case.run(&evaluator, &mut FakeFunctions::new([])).await.unwrap();
    let StepResult::Succeeded { outputs, .. } = end else {
        panic!("{end:?}");
    };
    let refused = Err("values of the workflow exceed 512 KiB".to_owned());
    assert_eq!((&outputs[0], &outputs[9]), (&refused, &refused));
    assert_eq!(
        outputs.iter().filter(|output| output.is_ok()).count(),
        MAX_RUN_BYTES / MAX_OUTPUT_BYTES
    );
}

#[tokio::test]
async fn calls_before_a_resumed_suspension_are_done_once() {
    let mut case = Case::new("first: #A\nsecond: #A\nthird: #A\nfourth: #A");
    case.resumptions = 1;
    let call = |index: usize, provider: &str, function: &str| {
        let call = json!({ "index": index, "key": "", "provider": provider, "function": function, "params": {} });
        Ok(json!({ "call": call }))
    };
    let evaluator = FakeEvaluator::new([
        call(0, "http", "do"),
        call(1, "builtin", "suspend"),
        call(2, "http", "do"),
        call(3, "builtin", "suspend"),
    ]);
    let mut functions = FakeFunctions::new([Answer::Returned(json!({})), Answer::Returned(json!({}))]);
    let end = case.run(&evaluator, &mut functions).await.unwrap();
    let suspended = StepResult::Suspended {
        message: "Suspended by field fourth".to_owned(),
        duration: None,
    };
    assert_eq!(end, suspended);
    let paths: Vec<&str> = functions.calls.iter().map(|call| call.path.as_str()).collect();
    assert_eq!(paths, ["first", "third"]);
}

#[tokio::test]
async fn only_a_patch_keeps_its_markers() {
    let params = json!({
        "value": { "$+a": { "patchKey": "x" }, "a": [] },
        "$+patch": { "patchStrategy": "jsonMergePatch" },
        "patch": { "$+b": { "patchKey": "x" }, "b": [] },
    });
    let evaluator = FakeEvaluator::new([pending("kube", "patch", params.clone())]);
    let mut functions = FakeFunctions::new([Answer::Waiting("later".to_owned())]);
    let end = Case::new(READ).run(&evaluator, &mut functions).await.unwrap();
    assert_eq!(
        end,
        StepResult::Waiting {
            message: "later".to_owned()
        }
    );
    let given = &functions.calls[0].params;
    assert_eq!(given["value"], json!({ "a": [] }));
    assert_eq!(
        (&given["patch"], &given["$+patch"]),
        (&params["patch"], &params["$+patch"])
    );
}

#[tokio::test]
async fn an_expression_that_is_not_closed_is_not_evaluated() {
    let evaluator = FakeEvaluator::new([]);
    let result = condition(&evaluator, "true\n}\nx: {", &Map::new()).await.unwrap();
    assert_eq!(result, Err("line 2: unexpected '}'".to_owned()));
    let evaluator = FakeEvaluator::new([Ok(json!({ "value": [1] }))]);
    let result = condition(&evaluator, "1", &Map::new()).await.unwrap();
    assert_eq!(result, Err("the condition is neither true nor false".to_owned()));
}
