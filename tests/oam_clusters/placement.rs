//! Overrides and replicas per cluster, and traits that stay in the controller's own.

use serde_json::{Value, json};

use super::fleet::{Fleet, assert_kept, has, placed};
use crate::oam_apps::apps::config;
use crate::oam_apps::site::Site;
use crate::oam_apps::stories_hostile::define;
use crate::oam_apps::workflows::{status, step};
use crate::oam_apps::{CONFIG_MAP, DEPLOYMENT, setup};
use crate::support::eventually::{SOON, eventually};

const TRAIT: &str = "core.oam.dev/v1beta1 TraitDefinition";
const OF_REPLICA: &str = r#"
    output: {
        apiVersion: "v1"
        kind:       "ConfigMap"
        metadata: name: "\(context.name)-\(context.replicaKey)"
        data: key: parameter.value
    }
    parameter: value: string
"#;
/// A ConfigMap beside its component.
const BESIDE: &str = r#"
    outputs: TRAIT: {
        apiVersion: "v1"
        kind:       "ConfigMap"
        metadata: name: "\(context.name)-TRAIT"
        data: key: "one"
    }
    parameter: {}
"#;

fn policy(name: &str, type_: &str, properties: Value) -> Value {
    json!({ "name": name, "type": type_, "properties": properties })
}

fn deploy(name: &str, policies: &[&str]) -> Value {
    step(name, "deploy", json!({ "policies": policies }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_override_changes_the_components_of_one_cluster() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let west = fleet.with_west().await;
    let _portolan = fleet.portolan(&[]).await;
    let component = json!({
        "name": "web", "type": "webservice",
        "properties": { "image": "example.com/web:1", "ports": [{ "port": 80 }] },
    });
    let newer = json!({ "components": [{ "name": "web", "properties": { "image": "example.com/web:2" } }] });
    let spec = json!({
        "components": [component],
        "policies": [
            policy("staging", "topology", json!({ "clusters": ["east"] })),
            policy("production", "topology", json!({ "clusters": ["west"] })),
            policy("newer", "override", newer),
        ],
        "workflow": { "steps": [deploy("test", &["staging", "newer"]), deploy("release", &["production"])] },
    });
    site.declare("shop", spec).await;
    site.until_running("shop").await;
    for (cluster, image) in [(east, "example.com/web:2"), (&west, "example.com/web:1")] {
        let object = cluster.get(DEPLOYMENT, "web").await.unwrap();
        assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["image"], image);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_topology_is_a_step_with_clusters_and_a_namespace_of_its_own() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[]).await;
    let other = site.control_plane.namespace().await;
    setup::namespace(east.control_plane, &other).await;
    let spec = json!({
        "components": [config("settings", "one")],
        "policies": [
            policy("near", "topology", json!({ "clusters": ["local"] })),
            policy("far", "topology", json!({ "clusters": ["east"], "namespace": other })),
        ],
    });
    site.declare("shop", spec).await;
    let app = site.until_running("shop").await;
    for name in ["deploy-near", "deploy-far"] {
        assert_eq!(status(&app, name)["phase"], "succeeded", "{name}");
    }
    assert!(site.get(CONFIG_MAP, "settings").await.is_some());
    assert_eq!(east.get(CONFIG_MAP, "settings").await, None);
    let there = Site::of(east.control_plane, other).await;
    assert_kept(&there, "settings", "one").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_are_objects_of_each_cluster() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    define(site, "config-of-replica", OF_REPLICA).await;
    let _portolan = fleet.portolan(&[]).await;
    let declare = async |keys: &[&str]| {
        let component = json!({ "name": "settings", "type": "config-of-replica", "properties": { "value": "one" } });
        let replication = json!({ "keys": keys, "selector": ["settings"] });
        let spec = json!({
            "components": [component],
            "policies": [
                policy("both", "topology", json!({ "clusters": ["local", "east"] })),
                policy("by-key", "replication", replication),
            ],
            "workflow": { "steps": [deploy("all", &["both", "by-key"])] },
        });
        site.declare("shop", spec).await;
        site.until_running("shop").await;
    };
    declare(&["a", "b"]).await;
    for cluster in [site, east] {
        for name in ["settings-a", "settings-b"] {
            assert!(has("one")(&cluster.get(CONFIG_MAP, name).await.unwrap()), "{name}");
        }
    }
    declare(&["b"]).await;
    for cluster in [site, east] {
        cluster.until_gone(CONFIG_MAP, "settings-a").await;
        assert!(cluster.get(CONFIG_MAP, "settings-b").await.is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_objects_of_a_control_plane_trait_stay_in_the_cluster_of_the_controller() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    for (name, is_local) in [("publish", true), ("accompany", false)] {
        let template = BESIDE.replace("TRAIT", name);
        let definition =
            json!({ "spec": { "controlPlaneOnly": is_local, "schematic": { "cue": { "template": template } } } });
        site.apply(TRAIT, name, definition).await;
    }
    let _portolan = fleet.portolan(&[]).await;
    let mut component = config("settings", "one");
    component["traits"] = json!(["publish", "accompany"].map(|type_| json!({ "type": type_, "properties": {} })));
    site.declare("shop", placed(&[component], &["east"])).await;
    site.until_running("shop").await;
    let objects = [
        ("settings", false),
        ("settings-publish", true),
        ("settings-accompany", false),
    ];
    for (name, is_local) in objects {
        for (cluster, is_expected) in [(site, is_local), (east, !is_local)] {
            let found = cluster.get(CONFIG_MAP, name).await;
            assert_eq!(found.is_some(), is_expected, "{name}: {found:?}");
        }
    }

    // It is kept where it is.
    site.delete(CONFIG_MAP, "settings-publish").await;
    eventually(SOON, "the object to be created again", async || {
        site.get(CONFIG_MAP, "settings-publish").await
    })
    .await;
    assert_eq!(east.get(CONFIG_MAP, "settings-publish").await, None);
}
