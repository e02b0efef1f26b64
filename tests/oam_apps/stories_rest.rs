//! Without changes, nothing is requested and nothing is written, also after a restart.

use std::path::Path;
use std::time::Duration;

use axum::http::Method;

use super::apps::{config, spec, web};
use super::site::{Site, version};
use super::{APPLICATION, REVISION, TRACKER};
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::{ApiRequest, FaultProxy};
use crate::support::portolan::Portolan;

/// Time without any request.
const WINDOW: Duration = Duration::from_secs(10);
/// Time without requests after which all work is done.
const QUIET: Duration = Duration::from_secs(2);
const APPS: usize = 5;

/// Returns all requests except watches. Discovery runs again when another test defines a kind in the cluster.
pub fn requests(proxy: &FaultProxy) -> Vec<ApiRequest> {
    let is_discovery = |request: &ApiRequest| {
        let path = request.path.as_str();
        path == "/api" || path == "/apis" || (path.starts_with("/apis/") && path.split('/').count() <= 4)
    };
    let is_counted = |request: &ApiRequest| !request.is_watch() && !is_discovery(request);
    proxy.requests().into_iter().filter(is_counted).collect()
}

pub async fn until_quiet(proxy: &FaultProxy) {
    eventually(2 * SOON, "no more requests", async || {
        let before = requests(proxy).len();
        tokio::time::sleep(QUIET).await;
        let after = requests(proxy);
        if after.len() == before {
            Ok(())
        } else {
            Err(format!("{:?}", after.last()))
        }
    })
    .await;
}

async fn portolan(site: &Site, kubeconfig: &Path) -> Portolan {
    // The re-sync must cost nothing either, therefore it happens within the window.
    let portolan = site.start(kubeconfig, &["--application-re-sync-period=5s"]);
    portolan.ready(SOON).await;
    portolan
}

async fn declare_some(site: &Site) {
    for number in 0..APPS {
        let components = [
            web(&format!("front-{number}"), 1),
            config(&format!("settings-{number}"), "one"),
        ];
        site.declare(&format!("app-{number}"), spec(&components)).await;
    }
    for number in 0..APPS {
        site.until_running(&format!("app-{number}")).await;
    }
}

/// Returns kind, name and resource version of everything that the controller has written.
async fn versions(site: &Site) -> Vec<String> {
    let mut objects = site.managed_objects().await;
    objects.extend(site.managed(TRACKER).await);
    objects.extend(site.list(REVISION, "app.oam.dev/name").await);
    for number in 0..APPS {
        objects.extend(site.get(APPLICATION, &format!("app-{number}")).await);
    }
    let shown = |object: &serde_json::Value| {
        let name = super::setup::name(object);
        format!("{} {name} {}", super::setup::kind(object), version(object))
    };
    objects.iter().map(shown).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_rest_there_are_no_requests() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let _portolan = portolan(&site, &kubeconfig).await;
    declare_some(&site).await;
    until_quiet(&proxy).await;
    let before = requests(&proxy).len();
    // The test asserts that nothing happens, so there is no condition to wait for.
    tokio::time::sleep(WINDOW).await;
    let after = requests(&proxy);
    assert!(after.len() == before, "{:#?}", &after[before..]);

    // It still sees changes.
    site.declare("app-0", spec(&[config("settings-0", "two")])).await;
    let is_changed = |object: &serde_json::Value| object["data"]["key"] == "two";
    site.until(super::CONFIG_MAP, "settings-0", "changed", is_changed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_without_changes_writes_nothing() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let first = portolan(&site, &kubeconfig).await;
    declare_some(&site).await;
    until_quiet(&proxy).await;
    drop(first);
    let before = versions(&site).await;
    assert!(before.len() >= 6 * APPS, "{before:#?}");
    let seen = proxy.requests().len();
    let _second = portolan(&site, &kubeconfig).await;
    until_quiet(&proxy).await;
    assert_eq!(versions(&site).await, before);
    // Reviews of rights are requests with POST, but write nothing. Events of cluster-scoped objects are in namespace
    // default: other tests have webhooks without endpoints, which each start reports.
    let is_other = |path: &str| path.contains("authorization.k8s.io") || path.contains("/namespaces/default/events");
    let is_write = |request: &&ApiRequest| request.method != Method::GET && !is_other(&request.path);
    let requests = proxy.requests();
    let writes: Vec<_> = requests[seen..].iter().filter(is_write).collect();
    assert!(writes.is_empty(), "{writes:#?}");
}
