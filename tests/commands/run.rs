//! `run` in a cluster: with the arguments of Kubeapps' controller, with an unreachable database, and with --once.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use serde_json::json;

use super::{assert_code, join_output, link_binary};
use crate::cluster::{World, index};
use crate::support::control_plane::control_plane;
use crate::support::eventually::eventually;
use crate::support::portolan::{Portolan, command_as, run};
use crate::support::postgres::{PASSWORD, USER, database};
use crate::support::process::ScratchDir;

const SOON: Duration = Duration::from_secs(30);

/// Uses the arguments in Kubeapps' Helm chart, with the password in a Secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn called_as_kubeapps_controller_it_uses_its_namespace_and_the_password_in_the_secret() {
    let world = World::new().await;
    let database = database().await;
    let host_and_port = database.url.split(['@', '/']).nth(3).unwrap();
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    let secret = json!({"metadata": {"name": "kubeapps-postgresql"}, "stringData": {"postgres-password": PASSWORD}});
    secrets
        .create(&PostParams::default(), &serde_json::from_value(secret).unwrap())
        .await
        .unwrap();
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;

    let directory = ScratchDir::new("controller");
    let mut controller = command_as::<&str>(&link_binary(&directory, "apprepository-controller"), []);
    controller.arg("--kubeconfig").arg(control_plane().await.kubeconfig());
    controller.args([
        &format!("--namespace={}", world.namespace),
        "--repos-per-namespace=false",
        "--user-agent-comment=kubeapps/2.12.1",
        "--repo-sync-image=asset-syncer:2.12.1",
        "--repo-sync-cmd=/asset-syncer",
        &format!("--global-repos-namespace={}", world.namespace),
        "--database-secret-name=kubeapps-postgresql",
        "--database-secret-key=postgres-password",
        &format!("--database-url={host_and_port}"),
        &format!("--database-user={USER}"),
        &format!("--database-name={}", database.name),
        "--custom-labels=\"a=b\",\"c=d\"",
    ]);
    let portolan = Portolan::start(controller);
    portolan.ready(SOON).await;
    world.until_ready("stable").await;
    let warnings: Vec<String> = portolan
        .lines()
        .into_iter()
        .filter(|line| line.contains("ignoring deprecated flags"))
        .collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("--repo-sync-image") && warnings[0].contains("--custom-labels"),
        "{warnings:?}"
    );
    assert!(!portolan.lines().concat().contains(PASSWORD));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_waits_for_an_unreachable_database() {
    let world = World::new().await;
    let database = database().await;
    let (gate, through_gate) = database.behind_gate().await;
    gate.close().await;
    let command = world.command(&control_plane().await.kubeconfig(), &through_gate, &[]);
    let portolan = Portolan::start(command);
    portolan.line_with("failed to reach the database", SOON).await;
    let (status, body) = portolan.get("/readyz").await.unwrap();
    assert!(status == 503 && body.contains("[-]database failed"), "{status} {body}");
    assert_eq!(portolan.get("/livez").await.unwrap().0, 200);
    gate.open().await;
    portolan.ready(SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_syncs_all_repositories_of_a_cluster() {
    let world = World::new().await;
    let database = database().await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    let once = async || {
        let kubeconfig = control_plane().await.kubeconfig();
        run(world.command(&kubeconfig, &database.url, &["--once"])).await
    };
    assert_code(&once().await, 0);
    world.until_ready("stable").await;
    // Syncs although no repository is due; the second response is 304.
    assert_code(&once().await, 0);
    assert_eq!(world.server.requests("/stable/index.yaml").len(), 2);
    world.declare("broken", &world.server.url("/nowhere")).await;
    let output = once().await;
    assert_code(&output, 1);
    assert!(
        join_output(&output).contains("1 of 2 repositories failed to sync"),
        "{}",
        join_output(&output)
    );
    eventually(SOON, "the failure to show", async || {
        let object = world.repositories.get("broken").await.unwrap();
        let ready = crate::cluster::condition(&object, "Ready").map(|(status, _)| status.to_owned());
        (ready.as_deref() == Some("False")).then_some(())
    })
    .await;
}
