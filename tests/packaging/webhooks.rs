//! The webhooks of the chart.

use std::collections::BTreeSet;

use serde_json::Value;

use super::values::{pod, rendered};

const ENABLED: &str = "--set=oam.enabled=true,oam.webhooks.enabled=true";
const KINDS: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// Returns the webhooks of both configurations.
async fn webhooks(settings: &[&str]) -> Vec<Value> {
    let mut webhooks = Vec::new();
    for kind in KINDS {
        for configuration in rendered(kind, settings).await {
            webhooks.extend(configuration["webhooks"].as_array().unwrap().clone());
        }
    }
    webhooks
}

fn texts<'a>(webhooks: &'a [Value], pointer: &str) -> BTreeSet<&'a str> {
    webhooks
        .iter()
        .filter_map(|webhook| webhook.pointer(pointer)?.as_str())
        .collect()
}

#[tokio::test]
async fn webhooks_have_kubevelas_paths_and_refuse_while_nothing_serves_them() {
    assert_eq!(webhooks(&["--set=oam.enabled=true"]).await, [Value::Null; 0]);
    let webhooks = webhooks(&[ENABLED]).await;
    let paths = [
        "/mutating-core-oam-dev-v1beta1-applications",
        "/mutating-core-oam-dev-v1beta1-componentdefinitions",
        "/validating-core-oam-dev-v1beta1-applications",
        "/validating-core-oam-dev-v1beta1-componentdefinitions",
        "/validating-core-oam-dev-v1beta1-policydefinitions",
        "/validating-core-oam-dev-v1beta1-traitdefinitions",
        "/validating-core-oam-dev-v1beta1-workflowstepdefinitions",
    ];
    assert_eq!(texts(&webhooks, "/clientConfig/service/path"), paths.into());
    assert_eq!(texts(&webhooks, "/failurePolicy"), ["Fail"].into());
    assert_eq!(texts(&webhooks, "/clientConfig/caBundle"), BTreeSet::new());
    let services = rendered("Service", &[ENABLED]).await;
    let name = texts(&webhooks, "/clientConfig/service/name");
    let service = services
        .iter()
        .find(|service| name.contains(service["metadata"]["name"].as_str().unwrap()));
    assert_eq!(service.unwrap()["spec"]["ports"][0]["port"], 443);
}

#[tokio::test]
async fn definitions_pass_if_init_containers_write_them() {
    let webhooks = webhooks(&[ENABLED, "--set=oam.definitions.install=true"]).await;
    for webhook in webhooks {
        let is_of_applications = webhook["name"].as_str().unwrap().ends_with("v1beta1.applications");
        let expected = if is_of_applications { "Fail" } else { "Ignore" };
        assert_eq!(webhook["failurePolicy"], expected, "{webhook:#}");
    }
}

#[tokio::test]
async fn a_certificate_of_your_own_is_mounted_and_trusted() {
    let settings =
        "oam.enabled=true,oam.webhooks.enabled=true,oam.webhooks.certificateSecret=mine,oam.webhooks.caBundle=Cg==";
    let set = format!("--set={settings}");
    assert_eq!(
        texts(&webhooks(&[&set]).await, "/clientConfig/caBundle"),
        ["Cg=="].into()
    );
    let pod = pod(settings).await;
    let container = &pod["containers"][0];
    let arguments = container["args"].to_string();
    assert!(
        arguments.contains("--webhook-cert-dir=/etc/portolan/webhooks"),
        "{arguments}"
    );
    assert!(!arguments.contains("self-signed"), "{arguments}");
    let volumes = pod["volumes"].to_string();
    assert!(volumes.contains("\"secretName\":\"mine\""), "{volumes}");
}
