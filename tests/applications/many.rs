//! Many components: all are counted, none is written twice, and memory and status size are limited.

use serde_json::json;

use super::{SOON, Site, assert_ready, count, is_owner_patch, is_status_patch, shop};
use crate::support::eventually::eventually;
use crate::support::portolan::peak_memory;

/// Number of components of one Application.
const MANY: usize = 10_000;
/// Number of components added later.
const CHANGING: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_components_are_counted_while_they_change() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let portolan = site.portolan_with(&kubeconfig, &[]).await.with_probes();
    site.declare("bystander", shop(&[("", "Secret")], false)).await;
    site.config_maps(0..MANY - CHANGING).await;
    site.declare("shop", shop(&[("", "ConfigMap")], false)).await;
    site.until_components("shop", &format!("{0}/{0}", MANY - CHANGING))
        .await;
    let started = std::time::Instant::now();
    site.config_maps(MANY - CHANGING..MANY).await;
    let application = site.until_components("shop", &format!("{MANY}/{MANY}")).await;
    assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
    let bytes = serde_json::to_vec(&application).unwrap().len();
    assert!(bytes < 1_500_000, "{bytes} bytes");
    let writes = count(&proxy, |request| is_status_patch(request, "shop"));
    // A long status is not written more often than about once a second.
    assert!(
        writes as u64 <= 30 + 3 * started.elapsed().as_secs(),
        "{writes} writes in {:?}",
        started.elapsed()
    );

    // Other Applications and later changes are still reconciled.
    site.apply(
        "v1 Secret",
        "web",
        json!({ "metadata": { "labels": { "app": "shop" } } }),
    )
    .await;
    site.until_components("bystander", "1/1").await;
    site.config_map("many-00000", &json!({ "app": "other" })).await;
    site.until_components("shop", &format!("{0}/{0}", MANY - 1)).await;

    // A restart reads the objects in pages.
    let memory = peak_memory(&portolan);
    drop(portolan);
    let before = count(&proxy, |request| is_status_patch(request, ""));
    let portolan = site.portolan_with(&kubeconfig, &[]).await.with_probes();
    eventually(SOON, "both to be reconciled", async || {
        let metrics = portolan.metrics().await;
        let seen = metrics.sum("portolan_application_reconciles_total", &[("result", "unchanged")]);
        if seen >= Some(2.0) {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    })
    .await;
    assert_eq!(count(&proxy, |request| is_status_patch(request, "")), before);
    for memory in [memory, peak_memory(&portolan)] {
        assert!(memory < 200, "{memory} MiB");
    }
    super::assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_components_are_adopted_by_two_hundred_writes_and_a_restart_adds_none() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    site.config_maps(0..200).await;
    let portolan = site.portolan_with(&kubeconfig, &[]).await.with_probes();
    site.declare("shop", shop(&[("", "ConfigMap")], true)).await;
    site.until_components("shop", "200/200").await;
    let owned = async || {
        let list = site
            .api("v1 ConfigMap")
            .list_metadata(&kube::api::ListParams::default().labels("app=shop"))
            .await;
        let owned = list
            .unwrap()
            .items
            .iter()
            .filter(|object| object.metadata.owner_references.is_some())
            .count();
        if owned == 200 {
            Ok(())
        } else {
            Err(format!("{owned} are owned"))
        }
    };
    eventually(SOON, "all to be owned", owned).await;
    let is_patch = |request: &_| is_owner_patch(request, "configmaps");
    assert_eq!(count(&proxy, is_patch), 200);
    drop(portolan);
    let portolan = site.portolan_with(&kubeconfig, &[]).await.with_probes();
    site.config_map("last", &json!({ "app": "shop" })).await;
    site.until_components("shop", "201/201").await;
    site.until_owned("v1 ConfigMap", "last", &["shop"]).await;
    assert_eq!(count(&proxy, is_patch), 201);
    super::assert_no_panic(&portolan);
}
