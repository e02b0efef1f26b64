//! Written workflows: order, values, groups, and Workflow objects.

use serde_json::{Value, json};

use super::apps::{config, objects, web};
use super::site::Site;
use super::workflows::{outcome, status};
use super::{APPLICATION, CONFIG_MAP, DEPLOYMENT, REVISION};
use crate::support::eventually::SOON;

const SECRET: &str = "v1 Secret";
/// The word "hidden" as a Secret shows it.
const HIDDEN: &str = "aGlkZGVu";
const WORKFLOW: &str = "core.oam.dev/v1alpha1 Workflow";

fn with_steps(components: &[Value], steps: &[Value]) -> Value {
    json!({ "components": components, "workflow": { "steps": steps } })
}

fn apply(component: &str) -> Value {
    json!({ "name": component, "type": "apply-component", "properties": { "component": component } })
}

fn phase(app: &Value, step: usize) -> &Value {
    &app["status"]["workflow"]["steps"][step]["phase"]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_begins_once_the_one_before_is_healthy() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let blocked = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "spec": { "hard": { "pods": "0" } },
    });
    site.apply("v1 ResourceQuota", "no-pods", blocked).await;
    let components = [web("first", 1), config("second", "two")];
    site.declare("shop", with_steps(&components, &[apply("first"), apply("second")]))
        .await;
    let app = site
        .until(APPLICATION, "shop", "waiting", |app| {
            app["status"]["workflow"]["steps"][0]["message"] == "wait healthy"
        })
        .await;
    assert_eq!(app["status"]["status"], "runningWorkflow");
    assert_eq!(*phase(&app, 1), Value::Null, "the next step has not begun");
    assert!(site.get(DEPLOYMENT, "first").await.is_some());
    assert_eq!(site.get(CONFIG_MAP, "second").await, None);

    site.delete("v1 ResourceQuota", "no-pods").await;
    let app = site.until_running("shop").await;
    assert_eq!([phase(&app, 0), phase(&app, 1)], ["succeeded"; 2]);
    assert!(site.get(CONFIG_MAP, "second").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_passes_from_an_object_to_a_component() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    site.apply(CONFIG_MAP, "settings", json!({ "data": { "region": "eu" } }))
        .await;
    let read = json!({
        "name": "read", "type": "read-object",
        "properties": { "apiVersion": "v1", "kind": "ConfigMap", "name": "settings", "namespace": site.namespace },
        "outputs": [{ "name": "region", "valueFrom": "output.$returns.value.data.region" }],
    });
    let mut second = config("second", "none");
    second["inputs"] = json!([{ "from": "region", "parameterKey": "objects[0].data.key" }]);
    site.declare("shop", with_steps(&[second], &[read, apply("second")]))
        .await;
    site.until_running("shop").await;
    let second = site.get(CONFIG_MAP, "second").await.unwrap();
    assert_eq!(second["data"]["key"], "eu");
    let values = site.get(CONFIG_MAP, "workflow-shop-context").await.unwrap();
    assert_eq!(values["data"]["vars"], "region: \"eu\"\n");

    // The value that the run has read stays until the next one.
    site.edit(CONFIG_MAP, "settings", json!({ "data": { "region": "us" } }))
        .await;
    site.edit(CONFIG_MAP, "second", json!({ "data": { "key": "edited" } }))
        .await;
    site.until(CONFIG_MAP, "second", "restored", |object| object["data"]["key"] == "eu")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_referenced_workflow_is_awaited_and_recorded() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let spec = json!({ "components": [config("first", "one")], "workflow": { "ref": "flow" } });
    site.declare("shop", spec).await;
    site.until_said("shop", "Workflow.core.oam.dev \"flow\" not found")
        .await;
    let flow = json!({ "mode": { "steps": "DAG" }, "steps": [apply("first")] });
    site.apply(WORKFLOW, "flow", flow).await;
    let app = site.until_running("shop").await;
    assert_eq!(app["status"]["workflow"]["mode"], "DAG-DAG");
    let revision = site.get(REVISION, "shop-v1").await.unwrap();
    assert_eq!(revision["spec"]["workflow"]["steps"][0]["name"], "first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_decide_about_steps_after_a_failure() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--max-workflow-step-error-retry-times=1"]).await;
    let wrong = json!({ "name": "wrong", "type": "apply-object", "properties": { "value": {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "Not A Name" },
    } } });
    let mut cleanup = apply("cleanup");
    cleanup["if"] = "status.wrong.failed".into();
    let mut always = apply("always");
    always["if"] = "always".into();
    let steps = [wrong, apply("never"), cleanup, always];
    let components = [config("never", "1"), config("cleanup", "1"), config("always", "1")];
    site.declare("shop", with_steps(&components, &steps)).await;
    let app = site
        .until(APPLICATION, "shop", "failed", |app| {
            app["status"]["status"] == "workflowFailed"
        })
        .await;
    let phases = [0, 1, 2, 3].map(|step| phase(&app, step));
    assert_eq!(phases, ["failed", "skipped", "succeeded", "succeeded"]);
    assert_eq!(app["status"]["workflow"]["steps"][0]["reason"], "FailedAfterRetries");
    assert_eq!(app["status"]["workflow"]["steps"][1]["reason"], "Skip");
    assert_eq!(site.get(CONFIG_MAP, "never").await, None);
    for name in ["cleanup", "always"] {
        assert!(site.get(CONFIG_MAP, name).await.is_some(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_reads_labels_and_a_value_comes_from_what_a_call_has_returned() {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    site.apply(CONFIG_MAP, "settings", json!({ "data": { "region": "eu" } }))
        .await;
    let template = r#"
        import (
            "vela/builtin"
            "vela/util"
        )
        log: util.#Log & {$params: data: "for \(parameter.region) \"in\" \(context.stepGroupName)"}
        said: builtin.#Message & {$params: message: "\(parameter.env) \(context.workflowName) \(context.revision)"}
        parameter: {env: string, region: string, size: 3}
    "#;
    site.define_step("say", template).await;
    let read = json!({
        "name": "read", "type": "read-object",
        "properties": { "apiVersion": "v1", "kind": "ConfigMap", "name": "settings", "namespace": site.namespace },
        "outputs": [{ "name": "region", "valueFrom": "output.value.data[\"region\"]" }],
    });
    let gate = |name: &str, condition: &str| {
        json!({
            "name": name, "type": "say", "properties": { "size": 3 }, "if": condition,
            "inputs": [
                { "from": "region", "parameterKey": "region" },
                { "from": "context.appLabels[\"example.com/env\"]", "parameterKey": "env" },
            ],
        })
    };
    let open = "context.appLabels[\"example.com/env\"] == \"prod\" && context.appAnnotations.owner == \"ann\" \
        && context.appRevisionNum == 1 && context.clusterVersion.gitVersion == \"\" && context.stepGroupName == \"gates\" && parameter.size == 3 \
        && inputs.region == \"eu\" && status.read.succeeded && context.replicaKey == \"\"";
    let gates = [
        gate("open", open),
        gate("closed", "context.appLabels[\"example.com/env\"] == \"test\""),
    ];
    let group = json!({ "name": "gates", "type": "step-group", "subSteps": gates });
    let metadata = json!({
        "labels": { "example.com/env": "prod" },
        "annotations": { "owner": "ann", "app.oam.dev/workflowName": "release" },
    });
    let app = json!({ "metadata": metadata, "spec": with_steps(&[], &[read, group]) });
    site.apply(APPLICATION, "shop", app).await;
    let app = site.until_running("shop").await;
    assert_eq!(outcome(&app, "open"), ["succeeded", "", "prod release "]);
    assert_eq!(outcome(&app, "closed"), ["skipped", "Skip", ""]);

    // `vela workflow logs` looks for these words.
    let session = status(&app, "open")["id"].as_str().unwrap().to_owned();
    let line = portolan.line_with(&format!("stepSessionID=\"{session}\""), SOON).await;
    assert!(
        line.contains("cue logs") && line.contains(&format!("{}/shop", site.namespace)),
        "{line}"
    );
    assert!(line.contains(r#"data="for eu \"in\" gates""#), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_fails_at_its_timeout_without_an_event() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let blocked = json!({ "spec": { "hard": { "pods": "0" } } });
    site.apply("v1 ResourceQuota", "no-pods", blocked).await;
    let mut slow = apply("slow");
    slow["timeout"] = "3s".into();
    site.declare("shop", with_steps(&[web("slow", 1)], &[slow])).await;
    let app = site
        .until(APPLICATION, "shop", "failed", |app| {
            app["status"]["status"] == "workflowFailed"
        })
        .await;
    let step = &app["status"]["workflow"]["steps"][0];
    let end = ["phase", "reason", "message"].map(|field| &step[field]);
    assert_eq!(end, ["failed", "Timeout", "wait healthy"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_that_needs_approval_waits_for_it() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let step = json!({ "name": "release", "type": "deploy", "properties": { "policies": [], "auto": false } });
    site.declare("shop", with_steps(&[config("first", "one")], &[step]))
        .await;
    let app = site
        .until(APPLICATION, "shop", "suspended", |app| {
            app["status"]["workflow"]["suspend"] == true
        })
        .await;
    assert_eq!(app["status"]["status"], "workflowSuspending");
    let step = &app["status"]["workflow"]["steps"][0];
    assert_eq!(step["message"], "Waiting approval to the deploy step \"release\"");
    assert_eq!(site.get(CONFIG_MAP, "first").await, None);

    // As `vela workflow resume` writes it.
    let mut status = app["status"]["workflow"].clone();
    status["suspend"] = false.into();
    status["steps"][0]["phase"] = "running".into();
    site.edit_status(APPLICATION, "shop", json!({ "status": { "workflow": status } }))
        .await;
    site.until_running("shop").await;
    assert!(site.get(CONFIG_MAP, "first").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_reads_secrets_of_its_own_namespace_only() {
    let (site, other) = (Site::new().await, Site::new().await);
    let _portolan = site.portolan(&["--max-workflow-step-error-retry-times=1"]).await;
    for place in [&site, &other] {
        place
            .apply(SECRET, "token", json!({ "stringData": { "key": "hidden" } }))
            .await;
    }
    let read = |namespace: &str| {
        let properties = json!({ "apiVersion": "v1", "kind": "Secret", "name": "token", "namespace": namespace });
        let output = json!({ "name": "token", "valueFrom": "output.$returns.value.data.key" });
        let step = json!({ "name": "read", "type": "read-object", "properties": properties, "outputs": [output] });
        with_steps(&[config("first", "one")], &[step])
    };
    site.declare("own", read(&site.namespace)).await;
    site.until_running("own").await;
    site.declare("foreign", read(&other.namespace)).await;
    site.until_said("foreign", "can't be used with the rights of this controller")
        .await;
    site.until(APPLICATION, "foreign", "failed", |app| {
        app["status"]["status"] == "workflowFailed"
    })
    .await;
    let own = site.get(CONFIG_MAP, "workflow-own-context").await.unwrap();
    assert!(own["data"]["vars"].as_str().unwrap().contains(HIDDEN), "{own:#}");
    let foreign = site.get(CONFIG_MAP, "workflow-foreign-context").await.unwrap();
    assert!(
        !foreign["data"]["vars"].as_str().unwrap().contains(HIDDEN),
        "{foreign:#}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_sees_no_data_of_a_foreign_secret_that_it_only_reads() {
    let (site, other) = (Site::new().await, Site::new().await);
    let _portolan = site.portolan(&["--max-workflow-step-error-retry-times=1"]).await;
    other
        .apply(SECRET, "token", json!({ "stringData": { "key": "hidden" } }))
        .await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "token", "namespace": other.namespace },
    });
    let mut component = objects("token", &[secret]);
    component["outputs"] = json!([{ "name": "token", "valueFrom": "output.data.key" }]);
    let mut spec = with_steps(&[component], &[apply("token")]);
    spec["policies"] = json!([{ "name": "read", "type": "read-only", "properties": super::apps::selecting("Secret") }]);
    site.declare("shop", spec).await;
    site.until_said("shop", "failed to get output from output.data.key")
        .await;
    let values = site.get(CONFIG_MAP, "workflow-shop-context").await.unwrap();
    assert!(!values["data"]["vars"].as_str().unwrap().contains(HIDDEN), "{values:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_neither_read_nor_write_records_of_applications() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--max-workflow-step-error-retry-times=1"]).await;
    site.declare("victim", with_steps(&[config("first", "one")], &[apply("first")]))
        .await;
    site.until_running("victim").await;
    let tracker = format!("victim-v1-{}", site.namespace);
    let step = |type_: &str, properties: Value| {
        let step = json!({ "name": "attack", "type": type_, "properties": properties });
        with_steps(&[config("second", "two")], &[step])
    };
    let group = "core.oam.dev/v1beta1";
    let read = json!({ "apiVersion": group, "kind": "ResourceTracker", "name": tracker });
    let object = json!({ "apiVersion": group, "kind": "ResourceTracker", "metadata": { "name": tracker } });
    site.declare("reads", step("read-object", read)).await;
    site.declare("writes", step("apply-object", json!({ "value": object })))
        .await;
    for name in ["reads", "writes"] {
        site.until_said(name, "is a record of this controller").await;
    }
    let component = objects("tracker", &[object]);
    site.declare("component", with_steps(&[component], &[apply("tracker")]))
        .await;
    site.until_said("component", "is a record of this controller").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_too_deep_fails_its_step_alone() {
    let site = Site::new().await;
    let portolan = site.portolan(&["--max-workflow-step-error-retry-times=1"]).await;
    let key = vec!["a"; 50_000].join(".");
    let deep = json!({
        "name": "deep", "type": "print-message-in-status", "properties": { "message": "text" },
        "inputs": [{ "from": "context.name", "parameterKey": key }],
    });
    site.declare("shop", with_steps(&[config("first", "one")], &[deep]))
        .await;
    site.until(APPLICATION, "shop", "failed", |app| {
        ["workflowFailed", "rendering"].contains(&app["status"]["status"].as_str().unwrap_or_default())
    })
    .await;
    site.declare("other", with_steps(&[config("other", "one")], &[apply("other")]))
        .await;
    site.until_running("other").await;
    crate::applications::assert_no_panic(&portolan);
}
