//! Health, addresses and namespaces are those of the other cluster.

use serde_json::json;

use super::fleet::{Fleet, PATIENT, assert_kept, has, placed, placed_by};
use crate::oam_apps::apps::{config, objects};
use crate::oam_apps::site::Site;
use crate::oam_apps::workflows::{input, output, step, until_step_says, with, with_steps};
use crate::oam_apps::{APPLICATION, CONFIG_MAP, setup};

/// With these, only an event can be the cause of a pass.
const NO_TIMERS: [&str; 2] = [
    "--application-re-sync-period=1h",
    "--max-workflow-wait-backoff-time=3600",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_follows_the_health_of_its_objects_in_another_cluster() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    site.define_gate().await;
    let _portolan = fleet.portolan(&NO_TIMERS).await;
    let component = json!({ "name": "gate", "type": "gated", "properties": {} });
    site.declare("shop", placed(&[component], &["east"])).await;
    east.until(CONFIG_MAP, "gate", "created", |_| true).await;
    let app = site
        .until(APPLICATION, "shop", "unhealthy", |app| {
            app["status"]["services"][0]["healthy"] == false
        })
        .await;
    assert_eq!(app["status"]["services"][0]["cluster"], "east");
    assert_ne!(app["status"]["status"], "running");
    east.open_gate("gate").await;
    site.until_running("shop").await;
    let closed = json!({ "data": { "open": "no" } });
    east.edit(CONFIG_MAP, "gate", closed).await;
    site.until_phase("shop", "unhealthy").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_the_other_cluster_lacks_is_named_until_it_is_there() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[PATIENT]).await;
    // It exists here.
    let other = site.control_plane.namespace().await;
    let topology = json!({ "clusters": ["east"], "namespace": other });
    site.declare("shop", placed_by(&[config("settings", "one")], topology))
        .await;
    site.until_said("shop", &other).await;
    setup::namespace(east.control_plane, &other).await;
    site.until_running("shop").await;
    let there = Site::of(east.control_plane, other).await;
    assert_kept(&there, "settings", "one").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_are_collected_in_another_cluster() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[]).await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" },
        "spec": { "type": "LoadBalancer", "selector": { "app": "web" }, "ports": [{ "name": "http", "port": 8080 }] },
    });
    let steps = [
        step(
            "web",
            "apply-component",
            json!({ "component": "web", "cluster": "east" }),
        ),
        with(
            step("collect", "collect-service-endpoints", json!({ "outer": true })),
            output("key", "value.url"),
        ),
        with(
            step("write", "export2config", json!({ "configName": "found" })),
            input("key", "data.key"),
        ),
    ];
    site.declare("shop", with_steps(&[objects("web", &[service])], &steps))
        .await;
    until_step_says(site, "shop", "collect", "waiting for endpoints").await;
    let ready = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } } });
    east.edit_status("v1 Service", "web", ready).await;
    site.until_running("shop").await;
    let found = site.get(CONFIG_MAP, "found").await.unwrap();
    assert!(has("http://192.0.2.7:8080")(&found), "{found:#}");
}
