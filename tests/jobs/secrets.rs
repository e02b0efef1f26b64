//! Copies of Secrets for the pods.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use portolan::api::jobs::REPOSITORY_UID;
use serde_json::{Value, json};

use super::Site;
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::ApiFault;

fn header(password: &str) -> Value {
    let login = BASE64_STANDARD.encode(format!("navigator:{password}"));
    json!({ "authorizationHeader": format!("Basic {login}") })
}

async fn until_copies(site: &Site, count: usize) {
    eventually(SOON, &format!("{count} copies"), async || {
        let copies = site.copies("stable").await;
        if copies == count { Ok(()) } else { Err(copies) }
    })
    .await;
}

/// Declares a private repository beside Kubeapps' copy of an earlier password, and waits until it is synced.
async fn private(site: &Site) {
    let world = &site.world;
    world.server.demand_basic("navigator", "fair-winds");
    world.write_secret(&world.namespace, "auth", header("fair-winds")).await;
    let of_kubeapps = format!("{}-apprepo-stable", world.namespace);
    world
        .write_secret(&site.namespace, &of_kubeapps, header("rotated-since"))
        .await;
    site.declare_private("stable", &[("web", &["1.0.0"])]).await;
    world.until_ready("stable").await;
    assert_eq!(site.copies("stable").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_ends_with_the_reference_and_that_of_kubeapps_stays() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    private(&site).await;
    site.world.edit("stable", json!({ "spec": { "auth": null } })).await;
    until_copies(&site, 0).await;
    let secrets: Api<Secret> = Api::namespaced(site.world.client.clone(), &site.namespace);
    let of_kubeapps = format!("{}-apprepo-stable", site.world.namespace);
    assert!(secrets.get_opt(&of_kubeapps).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_ends_with_the_jobs_of_its_repository() {
    let site = Site::new().await;
    let portolan = site.portolan(&["--allow-executor-annotation"]).await;
    private(&site).await;
    let executor = "portolan.dev/executor";
    site.world.annotate("stable", executor, "in-process").await;
    until_copies(&site, 0).await;
    site.world.annotate("stable", executor, "job").await;
    until_copies(&site, 1).await;
    site.cron_job("stable").await;
    // A start without Jobs finds the copy by the CronJob, which is written after it.
    drop(portolan);
    let _portolan = site.portolan_with(&[], &[]).await;
    until_copies(&site, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_secret_ends_the_jobs_and_the_copy() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let world = &site.world;
    world.server.demand_basic("navigator", "fair-winds");
    world.write_secret(&world.namespace, "auth", header("fair-winds")).await;
    site.declare_private("stable", &[("web", &["1.0.0"])]).await;
    world.until_ready("stable").await;
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    secrets.delete("auth", &DeleteParams::default()).await.unwrap();
    world.resync("stable", "now").await;
    world.until_ready_is("stable", "False", "SecretNotFound").await;
    site.until_no_objects("stable").await;
    until_copies(&site, 0).await;

    world.write_secret(&world.namespace, "auth", header("fair-winds")).await;
    world.until_ready("stable").await;
    site.cron_job("stable").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_repository_has_no_jobs_while_its_secret_is_unavailable() {
    let site = Site::new().await;
    let (proxy, _portolan) = site.portolan_behind_proxy(&[]).await;
    let world = &site.world;
    world.server.demand_basic("navigator", "fair-winds");
    world.write_secret(&world.namespace, "auth", header("fair-winds")).await;
    site.declare_private("stable", &[("web", &["1.0.0"])]).await;
    world.until_ready("stable").await;
    proxy.inject(usize::MAX, ApiFault::Status(500), |request| {
        request.path.ends_with("/secrets/auth")
    });
    world.edit("stable", json!({ "spec": { "suspend": true } })).await;
    site.until_no_objects("stable").await;

    proxy.clear_faults();
    let is_suspended = |cron_job: &CronJob| cron_job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true));
    site.until_cron_job("stable", "the suspended CronJob", is_suspended)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_an_earlier_object_of_the_name_is_taken_over() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    private(&site).await;
    let secrets: Api<Secret> = Api::namespaced(site.world.client.clone(), &site.namespace);
    let ours = ListParams::default().labels("apprepositories.kubeapps.com/repo-name=stable");
    let copy = secrets.list(&ours).await.unwrap().items.remove(0);
    let earlier = json!({ "metadata": { "annotations": { REPOSITORY_UID: "an-old-uid" } } });
    let name = copy.name_any();
    let patched = secrets
        .patch(&name, &PatchParams::default(), &Patch::Merge(earlier))
        .await;
    assert_eq!(patched.unwrap().annotations()[REPOSITORY_UID], "an-old-uid");
    site.world.resync_and_wait("stable", "now").await;
    let taken_over = secrets.get(&name).await.unwrap();
    assert_eq!(
        taken_over.annotations()[REPOSITORY_UID],
        copy.annotations()[REPOSITORY_UID]
    );
}
