//! A kind that is needed in many namespaces: one watch instead of many, if that is allowed, and each status stays right.

use serde_json::{Value, json};

use super::watching::until_watches;
use super::{Site, count, shop};
use crate::support::control_plane::ControlPlane;
use crate::support::fault_proxy::ApiRequest;

/// In more namespaces than these a kind is watched as a whole.
const LIMIT: usize = 20;
/// The last number at which it is watched namespace by namespace again.
const FEW: usize = 10;

async fn declare(site: &Site<'_>) {
    site.config_map("one", &json!({ "app": "shop" })).await;
    site.declare("shop", shop(&[("", "ConfigMap")], true)).await;
}

/// Makes another component in each namespace, and waits until each Application has counted its own.
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

/// A service account that may do everything but look at ConfigMaps of the whole cluster, only at those of each namespace.
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

async fn where_one_watch_is_forbidden_there_are_many(control_plane: &ControlPlane, sites: &[Site<'_>]) {
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
async fn a_kind_that_is_needed_in_many_namespaces_has_one_watch_where_that_is_allowed() {
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
    where_one_watch_is_forbidden_there_are_many(&control_plane, &sites).await;
}
