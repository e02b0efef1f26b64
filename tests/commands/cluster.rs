//! Commands that speak to an API server.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{Api, DeleteParams, PostParams};
use portolan::api::{Application, REQUESTED_AT};
use serde_json::json;

use super::{SOON, ran};
use crate::cluster::{World, index};
use crate::support::control_plane::{ControlPlane, control_plane};
use crate::support::eventually::eventually;
use crate::support::portolan::command;
use crate::support::{postgres, project};

const REPOSITORIES: &str = "apprepositories.kubeapps.com";
const APPLICATIONS: &str = "applications.app.k8s.io";

#[tokio::test]
async fn crds_prints_what_the_chart_installs() {
    let shipped = |name: &str| std::fs::read_to_string(project(&format!("charts/portolan/crds/{name}.yaml"))).unwrap();
    let (repositories, applications) = (shipped("apprepositories"), shipped("applications"));
    let both = ran(command(["crds"])).await.ok();
    assert_eq!(both, format!("{repositories}---\n{applications}"));
    for (name, expected) in [("apprepositories", repositories), ("applications", applications)] {
        assert_eq!(ran(command(["crds", name])).await.ok(), expected);
    }
    let said = ran(command(["crds", "charts"])).await.failed(2);
    assert!(said.contains("there is no definition of charts"), "{said}");
}

/// Installs the definitions by `portolan crds --apply`, and gives them as they are stored then.
async fn apply(server: &ControlPlane) -> Vec<CustomResourceDefinition> {
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client().await);
    let mut command = command(["crds", "--apply", "--kubeconfig"]);
    command.arg(server.kubeconfig());
    let said = format!("{REPOSITORIES} applied\n{APPLICATIONS} applied\n");
    assert_eq!(ran(command).await.ok(), said);
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

/// The columns of a definition whose status is a resource of its own.
fn columns(definition: &CustomResourceDefinition) -> Vec<&str> {
    let version = &definition.spec.versions[0];
    assert!(version.subresources.as_ref().unwrap().status.is_some());
    let columns = version.additional_printer_columns.iter().flatten();
    columns.map(|column| column.name.as_str()).collect()
}

/// A part of the definition of Applications that kubernetes-sigs/application installs.
fn neighbours_applications() -> CustomResourceDefinition {
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

/// The names of KubeVela's definition of Applications.
fn kubevelas_applications() -> CustomResourceDefinition {
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

/// On an API server of its own: the definitions are the whole cluster's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crds_apply_installs_the_definitions_and_upgrades_those_of_the_neighbours() {
    let server = ControlPlane::start().await;
    super::apps::assert_not_installed(&server).await;
    let installed = apply(&server).await;
    columns(&installed[0]);

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
    server.install_crd(&neighbours_applications()).await;
    let applications: Api<Application> = Api::namespaced(server.client().await, "default");
    let made = json!({
        "metadata": { "name": "shop" },
        "spec": {
            "componentKinds": [{ "group": "v1", "kind": "Service" }], "descriptor": { "type": "web" },
            "selector": { "matchLabels": { "app": "shop" } },
        },
        "status": { "componentsReady": "1/1" },
    });
    let mut made: Application = serde_json::from_value(made).unwrap();
    let created = applications.create(&PostParams::default(), &made).await.unwrap();
    made.metadata.resource_version = created.metadata.resource_version;
    applications
        .replace_status("shop", &PostParams::default(), &made)
        .await
        .unwrap();

    let upgraded = apply(&server).await;
    assert!(columns(&upgraded[0]).contains(&"Ready"));
    assert_eq!(columns(&upgraded[1]), ["Type", "Version", "Owner", "Ready", "Age"]);
    // What was made by the old definition is what it was.
    let kept = applications.get("shop").await.unwrap();
    assert_eq!((kept.spec, kept.status), (made.spec, made.status));
    // And a second time nothing is in the way.
    apply(&server).await;

    // KubeVela's Applications have the same names, but for the group.
    server.install_crd(&kubevelas_applications()).await;
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
async fn an_api_server_that_is_not_there_is_named() {
    for arguments in [
        &["crds", "--apply"][..],
        &["resync", "stable", "-n", "default"],
        &["apps"],
    ] {
        let mut command = command(arguments);
        command
            .arg("--apiserver=http://127.0.0.1:1")
            .env("HOME", "/nonexistent");
        let said = ran(command).await.failed(1);
        assert!(said.contains("Connection refused"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resync_asks_for_a_sync_and_the_status_says_that_it_was_done() {
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
        ran(command).await
    };
    let mut handled = Vec::new();
    for version in ["1.1.0", "1.2.0"] {
        world.serve("stable", index(&[("web", &[version, "1.0.0"])]));
        let said = resync("stable").await.ok();
        assert_eq!(said, format!("{}/stable: resync requested\n", world.namespace));
        let asked = world
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
                status.is_some_and(|status| status.last_handled_reconcile_at.as_ref() == Some(&asked))
            })
            .await;
        let mut show = command(["show", "stable/web", "-n", &world.namespace, "-o", "json"]);
        show.args(["--database-url", &database.url]);
        assert_eq!(ran(show).await.json()["chartVersions"][0]["version"], version);
        handled.push(asked);
    }
    assert_ne!(handled[0], handled[1]);

    let said = resync("nothing").await.failed(1);
    assert!(
        said.contains(&format!("there is no AppRepository {}/nothing", world.namespace)),
        "{said}"
    );
}
