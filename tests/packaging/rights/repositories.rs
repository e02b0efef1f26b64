//! Repositories and Applications (app.k8s.io), with all options that need rights.

use std::collections::HashSet;
use std::sync::Mutex;

use axum::http::Method;
use portolan::controllers::apprepository::kubeapps_cronjobs::cron_job_name;
use serde_json::json;

use super::{Grant, compare};
use crate::cluster::{SOON, World, adopting, index};
use crate::packaging::release::{container_for, install_in, restricted_namespace};
use crate::support::control_plane::{ADMIN_TOKEN, control_plane};
use crate::support::eventually::eventually;
use crate::support::fault_proxy::{ApiFault, ApiRequest, FaultProxy};
use crate::support::portolan::Portolan;
use crate::support::postgres::database;
use crate::support::process::ScratchDir;

/// An Application and a component of each default kind.
const SHOP: &str = include_str!("shop.yaml");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repositories_and_applications_need_exactly_the_granted_rights() {
    let world = World::new().await;
    let namespace = restricted_namespace().await;
    let settings = format!(
        "--set=watchNamespace={},kubeappsNamespace={namespace},watchSecrets=true,adoptKubeapps=true,metrics.auth=true,\
         leaderElection.enabled=true,applications.enabled=true,releases.enabled=true",
        world.namespace
    );
    install_in(&namespace, &[&settings]).await;
    let proxy = FaultProxy::in_front_of(control_plane().await).await;
    // The first write of each component conflicts, so that it is read.
    let conflicted = Mutex::new(HashSet::new());
    proxy.inject(usize::MAX, ApiFault::Status(409), move |request: &ApiRequest| {
        is_component_write(request) && conflicted.lock().unwrap().insert(request.path.clone())
    });
    let database = database().await;
    let portolan = Portolan::start(container_for(&namespace, &proxy.url(), &database.url).await);
    portolan.ready(SOON).await;

    repositories(&world, &namespace).await;
    applications(&world).await;
    releases(&world).await;
    read_metrics(&portolan).await;
    // API servers that guard owner references require this right, and nothing is written.
    let is_guard = |grant: &Grant| grant.resource == "app.k8s.io/applications/finalizers";
    // Events of Kubeapps' namespace are those of garbage collection, which the story of Jobs has.
    let is_collection =
        |grant: &Grant| grant.resource == "events.k8s.io/events" && grant.namespace.as_ref() == Some(&namespace);
    // Read where they are installed.
    let is_of_others =
        |grant: &Grant| grant.resource.contains("toolkit.fluxcd.io/") || grant.resource.starts_with("argoproj.io/");
    let is_unused = |grant: &Grant| is_guard(grant) || is_collection(grant) || is_of_others(grant);
    compare(&namespace, &proxy, is_unused).await;
}

fn is_component_write(request: &ApiRequest) -> bool {
    let is_ours = ["app.k8s.io", "kubeapps.com", "coordination.k8s.io"];
    request.method == Method::PATCH && !is_ours.iter().any(|group| request.path.contains(group))
}

/// A repository with a Secret, one with a copied Secret in Kubeapps' namespace, and one with a CronJob of Kubeapps.
async fn repositories(world: &World, kubeapps: &str) {
    let url = world.serve("harbour", index(&[("beacon", &["1.0.0"])]));
    let header = json!({ "authorizationHeader": "Bearer token" });
    world.write_secret(&world.namespace, "login", header.clone()).await;
    world
        .write_secret(kubeapps, &format!("{}-apprepo-copied", world.namespace), header)
        .await;
    let cron_job_of = adopting::repository(&world.namespace, "harbour");
    let cron_job = adopting::cron_job(&cron_job_name(&cron_job_of), &cron_job_of);
    adopting::create(&world.client, kubeapps, cron_job).await;
    for (name, secret) in [("harbour", "login"), ("copied", "absent")] {
        let key = json!({ "secretKeyRef": { "name": secret, "key": "authorizationHeader" } });
        let spec = json!({ "type": "helm", "url": url, "auth": { "header": key } });
        world.declare_with(name, json!({ "spec": spec })).await;
        world.until_ready(name).await;
    }
    eventually(SOON, "the CronJob to be removed", async || {
        let names = adopting::names(&world.client, kubeapps).await;
        if names.is_empty() {
            Ok(())
        } else {
            Err(format!("{names:?}"))
        }
    })
    .await;
    world.delete("harbour").await;
    world.gone("harbour").await;
}

async fn applications(world: &World) {
    let directory = ScratchDir::new("shop");
    let file = directory.write("shop.yaml", SHOP).display().to_string();
    let apply = ["apply", "--namespace", &world.namespace, "-f", &file];
    control_plane().await.kubectl(&apply).await;
}

/// Creates a release in each kind of object. Their content does not matter.
async fn releases(world: &World) {
    let directory = ScratchDir::new("releases");
    for kind in ["Secret", "ConfigMap"] {
        let labels = json!({ "owner": "helm", "status": "deployed" });
        let metadata = json!({ "name": "sh.helm.release.v1.web.v1", "labels": labels });
        let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata });
        let file = directory
            .write(&format!("{kind}.json"), object.to_string())
            .display()
            .to_string();
        let apply = ["apply", "--namespace", &world.namespace, "-f", &file];
        control_plane().await.kubectl(&apply).await;
    }
}

/// Reads the metrics with a token, which Portolan lets the API server review.
async fn read_metrics(portolan: &Portolan) {
    portolan::http::install_crypto_provider();
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build();
    let request = client.unwrap().get(format!("http://{}/metrics", portolan.address()));
    let response = request.bearer_auth(ADMIN_TOKEN).send().await.unwrap();
    assert_eq!(response.status(), 200);
}
