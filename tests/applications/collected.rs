//! What becomes of components when their Application is deleted, by the real collector of garbage.

use kube::api::{DeleteParams, DynamicObject, PropagationPolicy};
use kube::{Api, ResourceExt};
use rstest::rstest;
use serde_json::json;

use super::{SOON, Site, shop};
use crate::support::eventually::eventually;

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
async fn components_go_with_their_application_and_nothing_else_does(#[case] how: DeleteParams) {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    let names = ["one", "shared", "two"];
    for name in names {
        site.config_map(name, &json!({ "app": "shop" })).await;
    }
    site.config_map("other", &json!({ "app": "other" })).await;
    // Held by another too, it stays.
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
        // It waits for all that it owns.
        assert!(api.get_opt("one").await.unwrap().is_none() && api.get_opt("two").await.unwrap().is_none());
    }
    gone(&api, "one").await;
    gone(&api, "two").await;
    site.until_owned("v1 ConfigMap", "shared", &["another"]).await;
    assert!(api.get("other").await.is_ok());
    // And nothing is held of it any more.
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
async fn components_of_an_application_that_is_deleted_without_them_stay_and_are_owned_no_more() {
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
