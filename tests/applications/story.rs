//! The life cycle of an Application: Ready and back, adoption, release, and garbage collection.

use serde_json::json;

use super::kinds::play_kubelet;
use super::{Site, assert_error, assert_ready, components, deployment, shop};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_is_reconciled_from_creation_to_deletion() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let labels = json!({ "app": "shop" });

    // Without components the Application is ready.
    site.declare("shop", shop(&[("apps/v1", "Deployment"), ("v1", "Service")], false))
        .await;
    let application = site.until_components("shop", "0/0").await;
    assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
    assert_error(&application, ("False", "NoError"), "No error seen");

    // Components are created and become ready.
    site.apply("apps/v1 Deployment", "web", deployment(&labels)).await;
    site.apply(
        "v1 Service",
        "web",
        json!({ "metadata": { "labels": labels }, "spec": { "ports": [{ "port": 80 }] } }),
    )
    .await;
    site.apply("apps/v1 Deployment", "other", deployment(&json!({ "app": "other" })))
        .await;
    let application = site.until_components("shop", "1/2").await;
    assert_ready(
        &application,
        ("False", "ComponentsNotReady", "1 components not ready: Deployment/web"),
    );
    assert_eq!(
        components(&application),
        ["Deployment/web InProgress", "Service/web Ready"]
    );
    // Both Deployments have two pods, and their controller writes their status.
    play_kubelet(&site, "pod=web", 4, "Running").await;
    let application = site.until_components("shop", "2/2").await;
    assert_ready(&application, ("True", "ComponentsReady", "all components ready"));

    // And back.
    play_kubelet(&site, "pod=web", 4, "Pending").await;
    site.until_components("shop", "1/2").await;
    play_kubelet(&site, "pod=web", 4, "Running").await;
    site.until_components("shop", "2/2").await;

    // Owner references are added and removed.
    site.declare("shop", shop(&[("apps/v1", "Deployment"), ("v1", "Service")], true))
        .await;
    site.until_owned("apps/v1 Deployment", "web", &["shop"]).await;
    site.until_owned("v1 Service", "web", &["shop"]).await;
    site.until_owned("apps/v1 Deployment", "other", &[]).await;
    site.declare("shop", shop(&[("apps/v1", "Deployment")], true)).await;
    site.until_owned("v1 Service", "web", &[]).await;
    site.until_owned("apps/v1 Deployment", "web", &["shop"]).await;
    site.declare("shop", shop(&[("apps/v1", "Deployment")], false)).await;
    site.until_owned("apps/v1 Deployment", "web", &[]).await;
    site.declare("shop", shop(&[("apps/v1", "Deployment")], true)).await;
    site.until_owned("apps/v1 Deployment", "web", &["shop"]).await;
    site.apply("apps/v1 Deployment", "web", deployment(&json!({ "app": "another" })))
        .await;
    site.until_owned("apps/v1 Deployment", "web", &[]).await;
    site.until_components("shop", "0/0").await;
    site.apply("apps/v1 Deployment", "web", deployment(&labels)).await;
    site.until_owned("apps/v1 Deployment", "web", &["shop"]).await;

    // The garbage collector deletes it with its components.
    site.delete("app.k8s.io/v1beta1 Application", "shop").await;
    let deployments = site.api("apps/v1 Deployment");
    crate::support::eventually::eventually(
        super::SOON,
        "the Deployment to be collected",
        async || match deployments.get_opt("web").await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        },
    )
    .await;
    assert!(deployments.get("other").await.is_ok());
}
