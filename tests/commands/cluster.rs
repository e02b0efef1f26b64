//! Commands that speak to an API server.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams};
use portolan::api::REQUESTED_AT;

use super::{SOON, ran};
use crate::cluster::{World, index};
use crate::support::control_plane::{ControlPlane, control_plane};
use crate::support::eventually::eventually;
use crate::support::portolan::command;
use crate::support::{postgres, project};

const CRD: &str = "apprepositories.kubeapps.com";

#[tokio::test]
async fn crds_prints_what_the_chart_installs() {
    let printed = ran(command(["crds"])).await.ok();
    let chart = std::fs::read_to_string(project("charts/portolan/crds/apprepositories.yaml")).unwrap();
    assert_eq!(printed, chart);
}

/// On an API server of its own: the definition is the whole cluster's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crds_apply_installs_the_definition_and_upgrades_that_of_kubeapps() {
    let server = ControlPlane::start().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client().await);
    let apply = async || {
        let mut command = command(["crds", "--apply", "--kubeconfig"]);
        command.arg(server.kubeconfig());
        assert_eq!(ran(command).await.ok(), format!("{CRD} applied\n"));
        let stored = definitions.get(CRD).await.unwrap();
        let managers = stored.metadata.managed_fields.unwrap_or_default();
        assert!(
            managers
                .iter()
                .any(|entry| entry.manager.as_deref() == Some("portolan")),
            "{managers:?}"
        );
        stored.spec.versions[0].clone()
    };
    let installed = apply().await;
    assert!(installed.subresources.unwrap().status.is_some());

    definitions.delete(CRD, &DeleteParams::default()).await.unwrap();
    eventually(SOON, "the definition to be gone", async || {
        definitions.get_opt(CRD).await.unwrap().is_none().then_some(())
    })
    .await;
    let kubeapps = project("tests/commands/fixture/kubeapps-crd.yaml")
        .display()
        .to_string();
    server.kubectl(&["create", "-f", &kubeapps]).await;
    let upgraded = apply().await;
    assert!(upgraded.subresources.unwrap().status.is_some());
    let columns: Vec<String> = upgraded
        .additional_printer_columns
        .unwrap()
        .into_iter()
        .map(|column| column.name)
        .collect();
    assert!(columns.contains(&"Ready".to_owned()), "{columns:?}");
    // And a second time nothing is in the way.
    apply().await;
}

#[tokio::test]
async fn an_api_server_that_is_not_there_is_named() {
    for arguments in [&["crds", "--apply"][..], &["resync", "stable", "-n", "default"]] {
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
