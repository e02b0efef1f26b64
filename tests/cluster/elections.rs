//! Leader election with missing rights, and with a database that is away.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use portolan::api::Application;
use serde_json::json;

use super::rows::Postgres;
use super::{SOON, World, index};
use crate::support::control_plane::control_plane;
use crate::support::eventually::eventually;
use crate::support::portolan::Portolan;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_right_to_the_lease_is_named() {
    let (world, postgres, control_plane) = (World::new().await, Postgres::new().await, control_plane().await);
    // Everything but Leases.
    let (role, account) = (&world.namespace, format!("{}:powerless", world.namespace));
    let resources = "--resource=namespaces,apprepositories.kubeapps.com,applications.app.k8s.io";
    let create = ["create", "clusterrole", role, "--verb=get,list,watch", resources];
    control_plane.kubectl(&create).await;
    let (of, to) = (format!("--clusterrole={role}"), format!("--serviceaccount={account}"));
    let token = control_plane.token_for(&world.namespace, "powerless").await;
    control_plane
        .kubectl(&["create", "clusterrolebinding", role, &of, &to])
        .await;
    let kubeconfig = control_plane.kubeconfig_for(&control_plane.url(), &token);
    let flags = ["--enable-leader-election", "--namespace", &world.namespace];
    let portolan = Portolan::start(world.command(&kubeconfig, postgres.url(), &flags));
    let line = portolan.line_with("failed to acquire lease", SOON).await;
    assert!(
        line.contains(r#"cannot get resource "leases""#) && line.contains("coordination.k8s.io"),
        "{line}"
    );
    let (status, checks) = portolan.get("/readyz?verbose").await.unwrap();
    assert_eq!(status, 503);
    assert!(checks.contains("[-]lease"), "{checks}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applications_of_a_new_leader_do_not_wait_for_the_database() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let (gate, url) = postgres.database.behind_gate().await;
    gate.close().await;
    let flags = [
        "--enable-leader-election",
        "--shards=2",
        "--namespace",
        &world.namespace,
    ];
    let portolan = Portolan::start(world.command(&world.kubeconfig, &url, &flags));
    let applications: Api<Application> = Api::namespaced(world.client.clone(), &world.namespace);
    for number in 0..4 {
        let app = json!({
            "apiVersion": "app.k8s.io/v1beta1", "kind": "Application",
            "metadata": { "name": format!("app-{number}") },
            "spec": { "selector": { "matchLabels": { "app": "web" } }, "componentKinds": [{ "group": "", "kind": "ConfigMap" }] },
        });
        let app = serde_json::from_value(app).unwrap();
        applications.create(&PostParams::default(), &app).await.unwrap();
    }
    for number in 0..4 {
        eventually(SOON, "the status of the Application", async || {
            let app = applications.get(&format!("app-{number}")).await.unwrap();
            app.status.and_then(|status| status.observed_generation)
        })
        .await;
    }
    assert!(!portolan.lines().iter().any(|line| line.contains("exiting")));

    gate.open().await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), &world.namespace);
    for name in ["portolan-0", "portolan-1"] {
        // All objects may be of the first shard, so that none of them waits for the second.
        eventually(SOON, &format!("a holder of {name}"), async || {
            let lease = leases.get_opt(name).await.unwrap()?;
            lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
        })
        .await;
    }
}
