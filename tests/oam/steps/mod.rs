//! Templates of workflow steps: those of the starter set, and other forms that definitions of KubeVela have.

mod components;
mod control;
mod dates;
mod endpoints;
mod expressions;
mod forms;
mod metrics;
mod older;
mod resources;
mod talking;
mod terraform;

use portolan::api::oam::StepOutput;
use portolan::controllers::oam::steps::{Answer, Call, Functions, StepTemplate, run};
use portolan::controllers::oam::workflow::{FailureReason, StepResult};
use serde_json::{Map, Value, json};

use super::{evaluator, starter_template};

/// A step to run.
struct Step {
    type_name: &'static str,
    template: String,
    properties: Value,
    outputs: Vec<StepOutput>,
    resumptions: u32,
}

/// The end of a step, and its calls as `path: provider.function params`.
struct Ended {
    end: StepResult,
    calls: Vec<Call>,
}

impl Step {
    fn new(template: &str, properties: Value) -> Self {
        Self {
            type_name: "custom",
            template: template.to_owned(),
            properties,
            outputs: Vec::new(),
            resumptions: 0,
        }
    }

    /// A step whose type is a definition of the starter set.
    fn of_type(type_name: &'static str, properties: Value) -> Self {
        let template = starter_template(&format!("workflowsteps/{type_name}"));
        Self {
            type_name,
            ..Self::new(&template, properties)
        }
    }

    fn output(mut self, value_from: &str) -> Self {
        self.outputs.push(StepOutput {
            name: format!("output{}", self.outputs.len()),
            value_from: value_from.to_owned(),
        });
        self
    }

    /// Runs the step `deploy` of Application `shop`.
    async fn run(&self, answer: impl FnMut(&Call) -> Answer + Send) -> Ended {
        let context = json!({
            "name": "shop", "appName": "shop", "namespace": "team", "appRevision": "shop-v2", "stepName": "deploy",
            "stepSessionID": "abcdefghij", "spanID": "shop.abcdefghij",
        });
        let step = StepTemplate {
            type_name: self.type_name,
            source: &self.template,
            properties: Some(&self.properties),
            context: context.as_object().unwrap(),
            outputs: &self.outputs,
            resumptions: self.resumptions,
        };
        let mut outside = Outside {
            answer,
            calls: Vec::new(),
        };
        let end = run(&evaluator(), &mut outside, &step).await.unwrap();
        Ended {
            end,
            calls: outside.calls,
        }
    }
}

struct Outside<A> {
    answer: A,
    calls: Vec<Call>,
}

impl<A: FnMut(&Call) -> Answer + Send> Functions for Outside<A> {
    async fn call(&mut self, call: &Call) -> Answer {
        self.calls.push(call.clone());
        (self.answer)(call)
    }
}

impl Ended {
    /// Returns the calls as `path provider.function`.
    fn names(&self) -> Vec<String> {
        let name = |call: &Call| format!("{} {}.{}", call.path, call.provider, call.function);
        self.calls.iter().map(name).collect()
    }
}

/// Answers with the object that is read or applied, with further fields.
fn object(call: &Call, further: Value) -> Answer {
    let mut object = call.params["value"].clone();
    if let (Some(object), Value::Object(further)) = (object.as_object_mut(), further) {
        object.extend(further);
    }
    Answer::Returned(json!({ "value": object }))
}

fn returned(value: Value) -> Answer {
    Answer::Returned(value)
}

fn succeeded() -> StepResult {
    StepResult::Succeeded {
        outputs: Vec::new(),
        message: String::new(),
    }
}

fn waiting(message: &str) -> StepResult {
    StepResult::Waiting {
        message: message.to_owned(),
    }
}

fn failed(reason: FailureReason, message: &str) -> StepResult {
    StepResult::Failed {
        reason,
        message: message.to_owned(),
    }
}

/// Panics: for steps that reach nothing outside.
fn nothing(call: &Call) -> Answer {
    panic!("unexpected call {call:?}")
}

fn fields(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}
