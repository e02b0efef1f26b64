use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::{Value, json};

use super::{status, steps_of};
use crate::api::oam::{ApplicationStatus, WorkflowStep};
use crate::controllers::oam::workflow::operations::{
    OperationEffect, OperationError, Removed, forget, restart, restart_from,
};

fn declared(steps: Value) -> Vec<WorkflowStep> {
    serde_json::from_value(steps).unwrap()
}

fn output(name: &str) -> Value {
    json!({ "name": name, "valueFrom": "output.x" })
}

/// Returns the status of an ended run in a mode, in which all steps have failed.
fn failed(mode: &str, steps: &[WorkflowStep]) -> ApplicationStatus {
    let one = |step: &WorkflowStep| json!({ "id": format!("id-{}", step.name), "name": step.name, "phase": "failed" });
    let steps: Vec<_> = steps
        .iter()
        .map(|step| {
            let mut status = one(step);
            status["reason"] = json!("Action");
            status["subSteps"] = step.sub_steps.iter().map(one).collect();
            status
        })
        .collect();
    let mut status = status(json!(steps));
    let workflow = status.workflow.as_mut().unwrap();
    workflow.mode = mode.to_owned();
    (workflow.terminated, workflow.finished, workflow.suspend) = (true, true, true);
    workflow.end_time = serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap();
    status
}

fn names(removed: &Removed) -> Vec<&str> {
    removed.names.iter().map(String::as_str).collect()
}

#[test]
fn a_restart_removes_the_run() {
    let mut status = failed("DAG-DAG", &declared(json!([{ "name": "a" }])));
    assert_eq!(restart(&mut status), Ok(OperationEffect::Changed));
    assert_eq!(status.workflow, None);
    assert_eq!(restart(&mut status), Err(OperationError::NotStarted));
}

#[test]
fn step_by_step_the_later_steps_run_again() {
    let steps = declared(json!([
        { "name": "a", "outputs": [output("of-a")] },
        { "name": "b", "outputs": [output("of-b")] },
        { "name": "c", "type": "step-group", "outputs": [output("of-c")], "subSteps": [{ "name": "d", "outputs": [output("of-d")] }] },
    ]));
    let mut status = failed("StepByStep-DAG", &steps);
    let removed = restart_from(&mut status, &steps, "b").unwrap();
    assert_eq!(names(&removed), ["b", "c", "d"]);
    assert_eq!(removed.ids, ["id-b", "id-c", "id-d"]);
    assert_eq!(removed.outputs, ["of-b", "of-c", "of-d"]);
    assert_eq!(steps_of(&status), ["a failed Action"]);
    let workflow = status.workflow.unwrap();
    assert!(!workflow.terminated && !workflow.finished && !workflow.suspend);
    assert_eq!(workflow.end_time, None);
    assert_eq!(workflow.app_revision, "web-v1");
}

#[test]
fn in_a_dag_the_dependent_steps_run_again() {
    let steps = declared(json!([
        { "name": "a", "dependsOn": ["c"] },
        { "name": "b", "outputs": [output("of-b")] },
        { "name": "c", "inputs": [{ "from": "of-b.field" }] },
        { "name": "d" },
        { "name": "e", "inputs": [{ "from": "of-bread" }] },
    ]));
    let mut status = failed("DAG-DAG", &steps);
    let removed = restart_from(&mut status, &steps, "b").unwrap();
    assert_eq!(names(&removed), ["a", "b", "c"]);
    assert_eq!(steps_of(&status), ["d failed Action", "e failed Action"]);
}

#[test]
fn steps_that_depend_on_the_component_or_name_of_a_step_run_again() {
    let steps = declared(json!([
        { "name": "deploy-db", "type": "apply-component", "properties": { "component": "db" } },
        { "name": "deploy-web", "type": "apply-component", "properties": { "component": "web" }, "dependsOn": ["db"] },
        { "name": "notify", "type": "notification", "properties": { "name": "mail" }, "dependsOn": ["web"] },
        { "name": "last", "type": "suspend", "dependsOn": ["mail"] },
        { "name": "db-2", "type": "suspend" },
    ]));
    let mut status = failed("DAG-DAG", &steps);
    let removed = restart_from(&mut status, &steps, "deploy-db").unwrap();
    assert_eq!(names(&removed), ["deploy-db", "deploy-web", "last", "notify"]);
    assert_eq!(steps_of(&status), ["db-2 failed Action"]);
    let mut status = failed("DAG-DAG", &steps);
    "db".clone_into(&mut status.workflow.as_mut().unwrap().steps[4].name);
    let removed = restart_from(&mut status, &steps, "db").unwrap();
    assert_eq!(
        names(&removed),
        ["db"],
        "a step that the spec lacks is not taken for another by its component"
    );
}

#[test]
fn a_workflow_with_too_many_steps_is_refused() {
    let steps = declared(Value::Array(vec![json!({ "name": "a" }); 2_001]));
    let mut status = failed("DAG-DAG", &steps[..1]);
    let before = status.clone();
    let refusal = restart_from(&mut status, &steps, "a").unwrap_err();
    assert_eq!(refusal.to_string(), "workflow has more than 2000 steps");
    assert_eq!(status, before);
}

#[test]
fn a_sub_step_restarts_in_its_group_with_what_depends_on_the_group() {
    let steps = declared(json!([
        { "name": "a" },
        { "name": "group", "type": "step-group", "subSteps": [
            { "name": "x", "dependsOn": ["y"] }, { "name": "y", "outputs": [output("of-y")] }, { "name": "z" },
        ] },
        { "name": "b", "dependsOn": ["group"] },
        { "name": "c", "inputs": [{ "from": "of-y" }] },
        { "name": "d" },
    ]));
    let mut in_dag = failed("DAG-DAG", &steps);
    let removed = restart_from(&mut in_dag, &steps, "y").unwrap();
    assert_eq!(names(&removed), ["b", "c", "x", "y"]);
    assert_eq!(
        steps_of(&in_dag),
        ["a failed Action", "group running", "z failed", "d failed Action"]
    );

    let mut in_order = failed("StepByStep-StepByStep", &steps);
    let removed = restart_from(&mut in_order, &steps, "y").unwrap();
    assert_eq!(names(&removed), ["b", "c", "d", "x", "y", "z"]);
    assert_eq!(steps_of(&in_order), ["a failed Action", "group running"]);
}

#[test]
fn the_mode_of_a_group_is_that_of_its_sub_steps() {
    let steps = declared(json!([
        { "name": "group", "type": "step-group", "mode": "StepByStep", "subSteps": [{ "name": "x" }, { "name": "y" }, { "name": "z" }] },
    ]));
    let mut status = failed("DAG-DAG", &steps);
    let removed = restart_from(&mut status, &steps, "y").unwrap();
    assert_eq!(names(&removed), ["y", "z"]);
    assert_eq!(steps_of(&status), ["group running", "x failed"]);
}

#[test]
fn a_step_that_has_not_failed_is_refused() {
    let steps = declared(json!([{ "name": "a" }, { "name": "b" }]));
    let mut status = status(json!([{ "name": "a", "phase": "succeeded" }]));
    let before = status.clone();
    let mut refusal = |step| restart_from(&mut status, &steps, step).unwrap_err().to_string();
    assert_eq!(refusal("a"), "step a is succeeded, not failed");
    assert_eq!(refusal("b"), "step b is not started, not failed");
    assert_eq!(refusal("c"), "step c not found; the steps are: a, b");
    assert_eq!(status, before);
    let none = restart_from(&mut ApplicationStatus::default(), &steps, "a");
    assert_eq!(none, Err(OperationError::NotStarted));
}

#[test]
fn a_step_that_the_spec_lacks_by_now_restarts_alone() {
    let old = declared(json!([{ "name": "a" }, { "name": "b" }]));
    let mut status = failed("StepByStep-DAG", &old);
    let removed = restart_from(&mut status, &[], "a").unwrap();
    assert_eq!(names(&removed), ["a"]);
    assert_eq!(steps_of(&status), ["b failed Action"]);
}

#[test]
fn cycles_and_many_steps_take_little_time() {
    let step = |at: usize| {
        json!({
            "name": format!("s{at}"), "dependsOn": [format!("s{}", (at + 1) % 1000)],
            "outputs": [output("same")], "inputs": [{ "from": "same" }],
        })
    };
    let steps = declared(Value::Array((0..1000).map(step).collect()));
    let started = Instant::now();
    for mode in ["DAG-DAG", "StepByStep-DAG", "-", ""] {
        let mut status = failed(mode, &steps);
        assert_eq!(restart_from(&mut status, &steps, "s500").unwrap().names.len(), 1000);
    }
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

fn data(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let entries = entries
        .iter()
        .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
    entries.collect()
}

fn of_steps(outputs: &[&str]) -> Removed {
    Removed {
        ids: vec!["id-b".to_owned()],
        outputs: outputs.iter().map(|output| (*output).to_owned()).collect(),
        ..Removed::default()
    }
}

#[test]
fn values_of_removed_steps_are_forgotten() {
    let mut values = data(&[
        ("vars", "kept: 1\n\"of-b\": {\"x\":1}\nshared: {\"a\":1,\"b\":2}\n"),
        ("logConfig", "{}"),
    ]);
    assert_eq!(
        forget(&mut values, &of_steps(&["of-b", "shared.b", "absent.c"])),
        Ok(true)
    );
    assert_eq!(
        values,
        data(&[("vars", "kept: 1\nshared: {\"a\":1}\n"), ("logConfig", "{}")])
    );
    assert_eq!(forget(&mut values, &of_steps(&["of-b", "shared.b"])), Ok(false));
    let mut none = BTreeMap::new();
    assert_eq!(forget(&mut none, &of_steps(&["of-b"])), Ok(false));
    assert!(none.is_empty());
}

#[test]
fn attempts_of_removed_steps_are_forgotten() {
    let attempt = json!({ "failures": 3, "waits": 0, "message": "no" });
    let attempts = json!({ "steps": { "id-a": attempt, "id-b": attempt } }).to_string();
    let mut values = data(&[("vars", "\n"), ("portolan.attempts", &attempts)]);
    assert_eq!(forget(&mut values, &of_steps(&[])), Ok(true));
    let left: Value = serde_json::from_str(&values["portolan.attempts"]).unwrap();
    assert_eq!(left, json!({ "steps": { "id-a": attempt } }));
}

#[test]
fn values_that_kubevela_wrote_are_forgotten_in_their_form() {
    let mut values = data(&[
        ("vars", "\"of-b\": {\n\tx: 1\n}\nkept: \"a\"\n"),
        ("id-a.resumeTimeStamp", "x"),
        ("id-b.resumeTimeStamp", "x"),
    ]);
    assert_eq!(forget(&mut values, &of_steps(&["of-b"])), Ok(true));
    assert_eq!(values["vars"].trim(), "kept: \"a\"");
    assert_eq!(Vec::from_iter(values.keys()), ["id-a.resumeTimeStamp", "vars"]);
    let mut invalid = data(&[("vars", "a: {")]);
    assert!(
        forget(&mut invalid, &of_steps(&["a"]))
            .unwrap_err()
            .to_string()
            .contains("not valid CUE")
    );
}
