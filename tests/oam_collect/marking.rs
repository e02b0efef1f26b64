//! Trackers that are deleted, and those that are not.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_deleted_while_the_current_tracker_lacks_applied_objects() {
    let scene = Scene::new().await;
    let entry = scene.config_map("one").await;
    scene.versioned(2, std::slice::from_ref(&entry)).await;
    let none = "error encountered during garbage collection: no resourcetracker of the current version exists";
    let incomplete = "error encountered during garbage collection: the current resourcetracker lacks 1";
    for (applied, expected) in [(&[][..], none), (&["one"], incomplete)] {
        let error = scene.collect_history(&Policies::default(), applied).await.unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    assert_eq!((scene.names().await, scene.writes()), (vec!["one".to_owned()], 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_that_goes_on_marks_nothing() {
    let scene = Scene::new().await;
    let entry = scene.config_map("one").await;
    scene.versioned(2, &[entry]).await;
    scene.versioned(3, &[]).await;
    assert_eq!(
        scene.collect(&Policies::default(), Mark::No).await,
        Ok(CollectProgress::Done)
    );
    assert!(scene.requests().is_empty(), "{:?}", scene.requests());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn legacy_objects_are_kept_until_they_are_gone_or_recorded_again() {
    let scene = Scene::new().await;
    let [old, gone, again] = [
        scene.config_map("old").await,
        scene.entry("gone"),
        scene.config_map("again").await,
    ];
    scene.versioned(1, &[old, gone.clone()]).await;
    scene.versioned(2, &[gone, again.clone()]).await;
    scene.versioned(3, &[again]).await;
    scene.until_cached("old", false).await;
    let policies = Policies::garbage_collect(json!({ "keepLegacyResource": true }));
    scene.until_history_is_collected(&policies, &["again"]).await;
    assert_eq!(scene.tracker_names().await, ["shop-v1", "shop-v3"]);
    let before = scene.requests().len();
    scene.until_history_is_collected(&policies, &["again"]).await;
    assert_eq!(scene.requests().len(), before, "the cache knows that the object exists");
    scene
        .config_maps()
        .delete("old", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    eventually(SOON, "the tracker to be deleted", async || {
        done(scene.collect_history(&policies, &["again"]).await)?;
        let names = scene.tracker_names().await;
        if names == ["shop-v3"] {
            Ok(())
        } else {
            Err(format!("{names:?}"))
        }
    })
    .await;
    assert_eq!(scene.names().await, ["again"]);
}
