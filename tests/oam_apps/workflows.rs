//! Applications with written workflows.

use serde_json::{Value, json};

use super::APPLICATION;
use super::site::Site;

/// A spec with steps.
pub fn with_steps(components: &[Value], steps: &[Value]) -> Value {
    json!({ "components": components, "workflow": { "steps": steps } })
}

/// A spec with steps that run as soon as they can.
pub fn with_parallel_steps(components: &[Value], steps: &[Value]) -> Value {
    json!({ "components": components, "workflow": { "mode": { "steps": "DAG" }, "steps": steps } })
}

pub fn step(name: &str, type_: &str, properties: Value) -> Value {
    json!({ "name": name, "type": type_, "properties": properties })
}

/// Adds further fields to a step.
pub fn with(mut step: Value, more: Value) -> Value {
    let fields = more.as_object().unwrap().clone();
    step.as_object_mut().unwrap().extend(fields);
    step
}

/// Fields of a step with one output.
pub fn output(name: &str, value_from: &str) -> Value {
    json!({ "outputs": [{ "name": name, "valueFrom": value_from }] })
}

/// Fields of a step with one input.
pub fn input(from: &str, key: &str) -> Value {
    json!({ "inputs": [{ "from": from, "parameterKey": key }] })
}

/// Returns the status of a step or sub-step, or null.
pub fn status<'a>(app: &'a Value, step: &str) -> &'a Value {
    let steps = app["status"]["workflow"]["steps"].as_array().into_iter().flatten();
    let with_sub_steps = steps.flat_map(|step| {
        let sub_steps = step["subSteps"].as_array().into_iter().flatten();
        std::iter::once(step).chain(sub_steps)
    });
    let mut named = with_sub_steps.filter(|status| status["name"] == step);
    named.next().unwrap_or(&Value::Null)
}

/// Returns phase, reason and message of a step.
pub fn outcome<'a>(app: &'a Value, step: &str) -> [&'a str; 3] {
    let status = status(app, step);
    ["phase", "reason", "message"].map(|field| status[field].as_str().unwrap_or_default())
}

/// Waits until the workflow of an Application has ended.
pub async fn until_ended(site: &Site, app: &str) -> Value {
    site.until(APPLICATION, app, "the end of its workflow", |app| {
        let status = &app["status"];
        status["workflow"]["finished"] == true && status["observedGeneration"] == app["metadata"]["generation"]
    })
    .await
}

/// Waits until the message of a step contains `words`.
pub async fn until_step_says(site: &Site, app: &str, step: &str, words: &str) -> Value {
    site.until(APPLICATION, app, &format!("step {step}: {words}"), |app| {
        outcome(app, step)[2].contains(words)
    })
    .await
}
