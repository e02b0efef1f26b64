//! Passes that wait, fail or are cut off.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::support::fault_proxy::ApiFault;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_that_waits_names_the_object_and_sends_no_requests() {
    let scene = Scene::new().await;
    let held = json!({ "labels": scene.owner_labels(), "finalizers": ["example.com/hold"] });
    let entries = [scene.entry("gone"), scene.config_map_with("held", held).await];
    scene.versioned(3, &entries).await;
    let expected = format!(
        "Waiting for ConfigMap held (Namespace: {}) to delete. (At least 1 resources are deleting.)",
        scene.app.name.namespace
    );
    assert_eq!(message(scene.collect(&Policies::default(), Mark::All).await), expected);
    scene.until_cached("held", true).await;
    let before = scene.requests();
    assert_eq!(message(scene.collect(&Policies::default(), Mark::All).await), expected);
    assert_eq!(scene.requests(), before);
    scene.edit("held", json!({ "metadata": { "finalizers": [] } })).await;
    scene.until_deleted(&Policies::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_can_not_be_deleted_does_not_stop_the_others() {
    let scene = Scene::new().await;
    let entries = [scene.config_map("one").await, scene.config_map("two").await];
    // The absence of others is not confirmed beside one that fails.
    scene.until_cached("two", false).await;
    scene.versioned(3, &entries).await;
    scene.proxy.inject(usize::MAX, ApiFault::Status(403), |request| {
        is_write(request) && request.path.ends_with("/configmaps/one")
    });
    let error = scene.collect(&Policies::default(), Mark::All).await.unwrap_err();
    let expected = format!(
        "error encountered during garbage collection: failed to delete ConfigMap one (Namespace: {}): injected by the test",
        scene.app.name.namespace
    );
    assert_eq!(error.to_string(), expected);
    assert_eq!(scene.names().await, ["one"]);
    assert_eq!(scene.tracker_names().await, ["shop-v3"]);
    scene.proxy.clear_faults();
    scene.until_deleted(&Policies::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_can_not_be_read_keeps_its_tracker() {
    let scene = Scene::new().await;
    scene.versioned(3, &[scene.entry("gone")]).await;
    scene.proxy.inject(usize::MAX, ApiFault::Status(500), |request| {
        request.path.ends_with("/configmaps/gone")
    });
    let error = scene.collect(&Policies::default(), Mark::All).await.unwrap_err();
    assert!(error.to_string().contains("failed to get ConfigMap gone"), "{error}");
    assert_eq!(scene.tracker_names().await, ["shop-v3"]);
    scene.proxy.clear_faults();
    scene.until_deleted(&Policies::default()).await;
}

/// Ends each pass at another write, once before the API server receives it and once before its response arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_that_is_cut_off_at_any_write_is_completed_by_the_next() {
    for fault in [ApiFault::Refused, ApiFault::ResponseLost] {
        for limit in 0.. {
            if !is_completed_after(limit, fault.clone()).await {
                assert!(limit >= 6, "two trackers and two objects take six writes");
                break;
            }
        }
    }
}

/// Cuts off a pass at a write. Returns false if there were fewer writes.
async fn is_completed_after(limit: usize, fault: ApiFault) -> bool {
    let scene = Scene::new().await;
    let kept = ManagedResource {
        skip_gc: true,
        ..scene.config_map("kept").await
    };
    let deleted = scene.config_map("deleted").await;
    scene.until_cached("kept", false).await;
    scene.until_cached("deleted", false).await;
    scene.versioned(2, &[deleted]).await;
    scene.versioned(3, &[kept]).await;
    let writes = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&writes);
    scene.proxy.inject(usize::MAX, fault, move |request| {
        is_write(request) && counter.fetch_add(1, Ordering::SeqCst) >= limit
    });
    let policies = Policies::default();
    eventually(SOON, "the collection or a fault", async || {
        match scene.collect(&policies, Mark::All).await {
            Ok(CollectProgress::Waiting { message, .. }) => Err(message),
            Ok(CollectProgress::Done) | Err(_) => Ok(()),
        }
    })
    .await;
    let is_cut_off = writes.load(Ordering::SeqCst) > limit;
    scene.proxy.clear_faults();
    scene.until_deleted(&policies).await;
    assert_eq!(scene.names().await, ["kept"]);
    let kept = scene.config_maps().get("kept").await.unwrap();
    assert!(kept.labels().is_empty(), "{:?}", kept.labels());
    is_cut_off
}
