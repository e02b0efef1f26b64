//! Without changes, nothing is requested and nothing is written.

use std::time::Duration;

use axum::http::Method;
use kube::ResourceExt;
use portolan::api::Application;
use serde_json::json;

use super::{SOON, Site, count, is_owner_patch, is_status_patch, shop};
use crate::support::eventually::eventually;
use crate::support::fault_proxy::{ApiRequest, FaultProxy};
use crate::support::portolan::Portolan;

/// Time without any request.
const WINDOW: Duration = Duration::from_secs(5);

/// Various Applications: with and without addOwnerRef, several kinds, an unknown kind, no kind.
async fn declare_some(site: &Site<'_>) {
    let labels = json!({ "app": "shop" });
    site.config_maps(0..10).await;
    site.apply("apps/v1 Deployment", "web", super::deployment(&labels))
        .await;
    site.declare("adopts", shop(&[("", "ConfigMap")], true)).await;
    site.declare(
        "selects",
        shop(&[("apps", "Deployment"), ("", "ConfigMap"), ("", "Secret")], false),
    )
    .await;
    site.declare("unknown", shop(&[("", "ConfigMap"), ("core", "Pod")], false))
        .await;
    site.declare(
        "nothing",
        json!({ "componentKinds": [{ "group": "", "kind": "ConfigMap" }] }),
    )
    .await;
}

async fn until_steady(site: &Site<'_>) {
    for (name, ready) in [
        ("adopts", "10/10"),
        ("selects", "10/11"),
        ("unknown", "10/10"),
        ("nothing", "0/0"),
    ] {
        site.until_components(name, ready).await;
    }
    for number in 0..10 {
        site.until_owned("v1 ConfigMap", &format!("many-{number:05}"), &["adopts"])
            .await;
    }
    let has_none = |application: &Application| application.finalizers().is_empty();
    site.until("adopts", "no finalizer", has_none).await;
}

/// All requests except watches. Discovery runs again when another test defines a kind in the cluster.
fn requests(proxy: &FaultProxy) -> Vec<ApiRequest> {
    let is_counted = |request: &ApiRequest| !request.is_watch() && request.path != "/api" && request.path != "/apis";
    proxy.requests().into_iter().filter(is_counted).collect()
}

fn is_write(request: &ApiRequest) -> bool {
    request.method != Method::GET
}

/// Number of reconciles without a change.
async fn unchanged(portolan: &Portolan) -> f64 {
    let metrics = portolan.metrics().await;
    metrics
        .sum("portolan_application_reconciles_total", &[("result", "unchanged")])
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_controller_has_only_watches() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    declare_some(&site).await;
    let portolan = site.portolan_with(&kubeconfig, &["--sync-period=1"]).await;
    until_steady(&site).await;
    let mut last = 0;
    eventually(SOON, "all to be steady", async || {
        let now = requests(&proxy).len();
        tokio::time::sleep(Duration::from_secs(1)).await;
        if std::mem::replace(&mut last, requests(&proxy).len()) == now {
            Ok(())
        } else {
            Err(format!("{last}"))
        }
    })
    .await;
    let before = requests(&proxy).len();
    // The test asserts that nothing happens, so there is no condition to wait for.
    tokio::time::sleep(WINDOW).await;
    let after = requests(&proxy);
    assert!(after.len() == before, "{:#?}", &after[before..]);

    // An unrelated change causes no requests; a relevant one causes one status write per affected Application.
    site.edit(
        "v1 ConfigMap",
        "many-00003",
        json!({ "metadata": { "annotations": { "note": "x" } }, "data": { "a": "b" } }),
    )
    .await;
    site.config_map("other", &json!({ "app": "other" })).await;
    site.config_map("last", &json!({ "app": "shop" })).await;
    site.until_components("adopts", "11/11").await;
    site.until_components("selects", "11/12").await;
    site.until_components("unknown", "11/11").await;
    site.until_owned("v1 ConfigMap", "last", &["adopts"]).await;
    let writes: Vec<_> = requests(&proxy)[before..]
        .iter()
        .filter(|request| is_write(request))
        .cloned()
        .collect();
    let statuses = writes.iter().filter(|request| is_status_patch(request, "")).count();
    let owners = writes
        .iter()
        .filter(|request| is_owner_patch(request, "configmaps"))
        .count();
    // The finalizer is set, and removed after a while.
    let finalizers = writes
        .iter()
        .filter(|request| is_owner_patch(request, "applications"))
        .count();
    assert!((1..=2).contains(&finalizers), "{writes:#?}");
    assert_eq!((statuses, owners, writes.len()), (3, 1, 4 + finalizers), "{writes:#?}");
    super::assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_without_changes_writes_nothing() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    declare_some(&site).await;
    let portolan = site.portolan_with(&kubeconfig, &[]).await;
    until_steady(&site).await;
    drop(portolan);
    let before = count(&proxy, is_write);
    let portolan = site.portolan_with(&kubeconfig, &[]).await;
    eventually(SOON, "all to be reconciled", async || {
        let seen = unchanged(&portolan).await;
        if seen >= 4.0 { Ok(()) } else { Err(format!("{seen}")) }
    })
    .await;
    let after: Vec<_> = requests(&proxy).into_iter().filter(is_write).skip(before).collect();
    assert!(after.is_empty(), "{after:#?}");
    // The controller still reconciles.
    site.config_map("last", &json!({ "app": "shop" })).await;
    site.until_components("adopts", "11/11").await;
}
