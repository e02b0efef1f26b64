//! Objects for KubeVela's tools in a release with `oam.velaCompat`.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use portolan::budget::ResourceMetrics;
use portolan::cue::{Evaluator, EvaluatorOptions};
use rstest::rstest;
use serde_json::{Value, json};

use super::release::{install_in, restricted_namespace};
use super::values::rendered;
use super::{chart, helm_output};
use crate::support::control_plane::control_plane;
use crate::support::cue::executable;

const ENABLED: &str = "--set=oam.enabled=true,oam.velaCompat=true,image.tag=v1.11.0";
const REGISTRY: &str = "vela-addon-registry";

/// Returns the data of the ConfigMaps that the chart renders, by name.
async fn config_maps(settings: &[&str]) -> BTreeMap<String, Value> {
    let mut config_maps = BTreeMap::new();
    for mut config_map in rendered("ConfigMap", settings).await {
        let name = config_map["metadata"]["name"].as_str().unwrap().to_owned();
        config_maps.insert(name, config_map["data"].take());
    }
    config_maps
}

#[tokio::test]
async fn kubevelas_tools_find_the_deployment_only_with_vela_compat() {
    let deployment = async |settings: &str| {
        let deployment = rendered("Deployment", &[settings]).await.remove(0);
        let label = deployment["metadata"]["labels"]["controller.oam.dev/name"].clone();
        let container = deployment["spec"]["template"]["spec"]["containers"][0]["name"].clone();
        (label, container)
    };
    assert_eq!(
        deployment("--set=oam.enabled=true").await,
        (Value::Null, json!("portolan"))
    );
    assert_eq!(
        deployment("--set=oam.velaCompat=true").await,
        (Value::Null, json!("portolan"))
    );
    assert_eq!(deployment(ENABLED).await, (json!("vela-core"), json!("kubevela")));
}

#[tokio::test]
async fn views_and_the_registry_of_addons_are_in_the_namespace_of_the_definitions() {
    assert_eq!(config_maps(&["--set=oam.enabled=true"]).await, BTreeMap::new());
    let moved = rendered("ConfigMap", &[ENABLED, "--set=oam.definitions.namespace=vela"]).await;
    assert!(moved.iter().all(|map| map["metadata"]["namespace"] == "vela"));
    let config_maps = config_maps(&[ENABLED]).await;
    let names: Vec<&str> = config_maps.keys().map(String::as_str).collect();
    let expected = [
        "application-resource-tree-view",
        "application-revision-view",
        "component-pod-view",
        "component-service-view",
        "service-applied-resources-view",
        "service-endpoints-view",
        REGISTRY,
    ];
    assert_eq!(names, expected);
    let registries = config_maps[REGISTRY]["registries"].as_str().unwrap();
    let registries: Value = serde_json::from_str(registries).unwrap();
    assert_eq!(registries["KubeVela"]["name"], "KubeVela");
    assert!(registries["KubeVela"]["helm"]["url"].is_string(), "{registries}");
}

/// Evaluates a view with these parameters. The function that it calls has the members of `result`.
async fn evaluate(view: &str, parameters: &Value, result: &Value) -> Value {
    let config_maps = config_maps(&[ENABLED]).await;
    let template = config_maps[view]["template"].as_str().unwrap();
    let (import, body) = template.split_once('\n').unwrap();
    let package = import.trim_start_matches("import \"vela/").trim_end_matches('"');
    let function = body.split_once(&format!("found: {package}.#")).unwrap().1;
    let function = function.split_once(' ').unwrap().0;
    let options = EvaluatorOptions {
        program: Some(executable()),
        workers: NonZeroUsize::MIN,
        // Far more than any evaluation takes on a busy machine.
        timeout: Duration::from_secs(120),
        ..EvaluatorOptions::default()
    };
    let members = result.as_object().unwrap().iter();
    let members: String = members.map(|(name, value)| format!("{name}: {value}, ")).collect();
    let source = format!("{body}\nparameter: {parameters}\n{package}: #{function}: {{{members}...}}\n");
    let evaluator = Evaluator::new(options, ResourceMetrics::unregistered());
    evaluator.evaluate("default", source).await.unwrap()
}

#[tokio::test]
async fn the_view_of_pods_shows_scheduled_and_waiting_ones() {
    let pod = |name: &str, spec: Value, status: Value| {
        json!({
            "cluster": "local", "component": "web", "workload": { "kind": "Deployment" }, "publishVersion": "v1",
            "object": {
                "metadata": { "name": name, "namespace": "team", "creationTimestamp": "2026-01-02T03:04:05Z" },
                "spec": spec, "status": status,
            },
        })
    };
    let running = json!({ "phase": "Running", "podIP": "10.0.0.1", "hostIP": "10.1.0.1" });
    let pods = [
        pod("web-1", json!({ "nodeName": "n" }), running),
        pod("web-2", json!({}), json!({ "phase": "Pending" })),
        json!({ "cluster": "local" }),
    ];
    let parameters = json!({ "appName": "shop", "appNs": "team", "name": "web", "cluster": "local" });
    let view = evaluate("component-pod-view", &parameters, &json!({ "list": pods })).await;
    let shown = |name: &str, status: Value| {
        json!({
            "cluster": "local", "component": "web", "workload": { "kind": "Deployment" }, "status": status,
            "metadata": {
                "name": name, "namespace": "team", "creationTime": "2026-01-02T03:04:05Z",
                "version": { "publishVersion": "v1" },
            },
        })
    };
    let running = json!({ "phase": "Running", "podIP": "10.0.0.1", "hostIP": "10.1.0.1", "nodeName": "n" });
    let expected = [shown("web-1", running), shown("web-2", json!({ "phase": "Pending" }))];
    assert_eq!(view["status"], json!({ "podList": expected }));
    let app = json!({
        "name": "shop", "namespace": "team", "filter": { "components": ["web"], "cluster": "local" },
    });
    assert_eq!(view["found"]["app"], app);
}

#[rstest]
#[case::pods("component-pod-view", "ql.#CollectPods", None)]
#[case::services("component-service-view", "ql.#CollectServices", Some("services"))]
#[case::endpoints("service-endpoints-view", "ql.#CollectServiceEndpoints", Some("endpoints"))]
#[case::applied("service-applied-resources-view", "ql.#ListAppliedResources", Some("resources"))]
#[case::tree("application-resource-tree-view", "ql.#GetApplicationTree", Some("resources"))]
#[tokio::test]
async fn views_show_what_was_found_or_the_error(#[case] view: &str, #[case] call: &str, #[case] field: Option<&str>) {
    let config_maps = config_maps(&[ENABLED]).await;
    let template = config_maps[view]["template"].as_str().unwrap();
    assert!(template.contains(&format!("found: {call} & ")), "{template}");
    let parameters = json!({ "appName": "shop", "appNs": "team" });
    let failed = evaluate(view, &parameters, &json!({ "err": "denied" })).await;
    assert_eq!(failed["status"], json!({ "error": "denied" }));
    if let Some(field) = field {
        let items = json!([{ "name": "a" }]);
        let found = evaluate(view, &parameters, &json!({ "list": items })).await;
        assert_eq!(found["status"], json!({ field: items }));
        assert_eq!(
            found["found"]["app"],
            json!({ "name": "shop", "namespace": "team", "filter": {} })
        );
    }
}

#[tokio::test]
async fn the_view_of_a_revision_shows_the_object() {
    let view = evaluate("application-revision-view", &json!({ "name": "shop-v1" }), &json!({})).await;
    let metadata = json!({ "name": "shop-v1", "namespace": "default" });
    let expected = json!({ "apiVersion": "core.oam.dev/v1beta1", "kind": "ApplicationRevision", "metadata": metadata });
    assert_eq!(view["status"], expected);
}

#[tokio::test]
async fn config_maps_of_others_stay_as_they_are_and_those_of_the_release_survive_an_upgrade() {
    let namespace = restricted_namespace().await;
    let client = control_plane().await.client().await;
    let config_maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let registries = json!({ "metadata": { "name": REGISTRY }, "data": { "registries": "{}" } });
    let registries: ConfigMap = serde_json::from_value(registries).unwrap();
    config_maps.create(&PostParams::default(), &registries).await.unwrap();
    let definitions = format!("--set=oam.definitions.namespace={namespace}");
    let settings = [ENABLED, &definitions];
    install_in(&namespace, &settings).await;
    let upgrade = ["upgrade", "portolan", &chart(), "--namespace", &namespace];
    helm_output(&[&upgrade, &settings[..]].concat()).await;
    let view = config_maps.get("component-pod-view").await.unwrap();
    assert_eq!(view.annotations()["meta.helm.sh/release-name"], "portolan");
    let kept = config_maps.get(REGISTRY).await.unwrap();
    assert_eq!(kept.data, registries.data);
}

#[tokio::test]
async fn registries_that_users_add_survive_an_upgrade() {
    let namespace = restricted_namespace().await;
    let client = control_plane().await.client().await;
    let config_maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let definitions = format!("--set=oam.definitions.namespace={namespace}");
    let settings = [ENABLED, &definitions];
    install_in(&namespace, &settings).await;
    let registries = json!({ "data": { "registries": "{\"mine\":{}}" } });
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(&registries));
    config_maps.patch(REGISTRY, &parameters, &patch).await.unwrap();
    // The second one compares with what the first has rendered.
    for _ in 0..2 {
        let upgrade = ["upgrade", "portolan", &chart(), "--namespace", &namespace];
        helm_output(&[&upgrade, &settings[..]].concat()).await;
        let kept = config_maps.get(REGISTRY).await.unwrap();
        assert_eq!(kept.annotations()["helm.sh/resource-policy"], "keep");
        assert_eq!(json!(kept.data), registries["data"]);
    }
}
