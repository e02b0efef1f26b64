//! Where nothing changes nothing is asked and nothing is written.

use std::time::Duration;

use axum::http::Method;
use serde_json::json;

use super::{SOON, Site, count, is_owner_patch, is_status_patch, shop};
use crate::support::eventually::eventually;
use crate::support::fault_proxy::{ApiRequest, FaultProxy};
use crate::support::portolan::Portolan;

/// How long nothing has to happen.
const WINDOW: Duration = Duration::from_secs(5);

/// Applications of each sort: that adopt and do not, of several kinds, of a kind that is not there, of nothing.
async fn declare_some(site: &Site<'_>) {
    let labels = json!({ "app": "shop" });
    site.config_maps(0..10).await;
    site.apply("apps/v1 Deployment", "web", super::deployment(&labels))
        .await;
    site.declare("adopts", shop(&[("", "ConfigMap")], true)).await;
    site.declare(
        "looks",
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

async fn until_all_is_said(site: &Site<'_>) {
    for (name, ready) in [
        ("adopts", "10/10"),
        ("looks", "10/11"),
        ("unknown", "10/10"),
        ("nothing", "0/0"),
    ] {
        site.until_components(name, ready).await;
    }
    for number in 0..10 {
        site.until_owned("v1 ConfigMap", &format!("many-{number:05}"), &["adopts"])
            .await;
    }
}

/// All requests that are no watch. What is served is asked for again when another test defines a kind in the same cluster.
fn requests(proxy: &FaultProxy) -> Vec<ApiRequest> {
    let is_counted = |request: &ApiRequest| !request.is_watch() && request.path != "/api" && request.path != "/apis";
    proxy.seen().into_iter().filter(is_counted).collect()
}

fn is_write(request: &ApiRequest) -> bool {
    request.method != Method::GET
}

/// How often an Application was looked at without anything being new.
async fn unchanged(portolan: &Portolan) -> f64 {
    let metrics = portolan.metrics().await;
    metrics
        .sum("portolan_application_reconciles_total", &[("result", "unchanged")])
        .unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_rest_there_are_watches_and_nothing_else() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    declare_some(&site).await;
    let portolan = site.portolan_with(&kubeconfig, &["--sync-period=1"]).await;
    until_all_is_said(&site).await;
    let mut last = 0;
    eventually(SOON, "all to have settled", async || {
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
    // Nothing is waited for: what is to be seen is that nothing happens.
    tokio::time::sleep(WINDOW).await;
    let after = requests(&proxy);
    assert!(after.len() == before, "{:#?}", &after[before..]);

    // A change that concerns nobody costs nothing, and one that does costs one write for each whose status it changes.
    site.edit(
        "v1 ConfigMap",
        "many-00003",
        json!({ "metadata": { "annotations": { "note": "x" } }, "data": { "a": "b" } }),
    )
    .await;
    site.config_map("other", &json!({ "app": "other" })).await;
    site.config_map("last", &json!({ "app": "shop" })).await;
    site.until_components("adopts", "11/11").await;
    site.until_components("looks", "11/12").await;
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
    assert_eq!((statuses, owners, writes.len()), (3, 1, 4), "{writes:#?}");
    super::assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_writes_nothing_of_what_is_as_it_was() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    declare_some(&site).await;
    let portolan = site.portolan_with(&kubeconfig, &[]).await;
    until_all_is_said(&site).await;
    drop(portolan);
    let before = count(&proxy, is_write);
    let portolan = site.portolan_with(&kubeconfig, &[]).await;
    eventually(SOON, "all to have been looked at", async || {
        let seen = unchanged(&portolan).await;
        if seen >= 4.0 { Ok(()) } else { Err(format!("{seen}")) }
    })
    .await;
    let after: Vec<_> = requests(&proxy).into_iter().filter(is_write).skip(before).collect();
    assert!(after.is_empty(), "{after:#?}");
    // It does look.
    site.config_map("last", &json!({ "app": "shop" })).await;
    site.until_components("adopts", "11/11").await;
}
