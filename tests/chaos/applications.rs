//! Applications (app.k8s.io): a component becomes ready, another one is removed, owners are released, and an Application
//! with its component is deleted.

use serde_json::{Value, json};

use super::environment::Environment;

pub const KIND: &str = "app.k8s.io/v1beta1 Application";
pub const CONFIG_MAP: &str = "v1 ConfigMap";
const POD: &str = "v1 Pod";
pub const KINDS: [&str; 3] = [KIND, CONFIG_MAP, POD];

pub fn arguments() -> Vec<String> {
    ["--controllers=application", "--application-kinds=*", "--sync-period=5"]
        .map(str::to_owned)
        .to_vec()
}

pub async fn drive(environment: &Environment) {
    let labels = json!({ "app": "shop" });
    environment.apply(CONFIG_MAP, "settings", labeled(&labels)).await;
    environment.apply(CONFIG_MAP, "extra", labeled(&labels)).await;
    environment.apply(POD, "web", pod(&labels)).await;
    environment.apply(KIND, "shop", spec(&labels, true)).await;
    until_components(environment, "shop", "2/3").await;
    until_owned(environment, CONFIG_MAP, "settings", &["shop"]).await;
    until_owned(environment, POD, "web", &["shop"]).await;

    let condition = json!({ "type": "Ready", "status": "True" });
    let status = json!({ "phase": "Running", "conditions": [condition] });
    environment.edit_status(POD, "web", status).await;
    until_components(environment, "shop", "3/3").await;
    environment.delete(CONFIG_MAP, "extra").await;
    until_components(environment, "shop", "2/2").await;

    environment.apply(KIND, "shop", spec(&labels, false)).await;
    until_owned(environment, CONFIG_MAP, "settings", &[]).await;
    until_owned(environment, POD, "web", &[]).await;

    let labels = json!({ "app": "brief" });
    environment.apply(CONFIG_MAP, "brief", labeled(&labels)).await;
    environment.apply(KIND, "brief", spec(&labels, true)).await;
    until_components(environment, "brief", "1/1").await;
    until_owned(environment, CONFIG_MAP, "brief", &["brief"]).await;
    // In the background, components stay if no process observes the beginning of the deletion (docs/reference/applications.md).
    environment.delete_in_foreground(KIND, "brief").await;
    environment.until_gone(KIND, "brief").await;
    environment.until_gone(CONFIG_MAP, "brief").await;
    environment.until(KIND, "shop", "released", is_released).await;
}

/// Returns true once nothing is adopted for a while.
pub fn is_released(object: &Value) -> bool {
    object["metadata"]["finalizers"].is_null()
}

pub fn labeled(labels: &Value) -> Value {
    json!({ "metadata": { "labels": labels } })
}

fn pod(labels: &Value) -> Value {
    let container = json!({ "name": "web", "image": "example.com/web" });
    // The volume of a token has a random name.
    let spec = json!({ "containers": [container], "automountServiceAccountToken": false });
    json!({ "metadata": { "labels": labels }, "spec": spec })
}

fn spec(labels: &Value, adopts: bool) -> Value {
    let kinds = json!([{ "group": "", "kind": "ConfigMap" }, { "group": "", "kind": "Pod" }]);
    json!({ "spec": { "componentKinds": kinds, "selector": { "matchLabels": labels }, "addOwnerRef": adopts } })
}

async fn until_components(environment: &Environment, name: &str, ready: &str) {
    environment
        .until(KIND, name, &format!("{ready} components ready"), |object| {
            let status = &object["status"];
            status["observedGeneration"] == object["metadata"]["generation"] && status["componentsReady"] == ready
        })
        .await;
}

async fn until_owned(environment: &Environment, kind: &str, name: &str, owners: &[&str]) {
    environment
        .until(kind, name, &format!("owned by {owners:?}"), |object| {
            let references = object["metadata"]["ownerReferences"].as_array();
            let names = references.into_iter().flatten().map(|owner| owner["name"].as_str());
            names.eq(owners.iter().map(|owner| Some(*owner)))
        })
        .await;
}
