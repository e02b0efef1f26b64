//! Steps that apply objects of terraform-controller, which these tests stand for.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::site::Site;
use super::workflows::{outcome, step, until_ended, until_step_says, with, with_parallel_steps, with_steps};
use super::{APPLICATION, CONFIG_MAP};

const GROUP: &str = "terraform.core.oam.dev";
const CONFIGURATION: &str = "terraform.core.oam.dev/v1beta2 Configuration";
const PROVIDER: &str = "terraform.core.oam.dev/v1beta1 Provider";
const SECRET: &str = "v1 Secret";

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
