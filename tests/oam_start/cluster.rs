//! Faults of a cluster: CRDs that are missing, webhooks without endpoints.

use std::process::Command;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::{SOON, executable};
use crate::applications::resource;
use crate::support::control_plane::ControlPlane;
use crate::support::eventually::eventually;
use crate::support::portolan::{self, Portolan, command};

const REMOVAL: &str = "kubectl delete validatingwebhookconfiguration kubevela-vela-core-admission";

/// Creates a webhook as KubeVela's, with a Service that has no endpoints.
async fn create_webhook(client: &Client, name: &str, failure_policy: &str, service: &str) {
    let webhook = json!({
        "metadata": { "name": name },
        "webhooks": [{
            "name": "validating.core.oam.dev.v1beta1.applications",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": failure_policy,
            "clientConfig": { "service": { "namespace": "default", "name": service, "path": "/x" } },
            "rules": [{
                "apiGroups": ["core.oam.dev"], "apiVersions": ["v1beta1"], "operations": ["CREATE", "UPDATE"],
                "resources": ["applications"],
            }],
        }],
    });
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let webhook = serde_json::from_value(webhook).unwrap();
    webhooks.create(&PostParams::default(), &webhook).await.unwrap();
}

async fn create_external_service(client: &Client, name: &str) {
    let spec = json!({ "type": "ExternalName", "externalName": "webhooks.example" });
    let service = json!({ "metadata": { "name": name }, "spec": spec });
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    let service = serde_json::from_value(service).unwrap();
    services.create(&PostParams::default(), &service).await.unwrap();
}

async fn create_endpoint(client: &Client) {
    let slice = json!({
        "metadata": { "name": "webhook", "labels": { "kubernetes.io/service-name": "vela-core-webhook" } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": true } }],
    });
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let slice = serde_json::from_value(slice).unwrap();
    slices.create(&PostParams::default(), &slice).await.unwrap();
}

struct Doctor {
    code: Option<i32>,
    lines: Vec<String>,
    error: String,
}

async fn doctor(control_plane: &ControlPlane, evaluator: &str) -> Doctor {
    let mut command: Command = command([
        "doctor",
        "--controllers=oam",
        "--cue-evaluator",
        evaluator,
        "--kubeconfig",
    ]);
    command.arg(control_plane.kubeconfig());
    let output = portolan::run(command).await;
    let text = String::from_utf8(output.stdout).unwrap();
    Doctor {
        code: output.status.code(),
        lines: text.lines().map(str::to_owned).collect(),
        error: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Needs a control plane of its own: definitions and webhooks are cluster-scoped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_definitions_and_webhooks_without_endpoints_are_named_until_they_are_repaired() {
    let control_plane = ControlPlane::start().await;
    let client = control_plane.client().await;
    create_webhook(&client, "kubevela-vela-core-admission", "Fail", "vela-core-webhook").await;
    create_webhook(&client, "harmless", "Ignore", "vela-core-webhook").await;
    create_external_service(&client, "outside").await;
    create_webhook(&client, "outside", "Fail", "outside").await;

    let broken = doctor(&control_plane, "/nowhere/portolan-cue").await;
    assert_eq!(broken.code, Some(1));
    assert_eq!(broken.error, "error: 3 problems found\n");
    let starts = [
        "problem  no CUE evaluator",
        "ok       API server answers, version v1.",
        "problem  custom resource definitions are missing: applications.core.oam.dev, ",
        "ok       rights are sufficient for the controller oam",
        "problem  webhook kubevela-vela-core-admission: no endpoints for service default/vela-core-webhook",
        "warning  no webhook protects app.oam.dev/username and app.oam.dev/group",
        "ok       nothing to check: no custom resource definition to list Applications",
        "ok       nothing to check: no custom resource definition to list ResourceTrackers",
        "ok       nothing to check: no custom resource definition to list ApplicationRevisions",
    ];
    assert_eq!(broken.lines.len(), starts.len(), "{:#?}", broken.lines);
    for (line, start) in broken.lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
    assert!(broken.lines[4].contains(REMOVAL), "{}", broken.lines[4]);

    // A start waits for the definitions, and warns about the webhook.
    let run = super::run(&control_plane.kubeconfig(), &["--namespace=default"]);
    let portolan = Portolan::start(run);
    portolan
        .line_with(
            "waiting for the custom resource definitions applications.core.oam.dev",
            SOON,
        )
        .await;
    portolan.line_with(REMOVAL, SOON).await;
    let (status, checks) = portolan.get("/readyz").await.unwrap();
    assert!(status == 503 && checks.contains("[-]crds failed"), "{status} {checks}");
    let events: Api<Event> = Api::all(client.clone());
    eventually(SOON, "an event about the webhook", async || {
        let events = events.list(&ListParams::default()).await.unwrap();
        let mut notes = events
            .items
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some("WebhookUnavailable"))
            .filter_map(|event| event.note);
        notes.find(|note| note.contains(REMOVAL))
    })
    .await;

    let mut install = command(["crds", "core.oam.dev", "--apply", "--kubeconfig"]);
    install.arg(control_plane.kubeconfig());
    let output = portolan::run(install).await;
    assert!(output.status.success(), "{output:?}");
    create_endpoint(&client).await;
    portolan.ready(SOON).await;

    let healthy = doctor(&control_plane, executable().to_str().unwrap()).await;
    assert_eq!(healthy.code, Some(0), "{:?} {}", healthy.lines, healthy.error);
    let warnings = |doctor: &Doctor| {
        let lines = doctor.lines.iter().filter(|line| !line.starts_with("ok "));
        lines.cloned().collect::<Vec<_>>()
    };
    let found = warnings(&healthy);
    assert!(
        matches!(found.as_slice(), [line] if line.starts_with("warning  no webhook protects")),
        "{found:?}"
    );

    drop(portolan);
    // They would refuse the Application.
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    for name in ["kubevela-vela-core-admission", "outside"] {
        webhooks.delete(name, &DeleteParams::default()).await.unwrap();
    }
    leave_open(&client).await;
    let open = doctor(&control_plane, executable().to_str().unwrap()).await;
    assert_eq!(open.code, Some(0), "{:?} {}", open.lines, open.error);
    let expected = [
        "warning  no webhook protects",
        "warning  1 Applications (default/shop) have the rights of the controller",
        "warning  1 objects of this controller (Application escape (Namespace: vela-system) of shop-v1-default) are in",
        "warning  1 ApplicationRevisions (default/shop-v1) lack the data of Secrets",
        "warning  1 templates (TraitDefinition default/older) may be for CUE before 0.11",
    ];
    let found = warnings(&open);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (line, start) in found.iter().zip(expected) {
        assert!(line.starts_with(start), "{line}");
    }
}

/// Creates what doctor warns of.
async fn leave_open(client: &Client) {
    let create = async |kind: &str, metadata: Value, spec: Value| {
        let resource = resource(&format!("core.oam.dev/v1beta1 {kind}"));
        let api: Api<DynamicObject> = match kind {
            "ResourceTracker" => Api::all_with(client.clone(), &resource),
            _ => Api::namespaced_with(client.clone(), "default", &resource),
        };
        let object = json!({
            "apiVersion": "core.oam.dev/v1beta1", "kind": kind, "metadata": metadata, "spec": spec,
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        // The API server calls a webhook for a while after its deletion.
        eventually(SOON, &format!("{kind} to be created"), async || {
            let created = api.create(&PostParams::default(), &object).await;
            created.map(drop).map_err(|error| error.to_string())
        })
        .await;
    };
    create("Application", json!({ "name": "shop" }), json!({ "components": [] })).await;
    let schematic = json!({ "cue": { "template": "patch: list: [1] + [2]" } });
    create(
        "TraitDefinition",
        json!({ "name": "older" }),
        json!({ "schematic": schematic }),
    )
    .await;
    let entry = json!({
        "apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "name": "escape", "namespace": "vela-system",
    });
    let labels = json!({ "app.oam.dev/name": "shop", "app.oam.dev/namespace": "default" });
    let spec = json!({ "type": "versioned", "applicationGeneration": 1, "managedResources": [entry] });
    create(
        "ResourceTracker",
        json!({ "name": "shop-v1-default", "labels": labels }),
        spec,
    )
    .await;
    let annotations = json!({ "portolan.dev/redacted-secrets": "true" });
    let application = json!({ "spec": { "components": [] } });
    create(
        "ApplicationRevision",
        json!({ "name": "shop-v1", "annotations": annotations }),
        json!({ "application": application }),
    )
    .await;
}

#[tokio::test]
async fn doctor_names_an_api_server_that_does_not_respond() {
    let mut command = command(["doctor", "--apiserver=http://127.0.0.1:1", "--cue-evaluator"]);
    command.arg(executable());
    let output = portolan::run(command).await;
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("problem  failed to reach the API server: "), "{text}");
}
