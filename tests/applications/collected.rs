//! Garbage collection of components when their Application is deleted.

use kube::api::{DeleteParams, DynamicObject, PropagationPolicy};
use kube::{Api, ResourceExt};
use rstest::rstest;
use serde_json::json;

use super::{SOON, Site, count, is_owner_patch, shop};
use crate::support::eventually::eventually;
use crate::support::fault_proxy::{ApiFault, ApiRequest};

async fn gone(api: &Api<DynamicObject>, name: &str) {
    eventually(SOON, &format!("{name} to be gone"), async || {
        match api.get_opt(name).await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[rstest]
#[case::in_the_background(DeleteParams::background())]
#[case::in_the_foreground(DeleteParams::foreground())]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_components_are_deleted_with_their_application(#[case] how: DeleteParams) {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    let names = ["one", "shared", "two"];
    for name in names {
        site.config_map(name, &json!({ "app": "shop" })).await;
    }
    site.config_map("other", &json!({ "app": "other" })).await;
    // The object has another owner and stays.
    let another = site.config_map("another", &json!({})).await;
    let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "another", "uid": another.uid().unwrap() });
    site.edit(
        "v1 ConfigMap",
        "shared",
        json!({ "metadata": { "ownerReferences": [owner] } }),
    )
    .await;
    site.declare("shop", shop(&[("", "ConfigMap")], true)).await;
    for name in ["one", "two"] {
        site.until_owned("v1 ConfigMap", name, &["shop"]).await;
    }
    site.until_owned("v1 ConfigMap", "shared", &["another", "shop"]).await;

    let is_foreground = how.propagation_policy == Some(PropagationPolicy::Foreground);
    site.applications().delete("shop", &how).await.unwrap();
    let api = site.api("v1 ConfigMap");
    gone(&site.api(super::APPLICATION), "shop").await;
    if is_foreground {
        // Foreground deletion waits for all owned objects.
        assert!(api.get_opt("one").await.unwrap().is_none() && api.get_opt("two").await.unwrap().is_none());
    }
    gone(&api, "one").await;
    gone(&api, "two").await;
    site.until_owned("v1 ConfigMap", "shared", &["another"]).await;
    assert!(api.get("other").await.is_ok());
    // No watch is left.
    eventually(SOON, "the watches to stop", async || {
        let metrics = portolan.metrics().await;
        let seen = [
            metrics.sum("portolan_component_watches", &[]),
            metrics.sum("portolan_applications", &[]),
        ];
        if seen == [Some(0.0), Some(0.0)] {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    })
    .await;
    super::assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphaned_components_stay_without_an_owner() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    for number in 0..5 {
        site.config_map(&format!("web-{number}"), &json!({ "app": "shop" }))
            .await;
    }
    site.declare("shop", shop(&[("", "ConfigMap")], true)).await;
    for number in 0..5 {
        site.until_owned("v1 ConfigMap", &format!("web-{number}"), &["shop"])
            .await;
    }
    let how = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    site.applications().delete("shop", &how).await.unwrap();
    gone(&site.api(super::APPLICATION), "shop").await;
    for number in 0..5 {
        site.until_owned("v1 ConfigMap", &format!("web-{number}"), &[]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_with_an_unobserved_deletion_adopts_nothing() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let portolan = site.portolan_with(&kubeconfig, &[]).await;
    site.config_map("web", &json!({ "app": "shop" })).await;
    site.declare("shop", shop(&[("", "ConfigMap")], true)).await;
    site.until_owned("v1 ConfigMap", "web", &["shop"]).await;
    site.until_components("shop", "1/1").await;

    // From now on Portolan receives events of components, but none of Applications.
    proxy.inject(usize::MAX, ApiFault::Stalled, |request| request.is_of("applications"));
    proxy.gate.disconnect();
    let reads = |request: &ApiRequest| request.method == "GET" && request.path.ends_with("/applications/shop");
    let (read, adopted) = (
        count(&proxy, reads),
        count(&proxy, |request| is_owner_patch(request, "configmaps")),
    );
    let how = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    site.applications().delete("shop", &how).await.unwrap();
    gone(&site.api(super::APPLICATION), "shop").await;
    // Portolan observes that the garbage collector has removed the reference, as if it needed to be restored.
    eventually(SOON, "the Application to be read again", async || {
        if count(&proxy, reads) > read {
            Ok(())
        } else {
            Err("no further read")
        }
    })
    .await;
    site.until_owned("v1 ConfigMap", "web", &[]).await;
    assert_eq!(count(&proxy, |request| is_owner_patch(request, "configmaps")), adopted);
    super::assert_no_panic(&portolan);
}
