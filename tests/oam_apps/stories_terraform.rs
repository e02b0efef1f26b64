//! Components and steps with objects of terraform-controller, which these tests stand for.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::apps::{config, spec};
use super::site::Site;
use super::stories_rest::{requests, until_quiet};
use super::workflows::{outcome, step, until_ended, until_step_says, with, with_parallel_steps, with_steps};
use super::{APPLICATION, CONFIG_MAP, DEFINITION};
use crate::support::eventually::SOON;

const GROUP: &str = "terraform.core.oam.dev";
const CONFIGURATION: &str = "terraform.core.oam.dev/v1beta2 Configuration";
const PROVIDER: &str = "terraform.core.oam.dev/v1beta1 Provider";
const SECRET: &str = "v1 Secret";
const HCL: &str = "output \"host\" { value = \"db\" }";
/// Time without any request.
const WINDOW: Duration = Duration::from_secs(5);

/// Installs a kind of terraform-controller, with any fields.
async fn install(site: &Site, version: &str, kind: &str) {
    let plural = format!("{}s", kind.to_lowercase());
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let version = json!({
        "name": version, "served": true, "storage": true, "schema": { "openAPIV3Schema": schema },
        "subresources": { "status": {} },
    });
    let crd = json!({
        "metadata": { "name": format!("{plural}.{GROUP}") },
        "spec": {
            "group": GROUP, "scope": "Namespaced", "names": { "kind": kind, "plural": plural }, "versions": [version],
        },
    });
    let crd: CustomResourceDefinition = serde_json::from_value(crd).unwrap();
    site.control_plane.install_crd(&crd).await;
}

/// A namespace in which components of type `database` are a Terraform module.
async fn with_module(configuration: &str) -> Site {
    let site = Site::new().await;
    install(&site, "v1beta2", "Configuration").await;
    let (version, kind) = CONFIGURATION.split_once(' ').unwrap();
    let definition = json!({
        "metadata": { "annotations": { "definition.oam.dev/description": "A database" } },
        "spec": {
            "workload": { "definition": { "apiVersion": version, "kind": kind } },
            "schematic": { "terraform": {
                "configuration": configuration, "type": "hcl", "providerRef": { "name": "aws", "namespace": "default" },
            } },
        },
    });
    site.apply(DEFINITION, "database", definition).await;
    site
}

fn database() -> Value {
    json!({ "name": "db", "type": "database", "properties": { "size": 2 } })
}

/// Sets the state of the Configuration, as terraform-controller would.
async fn set_state(site: &Site, state: &str, message: &str) {
    let outputs = json!({ "host": { "value": "db.example.com" } });
    let apply = json!({ "state": state, "message": message, "outputs": outputs });
    site.edit_status(CONFIGURATION, "db", json!({ "status": { "apply": apply } }))
        .await;
}

async fn until_service_says(site: &Site, message: &str) -> Value {
    let what = format!("a service: {message}");
    let app = site.until(APPLICATION, "shop", &what, |app| {
        app["status"]["services"][0]["message"] == message
    });
    app.await["status"]["services"][0].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terraform_component_gives_its_outputs_to_others_once_its_resources_are_available() {
    let site = with_module(HCL).await;
    let _portolan = site.portolan(&[]).await;
    let mut db = database();
    db["properties"]["writeConnectionSecretToRef"] = json!({ "name": "connection" });
    db["traits"] = json!([{ "type": "labels", "properties": { "tier": "gold" } }]);
    db["outputs"] = json!([{ "name": "host", "valueFrom": "output.status.apply.outputs.host.value" }]);
    let mut settings = config("settings", "none");
    settings["inputs"] = json!([{ "from": "host", "parameterKey": "objects[0].data.key" }]);
    site.declare("shop", spec(&[db, settings])).await;
    let applied = site.until(CONFIGURATION, "db", "applied", |_| true).await;
    let expected = json!({
        "hcl": HCL, "variable": { "size": 2 }, "providerRef": { "name": "aws", "namespace": "default" },
        "writeConnectionSecretToRef": { "name": "connection", "namespace": site.namespace },
    });
    assert_eq!(applied["spec"], expected);
    assert_eq!(applied["metadata"]["labels"]["tier"], "gold");
    let annotations = &applied["metadata"]["annotations"];
    assert_eq!(annotations["definition.oam.dev/description"], "A database");

    set_state(&site, "ProvisioningAndChecking", "in progress").await;
    let service = until_service_says(&site, "in progress").await;
    assert_eq!(service["healthy"], false);
    assert_eq!(service["workloadDefinition"]["kind"], "Configuration");
    assert_eq!(site.get(CONFIG_MAP, "settings").await, None);

    set_state(&site, "Available", "ready to use").await;
    let app = site.until_running("shop").await;
    assert_eq!(app["status"]["services"][0]["message"], "ready to use");
    let settings = site.get(CONFIG_MAP, "settings").await.unwrap();
    assert_eq!(settings["data"]["key"], "db.example.com");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_is_kept_as_declared_and_goes_with_its_application() {
    let site = with_module(HCL).await;
    let _portolan = site.portolan(&[]).await;
    site.declare("shop", spec(&[database()])).await;
    site.until(CONFIGURATION, "db", "applied", |_| true).await;
    set_state(&site, "Available", "").await;
    site.until_running("shop").await;

    site.edit(CONFIGURATION, "db", json!({ "spec": { "hcl": "changed" } }))
        .await;
    site.until(CONFIGURATION, "db", "restored", |configuration| {
        configuration["spec"]["hcl"] == HCL
    })
    .await;
    set_state(&site, "ConfigurationApplyFailed", "no quota").await;
    let service = until_service_says(&site, "no quota").await;
    assert_eq!(service["healthy"], false);
    let mut larger = database();
    larger["properties"]["size"] = json!(3);
    site.declare("shop", spec(&[larger])).await;
    site.until(CONFIGURATION, "db", "changed", |configuration| {
        configuration["spec"]["variable"]["size"] == 3
    })
    .await;

    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(site.get(CONFIGURATION, "db").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terraform_component_whose_resources_fail_is_unhealthy_and_costs_no_requests() {
    let site = with_module(HCL).await;
    let (proxy, kubeconfig) = site.proxy().await;
    let portolan = site.start(&kubeconfig, &[]);
    portolan.ready(SOON).await;
    site.declare("shop", spec(&[database()])).await;
    site.until(CONFIGURATION, "db", "applied", |_| true).await;
    set_state(&site, "Available", "").await;
    site.until_running("shop").await;
    set_state(&site, "InvalidRegion", "no such region").await;
    let service = until_service_says(&site, "no such region").await;
    assert_eq!(service["healthy"], false);
    assert_eq!(
        site.get(APPLICATION, "shop").await.unwrap()["status"]["status"],
        "unhealthy"
    );
    until_quiet(&proxy).await;
    let before = requests(&proxy).len();
    // The test asserts that nothing happens, so there is no condition to wait for.
    tokio::time::sleep(WINDOW).await;
    let after = requests(&proxy);
    assert!(after.len() == before, "{:#?}", &after[before..]);

    set_state(&site, "Available", "").await;
    site.until_running("shop").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deploy_step_leaves_terraform_components_out_unless_it_says_otherwise() {
    let site = with_module(HCL).await;
    let _portolan = site.portolan(&[]).await;
    let components = [database(), config("settings", "one")];
    let deploy = |properties: Value| with_steps(&components, &[step("all", "deploy", properties)]);
    site.declare("shop", deploy(json!({}))).await;
    site.until_running("shop").await;
    assert!(site.get(CONFIG_MAP, "settings").await.is_some());
    assert_eq!(site.get(CONFIGURATION, "db").await, None);

    site.declare("shop", deploy(json!({ "ignoreTerraformComponent": false })))
        .await;
    site.until(CONFIGURATION, "db", "applied", |_| true).await;
    set_state(&site, "Available", "").await;
    site.until_running("shop").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_without_a_configuration_is_an_error_of_its_component() {
    let site = with_module("").await;
    let _portolan = site.portolan(&[]).await;
    site.declare("shop", spec(&[database()])).await;
    let message =
        "failed to generate Terraform Configuration workload for workload db: terraform configuration is not set";
    site.until_said("shop", message).await;
    assert_eq!(site.get(CONFIGURATION, "db").await, None);
}

fn configuration(name: &str) -> Value {
    let source = json!({ "hcl": "output \"a\" { value = 1 }" });
    step(
        name,
        "apply-terraform-config",
        json!({ "source": source, "variable": { "size": 1 } }),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_that_never_becomes_ready_ends_at_the_timeout_of_its_step() {
    let site = Site::new().await;
    install(&site, "v1beta2", "Configuration").await;
    let _portolan = site.portolan(&[]).await;
    let steps = [
        with(configuration("never"), json!({ "timeout": "10s" })),
        configuration("ready"),
    ];
    site.declare("shop", with_parallel_steps(&[], &steps)).await;
    site.until(CONFIGURATION, "shop-ready", "applied", |_| true).await;
    let applying = json!({ "status": { "apply": { "state": "ProvisioningAndChecking", "message": "in progress" } } });
    site.edit_status(CONFIGURATION, "shop-ready", applying).await;
    until_step_says(&site, "shop", "ready", "in progress").await;
    let available = json!({ "status": { "apply": { "state": "Available" } } });
    site.edit_status(CONFIGURATION, "shop-ready", available).await;
    let app = until_ended(&site, "shop").await;
    assert_eq!(
        outcome(&app, "never"),
        ["failed", "Timeout", "waiting for the Configuration"]
    );
    assert_eq!(outcome(&app, "ready")[0], "succeeded");
    let applied = site.get(CONFIGURATION, "shop-never").await.unwrap();
    assert_eq!(applied["spec"]["variable"], json!({ "size": 1 }));

    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(site.get(CONFIGURATION, "shop-ready").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_and_its_secret_come_from_the_template_of_the_addon() {
    let site = Site::new().await;
    install(&site, "v1beta1", "Provider").await;
    let template = r#"
        metadata: name: "terraform-ucloud"
        template: {
            parameter: {name: string, UCLOUD_PRIVATE_KEY: string, UCLOUD_REGION: string, ...}
            output: {
                apiVersion: "v1", kind: "Secret", type: "Opaque"
                metadata: {name: context.name, namespace: context.namespace}
                stringData: credentials: "key: \(parameter.UCLOUD_PRIVATE_KEY)"
            }
            outputs: provider: {
                apiVersion: "terraform.core.oam.dev/v1beta1", kind: "Provider"
                metadata: {name: parameter.name, namespace: context.namespace}
                spec: {
                    provider: "ucloud", region: parameter.UCLOUD_REGION
                    credentials: {source: "Secret", secretRef: {name: context.name, namespace: context.namespace, key: "credentials"}}
                }
            }
        }
    "#;
    let system = Site::of(site.control_plane, "vela-system".to_owned()).await;
    let labels = json!({ "config.oam.dev/catalog": "velacore-config" });
    let map = json!({ "metadata": { "labels": labels }, "data": { "template": template } });
    system.apply(CONFIG_MAP, "config-template-terraform-ucloud", map).await;
    let _portolan = site.portolan(&[]).await;
    let properties = json!({ "type": "ucloud", "privateKey": "hunter2", "region": "eu" });
    let steps = [step("cloud", "apply-terraform-provider", properties)];
    site.declare("shop", with_steps(&[], &steps)).await;
    until_step_says(&site, "shop", "cloud", "waiting for the Provider").await;
    let provider = site.get(PROVIDER, "ucloud-provider").await.unwrap();
    assert_eq!(provider["spec"]["region"], "eu");
    let secret = &provider["spec"]["credentials"]["secretRef"]["name"];
    assert!(site.get(SECRET, secret.as_str().unwrap()).await.unwrap()["data"]["credentials"].is_string());
    site.edit_status(PROVIDER, "ucloud-provider", json!({ "status": { "state": "ready" } }))
        .await;
    let app = site.until_running("shop").await;
    assert!(
        !app["status"].to_string().contains("hunter2"),
        "secrets are no part of the status"
    );

    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(site.get(PROVIDER, "ucloud-provider").await, None);
}
