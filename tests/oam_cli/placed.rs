//! `portolan vela render` and `diff` of workflows and placed components.

use std::fs;

use serde_json::{Value, json};

use super::render::{definition, objects, render};
use super::{Site, application, assert_line};
use crate::support::corpus;
use crate::support::process::ScratchDir;

/// Cases with and without policies that place components.
const GOLDENS: [&str; 4] = ["u-dry-run-1", "u-dry-run-2", "u-dry-run-5", "u-dry-run-override"];
const APPLIED: &str = "/metadata/annotations/app.oam.dev~1last-applied-configuration";

fn worker(name: &str) -> Value {
    json!({ "name": name, "type": "worker", "properties": { "image": "nginx:1" } })
}

/// Returns namespace, name and image of each Deployment.
fn deployments(yaml: &str) -> Vec<String> {
    let text = |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
    let shown = objects(yaml).into_iter().map(|object| {
        let image = text(&object, "/spec/template/spec/containers/0/image");
        format!(
            "{}/{} {image}",
            text(&object, "/metadata/namespace"),
            text(&object, "/metadata/name")
        )
    });
    shown.collect()
}

#[tokio::test]
async fn policies_place_components_in_the_order_of_the_steps() {
    let files = ScratchDir::new("placed");
    let image = json!({ "components": [{ "name": "web", "properties": { "image": "nginx:2" } }] });
    let placed = json!({
        "components": [worker("web"), worker("db")],
        "policies": [
            { "name": "east", "type": "topology", "properties": { "namespace": "east" } },
            { "name": "newer", "type": "override", "properties": image },
            { "name": "twice", "type": "replication", "properties": { "selector": ["db"], "keys": ["one", "two"] } },
        ],
        "workflow": { "steps": [
            { "name": "first", "type": "apply-component", "properties": { "component": "db" } },
            { "name": "notify", "type": "export2config", "properties": { "configName": "note", "data": {} } },
            { "name": "all", "type": "step-group", "subSteps": [
                { "name": "deploy", "type": "deploy", "properties": { "policies": ["east", "newer"] } },
            ] },
        ] },
    });
    let output = render(&files, &[application("shop", placed.clone())], &["-n", "team"]).await;
    assert!(
        output
            .stderr
            .contains("note: objects made by step notify (export2config) at run time"),
        "{output:?}"
    );
    let yaml = output.ok();
    assert_eq!(
        deployments(&yaml),
        ["team/db nginx:1", "east/web nginx:2", "east/db nginx:1"]
    );

    // Without steps, each topology has one, with all overrides.
    let mut generated = placed.clone();
    generated.as_object_mut().unwrap().remove("workflow");
    let yaml = render(&files, &[application("shop", generated)], &["-n", "team"])
        .await
        .ok();
    assert_eq!(deployments(&yaml), ["east/web nginx:2", "east/db nginx:1"]);

    let mut replicated = placed;
    replicated["workflow"]["steps"] =
        json!([{ "name": "d", "type": "deploy", "properties": { "policies": ["twice"] } }]);
    let yaml = render(&files, &[application("shop", replicated)], &["-n", "team"])
        .await
        .ok();
    let keys = objects(&yaml)
        .into_iter()
        .map(|object| object["metadata"]["labels"]["app.oam.dev/replicaKey"].clone());
    assert_eq!(Vec::from_iter(keys), [Value::Null, json!("one"), json!("two")]);
}

#[tokio::test]
async fn components_are_rendered_for_each_cluster_that_a_topology_names() {
    let files = ScratchDir::new("placed");
    let topology = json!({ "name": "far", "type": "topology", "properties": { "clusters": ["local", "edge"] } });
    let spec = json!({ "components": [worker("web")], "policies": [topology] });
    let yaml = render(&files, &[application("shop", spec)], &[]).await.ok();
    let clusters = objects(&yaml)
        .into_iter()
        .map(|object| object["metadata"]["labels"]["app.oam.dev/cluster"].clone());
    assert_eq!(Vec::from_iter(clusters), ["local", "edge"]);
}

#[tokio::test]
async fn values_of_the_run_are_named_and_mistakes_end_the_command() {
    let files = ScratchDir::new("placed");
    let mut taking = worker("web");
    taking["inputs"] = json!([{ "from": "image", "parameterKey": "image" }]);
    let spec = json!({ "components": [taking], "workflow": { "steps": [{
        "name": "web", "type": "apply-component", "properties": { "component": "web" },
    }] } });
    let output = render(&files, &[application("shop", spec)], &[]).await;
    let note = "note: component web: values of its inputs are known at run time only";
    assert!(output.stderr.contains(note), "{output:?}");

    let spec = |step: Value| json!({ "components": [worker("web")], "workflow": { "steps": [step] } });
    for (step, error) in [
        (
            json!({ "name": "a", "type": "apply-component", "properties": { "component": "db" } }),
            "Application shop: step a: component db not found",
        ),
        (
            json!({ "name": "b", "type": "deploy", "properties": { "policies": ["nowhere"] } }),
            "Application shop: failed to parsePolicies: external policy nowhere not found, which step b names",
        ),
        (
            json!({ "name": "c", "type": "deploy", "properties": { "parallelism": 0 } }),
            "Application shop: step c: parallelism cannot be smaller than 1",
        ),
    ] {
        let text = render(&files, &[application("shop", spec(step))], &[]).await.failed(1);
        assert!(text.contains(error), "{error}: {text}");
    }
}

/// Removes what depends on the program that renders.
fn without_hashes(mut object: Value) -> Value {
    for (field, key) in [
        ("labels", "app.oam.dev/app-revision-hash"),
        ("labels", "oam.dev/render-hash"),
        ("annotations", "oam.dev/kubevela-version"),
    ] {
        if let Some(map) = object["metadata"][field].as_object_mut() {
            map.remove(key);
        }
    }
    if object["metadata"]["annotations"]
        .as_object()
        .is_some_and(serde_json::Map::is_empty)
    {
        object["metadata"].as_object_mut().unwrap().remove("annotations");
    }
    object
}

#[tokio::test]
async fn rendered_objects_are_those_that_kubevela_applied() {
    let Some(goldens) = corpus::oam_goldens() else {
        println!("skipped: PORTOLAN_OAM_GOLDENS is not set and ../shared/oam-goldens does not exist");
        return;
    };
    let files = ScratchDir::new("placed");
    for case in GOLDENS {
        let read = |file: &str| objects(&fs::read_to_string(goldens.join(case).join(file)).unwrap());
        let applied = read("expected/objects.yaml").into_iter().filter_map(|object| {
            let text = object.pointer(APPLIED)?.as_str()?.to_owned();
            Some(without_hashes(serde_json::from_str(&text).unwrap()))
        });
        let namespace = format!("v-{case}");
        let yaml = render(&files, &read("input.yaml"), &["-n", &namespace]).await.ok();
        let rendered = objects(&yaml).into_iter().map(without_hashes);
        assert_eq!(Vec::from_iter(rendered), Vec::from_iter(applied), "{case}");
    }
}

/// A ConfigMap.
const CONFIG: &str = r#"output: {apiVersion: "v1", kind: "ConfigMap", data: parameter}
parameter: [string]: string"#;
const DEPLOY: &str = r#"import "vela/multicluster"
deploy: multicluster.#Deploy & {$params: policies: parameter.policies}
parameter: policies: [...string]"#;
const NOTE: &str = r#"import "vela/kube"
apply: kube.#Apply & {$params: value: {apiVersion: "v1", kind: "ConfigMap", metadata: name: "note"}}
parameter: {}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn diff_shows_components_in_their_places() {
    let site = Site::new().await;
    site.define("config", CONFIG).await;
    for (name, template) in [("deploy", DEPLOY), ("note", NOTE)] {
        site.apply_object(&definition("WorkflowStepDefinition", name, template))
            .await;
    }
    let other = site.control_plane.namespace().await;
    let one = |name: &str| json!({ "name": name, "type": "config", "properties": { "key": name } });
    let spec = json!({
        "components": [one("a"), one("b")],
        "policies": [{ "name": "other", "type": "topology", "properties": { "namespace": other } }],
        "workflow": { "steps": [
            { "name": "first", "type": "apply-component", "properties": { "component": "a" } },
            { "name": "rest", "type": "deploy", "properties": { "policies": ["other"] } },
            { "name": "remark", "type": "note", "properties": {} },
        ] },
    });
    let text = site.diff(application("shop", spec)).await;
    let namespace = &site.namespace;
    for line in [
        format!("create ConfigMap {namespace}/a"),
        format!("create ConfigMap {other}/a"),
        format!("create ConfigMap {other}/b"),
        "later objects made by step remark (note) at run time".to_owned(),
    ] {
        assert_line(&text, &line);
    }
    assert_eq!(text.lines().count(), 4, "{text}");
}
