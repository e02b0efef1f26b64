//! Commands that connect to an API server.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{Api, DeleteParams, PostParams};
use portolan::api::{Application, REQUESTED_AT};
use serde_json::json;

use super::{SOON, execute};
use crate::cluster::{World, index};
use crate::support::control_plane::{ControlPlane, control_plane};
use crate::support::eventually::eventually;
use crate::support::portolan::command;
use crate::support::{postgres, project};

const REPOSITORIES: &str = "apprepositories.kubeapps.com";
const APPLICATIONS: &str = "applications.app.k8s.io";

#[tokio::test]
async fn crds_prints_the_definitions_in_the_chart() {
    let shipped = |name: &str| std::fs::read_to_string(project(&format!("charts/portolan/crds/{name}.yaml"))).unwrap();
    let (repositories, applications) = (shipped("apprepositories"), shipped("applications"));
    let both = execute(command(["crds"])).await.ok();
    assert_eq!(both, format!("{repositories}---\n{applications}"));
    for (name, expected) in [("apprepositories", repositories), ("applications", applications)] {
        assert_eq!(execute(command(["crds", name])).await.ok(), expected);
    }
    let error = execute(command(["crds", "charts"])).await.failed(2);
    assert!(error.contains("unknown resource charts"), "{error}");
}

/// Runs `portolan crds --apply` and returns the stored definitions.
async fn apply_crds(server: &ControlPlane) -> Vec<CustomResourceDefinition> {
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client().await);
    let mut command = command(["crds", "--apply", "--kubeconfig"]);
    command.arg(server.kubeconfig());
    let output = format!("{REPOSITORIES} applied\n{APPLICATIONS} applied\n");
    assert_eq!(execute(command).await.ok(), output);
    let mut stored = Vec::new();
    for name in [REPOSITORIES, APPLICATIONS] {
        let definition = definitions.get(name).await.unwrap();
        let managers = definition.metadata.managed_fields.as_deref().unwrap_or_default();
        let is_ours = |entry: &ManagedFieldsEntry| entry.manager.as_deref() == Some("portolan");
        assert!(managers.iter().any(is_ours), "{managers:?}");
        stored.push(definition);
    }
    stored
}

/// Returns the printer columns of a definition with a status subresource.
fn printer_columns(definition: &CustomResourceDefinition) -> Vec<&str> {
    let version = &definition.spec.versions[0];
    assert!(version.subresources.as_ref().unwrap().status.is_some());
    let columns = version.additional_printer_columns.iter().flatten();
    columns.map(|column| column.name.as_str()).collect()
}

/// Builds a part of the definition of Applications in kubernetes-sigs/application.
fn sigs_application_crd() -> CustomResourceDefinition {
    let text = json!({ "type": "string" });
    let kind =
        json!({ "type": "object", "required": ["group", "kind"], "properties": { "group": text, "kind": text } });
    let spec = json!({ "type": "object", "properties": {
        "componentKinds": { "type": "array", "items": kind },
        "descriptor": { "type": "object", "properties": { "type": text } },
        "selector": { "type": "object", "properties": {
            "matchLabels": { "type": "object", "additionalProperties": text } } },
    } });
    let definition = json!({
        "metadata": {
            "name": APPLICATIONS,
            "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/application/pull/2",
                "controller-gen.kubebuilder.io/version": "v0.6.0",
            },
        },
        "spec": {
            "group": "app.k8s.io",
            "scope": "Namespaced",
            "names": { "kind": "Application", "listKind": "ApplicationList", "plural": "applications",
                "singular": "application", "shortNames": ["app"], "categories": ["all"] },
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true, "subresources": { "status": {} },
                "additionalPrinterColumns": [{ "name": "Type", "type": "string", "jsonPath": ".spec.descriptor.type" }],
                "schema": { "openAPIV3Schema": { "type": "object", "properties": {
                    "metadata": { "type": "object" }, "spec": spec,
                    "status": { "type": "object", "properties": { "componentsReady": text } },
                } } },
            }],
        },
    });
    serde_json::from_value(definition).unwrap()
}

/// Builds KubeVela's definition of Applications, reduced to its names.
fn kubevela_application_crd() -> CustomResourceDefinition {
    let definition = json!({
        "metadata": { "name": "applications.core.oam.dev" },
        "spec": {
            "group": "core.oam.dev",
            "scope": "Namespaced",
            "names": { "kind": "Application", "plural": "applications", "shortNames": ["app", "velaapp"] },
            "versions": [{ "name": "v1beta1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }],
        },
    });
    serde_json::from_value(definition).unwrap()
}

/// Needs an API server of its own, because definitions are cluster-scoped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crds_apply_installs_definitions_and_upgrades_existing_ones() {
    let server = ControlPlane::start().await;
    super::apps::assert_missing_crd_is_reported(&server).await;
    let installed = apply_crds(&server).await;
    printer_columns(&installed[0]);

    let definitions: Api<CustomResourceDefinition> = Api::all(server.client().await);
    for name in [REPOSITORIES, APPLICATIONS] {
        definitions.delete(name, &DeleteParams::default()).await.unwrap();
        eventually(SOON, "the definition to be gone", async || {
            definitions.get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
    }
    let kubeapps = project("tests/commands/fixture/kubeapps-crd.yaml")
        .display()
        .to_string();
    server.kubectl(&["create", "-f", &kubeapps]).await;
    server.install_crd(&sigs_application_crd()).await;
    let applications: Api<Application> = Api::namespaced(server.client().await, "default");
    let declared = json!({
        "metadata": { "name": "shop" },
        "spec": {
            "componentKinds": [{ "group": "v1", "kind": "Service" }], "descriptor": { "type": "web" },
            "selector": { "matchLabels": { "app": "shop" } },
        },
        "status": { "componentsReady": "1/1" },
    });
    let mut declared: Application = serde_json::from_value(declared).unwrap();
    let created = applications.create(&PostParams::default(), &declared).await.unwrap();
    declared.metadata.resource_version = created.metadata.resource_version;
    applications
        .replace_status("shop", &PostParams::default(), &declared)
        .await
        .unwrap();

    let upgraded = apply_crds(&server).await;
    assert!(printer_columns(&upgraded[0]).contains(&"Ready"));
    assert_eq!(
        printer_columns(&upgraded[1]),
        ["Type", "Version", "Owner", "Ready", "Age"]
    );
    // Objects that were created with the old definition are unchanged.
    let kept = applications.get("shop").await.unwrap();
    assert_eq!((kept.spec, kept.status), (declared.spec, declared.status));
    // Applying again has no effect.
    apply_crds(&server).await;

    // KubeVela's Applications have the same names in another group.
    server.install_crd(&kubevela_application_crd()).await;
    let kubevelas = [
        "get",
        "applications.core.oam.dev",
        "--namespace=default",
        "--output=name",
    ];
    assert_eq!(server.kubectl(&kubevelas).await, "");
    let ours = ["get", "applications.app.k8s.io", "--namespace=default", "--output=name"];
    assert_eq!(server.kubectl(&ours).await, "application.app.k8s.io/shop\n");
}

#[tokio::test]
async fn an_unreachable_api_server_is_an_error() {
    for arguments in [
        &["crds", "--apply"][..],
        &["resync", "stable", "-n", "default"],
        &["apps"],
    ] {
        let mut command = command(arguments);
        command
            .arg("--apiserver=http://127.0.0.1:1")
            .env("HOME", "/nonexistent");
        let error = execute(command).await.failed(1);
        assert!(error.contains("Connection refused"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resync_requests_a_sync_that_the_status_confirms() {
    let world = World::new().await;
    let database = postgres::database().await;
    let _portolan = world.portolan(&database.url, &[]).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    let kubeconfig = control_plane().await.kubeconfig();
    let resync = async |name: &str| {
        let mut command = command(["resync", name, "-n", &world.namespace, "--kubeconfig"]);
        command.arg(&kubeconfig);
        execute(command).await
    };
    let mut handled = Vec::new();
    for version in ["1.1.0", "1.2.0"] {
        world.serve("stable", index(&[("web", &[version, "1.0.0"])]));
        let output = resync("stable").await.ok();
        assert_eq!(output, format!("{}/stable: resync requested\n", world.namespace));
        let requested_at = world
            .repositories
            .get("stable")
            .await
            .unwrap()
            .metadata
            .annotations
            .unwrap()[REQUESTED_AT]
            .clone();
        world
            .until("stable", "the request to be handled", |object| {
                let status = object.status.as_ref();
                status.is_some_and(|status| status.last_handled_reconcile_at.as_ref() == Some(&requested_at))
            })
            .await;
        let mut show = command(["show", "stable/web", "-n", &world.namespace, "-o", "json"]);
        show.args(["--database-url", &database.url]);
        assert_eq!(execute(show).await.json()["chartVersions"][0]["version"], version);
        handled.push(requested_at);
    }
    assert_ne!(handled[0], handled[1]);

    let error = resync("nothing").await.failed(1);
    assert!(
        error.contains(&format!("AppRepository {}/nothing not found", world.namespace)),
        "{error}"
    );
}
