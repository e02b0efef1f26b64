//! Copies of Secrets for the pods.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use serde_json::{Value, json};

use super::Site;
use crate::support::eventually::{SOON, eventually};

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
