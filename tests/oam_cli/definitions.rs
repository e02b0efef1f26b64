use kube::Api;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use portolan::api::oam::ComponentDefinition;
use serde_json::json;

use super::{Site, words};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_starter_set_is_installed_once_and_never_over_the_definitions_of_others() {
    let site = Site::new().await;
    let definitions: Api<ComponentDefinition> = Api::namespaced(site.client.clone(), &site.namespace);
    let foreign = json!({
        "apiVersion": "core.oam.dev/v1beta1", "kind": "ComponentDefinition", "metadata": { "name": "worker" },
        "spec": { "workload": { "type": "own" }, "schematic": { "cue": { "template": "output: {}" } } },
    });
    let kubectl = PatchParams::apply("kubectl").force();
    definitions
        .patch("worker", &kubectl, &Patch::Apply(&foreign))
        .await
        .unwrap();

    let apply = ["vela", "definitions", "apply", "-n", &site.namespace];
    let text = site.run(&apply).await.ok();
    let namespace = &site.namespace;
    assert!(
        text.contains(&format!("ComponentDefinition {namespace}/webservice: created\n")),
        "{text}"
    );
    assert!(
        text.contains(&format!("PolicyDefinition {namespace}/topology: created\n")),
        "{text}"
    );
    let left = format!("ComponentDefinition {namespace}/worker: left unchanged: managed by kubectl\n");
    assert!(text.contains(&left), "{text}");
    assert_eq!(definitions.get("worker").await.unwrap().spec.workload.type_, "own");

    let version = definitions.get("webservice").await.unwrap().resource_version();
    let text = site.run(&apply).await.ok();
    assert!(
        text.contains("/webservice: unchanged\n") && !text.contains(": created"),
        "{text}"
    );
    assert_eq!(definitions.get("webservice").await.unwrap().resource_version(), version);

    let text = site.run(&[&apply[..], &["--force"]].concat()).await.ok();
    assert!(text.contains("/worker: changed\n"), "{text}");
    assert_ne!(definitions.get("worker").await.unwrap().spec.workload.type_, "own");

    let table = site
        .run(&["vela", "definitions", "list", "-n", &site.namespace])
        .await
        .ok();
    let row = table
        .lines()
        .map(words)
        .find(|row| row.get(2) == Some(&"scaler"))
        .unwrap();
    assert_eq!(row[..4], [namespace.as_str(), "TraitDefinition", "scaler", "-"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_namespace_is_named_with_the_command_that_creates_it() {
    let site = Site::new().await;
    let error = site
        .run(&["vela", "definitions", "apply", "-n", "nowhere-to-be-found"])
        .await
        .failed(1);
    assert!(
        error.contains("`kubectl create namespace nowhere-to-be-found`"),
        "{error}"
    );
}
