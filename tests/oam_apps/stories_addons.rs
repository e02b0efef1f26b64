//! Applications in the form of KubeVela's addons: objects of the cluster, shared with others, and placed by a topology.

use serde_json::{Value, json};

use super::apps::objects;
use super::site::{CRD, Site};
use super::{APPLICATION, CONFIG_MAP, DEPLOYMENT};

const NAMESPACE: &str = "v1 Namespace";

fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

fn crd(group: &str) -> Value {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let version = json!({ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("sources.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced", "names": { "kind": "Source", "plural": "sources" },
            "versions": [version],
        },
    })
}

fn binding(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" },
        "subjects": [{ "kind": "ServiceAccount", "name": "source-controller", "namespace": namespace }],
    })
}

fn controller() -> Value {
    json!({
        "name": "source-controller",
        "type": "webservice",
        "dependsOn": ["sources-ns"],
        "properties": {
            "image": "example.com/source-controller:1", "imagePullPolicy": "IfNotPresent",
            "env": [{ "name": "RUNTIME_NAMESPACE", "value": "sources" }],
            "livenessProbe": { "httpGet": { "path": "/healthz", "port": 9440 }, "timeoutSeconds": 5 },
            "volumeMounts": { "emptyDir": [{ "name": "temp", "mountPath": "/tmp" }] },
        },
        "traits": [
            { "type": "service-account", "properties": {
                "name": "source-controller", "create": true,
                "privileges": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"] }],
            } },
            { "type": "labels", "properties": { "control-plane": "controller" } },
            { "type": "command", "properties": { "args": ["--watch-all-namespaces", "--log-level=debug"] } },
        ],
    })
}

fn of_types(types: &[&str], more: Value) -> Value {
    let mut rule = json!({ "selector": { "resourceTypes": types } });
    rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "rules": [rule] })
}

fn policies(target: &str) -> Value {
    let shared = ["CustomResourceDefinition", "Namespace"];
    json!([
        { "type": "shared-resource", "name": "shared", "properties": of_types(&shared, json!({})) },
        { "type": "take-over", "name": "take-over", "properties": of_types(&shared, json!({})) },
        { "type": "topology", "name": "deploy-sources", "properties": { "namespace": target, "clusterLabelSelector": {} } },
        { "type": "garbage-collect", "name": "keep", "properties": of_types(&shared, json!({ "strategy": "never" })) },
        { "type": "apply-once", "name": "once", "properties": of_types(&["CustomResourceDefinition"], json!({
            "strategy": { "path": ["*"] },
        })) },
    ])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_addon_installs_a_controller_with_its_kinds_and_leaves_what_is_shared() {
    let site = Site::new().await;
    let target = format!("{}-sources", site.namespace);
    let group = site.group();
    let _portolan = site.portolan(&[]).await;
    // Another addon brought it.
    let there = site.control_plane;
    super::setup::namespace(there, &target).await;
    let components = [
        objects("sources-ns", &[namespace(&target)]),
        objects("sources-rbac", &[binding(&target, &target)]),
        objects("sources-CRD", &[crd(&group)]),
        controller(),
    ];
    site.declare(
        "addon-sources",
        json!({ "components": components, "policies": policies(&target) }),
    )
    .await;
    let inside = Site::of(there, target.clone()).await;
    let app = site.until_running("addon-sources").await;
    let deployment = inside.get(DEPLOYMENT, "source-controller").await.unwrap();
    assert_eq!(
        deployment["spec"]["template"]["spec"]["serviceAccountName"],
        "source-controller"
    );
    assert!(inside.get("v1 ServiceAccount", "source-controller").await.is_some());
    let services = app["status"]["services"].as_array().unwrap();
    assert!(
        services.iter().all(|service| service["namespace"] == target),
        "{services:#?}"
    );

    site.delete(APPLICATION, "addon-sources").await;
    site.until_gone(APPLICATION, "addon-sources").await;
    assert_eq!(inside.get(DEPLOYMENT, "source-controller").await, None);
    let kept = site.get(CRD, &format!("sources.{group}")).await;
    assert!(kept.is_some(), "kinds may have objects of others");
    assert!(site.get(NAMESPACE, &target).await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_addon_deploys_a_part_after_the_other_in_a_group() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let config = |name: &str| super::apps::config(name, name);
    let selecting = |names: &[&str]| json!({ "selector": names });
    let deploy = |name: &str, policy: &str| json!({ "type": "deploy", "name": name, "properties": { "policies": ["local", policy] } });
    let group = json!({ "type": "step-group", "name": "dashboards", "subSteps": [
        { "type": "apply-object", "name": "datasource", "properties": { "value": {
            "apiVersion": "v1", "kind": "ConfigMap", "data": { "key": "datasource" },
            "metadata": { "name": "datasource", "namespace": site.namespace },
        } } },
        deploy("deploy-dashboards", "dashboards"),
    ] });
    let spec = json!({
        "components": [config("core"), config("dashboard-one"), config("dashboard-two")],
        "policies": [
            { "type": "topology", "name": "local", "properties": { "clusters": ["local"], "namespace": site.namespace } },
            { "type": "override", "name": "core", "properties": selecting(&["core"]) },
            { "type": "override", "name": "dashboards", "properties": selecting(&["dashboard-one", "dashboard-two"]) },
        ],
        "workflow": { "steps": [deploy("deploy-core", "core"), group] },
    });
    site.declare("addon-dashboards", spec).await;
    let app = site.until_running("addon-dashboards").await;
    for name in ["core", "dashboard-one", "dashboard-two", "datasource"] {
        assert!(site.get(CONFIG_MAP, name).await.is_some(), "{name}");
    }
    let steps = &app["status"]["workflow"]["steps"];
    let phases = [
        &steps[0]["phase"],
        &steps[1]["phase"],
        &steps[1]["subSteps"][1]["phase"],
    ];
    assert_eq!(phases, ["succeeded"; 3]);

    site.edit(CONFIG_MAP, "datasource", json!({ "data": { "key": "edited" } }))
        .await;
    site.until(CONFIG_MAP, "datasource", "restored", |object| {
        object["data"]["key"] == "datasource"
    })
    .await;
    site.delete(APPLICATION, "addon-dashboards").await;
    site.until_gone(APPLICATION, "addon-dashboards").await;
    assert_eq!(site.get(CONFIG_MAP, "datasource").await, None);
}
