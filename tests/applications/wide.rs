//! A kind used in many namespaces: a single watch if permitted, and every status stays correct.

use serde_json::{Value, json};

use super::watching::until_watches;
use super::{Site, count, shop};
use crate::support::control_plane::ControlPlane;
use crate::support::fault_proxy::ApiRequest;

/// Number of namespaces above which the whole cluster is watched.
const LIMIT: usize = 20;
/// Number of namespaces up to which each one is watched again.
const FEW: usize = 10;

async fn declare(site: &Site<'_>) {
    site.config_map("one", &json!({ "app": "shop" })).await;
    site.declare("shop", shop(&[("", "ConfigMap")], true)).await;
}

/// Creates another component in each namespace, and waits until each Application counts it.
async fn another(sites: &[Site<'_>], name: &str, total: usize) {
    for site in sites {
        site.config_map(name, &json!({ "app": "shop" })).await;
    }
    for site in sites {
        site.until_components("shop", &format!("{total}/{total}")).await;
        site.until_owned("v1 ConfigMap", name, &["shop"]).await;
    }
}

fn is_wide_watch(request: &ApiRequest) -> bool {
    request.path == "/api/v1/configmaps" && request.is_watch()
}

async fn many_namespaces_are_watched_by_one_watch(sites: &[Site<'_>]) {
    let (proxy, kubeconfig) = sites[0].proxy().await;
    for site in &sites[..LIMIT] {
        declare(site).await;
    }
    let portolan = sites[0].portolan_everywhere(&kubeconfig, &[]).await;
    another(&sites[..LIMIT], "two", 2).await;
    until_watches(&portolan, LIMIT as f64).await;
    assert_eq!(count(&proxy, is_wide_watch), 0);

    for site in &sites[LIMIT..] {
        declare(site).await;
        site.config_map("two", &json!({ "app": "shop" })).await;
    }
    another(sites, "three", 3).await;
    until_watches(&portolan, 1.0).await;
    assert_eq!(count(&proxy, is_wide_watch), 1);

    for site in &sites[FEW..] {
        site.delete(super::APPLICATION, "shop").await;
    }
    until_watches(&portolan, FEW as f64).await;
    another(&sites[..FEW], "four", 4).await;
    super::assert_no_panic(&portolan);
    drop(portolan);
    for site in &sites[..FEW] {
        site.delete(super::APPLICATION, "shop").await;
    }
}

/// A service account that may watch ConfigMaps in each namespace but not in the whole cluster.
async fn account(control_plane: &ControlPlane, sites: &[Site<'_>]) -> std::path::PathBuf {
    let token = control_plane.token_for(&sites[0].namespace, "portolan").await;
    let subject = json!({ "kind": "ServiceAccount", "name": "portolan", "namespace": sites[0].namespace });
    let all = |groups: &[&str], resources: &[&str]| json!({ "rules": [{ "apiGroups": groups, "resources": resources, "verbs": ["*"] }] });
    let binding = |kind: &str| json!({ "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "portolan" }, "subjects": [subject] });
    let of = |kind: &str| format!("rbac.authorization.k8s.io/v1 {kind}");
    let put = async |site: &Site<'_>, prefix: &str, role: Value| {
        if prefix.is_empty() {
            site.apply(&of("Role"), "portolan", role).await;
            site.apply(&of("RoleBinding"), "portolan", binding("Role")).await;
        } else {
            site.apply_to_cluster(&of("ClusterRole"), "portolan", role).await;
            site.apply_to_cluster(&of("ClusterRoleBinding"), "portolan", binding("ClusterRole"))
                .await;
        }
    };
    let mut others = all(
        &["app.k8s.io", "kubeapps.com", "events.k8s.io", "apiextensions.k8s.io"],
        &["*"],
    );
    others["rules"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "apiGroups": [""], "resources": ["namespaces", "secrets"], "verbs": ["get", "list", "watch"] }));
    put(&sites[0], "Cluster", others).await;
    for site in sites {
        put(site, "", all(&[""], &["configmaps"])).await;
    }
    control_plane.kubeconfig_for(&control_plane.url(), &token)
}

async fn namespaces_are_watched_if_the_cluster_wide_watch_is_denied(control_plane: &ControlPlane, sites: &[Site<'_>]) {
    let kubeconfig = account(control_plane, sites).await;
    let portolan = sites[0].portolan_everywhere(&kubeconfig, &["--sync-period=1"]).await;
    for site in &sites[..LIMIT] {
        declare(site).await;
    }
    for site in &sites[..LIMIT] {
        site.until_owned("v1 ConfigMap", "one", &["shop"]).await;
    }
    for site in &sites[LIMIT..] {
        declare(site).await;
    }
    another(sites, "two", 2).await;
    super::assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_used_in_many_namespaces_has_one_watch_if_permitted() {
    let control_plane = ControlPlane::start().await;
    let mut sites = Vec::new();
    for _ in 0..LIMIT + 2 {
        sites.push(Site::on(&control_plane).await);
    }
    many_namespaces_are_watched_by_one_watch(&sites).await;
    drop(sites);
    let mut sites = Vec::new();
    for _ in 0..LIMIT + 2 {
        sites.push(Site::on(&control_plane).await);
    }
    namespaces_are_watched_if_the_cluster_wide_watch_is_denied(&control_plane, &sites).await;
}
