//! Deletions that have nothing to do, and deletions that wait.

use axum::http::Method;
use serde_json::{Value, json};

use super::apps::{config, spec, with_policies};
use super::site::{Site, condition};
use super::{APPLICATION, CONFIG_MAP, REVISION};
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::ApiRequest;

/// The policy lacks its properties.
fn invalid(components: &[Value]) -> Value {
    json!({ "components": components, "policies": [{ "name": "keep", "type": "garbage-collect" }] })
}

const UNPARSED: &str = "policy garbage-collect named keep must not have empty properties";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_with_invalid_policies_goes_at_once_unless_objects_are_recorded() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    site.declare("empty", invalid(&[config("none", "one")])).await;
    site.declare("shop", spec(&[config("settings", "one")])).await;
    site.until_said("empty", UNPARSED).await;
    site.delete(APPLICATION, "empty").await;
    site.until_gone(APPLICATION, "empty").await;
    assert_eq!(site.get(CONFIG_MAP, "none").await, None);

    site.until_running("shop").await;
    site.declare("shop", invalid(&[config("settings", "one")])).await;
    site.until_said("shop", UNPARSED).await;
    // Its policies would decide.
    site.delete(REVISION, "shop-v1").await;
    site.until_gone(REVISION, "shop-v1").await;
    site.delete(APPLICATION, "shop").await;
    let app = site
        .until_said("shop", "fix the policies, which decide about objects to keep")
        .await;
    assert_eq!(condition(&app, "Ready")["status"], "False");
    assert!(site.get(CONFIG_MAP, "settings").await.is_some());

    let keep = json!({ "rules": [{ "selector": { "resourceTypes": ["ConfigMap"] }, "strategy": "never" }] });
    let policies = [("garbage-collect", keep)];
    site.declare("shop", with_policies(&[config("settings", "one")], &policies))
        .await;
    site.until_gone(APPLICATION, "shop").await;
    let kept = site.get(CONFIG_MAP, "settings").await.unwrap();
    assert!(kept["metadata"]["labels"]["app.oam.dev/name"].is_null(), "{kept:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_stays_until_its_revisions_are_gone() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let portolan = site.start(&kubeconfig, &[]);
    portolan.ready(SOON).await;
    site.declare("shop", spec(&[config("settings", "one")])).await;
    site.until_running("shop").await;
    let held = json!({ "metadata": { "finalizers": ["example.com/hold"] } });
    site.edit(REVISION, "shop-v1", held).await;
    site.delete(APPLICATION, "shop").await;
    let waiting = format!(
        "Waiting for ApplicationRevision shop-v1 (Namespace: {})",
        site.namespace
    );
    let app = site.until_said("shop", &waiting).await;
    let ready = condition(&app, "Ready");
    assert_eq!(
        (&ready["status"], &ready["reason"]),
        (&json!("False"), &json!("Deleting"))
    );
    assert_eq!(site.get(CONFIG_MAP, "settings").await, None);
    assert_eq!(site.trackers("shop").await, Vec::<Value>::new());

    let passes = async || {
        let metrics = portolan.metrics().await;
        metrics.sum("portolan_oam_passes_total", &[]).unwrap_or_default()
    };
    let more_passes = async |note: &str| {
        let before = passes().await;
        site.edit(
            APPLICATION,
            "shop",
            json!({ "metadata": { "annotations": { "note": note } } }),
        )
        .await;
        eventually(SOON, "another pass", async || match passes().await {
            passes if passes > before => Ok(()),
            passes => Err(passes),
        })
        .await;
    };
    let deletions = || {
        let requests = proxy.requests();
        let of_revision = |request: &&ApiRequest| {
            request.method == Method::DELETE && request.path.ends_with("/applicationrevisions/shop-v1")
        };
        requests.iter().filter(of_revision).count()
    };
    // The cache has the revision as it is by then.
    more_passes("one").await;
    let before = deletions();
    more_passes("two").await;
    assert_eq!(deletions(), before, "it is being deleted already");

    site.edit(REVISION, "shop-v1", json!({ "metadata": { "finalizers": null } }))
        .await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(site.get(REVISION, "shop-v1").await, None);
}
