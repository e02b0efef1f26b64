//! The life of an Application.

use std::time::Duration;

use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::{Value, json};

use super::apps::{config, spec, web};
use super::site::{Site, condition, version};
use super::{APPLICATION, CONFIG_MAP, DEPLOYMENT, REVISION, TRACKER, setup};
use crate::support::eventually::eventually;

/// Time to undo a change of somebody else: a second on an idle machine, and far less than the re-sync period.
const UNDONE: Duration = Duration::from_secs(10);

fn names(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(setup::name).collect()
}

/// Returns kinds and names of the entries of a tracker.
fn entries(tracker: &Value) -> Vec<String> {
    let entries = tracker["spec"]["managedResources"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    entries
        .map(|entry| format!("{}/{}", text(&entry["kind"]), text(&entry["name"])))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declared_application_runs_with_its_objects_a_revision_and_a_tracker() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    site.declare("shop", spec(&[web("front", 2), config("settings", "one")]))
        .await;
    let app = site.until_running("shop").await;

    let deployment = site.get(DEPLOYMENT, "front").await.unwrap();
    assert_eq!(deployment["spec"]["replicas"], 2);
    assert_eq!(deployment["metadata"]["labels"]["app.oam.dev/component"], "front");
    let settings = site.get(CONFIG_MAP, "settings").await.unwrap();
    assert_eq!(settings["data"]["key"], "one");
    assert!(site.get("v1 Service", "front").await.is_some());
    assert_eq!(
        app["metadata"]["finalizers"],
        json!(["app.oam.dev/resource-tracker-finalizer"])
    );
    for type_ in ["Parsed", "Revision", "Policy", "Render", "Workflow", "Ready"] {
        assert_eq!(condition(&app, type_)["status"], "True", "{type_}");
    }
    assert_eq!(app["status"]["services"][0]["message"], "Ready:2/2");
    assert_eq!(site.revisions("shop").await, ["shop-v1"]);
    let revision = site.get(REVISION, "shop-v1").await.unwrap();
    assert_eq!(revision["status"]["succeeded"], true);
    let trackers = site.trackers("shop").await;
    assert_eq!(names(&trackers), [format!("shop-v1-{}", site.namespace)]);
    let mut tracked = entries(&trackers[0]);
    tracked.sort();
    assert_eq!(tracked, ["ConfigMap/settings", "Deployment/front", "Service/front"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_changes_objects_and_removes_those_of_removed_components() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let first = [web("front", 1), config("kept", "one"), config("dropped", "one")];
    site.declare("shop", spec(&first)).await;
    site.until_running("shop").await;
    let untouched = site.get(DEPLOYMENT, "front").await.unwrap();

    site.declare("shop", spec(&[web("front", 3), config("kept", "two")]))
        .await;
    site.until_gone(CONFIG_MAP, "dropped").await;
    let app = site.until_running("shop").await;
    assert_eq!(app["status"]["latestRevision"]["name"], "shop-v2");
    let deployment = site.get(DEPLOYMENT, "front").await.unwrap();
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(
        deployment["metadata"]["uid"], untouched["metadata"]["uid"],
        "changed in place"
    );
    assert_eq!(site.get(CONFIG_MAP, "kept").await.unwrap()["data"]["key"], "two");
    site.until_gone(TRACKER, &format!("shop-v1-{}", site.namespace)).await;
    assert_eq!(site.revisions("shop").await, ["shop-v1", "shop-v2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_that_removes_a_key_of_a_config_map_removes_it_there() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let settings = |data: Value| {
        let object =
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" }, "data": data });
        spec(&[super::apps::objects("settings", &[object])])
    };
    site.declare("shop", settings(json!({ "a": "1", "b": "2" }))).await;
    site.until_running("shop").await;
    // A key of somebody else stays.
    site.edit(CONFIG_MAP, "settings", json!({ "data": { "foreign": "3" } }))
        .await;
    site.declare("shop", settings(json!({ "a": "1" }))).await;
    site.until(CONFIG_MAP, "settings", "without b", |object| {
        object["data"] == json!({ "a": "1", "foreign": "3" })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_is_undone_without_waiting_for_the_resync_period() {
    let site = Site::new().await;
    // With this period, only an event can be the cause.
    let _portolan = site.portolan(&["--application-re-sync-period=1h"]).await;
    site.declare("shop", spec(&[web("front", 2), config("settings", "one")]))
        .await;
    site.until_running("shop").await;

    site.edit(DEPLOYMENT, "front", json!({ "spec": { "replicas": 5 } }))
        .await;
    eventually(UNDONE, "replicas to be 2 again", async || {
        let replicas = site.get(DEPLOYMENT, "front").await.unwrap()["spec"]["replicas"].clone();
        if replicas == 2 { Ok(()) } else { Err(replicas) }
    })
    .await;
    let before = site.get(CONFIG_MAP, "settings").await.unwrap();
    site.delete(CONFIG_MAP, "settings").await;
    eventually(UNDONE, "the ConfigMap to be created again", async || {
        let object = site.get(CONFIG_MAP, "settings").await?;
        (object["metadata"]["uid"] != before["metadata"]["uid"]).then_some(())
    })
    .await;
    assert_eq!(site.get(CONFIG_MAP, "settings").await.unwrap()["data"]["key"], "one");
    site.until_running("shop").await;
    assert_eq!(
        site.revisions("shop").await,
        ["shop-v1"],
        "no new revision without a new spec"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_is_seen_without_waiting_for_the_resync_period() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--application-re-sync-period=1h"]).await;
    site.declare("shop", spec(&[web("front", 1)])).await;
    site.until_running("shop").await;
    let pods = site.api("v1 Pod");
    // The controller of the Deployment can't create a replacement.
    let quota = json!({ "spec": { "hard": { "pods": "0" } } });
    site.apply("v1 ResourceQuota", "none", quota).await;
    let all = kube::api::ListParams::default();
    pods.delete_collection(&DeleteParams::default(), &all).await.unwrap();
    site.until(APPLICATION, "shop", "unhealthy", |app| {
        app["status"]["status"] == "unhealthy" && app["status"]["services"][0]["healthy"] == false
    })
    .await;
    site.delete("v1 ResourceQuota", "none").await;
    // The controller of ReplicaSets waits longer after each failure; a new replica set does not.
    site.edit(
        DEPLOYMENT,
        "front",
        json!({ "spec": { "template": { "metadata": { "annotations": { "note": "x" } } } } }),
    )
    .await;
    site.until_running("shop").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_removes_objects_trackers_revisions_and_the_application() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    site.declare("shop", spec(&[web("front", 1), config("settings", "one")]))
        .await;
    site.until_running("shop").await;
    site.declare("shop", spec(&[web("front", 1), config("settings", "two")]))
        .await;
    site.until_running("shop").await;
    let bystander = site.apply(CONFIG_MAP, "bystander", json!({})).await;

    let background = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    site.api(APPLICATION).delete("shop", &background).await.unwrap();
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(site.get(DEPLOYMENT, "front").await, None);
    assert_eq!(site.get(CONFIG_MAP, "settings").await, None);
    assert_eq!(site.trackers("shop").await, Vec::<Value>::new());
    assert_eq!(site.revisions("shop").await, Vec::<String>::new());
    let after = site.get(CONFIG_MAP, "bystander").await.unwrap();
    assert_eq!(version(&after), version(&bystander));
}
