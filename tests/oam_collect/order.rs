//! Components that are deleted after those that depend on them.

use super::*;

const HELD: &str = "example.com/hold";

/// Creates `db`, and `web` with a finalizer, in one tracker.
async fn held_web(scene: &Scene, generation: i64) {
    let held = json!({ "labels": scene.owner_labels(), "finalizers": [HELD] });
    let entries = [scene.config_map("db").await, scene.config_map_with("web", held).await];
    scene.versioned(generation, &entries).await;
}

async fn release_web(scene: &Scene) {
    scene.edit("web", json!({ "metadata": { "finalizers": [] } })).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_application_loses_a_component_after_its_dependents() {
    let scene = Scene::new().await;
    held_web(&scene, 3).await;
    let policies = Policies::depending(&[("db", "web")]);
    message(scene.collect(&policies, Mark::All).await);
    scene.until_cached("web", true).await;
    message(scene.collect(&policies, Mark::All).await);
    let db = scene.config_maps().get("db").await.unwrap();
    assert!(db.metadata.deletion_timestamp.is_none());
    release_web(&scene).await;
    scene.until_deleted(&policies).await;
    assert_eq!(scene.names().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_versions_are_deleted_in_order_only_if_the_policy_says_so() {
    for (order, is_kept) in [("dependency", true), ("", false)] {
        let scene = Scene::new().await;
        held_web(&scene, 2).await;
        scene.versioned(3, &[]).await;
        let policies = Policies {
            garbage_collect: serde_json::from_value(json!({ "order": order })).unwrap(),
            ..Policies::depending(&[("db", "web")])
        };
        let mark = Mark::History {
            applied: &HashSet::new(),
            is_confirmed: true,
        };
        message(scene.collect(&policies, mark).await);
        scene.until_cached("web", true).await;
        message(scene.collect(&policies, Mark::No).await);
        assert_eq!(
            scene.config_maps().get_opt("db").await.unwrap().is_some(),
            is_kept,
            "{order}"
        );
        release_web(&scene).await;
        eventually(SOON, "the history to be collected", async || {
            done(scene.collect(&policies, Mark::No).await)
        })
        .await;
        assert_eq!(scene.names().await, [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn components_that_depend_on_each_other_are_deleted() {
    let scene = Scene::new().await;
    let entries = [scene.config_map("one").await, scene.config_map("two").await];
    scene.versioned(3, &entries).await;
    scene
        .until_deleted(&Policies::depending(&[("one", "two"), ("two", "one")]))
        .await;
    assert_eq!(scene.names().await, [""; 0]);
}
