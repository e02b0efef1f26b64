//! Kinds that may not be components: named in the Error condition with the setting, never watched or adopted.

use kube::ResourceExt;
use serde_json::{Value, json};

use super::{CONFIG_MAPS, PEER_KINDS, Site, assert_ready, components, count, shop};
use crate::support::fault_proxy::{ApiRequest, FaultProxy};
use crate::support::project;

const RBAC: &str = "rbac.authorization.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const ROLE: &str = "rbac.authorization.k8s.io/v1 Role";
const READY: (&str, &str, &str) = ("True", "ComponentsReady", "all components ready");

/// A ConfigMap, a Role and a NetworkPolicy, and an Application that adopts them.
async fn declare(site: &Site<'_>, more: &[(&str, &str)]) {
    let labels = json!({ "app": "shop" });
    site.config_map("web", &labels).await;
    let object = |spec: Value| json!({ "metadata": { "labels": { "app": "shop" } }, "spec": spec });
    site.apply(ROLE, "web", json!({ "metadata": { "labels": labels }, "rules": [] }))
        .await;
    let policy = object(json!({ "podSelector": {} }));
    site.apply("networking.k8s.io/v1 NetworkPolicy", "web", policy).await;
    let kinds = [CONFIG_MAPS, &[(RBAC, "Role"), (NETWORKING, "NetworkPolicy")], more].concat();
    site.declare("shop", shop(&kinds, true)).await;
}

async fn owners(site: &Site<'_>, kind: &str) -> usize {
    let object = site.api(kind).get("web").await.unwrap();
    object.owner_references().len()
}

fn requests(proxy: &FaultProxy, plural: &'static str) -> usize {
    count(proxy, |request: &ApiRequest| {
        request.path.contains(&format!("/{plural}"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_default_roles_and_network_policies_are_neither_watched_nor_adopted() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    declare(&site, &[]).await;
    let portolan = site.portolan_with(&kubeconfig, &["--application-kinds="]).await;
    for (group, kind) in [(RBAC, "Role"), (NETWORKING, "NetworkPolicy")] {
        let words =
            format!("kind {kind}.{group} is not watched: if it exists, add +{group}/{kind} to --application-kinds");
        let application = site.until_error("shop", &words).await;
        assert_eq!(components(&application), ["ConfigMap/web Ready"]);
        assert_ready(&application, READY);
    }
    site.until_owned("v1 ConfigMap", "web", &["shop"]).await;
    assert_eq!(owners(&site, ROLE).await, 0);
    assert_eq!((requests(&proxy, "roles"), requests(&proxy, "networkpolicies")), (0, 0));
    super::assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_named_kind_is_added_to_the_default_list() {
    let site = Site::new().await;
    declare(&site, &[]).await;
    let kinds = format!("--application-kinds=+{RBAC}/Role");
    let _portolan = site.portolan(&[&kinds]).await;
    site.until_owned(ROLE, "web", &["shop"]).await;
    site.until_owned("v1 ConfigMap", "web", &["shop"]).await;
    let application = site
        .until_error("shop", "kind NetworkPolicy.networking.k8s.io is not watched")
        .await;
    assert_eq!(components(&application), ["ConfigMap/web Ready", "Role/web Ready"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_namespaced_kinds_are_counted_and_protected_ones_adopted_only_if_named() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let (widget, ship) = (
        site.define("Widget", "Namespaced").await,
        site.define("Ship", "Cluster").await,
    );
    let group = site.group();
    site.apply(&widget, "web", json!({ "metadata": { "labels": { "app": "shop" } } }))
        .await;
    declare(&site, &[(&group, "Widget"), (&group, "Ship")]).await;
    let kinds = format!("--application-kinds=*,+{NETWORKING}/NetworkPolicy");
    let portolan = site.portolan_with(&kubeconfig, &[&kinds]).await;
    let application = site.until_components("shop", "4/4").await;
    assert_ready(&application, READY);
    site.until_owned(&widget, "web", &["shop"]).await;
    site.until_owned("networking.k8s.io/v1 NetworkPolicy", "web", &["shop"])
        .await;
    let words = format!("1 Role.{RBAC} objects not adopted: the kind is protected; add +{RBAC}/Role");
    site.until_error("shop", &words).await;
    assert_eq!(owners(&site, ROLE).await, 0);
    site.until_error(
        "shop",
        &format!("kind Ship.{group} is not watched: if it exists, add +{group}/Ship"),
    )
    .await;
    assert_eq!(requests(&proxy, "ships"), 0);
    super::assert_no_panic(&portolan);
    site.undefine(&widget).await;
    site.undefine(&ship).await;
}

#[test]
fn the_value_of_these_tests_is_the_documented_one() {
    let page = std::fs::read_to_string(project("docs/reference/applications.md")).unwrap();
    assert!(page.contains(&format!("--application-kinds='{PEER_KINDS}'")));
}
