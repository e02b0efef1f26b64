//! Definitions of the starter set without a recorded rendering of KubeVela's own code.

use serde_json::{Value, json};

use super::{Case, starter_template};

const DEPLOYMENT: &str = r#"output: {apiVersion: "apps/v1", kind: "Deployment"}"#;

/// Returns what the controller reads of the properties of a built-in policy.
fn properties(policy: &str) -> Value {
    let selector = json!({
        "componentNames": ["web"], "componentTypes": ["webservice"], "oamTypes": ["TRAIT"], "traitTypes": ["gateway"],
        "resourceTypes": ["Ingress"], "resourceNames": ["web"],
    });
    match policy {
        "apply-once" => json!({ "enable": true, "rules": [
            { "selector": selector, "strategy": { "affect": "onUpdate", "path": ["spec.replicas"] } },
        ] }),
        "garbage-collect" => json!({
            "applicationRevisionLimit": 3, "keepLegacyResource": true, "continueOnFailure": true, "order": "dependency",
            "rules": [{ "selector": selector, "strategy": "onAppDelete", "propagation": "orphan" }],
        }),
        "override" => json!({ "selector": ["web"], "components": [{
            "name": "web", "type": "webservice", "properties": { "image": "nginx" },
            "traits": [{ "type": "scaler", "properties": { "replicas": 3 }, "disable": true }],
        }] }),
        "replication" => json!({ "keys": ["a", "b"], "selector": ["web"] }),
        "resource-update" => json!({ "rules": [
            { "selector": selector, "strategy": { "op": "replace", "recreateFields": ["spec.selector"] } },
        ] }),
        "topology" => json!({
            "clusters": ["local"], "clusterLabelSelector": { "a": "b" }, "clusterSelector": { "c": "d" },
            "allowEmpty": true, "namespace": "prod",
        }),
        _ => json!({ "rules": [{ "selector": selector }] }),
    }
}

#[tokio::test]
async fn policies_declare_the_properties_that_the_controller_reads() {
    for policy in [
        "apply-once",
        "garbage-collect",
        "override",
        "read-only",
        "replication",
        "resource-update",
        "shared-resource",
        "take-over",
        "topology",
    ] {
        let template = starter_template(&format!("policies/{policy}")) + "\noutput: parameter\n";
        let properties = properties(policy);
        let rendered = Case::new(&template, properties.clone()).strict().render().await;
        assert_eq!(rendered, Ok(json!({ "output": properties })), "{policy}");
    }
}

#[tokio::test]
async fn rules_of_policies_have_the_defaults_of_kubevela() {
    for (policy, rule, expected) in [
        (
            "garbage-collect",
            json!({ "selector": {} }),
            json!({ "strategy": "onAppUpdate" }),
        ),
        (
            "resource-update",
            json!({ "selector": {}, "strategy": {} }),
            json!({ "strategy": { "op": "patch" } }),
        ),
    ] {
        let template = starter_template(&format!("policies/{policy}")) + "\noutput: parameter.rules[0]\n";
        let rendered = Case::new(&template, json!({ "rules": [rule] })).render().await.unwrap();
        assert_eq!(rendered["output"]["strategy"], expected["strategy"], "{policy}");
    }
}

#[tokio::test]
async fn raw_is_the_object_itself() {
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "b": "c" } });
    let rendered = Case::new(&starter_template("components/raw"), object.clone())
        .render()
        .await;
    assert_eq!(rendered, Ok(json!({ "output": object })));
}

#[tokio::test]
async fn pure_ingress_routes_paths_to_the_service_of_the_component() {
    let properties = json!({ "domain": "shop.example.com", "http": { "/": 8080 } });
    let ingress = async |minor: u32| {
        let case = Case::new(DEPLOYMENT, json!({})).with(&starter_template("traits/pure-ingress"), properties.clone());
        let rendered = Case { minor, ..case }.render().await.unwrap();
        rendered["outputs"].clone()
    };
    let expected = |version: &str, path: Value| {
        json!({ "ingress": {
            "apiVersion": version, "kind": "Ingress", "metadata": { "name": "web" },
            "spec": { "rules": [{ "host": "shop.example.com", "http": { "paths": [path] } }] },
        } })
    };
    let path = json!({ "path": "/", "pathType": "ImplementationSpecific",
        "backend": { "service": { "name": "web", "port": { "number": 8080 } } } });
    assert_eq!(ingress(19).await, expected("networking.k8s.io/v1", path));
    let path = json!({ "path": "/", "backend": { "serviceName": "web", "servicePort": 8080 } });
    assert_eq!(ingress(18).await, expected("networking.k8s.io/v1beta1", path));
}

#[tokio::test]
async fn node_affinity_selects_nodes_and_tolerates_taints() {
    let pods = async |properties: Value| {
        let case = Case::new(DEPLOYMENT, json!({})).with(&starter_template("traits/node-affinity"), properties);
        let rendered = case.render().await.unwrap();
        rendered["output"]["spec"]["template"]["spec"].clone()
    };
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["a", "b"] }] }],
    } } });
    let tolerations = json!([{ "key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule" }]);
    assert_eq!(
        pods(json!({ "affinity": { "zone": ["a", "b"] }, "tolerations": { "gpu": "yes" } })).await,
        json!({ "affinity": affinity, "tolerations": tolerations })
    );
    assert_eq!(pods(json!({})).await, json!({}));
}
