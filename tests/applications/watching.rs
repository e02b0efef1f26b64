//! The watches in use: as few as needed, in as few namespaces, with as few fields.

use serde_json::json;

use super::{SOON, Site, count, is_status_patch, shop};
use crate::support::eventually::eventually;
use crate::support::fault_proxy::ApiRequest;
use crate::support::portolan::Portolan;

/// Waits until `expected` component watches are running.
pub async fn until_watches(portolan: &Portolan, expected: f64) {
    eventually(SOON, &format!("{expected} watches"), async || {
        match portolan.metrics().await.sum("portolan_component_watches", &[]) {
            Some(watches) if watches == expected => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_metadata_is_requested_for_kinds_that_are_always_ready() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    site.apply(
        "v1 Secret",
        "keys",
        json!({ "metadata": { "labels": { "app": "shop" } }, "stringData": { "key": "secret" } }),
    )
    .await;
    site.config_map("web", &json!({ "app": "shop" })).await;
    site.apply(
        "apps/v1 Deployment",
        "web",
        super::deployment(&json!({ "app": "shop" })),
    )
    .await;
    let portolan = site.portolan_with(&kubeconfig, &["--watch-secrets=false"]).await;
    site.declare(
        "shop",
        shop(&[("", "Secret"), ("", "ConfigMap"), ("apps", "Deployment")], true),
    )
    .await;
    site.until_components("shop", "2/3").await;
    for name in ["Secret keys", "ConfigMap web"] {
        let (kind, name) = name.split_once(' ').unwrap();
        site.until_owned(&format!("v1 {kind}"), name, &["shop"]).await;
    }
    let seen = proxy.requests();
    for plural in ["secrets", "configmaps"] {
        let of: Vec<_> = seen
            .iter()
            .filter(|request| request.path.contains(&format!("/{plural}")))
            .collect();
        assert!(of.iter().any(|request| request.is_watch()), "{plural} are watched");
        let whole: Vec<_> = of.iter().filter(|request| !request.is_partial()).collect();
        assert!(whole.is_empty(), "{whole:#?}");
    }
    let elsewhere = |request: &&ApiRequest| {
        let is_component = ["secrets", "configmaps", "deployments"]
            .iter()
            .any(|plural| request.is_of(plural));
        is_component && request.is_watch() && !request.path.contains(&format!("/namespaces/{}/", site.namespace))
    };
    assert_eq!(
        seen.iter().filter(elsewhere).count(),
        0,
        "only the namespace is watched"
    );
    let deployments: Vec<_> = seen.iter().filter(|request| request.is_of("deployments")).collect();
    assert!(
        deployments.iter().all(|request| !request.is_partial()),
        "the status is needed"
    );
    until_watches(&portolan, 3.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_is_shared_and_stops_with_its_last_subscriber() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let portolan = site.portolan_with(&kubeconfig, &[]).await;
    until_watches(&portolan, 0.0).await;
    for number in 0..5 {
        site.declare(&format!("shop-{number}"), shop(&[("", "ConfigMap")], false))
            .await;
    }
    for number in 0..5 {
        site.until_components(&format!("shop-{number}"), "0/0").await;
    }
    until_watches(&portolan, 1.0).await;
    let is_list = |request: &ApiRequest| request.is_of("configmaps") && !request.is_watch();
    assert_eq!(count(&proxy, is_list), 1);
    site.declare("shop-0", shop(&[("", "ConfigMap"), ("", "Service")], false))
        .await;
    until_watches(&portolan, 2.0).await;
    site.declare("shop-0", shop(&[("", "Service")], false)).await;
    for number in 1..5 {
        until_watches(&portolan, 2.0).await;
        site.delete(super::APPLICATION, &format!("shop-{number}")).await;
    }
    until_watches(&portolan, 1.0).await;
    site.delete(super::APPLICATION, "shop-0").await;
    until_watches(&portolan, 0.0).await;
    // Further changes affect no Application; the next subscriber starts with a new list.
    let written = count(&proxy, |request| is_status_patch(request, ""));
    site.config_map("web", &json!({ "app": "shop" })).await;
    site.declare("again", shop(&[("", "ConfigMap")], false)).await;
    site.until_components("again", "1/1").await;
    assert_eq!(count(&proxy, is_list), 2);
    assert_eq!(count(&proxy, |request| is_status_patch(request, "")), written + 1);
}
