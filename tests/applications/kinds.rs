//! Built-in kinds with their real controllers, from creation to Ready and back.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{SOON, Site, assert_error, assert_ready, components, deployment, shop};
use crate::support::eventually::eventually;

/// Pod status as a kubelet reports it for a running, a failing and a completed pod.
fn pod_status(phase: &str) -> Value {
    let is_ready = if phase == "Running" { "True" } else { "False" };
    let now = "2026-01-01T00:00:00Z";
    json!({ "phase": phase, "startTime": now, "conditions": [
        { "type": "Ready", "status": is_ready, "lastTransitionTime": now },
        { "type": "ContainersReady", "status": is_ready, "lastTransitionTime": now }
    ] })
}

/// Acts as kubelet: waits for `pods` pods with a label and sets their status.
pub async fn play_kubelet(site: &Site<'_>, label: &str, pods: usize, phase: &str) {
    let api: Api<Pod> = Api::namespaced(site.client.clone(), &site.namespace);
    eventually(SOON, &format!("{pods} pods of {label}"), async || {
        let list = api
            .list(&ListParams::default().labels(label))
            .await
            .map_err(|error| error.to_string())?;
        let there: Vec<_> = list
            .items
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            .collect();
        if there.len() != pods {
            return Err(format!("{}", there.len()));
        }
        for pod in there {
            let patch = Patch::Strategic(json!({ "status": pod_status(phase) }));
            let name = pod.metadata.name.as_deref().unwrap();
            api.patch_status(name, &PatchParams::default(), &patch)
                .await
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_is_ready_with_its_pods_but_not_during_a_rollout() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let labels = json!({ "app": "shop" });
    site.declare("shop", shop(&[("apps", "Deployment")], false)).await;
    site.apply("apps/v1 Deployment", "web", deployment(&labels)).await;
    let application = site.until_components("shop", "0/1").await;
    assert_ready(
        &application,
        ("False", "ComponentsNotReady", "1 components not ready: Deployment/web"),
    );
    play_kubelet(&site, "pod=web", 2, "Running").await;
    let application = site.until_components("shop", "1/1").await;
    assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
    // With a new template, old pods still run and the rollout is incomplete.
    let mut rolled = deployment(&labels);
    rolled["spec"]["template"]["spec"]["containers"][0]["image"] = "example.com/web:2".into();
    site.apply("apps/v1 Deployment", "web", rolled).await;
    site.until_components("shop", "0/1").await;
    site.delete("apps/v1 Deployment", "web").await;
    site.until_components("shop", "0/0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_balancer_is_ready_with_an_ip_or_a_hostname() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    site.declare("shop", shop(&[("", "Service")], false)).await;
    let service = json!({ "metadata": { "labels": { "app": "shop" } }, "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } });
    for name in ["by-ip", "by-name"] {
        site.apply("v1 Service", name, service.clone()).await;
    }
    let application = site.until_components("shop", "0/2").await;
    assert_eq!(
        components(&application),
        ["Service/by-ip InProgress", "Service/by-name InProgress"]
    );
    let ingress = |ingress: Value| json!({ "loadBalancer": { "ingress": ingress } });
    site.status("v1 Service", "by-ip", ingress(json!([{ "ip": "192.0.2.1" }])))
        .await;
    let application = site.until_components("shop", "1/2").await;
    assert_eq!(
        components(&application),
        ["Service/by-ip Ready", "Service/by-name InProgress"]
    );
    site.status(
        "v1 Service",
        "by-name",
        ingress(json!([{ "hostname": "lb.example.com" }])),
    )
    .await;
    let application = site.until_components("shop", "2/2").await;
    assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
    site.status("v1 Service", "by-name", ingress(Value::Null)).await;
    site.until_components("shop", "1/2").await;
    site.edit("v1 Service", "by-name", json!({ "spec": { "type": "ClusterIP" } }))
        .await;
    site.until_components("shop", "2/2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_ready_when_complete_and_reports_a_failure() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    site.declare("shop", shop(&[("batch", "Job")], false)).await;
    let job = json!({
        "metadata": { "labels": { "app": "shop" } },
        "spec": { "backoffLimit": 0, "template": {
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "job", "image": "example.com/job" }] }
        } }
    });
    for name in ["fails", "succeeds"] {
        site.apply("batch/v1 Job", name, job.clone()).await;
    }
    let application = site.until_components("shop", "0/2").await;
    assert_ready(
        &application,
        (
            "False",
            "ComponentsNotReady",
            "2 components not ready: Job/fails, Job/succeeds",
        ),
    );
    play_kubelet(&site, "job-name=succeeds", 1, "Succeeded").await;
    let application = site.until_components("shop", "1/2").await;
    assert_eq!(components(&application), ["Job/fails InProgress", "Job/succeeds Ready"]);
    play_kubelet(&site, "job-name=fails", 1, "Failed").await;
    let application = site
        .until("shop", "the failure to be reported", |application| {
            super::condition(application, "Ready")
                .2
                .contains("Job/fails (failed: BackoffLimitExceeded")
        })
        .await;
    assert_eq!(super::condition(&application, "Ready").0, "False");
    assert_error(&application, ("False", "NoError"), "");
    site.delete("batch/v1 Job", "fails").await;
    site.until_components("shop", "1/1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn custom_resources_and_applications_are_evaluated_by_their_conditions() {
    let site = Site::new().await;
    let kind = site.define("Widget", "Namespaced").await;
    let _portolan = site.portolan(&[]).await;
    let group = site.group();
    site.declare("shop", shop(&[(&group, "Widget")], false)).await;
    // An Application of Applications.
    let above = json!({ "componentKinds": [{ "group": "app.k8s.io", "kind": "Application" }], "selector": {} });
    site.declare("above", above).await;
    let widget = |status: Value| json!({ "metadata": { "labels": { "app": "shop" } }, "status": status });
    let ready =
        |status: &str| widget(json!({ "conditions": [{ "type": "Ready", "status": status, "reason": "Because" }] }));
    site.apply(&kind, "one", widget(Value::Null)).await;
    site.until_components("shop", "1/1").await;
    site.until_components("above", "2/2").await;
    site.apply(&kind, "one", ready("False")).await;
    let application = site.until_components("shop", "0/1").await;
    assert_ready(
        &application,
        ("False", "ComponentsNotReady", "1 components not ready: Widget/one"),
    );
    let application = site.until_components("above", "1/2").await;
    assert_eq!(
        components(&application),
        ["Application/above Ready", "Application/shop InProgress"]
    );
    site.apply(&kind, "one", ready("True")).await;
    site.until_components("shop", "1/1").await;
    site.until_components("above", "2/2").await;
    site.undefine(&kind).await;
}
