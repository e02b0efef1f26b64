use serde_json::json;

use super::Site;
use super::kubelet::Fate;
use crate::cluster::{condition, index, message};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_never_starts_is_reported_until_it_does() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let world = &site.world;
    site.kubelet.decide(Fate::NoImage);
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    let object = world.until_ready_is("stable", "False", "ImagePullBackOff").await;
    assert_eq!(condition(&object, "Stalled"), Some(("True", "ImagePullBackOff")));
    assert!(message(&object).contains("--job-image"), "{}", message(&object));
    world.event("stable", "SyncStalled").await;

    site.kubelet.decide(Fate::Run);
    let object = world.until_ready("stable").await;
    assert_eq!(condition(&object, "Stalled"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicted_pod_is_reported_and_retried() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let world = &site.world;
    site.kubelet.decide(Fate::Evict);
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    let object = world.until_ready_is("stable", "False", "Evicted").await;
    assert_eq!(condition(&object, "Stalled"), None);
    assert_eq!(condition(&object, "Reconciling"), Some(("True", "Retrying")));

    // The Job controller starts another pod.
    site.kubelet.decide(Fate::Run);
    world.until_ready("stable").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_secret_is_named_and_the_repository_recovers() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--watch-secrets"]).await;
    let world = &site.world;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    let auth = json!({ "header": { "secretKeyRef": { "name": "auth", "key": "authorizationHeader" } } });
    world
        .declare_with(
            "stable",
            json!({ "spec": { "type": "helm", "url": url, "auth": auth } }),
        )
        .await;
    let object = world
        .until("stable", "the missing Secret", |object| {
            condition(object, "Stalled").is_some()
        })
        .await;
    assert!(message(&object).contains("auth"), "{}", message(&object));
    assert!(site.jobs("stable").await.is_empty());
    world
        .write_secret(&world.namespace, "auth", json!({ "authorizationHeader": "Bearer x" }))
        .await;
    world.until_ready("stable").await;
}
