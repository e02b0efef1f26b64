//! Repositories that Jobs sync, in another namespace than their Jobs.

use serde_json::json;

use super::{Grant, compare, leave_orphan};
use crate::cluster::{SOON, World, index};
use crate::jobs::Site;
use crate::packaging::release::{container_for, install_in, restricted_namespace};
use crate::support::control_plane::control_plane;
use crate::support::fault_proxy::FaultProxy;
use crate::support::portolan::Portolan;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_need_exactly_the_granted_rights() {
    let site = Site::in_namespace(World::new().await, restricted_namespace().await).await;
    let settings = format!(
        "--set=watchNamespace={},kubeappsNamespace={},leaderElection.enabled=true,executor.mode=job,executor.allowAnnotation=true,\
         database.passwordSecret.name=db,database.passwordSecret.key=password,database.url={}",
        site.world.namespace,
        site.namespace,
        site.database_url()
    );
    install_in(&site.namespace, &[&settings]).await;
    leave_orphan(&site.namespace, &site.world.namespace).await;
    let proxy = FaultProxy::in_front_of(control_plane().await).await;
    let portolan = Portolan::start(container_for(&site.namespace, &proxy.url(), &site.database_url()).await);
    portolan.ready(SOON).await;
    story(&site).await;
    // API servers that guard owner references require this right, and nothing is written.
    let is_guard = |grant: &Grant| grant.resource == "kubeapps.com/apprepositories/finalizers";
    compare(&site.namespace, &proxy, is_guard).await;
}

/// A private repository whose CronJob is edited, which leaves Jobs while one is running, and a deleted one.
async fn story(site: &Site) {
    let world = &site.world;
    world.server.demand("Bearer token");
    let header = json!({ "authorizationHeader": "Bearer token" });
    world.write_secret(&world.namespace, "login", header).await;
    let key = json!({ "secretKeyRef": { "name": "login", "key": "authorizationHeader" } });
    for name in ["harbour", "quay"] {
        let url = world.serve(name, index(&[("beacon", &["1.0.0"])]));
        let spec = json!({ "type": "helm", "url": url, "auth": { "header": key } });
        world.declare_with(name, json!({ "spec": spec })).await;
        world.until_ready(name).await;
    }
    world.delete("quay").await;
    world.gone("quay").await;

    let cron_job = kube::ResourceExt::name_any(&site.cron_job("harbour").await);
    let added = json!({ "spec": { "startingDeadlineSeconds": 5 } });
    site.patch_cron_job(&cron_job, added).await;
    let is_restored = |cron_job: &k8s_openapi::api::batch::v1::CronJob| {
        let spec = cron_job.spec.as_ref();
        spec.is_some_and(|spec| spec.starting_deadline_seconds.is_none())
    };
    site.until_cron_job("harbour", "the edit to be undone", is_restored)
        .await;
    site.hold("harbour").await;
    world.annotate("harbour", "portolan.dev/executor", "in-process").await;
    site.until_no_objects("harbour").await;
}
