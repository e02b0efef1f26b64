use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::support::control_plane::{ControlPlane, control_plane};
use crate::support::eventually::eventually;

const SOON: Duration = Duration::from_secs(60);

/// Returns a config map for tests.
pub fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"depth": "12"}})).unwrap()
}

async fn config_maps(client: Client, namespace: &str) -> Vec<String> {
    let found = Api::<ConfigMap>::namespaced(client, namespace)
        .list(&ListParams::default())
        .await
        .unwrap();
    found
        .iter()
        .map(ResourceExt::name_any)
        .filter(|name| name != "kube-root-ca.crt")
        .collect()
}

#[tokio::test]
async fn the_control_plane_reports_its_version() {
    let version = control_plane().await.client().await.apiserver_version().await.unwrap();
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "35"));
    let printed = control_plane().await.kubectl(&["version", "-o", "json"]).await;
    assert!(printed.contains(&version.git_version), "{printed}");
}

#[tokio::test]
async fn concurrent_tests_are_isolated() {
    let control_plane = control_plane().await;
    let (one, other) = (control_plane.namespace().await, control_plane.namespace().await);
    let client = control_plane.client().await;
    Api::namespaced(client.clone(), &one)
        .create(&PostParams::default(), &config_map("mine"))
        .await
        .unwrap();
    assert_eq!(config_maps(client.clone(), &one).await, ["mine"]);
    assert!(config_maps(client, &other).await.is_empty());
}

#[tokio::test]
async fn deleting_a_namespace_deletes_its_objects() {
    let control_plane = control_plane().await;
    let name = control_plane.namespace().await;
    let client = control_plane.client().await;
    Api::namespaced(client.clone(), &name)
        .create(&PostParams::default(), &config_map("mine"))
        .await
        .unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.delete(&name, &DeleteParams::default()).await.unwrap();
    eventually(SOON, "the namespace to be deleted", async || {
        match namespaces.get_opt(&name).await.unwrap() {
            None => Ok(()),
            Some(left) => Err(serde_json::to_string(&left.status).unwrap()),
        }
    })
    .await;
    assert!(config_maps(client, &name).await.is_empty());
}

#[tokio::test]
async fn a_service_account_has_only_its_permissions() {
    let control_plane = control_plane().await;
    let namespace = control_plane.namespace().await;
    let token = control_plane.token_for(&namespace, "sailor").await;
    let maps: Api<ConfigMap> = Api::namespaced(control_plane.client_with(&token).await, &namespace);
    let refused = maps.list(&ListParams::default()).await.unwrap_err().to_string();
    assert!(refused.contains("forbidden"), "{refused}");

    control_plane
        .kubectl(&[
            "-n",
            &namespace,
            "create",
            "role",
            "look",
            "--verb=list",
            "--resource=configmaps",
        ])
        .await;
    let account = format!("--serviceaccount={namespace}:sailor");
    control_plane
        .kubectl(&[
            "-n",
            &namespace,
            "create",
            "rolebinding",
            "look",
            "--role=look",
            &account,
        ])
        .await;
    eventually(SOON, "the permission to be effective", async || {
        maps.list(&ListParams::default()).await
    })
    .await;
}

#[tokio::test]
async fn crds_are_served_after_installation() {
    let control_plane = control_plane().await;
    let crd: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "buoys.harness.portolan.dev"},
        "spec": {
            "group": "harness.portolan.dev",
            "scope": "Namespaced",
            "names": {"kind": "Buoy", "plural": "buoys", "singular": "buoy"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    }))
    .unwrap();
    control_plane.install_crd(&crd).await;
    control_plane.install_crd(&crd).await; // idempotent

    let namespace = control_plane.namespace().await;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("harness.portolan.dev", "v1", "Buoy"));
    let buoys: Api<DynamicObject> = Api::namespaced_with(control_plane.client().await, &namespace, &kind);
    let created = buoys
        .create(&PostParams::default(), &DynamicObject::new("red", &kind))
        .await
        .unwrap();
    assert!(created.uid().is_some());
}

#[tokio::test]
async fn a_restarted_api_server_keeps_its_objects() {
    let control_plane = ControlPlane::start().await;
    let namespace = control_plane.namespace().await;
    let client = control_plane.client().await;
    Api::namespaced(client.clone(), &namespace)
        .create(&PostParams::default(), &config_map("kept"))
        .await
        .unwrap();
    control_plane.stop_api_server();
    assert!(client.apiserver_version().await.is_err());
    control_plane.start_api_server().await;
    assert_eq!(config_maps(client, &namespace).await, ["kept"]);
}
