//! Policies about single objects apply in other clusters too.

use serde_json::{Value, json};

use super::fleet::{Fleet, PATIENT, has, placed};
use crate::oam_apps::apps::{config, selecting, web, with_policies};
use crate::oam_apps::site::version;
use crate::oam_apps::{APPLICATION, CONFIG_MAP, DEPLOYMENT};

const OWNER: &str = "app.oam.dev/name";
const SHARED_BY: &str = "app.oam.dev/shared-by";

/// Places components in `east` under one more policy.
fn in_east(components: &[Value], policy: &str, properties: Value) -> Value {
    let east = ("topology", json!({ "clusters": ["east"] }));
    with_policies(components, &[east, (policy, properties)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_shared_in_another_cluster_until_the_last_application_is_deleted() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[PATIENT]).await;
    let namespace = &site.namespace;
    let shared = |value: &str| in_east(&[config("settings", value)], "shared-resource", selecting("ConfigMap"));
    for app in ["first", "second"] {
        site.declare(app, shared(app)).await;
        site.until_running(app).await;
    }
    let settings = east.get(CONFIG_MAP, "settings").await.unwrap();
    assert!(has("first")(&settings), "that of the owner: {settings:#}");
    let sharers = &settings["metadata"]["annotations"][SHARED_BY];
    assert_eq!(*sharers, format!("{namespace}/first,{namespace}/second"));
    assert_eq!(site.get(CONFIG_MAP, "settings").await, None);

    site.delete(APPLICATION, "first").await;
    site.until_gone(APPLICATION, "first").await;
    let handed_over = east
        .until(CONFIG_MAP, "settings", "as the new owner declares it", has("second"))
        .await;
    assert_eq!(handed_over["metadata"]["uid"], settings["metadata"]["uid"]);
    assert_eq!(handed_over["metadata"]["labels"][OWNER], "second");
    site.delete(APPLICATION, "second").await;
    site.until_gone(APPLICATION, "second").await;
    assert_eq!(east.get(CONFIG_MAP, "settings").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_object_of_another_cluster_is_neither_changed_nor_deleted() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[PATIENT]).await;
    let selected = json!({ "rules": [{ "selector": { "componentNames": ["settings"] } }] });
    let components = [config("settings", "ours"), config("own", "one")];
    // The object of that name in the controller's own cluster is another one.
    site.apply(CONFIG_MAP, "settings", json!({ "data": { "key": "near" } }))
        .await;
    site.declare("shop", in_east(&components, "read-only", selected)).await;
    site.until_said("shop", "is marked as read-only but does not exist")
        .await;
    let foreign = json!({ "data": { "key": "foreign" } });
    let foreign = east.apply(CONFIG_MAP, "settings", foreign).await;
    site.until_running("shop").await;
    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(east.get(CONFIG_MAP, "own").await, None);
    let left = east.get(CONFIG_MAP, "settings").await.unwrap();
    assert_eq!(version(&left), version(&foreign));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_another_cluster_is_taken_over_by_policy() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[PATIENT]).await;
    let foreign = json!({ "data": { "key": "foreign", "more": "kept" } });
    let foreign = east.apply(CONFIG_MAP, "settings", foreign).await;
    let components = [config("settings", "ours")];
    site.declare("shop", placed(&components, &["east"])).await;
    site.until_said("shop", "exists but not managed by any application now")
        .await;

    site.declare("shop", in_east(&components, "take-over", selecting("ConfigMap")))
        .await;
    site.until_running("shop").await;
    let taken = east.get(CONFIG_MAP, "settings").await.unwrap();
    assert_eq!(taken["metadata"]["uid"], foreign["metadata"]["uid"]);
    assert_eq!(taken["data"], json!({ "key": "ours", "more": "kept" }));
    assert_eq!(taken["metadata"]["labels"][OWNER], "shop");
    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(east.get(CONFIG_MAP, "settings").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_policy_that_becomes_never_keeps_objects_of_another_cluster() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[]).await;
    let declare = async |name: &str, strategy: &str| {
        let selector = json!({ "resourceTypes": ["ConfigMap"], "resourceNames": ["kept"] });
        let rules = json!({ "rules": [{ "selector": selector, "strategy": strategy }] });
        site.declare("shop", in_east(&[config(name, "one")], "garbage-collect", rules))
            .await;
        site.until_running("shop").await;
    };
    declare("kept", "onAppUpdate").await;
    declare("kept", "never").await;
    declare("other", "never").await;
    assert!(east.get(CONFIG_MAP, "kept").await.is_some());
    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(east.get(CONFIG_MAP, "other").await, None);
    assert!(east.get(CONFIG_MAP, "kept").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_another_cluster_that_a_rule_orphans_stay_without_the_label_of_their_application() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[]).await;
    let mut rules = selecting("Deployment");
    rules["rules"][0]["strategy"] = "onAppUpdate".into();
    rules["rules"][0]["propagation"] = "orphan".into();
    site.declare("shop", in_east(&[web("front", 1)], "garbage-collect", rules))
        .await;
    site.until_running("shop").await;
    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
    let left = east.get(DEPLOYMENT, "front").await.unwrap();
    assert_eq!(left["metadata"]["labels"].get("app.oam.dev/name"), None, "{left:#}");
    assert!(left["metadata"].get("deletionTimestamp").is_none(), "{left:#}");
}
