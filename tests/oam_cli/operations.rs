use std::collections::BTreeMap;
use std::process::Stdio;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use portolan::api::oam::compression::Format;
use portolan::api::oam::{Application, ApplicationRevision, ResourceTracker, WorkflowStatus};
use portolan::controllers::oam::trackers::encode;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{Site, application, assert_line, words, worker};
use crate::support::portolan::command;

/// Returns a status with a running workflow of these steps.
fn running(steps: Value) -> Value {
    json!({
        "observedGeneration": 1, "status": "runningWorkflow",
        "workflow": { "mode": "StepByStep-DAG", "appRevision": "shop-v1", "status": "executing", "suspend": false,
            "terminated": false, "finished": false, "steps": steps },
    })
}

fn step(name: &str, phase: &str) -> Value {
    json!({ "id": format!("id-{name}"), "name": name, "type": "apply-object", "phase": phase })
}

/// A workflow with steps, which the tests don't run.
fn with_steps(steps: Value) -> Value {
    let mut spec = worker("nginx:1");
    spec["workflow"] = json!({ "steps": steps });
    spec
}

impl Site {
    async fn workflow(&self, name: &str) -> WorkflowStatus {
        self.application(name).await.status.unwrap().workflow.unwrap()
    }

    fn value_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn revisions(&self) -> Api<ApplicationRevision> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates the ConfigMap with the values of a workflow, and names it in the status.
    async fn create_context(&self, application: &Application, data: Value) {
        let name = application.metadata.name.as_deref().unwrap();
        let map_name = format!("workflow-{name}-context");
        let map = json!({
            "metadata": { "name": map_name, "ownerReferences": [{
                "apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "name": name,
                "uid": application.metadata.uid, "controller": true,
            }] },
            "data": data,
        });
        let map = serde_json::from_value(map).unwrap();
        self.value_maps().create(&PostParams::default(), &map).await.unwrap();
        self.patch_workflow(
            name,
            json!({ "contextBackend": { "kind": "ConfigMap", "name": map_name } }),
        )
        .await;
    }

    async fn patch_workflow(&self, name: &str, change: Value) {
        self.set_status(name, json!({ "workflow": change })).await;
    }

    async fn values(&self, name: &str) -> BTreeMap<String, String> {
        let map = self.value_maps().get(&format!("workflow-{name}-context")).await;
        map.unwrap().data.unwrap_or_default()
    }
}

fn phases(workflow: &WorkflowStatus) -> Vec<(&str, &str)> {
    let steps = workflow.steps.iter();
    steps.map(|step| (step.name.as_str(), step.phase.as_str())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_is_suspended_resumed_terminated_and_restarted() {
    let site = Site::new().await;
    site.create_application("shop", worker("nginx:1")).await;
    let error = site.vela(&["suspend", "shop"]).await.failed(1);
    assert!(
        error.contains("/shop: workflow is not running: it has not started"),
        "{error}"
    );
    site.set_status("shop", running(json!([step("a", "succeeded"), step("b", "running")])))
        .await;

    let text = site.vela(&["suspend", "shop"]).await.ok();
    assert!(text.ends_with("/shop: workflow suspended\n"), "{text}");
    let workflow = site.workflow("shop").await;
    assert!(workflow.suspend);
    assert_eq!(phases(&workflow), [("a", "succeeded"), ("b", "suspending")]);
    let text = site.vela(&["suspend", "shop"]).await.ok();
    assert!(text.contains("already suspended"), "{text}");
    let text = site.vela(&["status", "shop"]).await.ok();
    assert_line(&text, "b apply-object suspending - - -");
    assert!(
        text.contains(&format!("`portolan vela resume shop -n {}`", site.namespace)),
        "{text}"
    );

    let error = site.vela(&["resume", "shop", "--step", "a"]).await.failed(1);
    assert!(error.contains("step a is succeeded, not suspending"), "{error}");
    site.vela(&["resume", "shop", "--step", "b"]).await.ok();
    let workflow = site.workflow("shop").await;
    assert!(!workflow.suspend);
    assert_eq!(phases(&workflow), [("a", "succeeded"), ("b", "running")]);

    site.vela(&["terminate", "shop"]).await.ok();
    let workflow = site.workflow("shop").await;
    assert!(workflow.terminated);
    assert_eq!(
        (workflow.steps[1].phase.as_str(), workflow.steps[1].reason.as_str()),
        ("failed", "Terminate")
    );
    let error = site.vela(&["resume", "shop"]).await.failed(1);
    assert!(error.contains("workflow is terminated"), "{error}");

    site.vela(&["restart", "shop"]).await.ok();
    let status = site.application("shop").await.status.unwrap();
    assert_eq!(status.workflow, None);
    assert_eq!(status.phase, "runningWorkflow");
    let error = site.vela(&["restart", "nobody"]).await.failed(1);
    assert!(error.contains("/nobody not found"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_keeps_what_the_controller_writes_at_the_same_time() {
    let site = Site::new().await;
    site.create_application("shop", worker("nginx:1")).await;
    site.set_status("shop", running(json!([step("a", "running")]))).await;
    let controller = async {
        for count in 0..40 {
            let service = json!([{ "name": "web", "healthy": false, "message": format!("Ready:{count}") }]);
            site.set_status("shop", json!({ "services": service })).await;
        }
    };
    let (output, ()) = tokio::join!(site.vela(&["suspend", "shop"]), controller);
    output.ok();
    let status = site.application("shop").await.status.unwrap();
    assert_eq!(status.services[0].message, "Ready:39");
    let workflow = status.workflow.unwrap();
    assert!(workflow.suspend);
    assert_eq!(phases(&workflow), [("a", "suspending")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_restarts_from_a_failed_step_without_its_values() {
    let site = Site::new().await;
    let named = |name: &str, output: &str| json!({ "name": name, "type": "apply-object", "outputs": [{ "name": output, "valueFrom": "output.x" }] });
    // The spec has changed since; what runs is in the revision.
    let app = site.create_application("shop", worker("nginx:1")).await;
    let spec = with_steps(json!([named("a", "of-a"), named("b", "of-b"), named("c", "of-c")]));
    let recorded = json!({ "application": application("shop", spec) });
    site.create_revision("shop-v1", "shop", None, recorded).await;
    let mut status = running(json!([
        step("a", "succeeded"),
        step("b", "failed"),
        step("c", "skipped")
    ]));
    status["latestRevision"] = json!({ "name": "shop-v1", "revision": 1 });
    status["workflow"]["terminated"] = json!(true);
    status["workflow"]["finished"] = json!(true);
    status["workflow"]["endTime"] = json!("2026-01-02T03:04:05Z");
    site.set_status("shop", status).await;
    let vars = "\"of-a\": 1\n\"of-b\": null\n\"of-c\": null\n";
    site.create_context(&app, json!({ "vars": vars, "logConfig": "{}" }))
        .await;

    let error = site.vela(&["restart", "shop", "--step", "c"]).await.failed(1);
    assert!(error.contains("step c is skipped, not failed"), "{error}");
    let error = site.vela(&["restart", "shop", "--step", "web"]).await.failed(1);
    assert!(error.contains("step web not found; the steps are: a, b, c"), "{error}");
    assert_eq!(site.values("shop").await["vars"], vars);

    let text = site.vela(&["restart", "shop", "--step", "b"]).await.ok();
    assert!(text.ends_with("these steps run again: b, c\n"), "{text}");
    let workflow = site.workflow("shop").await;
    assert_eq!(phases(&workflow), [("a", "succeeded")]);
    assert!(!workflow.terminated && !workflow.finished);
    assert_eq!(workflow.end_time, None);
    assert!(workflow.context_backend.is_some());
    let values = site.values("shop").await;
    assert_eq!(
        (values["vars"].as_str(), values["logConfig"].as_str()),
        ("\"of-a\": 1\n", "{}")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_another_owner_are_left() {
    let site = Site::new().await;
    let spec =
        with_steps(json!([{ "name": "a", "type": "apply-object", "outputs": [{ "name": "x", "valueFrom": "y" }] }]));
    site.create_application("shop", spec).await;
    let other = site.create_application("other", worker("nginx:1")).await;
    site.set_status("other", running(json!([]))).await;
    site.create_context(&other, json!({ "vars": "x: 1\n" })).await;
    site.set_status("shop", running(json!([step("a", "failed")]))).await;
    site.patch_workflow(
        "shop",
        json!({ "contextBackend": { "name": "workflow-other-context" } }),
    )
    .await;
    site.vela(&["restart", "shop", "--step", "a"]).await.ok();
    assert_eq!(site.values("other").await["vars"], "x: 1\n");
    site.patch_workflow("shop", json!({ "contextBackend": { "name": "../secrets/x" } }))
        .await;
    let error = site.vela(&["logs", "shop"]).await.failed(1);
    assert!(error.contains("no step has logs"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollback_deploys_the_spec_of_the_last_success() {
    let site = Site::new().await;
    site.create_application("shop", worker("nginx:2")).await;
    for (revision, image) in [("shop-v1", "nginx:1"), ("shop-v2", "nginx:2")] {
        let recorded = json!({ "application": application("shop", worker(image)) });
        site.create_revision(revision, "shop", None, recorded).await;
    }
    let mut status = running(json!([step("web", "running")]));
    status["latestRevision"] = json!({ "name": "shop-v2", "revision": 2 });
    site.set_status("shop", status).await;
    let error = site.vela(&["rollback", "shop", "--yes"]).await.failed(1);
    assert!(
        error.contains("workflow is running; suspend or terminate it first"),
        "{error}"
    );
    site.patch_workflow("shop", json!({ "terminated": true, "finished": true }))
        .await;
    let error = site.vela(&["rollback", "shop", "--yes"]).await.failed(1);
    assert!(error.contains("no revision has succeeded"), "{error}");
    let succeeded = Patch::Merge(json!({ "status": { "succeeded": true } }));
    let parameters = PatchParams::default();
    site.revisions()
        .patch_status("shop-v1", &parameters, &succeeded)
        .await
        .unwrap();

    let text = site.vela(&["rollback", "shop"]).await.ok();
    assert!(
        text.contains("/shop: revision shop-v1 becomes current\nadd --yes"),
        "{text}"
    );
    let image = async || {
        site.application("shop").await.spec.components[0]
            .properties
            .clone()
            .unwrap()["image"]
            .clone()
    };
    assert_eq!(image().await, "nginx:2");
    site.vela(&["rollback", "shop", "--yes"]).await.ok();
    assert_eq!(image().await, "nginx:1");
    assert!(site.revisions().get_opt("shop-v2").await.unwrap().is_some());

    let latest = json!({ "latestRevision": { "name": "shop-v1", "revision": 1 } });
    site.set_status("shop", latest).await;
    let text = site.vela(&["rollback", "shop", "--yes"]).await.ok();
    assert!(text.contains("revision shop-v1 is deployed already"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_published_version_becomes_current_again() {
    let site = Site::new().await;
    let app = site.create_application("shop", worker("nginx:2")).await;
    let uid = app.metadata.uid.clone().unwrap();
    let annotations = json!({ "app.oam.dev/publishVersion": "two", "app.oam.dev/controller-version-require": "v9" });
    let annotated = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    let parameters = PatchParams::default();
    site.applications()
        .patch("shop", &parameters, &annotated)
        .await
        .unwrap();
    for (revision, version, image) in [("shop-v1", "one", "nginx:1"), ("shop-v2", "two", "nginx:2")] {
        let recorded = json!({ "application": application("shop", worker(image)) });
        site.create_revision(revision, "shop", Some(version), recorded).await;
    }
    let run = json!({ "appRevision": "one", "mode": "DAG-DAG", "status": "succeeded", "suspend": false,
        "terminated": false, "finished": true, "steps": [step("web", "succeeded")] });
    let succeeded = Patch::Merge(json!({ "status": { "succeeded": true, "workflow": run } }));
    site.revisions()
        .patch_status("shop-v1", &parameters, &succeeded)
        .await
        .unwrap();
    let mut status = running(json!([step("web", "failed")]));
    status["workflow"]["finished"] = json!(true);
    status["services"] = json!([{ "name": "web", "healthy": false }]);
    site.set_status("shop", status).await;

    let error = site.vela(&["rollback", "shop"]).await.failed(1);
    assert!(error.contains("revision shop-v1 has no ResourceTracker"), "{error}");
    let manifest = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c" } });
    let objects = encode(vec![site.entry(&manifest)], Some(Format::Zstd)).unwrap();
    let tracker = site.create_tracker("shop", &uid, 1, objects).await;
    let labeled = Patch::Merge(json!({ "metadata": { "labels": { "app.oam.dev/appRevision": "shop-v1" } } }));
    site.trackers().patch(&tracker, &parameters, &labeled).await.unwrap();

    let text = site.vela(&["rollback", "shop"]).await.ok();
    assert!(
        text.contains("revision shop-v1, version one becomes current\n"),
        "{text}"
    );
    assert!(text.contains("revision shop-v2 is deleted\nadd --yes"), "{text}");
    assert_eq!(site.workflow("shop").await.app_revision, "shop-v1");

    site.vela(&["rollback", "shop", "--yes"]).await.ok();
    let app = site.application("shop").await;
    let annotations = app.metadata.annotations.unwrap();
    assert_eq!(annotations["app.oam.dev/publishVersion"], "one");
    assert_eq!(annotations["app.oam.dev/controller-version-require"], "v9");
    assert_eq!(app.spec.components[0].properties.as_ref().unwrap()["image"], "nginx:1");
    let status = app.status.unwrap();
    assert_eq!(status.workflow.as_ref().unwrap().app_revision, "one");
    assert_eq!(status.latest_revision.as_ref().unwrap().name, "shop-v1");
    assert_eq!(
        (status.services.len(), status.applied_resources[0].kind.as_str()),
        (0, "ConfigMap")
    );
    let tracker: ResourceTracker = site.trackers().get(&tracker).await.unwrap();
    assert_eq!(Some(tracker.spec.application_generation), app.metadata.generation);
    assert_eq!(tracker.spec.compression.type_, "zstd");
    assert!(site.revisions().get_opt("shop-v2").await.unwrap().is_none());

    // As after a command that was killed.
    let annotations = json!({
        "app.oam.dev/controller-version-require": "Disabled", "portolan.dev/version-before-rollback": "\"v9\"",
    });
    let frozen = json!({ "metadata": { "annotations": annotations } });
    site.applications()
        .patch("shop", &parameters, &Patch::Merge(frozen))
        .await
        .unwrap();
    site.vela(&["rollback", "shop", "--yes"]).await.ok();
    let annotations = site.application("shop").await.metadata.annotations.unwrap();
    assert_eq!(annotations["app.oam.dev/controller-version-require"], "v9");
    assert!(!annotations.contains_key("portolan.dev/version-before-rollback"));
    let text = site.vela(&["rollback", "shop", "--yes"]).await.ok();
    assert!(text.contains("revision shop-v1 is deployed already"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_a_status_are_printed_until_the_application_is_deleted() {
    let site = Site::new().await;
    site.create_application("shop", worker("nginx:1")).await;
    site.set_status("shop", running(json!([step("a", "running")]))).await;
    let error = site.vela(&["status", "shop", "--watch", "-o", "json"]).await.failed(2);
    assert!(error.contains("--watch"), "{error}");
    let output = site.vela(&["status", "shop", "--watch", "--timeout", "1s"]).await.ok();
    assert_line(&output, "a apply-object running - - -");

    let kubeconfig = site.control_plane.kubeconfig();
    let watch = [
        "vela",
        "status",
        "shop",
        "-n",
        &site.namespace,
        "--watch",
        "--timeout",
        "60s",
    ];
    let cluster = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    let mut process = tokio::process::Command::from(command([&watch[..], &cluster].concat()))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut output = String::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        if words(&line).starts_with(&["a", "apply-object", "running"]) {
            let steps = json!({ "steps": [step("a", "succeeded"), step("b\u{1b}[2J", "running")] });
            site.patch_workflow("shop", steps).await;
            site.set_status("shop", json!({ "status": "running" })).await;
        }
        if line.ends_with("/shop: phase: running") {
            site.applications()
                .delete("shop", &DeleteParams::default())
                .await
                .unwrap();
        }
        output += &(line + "\n");
    }
    assert!(process.wait().await.unwrap().success(), "{output}");
    let changes: Vec<_> = output
        .lines()
        .filter_map(|line| Some(line.split_once(&format!("Z {}/shop: ", site.namespace))?.1))
        .collect();
    assert_eq!(changes.last(), Some(&"deleted"), "{output}");
    for expected in ["step a: succeeded", "step b [2J: running", "phase: running"] {
        assert_eq!(
            changes.iter().filter(|change| **change == expected).count(),
            1,
            "{output}"
        );
    }
    assert!(!changes.contains(&"step a: running"), "{output}");
}
