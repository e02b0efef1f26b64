use rstest::rstest;

use super::super::steps::ComponentStepError;
use super::*;
use crate::api::oam::{Component, WorkflowStep};

fn workflow(spec: &Value) -> ParsedWorkflow {
    parse_in(&Cluster::with_definitions(), spec).unwrap().workflow
}

fn with(parts: &Value) -> Value {
    let mut spec = components(&[("web", "webservice"), ("job", "worker")]);
    spec.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
    spec
}

fn policies(types: &[(&str, &str)]) -> Value {
    let policies = types
        .iter()
        .map(|(name, type_)| json!({ "name": name, "type": type_, "properties": {} }));
    with(&json!({ "policies": policies.collect::<Vec<_>>() }))
}

fn summary(spec: &Value) -> Vec<String> {
    let steps = workflow(spec).steps;
    steps
        .iter()
        .map(|step| format!("{} {} {}", step.name, step.type_, step.properties.as_ref().unwrap()))
        .collect()
}

#[rstest]
#[case::components(with(&json!({})), &[
    r#"web apply-component {"component":"web"}"#, r#"job apply-component {"component":"job"}"#,
])]
#[case::topologies(policies(&[("o", "override"), ("a", "topology"), ("once", "apply-once"), ("b", "topology")]), &[
    r#"deploy-a deploy {"policies":["o","a"]}"#, r#"deploy-b deploy {"policies":["o","b"]}"#,
])]
#[case::overrides(policies(&[("o", "override"), ("p", "override")]), &[r#"deploy deploy {"policies":["o","p"]}"#])]
#[case::other_policies(policies(&[("once", "apply-once")]), &[
    r#"web apply-component {"component":"web"}"#, r#"job apply-component {"component":"job"}"#,
])]
#[case::written(with(&json!({ "workflow": { "steps": [{ "name": "s", "type": "suspend", "properties": {} }] } })), &[
    "s suspend {}",
])]
fn steps_are_generated_unless_they_are_written(#[case] spec: Value, #[case] expected: &[&str]) {
    assert_eq!(summary(&spec), expected);
}

#[test]
fn referred_objects_are_deployed_in_one_step() {
    let mut cluster = Cluster::with_definitions();
    cluster.add("ComponentDefinition", "vela-system", "ref-objects", &template("// ref"));
    let parsed = parse_in(&cluster, &components(&[("r", "ref-objects"), ("job", "worker")])).unwrap();
    assert_eq!(parsed.workflow.steps.len(), 1);
    assert_eq!(parsed.workflow.steps[0].properties, Some(json!({ "policies": [] })));
    assert!(parsed.workflow.definitions.contains_key("deploy"));
}

#[rstest]
#[case::none(json!({}), "DAG-DAG")]
#[case::null(json!({ "workflow": null }), "DAG-DAG")]
#[case::empty(json!({ "workflow": {} }), "StepByStep-DAG")]
#[case::own(json!({ "workflow": { "mode": { "steps": "DAG", "subSteps": "StepByStep" } } }), "DAG-StepByStep")]
#[case::of_the_reference(json!({ "workflow": { "ref": "flow" } }), "DAG-DAG")]
#[case::own_before_the_reference(json!({ "workflow": { "ref": "flow", "mode": { "subSteps": "DAG" } } }), "StepByStep-DAG")]
fn the_mode_is_that_of_the_workflow(#[case] parts: Value, #[case] mode: &str) {
    let mut cluster = Cluster::with_definitions();
    let flow = json!({ "mode": { "steps": "DAG" }, "steps": [{ "name": "one", "type": "suspend" }] });
    cluster.add("Workflow", "team", "flow", &flow);
    let parsed = parse_in(&cluster, &with(&parts)).unwrap();
    assert_eq!(parsed.workflow.mode, mode);
    let is_external = parts["workflow"]["ref"].is_string();
    assert_eq!(parsed.workflow.external.is_some(), is_external);
    assert_eq!(parsed.workflow.steps[0].name, if is_external { "one" } else { "web" });
}

#[test]
fn the_number_of_steps_is_limited() {
    let steps = vec![json!({ "name": "s", "type": "step-group", "subSteps": [{ "type": "suspend" }] }); 501];
    let error = parse_in(
        &Cluster::default(),
        &json!({ "components": [], "workflow": { "steps": steps } }),
    );
    let error = error.unwrap_err();
    assert_eq!(
        error,
        "failed to parseWorkflowSteps: 1002 steps exceed the limit of 1000"
    );
}

#[rstest]
#[case::inputs("inputs", json!({ "from": "x" }))]
#[case::outputs("outputs", json!({ "name": "x", "valueFrom": "y" }))]
fn the_numbers_of_inputs_and_outputs_are_limited(#[case] field: &str, #[case] value: Value) {
    let with = |count: usize| {
        let step = json!({ "name": "one", "type": "suspend", field: vec![value.clone(); count] });
        let group = json!({ "name": "g", "type": "step-group", "subSteps": [step] });
        json!({ "components": [], "workflow": { "steps": [group] } })
    };
    assert!(parse_in(&Cluster::default(), &with(100)).is_ok());
    let error = parse_in(&Cluster::default(), &with(101)).unwrap_err();
    let expected = format!("failed to parseWorkflowSteps: step one has 101 {field}, more than 100");
    assert_eq!(error, expected);

    let web = component(&json!({ "name": "web", field: vec![value.clone(); 51] }));
    let mut step = step_of("web");
    let more = component(&json!({ "name": "more", field: vec![value; 50] }));
    (step.inputs, step.outputs) = (more.inputs, more.outputs);
    let error = component_step(&step, &[web]).unwrap_err();
    assert_eq!(error.to_string(), format!("step s has 101 {field}, more than 100"));
}

#[test]
fn names_of_steps_are_limited() {
    let with =
        |name: String| json!({ "components": [], "workflow": { "steps": [{ "name": name, "type": "suspend" }] } });
    assert!(parse_in(&Cluster::default(), &with("x".repeat(253))).is_ok());
    let error = parse_in(&Cluster::default(), &with("x".repeat(254))).unwrap_err();
    assert!(
        error.starts_with("failed to parseWorkflowSteps: name of step xxx"),
        "{error}"
    );
    assert!(error.ends_with("x… exceeds 253 bytes"), "{error}");
}

fn component(fields: &Value) -> Component {
    serde_json::from_value(fields.clone()).unwrap()
}

fn step_of(name: &str) -> WorkflowStep {
    let step = json!({ "name": "s", "type": "apply-component", "properties": { "component": name } });
    serde_json::from_value(step).unwrap()
}

#[test]
fn inputs_outputs_and_dependencies_of_a_component_move_into_its_step() {
    let web = component(&json!({
        "name": "web", "dependsOn": ["db"], "outputs": [{ "name": "ip", "valueFrom": "output.status.ip" }],
        "inputs": [
            { "parameterKey": "image", "from": "a" }, { "parameterKey": " properties.port ", "from": "b" },
            { "parameterKey": "traits[0].properties.x", "from": "c" }, { "from": "d" },
        ],
    }));
    let mut step = step_of("web");
    step.depends_on.push("approval".to_owned());
    let completed = component_step(&step, &[component(&json!({ "name": "db" })), web]).unwrap();
    assert_eq!(completed.depends_on, ["approval", "db"]);
    assert_eq!(completed.outputs[0].name, "ip");
    let keys: Vec<_> = completed
        .inputs
        .iter()
        .map(|input| input.parameter_key.as_str())
        .collect();
    assert_eq!(
        keys,
        [
            "value.properties.image",
            "value.properties.port",
            "value.traits[0].properties.x",
            ""
        ]
    );
}

#[test]
fn missing_components_are_errors_of_their_step() {
    let components = [component(&json!({ "name": "web", "dependsOn": ["db"] }))];
    let error = component_step(&step_of("test"), &components).unwrap_err();
    assert_eq!(error.to_string(), "component test not found");
    let error = component_step(&step_of("web"), &components).unwrap_err();
    assert_eq!(error.to_string(), "component db not found, which is depended by web");
    assert!(matches!(error, ComponentStepError::DependencyNotFound { .. }));
    let other = WorkflowStep {
        type_: "suspend".to_owned(),
        ..WorkflowStep::default()
    };
    assert_eq!(component_step(&other, &components), Ok(other));
}

#[rstest]
#[case::many_fields(json!({ "parameterKey": "a".to_owned() + &"[0]".repeat(64), "from": "x" }), "parameterKey")]
#[case::long_key(json!({ "parameterKey": "a".repeat(1_025), "from": "x" }), "parameterKey")]
#[case::long_source(json!({ "parameterKey": "a", "from": "a.".repeat(64) + "a" }), "from")]
fn long_paths_of_inputs_are_errors_of_their_component(#[case] input: Value, #[case] field: &str) {
    let web = component(&json!({ "name": "web", "inputs": [input] }));
    let error = component_step(&step_of("web"), &[web]).unwrap_err();
    let expected = format!("{field} of an input of component web is invalid: path exceeds 1024 bytes or 64 fields");
    assert_eq!(error.to_string(), expected);
}
