//! Steps that collect the addresses of Applications.

use serde_json::{Value, json};

use super::apps::{config, objects, spec};
use super::site::Site;
use super::workflows::{input, outcome, output, step, until_ended, until_step_says, with, with_steps};
use super::{APPLICATION, CONFIG_MAP};

const SERVICE: &str = "v1 Service";

fn service(name: &str, type_: &str) -> Value {
    let ports = json!([{ "name": "http", "port": 8080 }]);
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
        "spec": { "type": type_, "selector": { "app": name }, "ports": ports },
    })
}

fn ingress(name: &str, host: &str) -> Value {
    let backend = json!({ "service": { "name": "web", "port": { "number": 8080 } } });
    let paths = json!([{ "path": "/shop", "pathType": "Prefix", "backend": backend }]);
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": name },
        "spec": { "rules": [{ "host": host, "http": { "paths": paths } }] },
    })
}

/// Steps that write the first endpoint to a ConfigMap.
fn collect(properties: Value) -> [Value; 2] {
    [
        with(
            step("collect", "collect-service-endpoints", properties),
            output("url", "value.url"),
        ),
        with(
            step("write", "export2config", json!({ "configName": "found" })),
            input("url", "data.url"),
        ),
    ]
}

fn deploy(component: &str) -> Value {
    step(component, "apply-component", json!({ "component": component }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_goes_on_once_a_balancer_has_an_address() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let components = [objects("web", &[service("web", "LoadBalancer")])];
    let [collect, write] = collect(json!({ "outer": true }));
    site.declare("shop", with_steps(&components, &[deploy("web"), collect, write]))
        .await;
    until_step_says(&site, "shop", "collect", "waiting for endpoints").await;
    let ready = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } } });
    site.edit_status(SERVICE, "web", ready).await;
    site.until_running("shop").await;
    let found = site.get(CONFIG_MAP, "found").await.unwrap();
    assert_eq!(found["data"]["url"], "http://192.0.2.7:8080");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_of_another_application_are_those_of_a_component() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let components = [
        objects("inner", &[service("inner", "ClusterIP")]),
        objects("edge", &[ingress("edge", "shop.example.com")]),
    ];
    site.declare("shop", spec(&components)).await;
    site.until_running("shop").await;
    let steps = collect(json!({ "name": "shop", "components": ["edge"] }));
    site.declare("reader", with_steps(&[], &steps)).await;
    site.until_running("reader").await;
    let found = site.get(CONFIG_MAP, "found").await.unwrap();
    assert_eq!(found["data"]["url"], "http://shop.example.com:80");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_that_does_not_exist_fails_the_step_and_one_of_a_user_needs_rights() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--max-workflow-step-error-retry-times=0"]).await;
    site.declare("shop", spec(&[config("settings", "one")])).await;
    site.until_running("shop").await;
    let [lost, _] = collect(json!({ "name": "lost" }));
    site.declare("reader", with_steps(&[], &[lost])).await;
    let app = until_ended(&site, "reader").await;
    let [phase, _, message] = outcome(&app, "collect");
    assert!(phase == "failed" && message.contains("lost not found"), "{message}");

    // A ServiceAccount without any rights.
    site.apply("v1 ServiceAccount", "powerless", json!({})).await;
    let [other, _] = collect(json!({ "name": "shop" }));
    let reader = json!({
        "metadata": { "annotations": { "app.oam.dev/service-account-name": "powerless" } },
        "spec": with_steps(&[], &[other]),
    });
    site.apply(APPLICATION, "powerless", reader).await;
    let app = until_ended(&site, "powerless").await;
    let [phase, _, message] = outcome(&app, "collect");
    assert!(phase == "failed" && message.contains("forbidden"), "{message}");
}
