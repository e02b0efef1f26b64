//! A restart of the API server.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{CONFIG_MAPS, SOON, Site, assert_no_panic, shop};
use crate::support::control_plane::ControlPlane;
use crate::support::eventually::eventually;

/// Time from the start of the API server until all watches deliver events.
const BACK: Duration = Duration::from_secs(10);

/// A kubeconfig of a service account with all rights by RBAC, which an API server that starts does not know yet.
async fn kubeconfig(site: &Site<'_>) -> std::path::PathBuf {
    let control_plane = site.control_plane;
    let token = control_plane.token_for(&site.namespace, "portolan").await;
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" });
    let subject = json!({ "kind": "ServiceAccount", "name": "portolan", "namespace": site.namespace });
    let binding = json!({ "roleRef": role, "subjects": [subject] });
    let kind = "rbac.authorization.k8s.io/v1 ClusterRoleBinding";
    site.apply_to_cluster(kind, "portolan", binding).await;
    control_plane.kubeconfig_for(&control_plane.url(), &token)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_are_back_within_ten_seconds_after_an_outage_of_the_api_server() {
    let control_plane = ControlPlane::start().await;
    let site = Site::on(&control_plane).await;
    let portolan = site.portolan_with(&kubeconfig(&site).await, &[]).await;
    site.config_map("one", &json!({ "app": "shop" })).await;
    site.declare("shop", shop(CONFIG_MAPS, true)).await;
    site.until_components("shop", "1/1").await;
    let failed = async || {
        let metrics = portolan.metrics().await;
        metrics
            .sum("rest_client_requests_total", &[("code", "<error>")])
            .unwrap_or_default()
    };
    let before = failed().await;
    control_plane.stop_api_server();
    eventually(SOON, "watches that have failed several times", async || {
        let failed = failed().await - before;
        if failed >= 15.0 {
            Ok(())
        } else {
            Err(format!("{failed}"))
        }
    })
    .await;

    control_plane.start_api_server().await;
    let started = Instant::now();
    site.config_map("two", &json!({ "app": "shop" })).await;
    site.declare("new", shop(CONFIG_MAPS, false)).await;
    site.until_components("new", "2/2").await;
    site.until_components("shop", "2/2").await;
    site.until_owned("v1 ConfigMap", "two", &["shop"]).await;
    assert!(started.elapsed() < BACK, "{:?}", started.elapsed());
    site.until_error("shop", "").await;
    assert_no_panic(&portolan);
}
