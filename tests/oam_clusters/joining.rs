//! Secrets of clusters that can't be read, are misnamed, or are those of the controller's own cluster.

use serde_json::{Value, json};

use super::fleet::{Fleet, PATIENT, TOKEN, assert_kept, credential, placed, placed_by};
use crate::oam_apps::apps::{config, spec};
use crate::oam_apps::workflows::step;
use crate::oam_apps::{APPLICATION, CONFIG_MAP};
use crate::support::eventually::SOON;
use crate::support::fault_proxy::ApiFault;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_that_may_not_be_listed_fail_only_applications_of_other_clusters() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let (proxy, kubeconfig) = site.proxy().await;
    let secrets = format!("/api/v1/namespaces/{}/secrets", fleet.definitions);
    proxy.inject(usize::MAX, ApiFault::Status(403), move |request| {
        request.path == secrets
    });
    let portolan = site.start(&kubeconfig, &fleet.flags(&[PATIENT]));
    portolan.ready(SOON).await;
    site.declare("near", spec(&[config("near", "one")])).await;
    site.declare("far", placed(&[config("far", "one")], &["east"])).await;
    site.declare("named", placed(&[config("named", "one")], &["local"]))
        .await;
    for app in ["near", "named"] {
        site.until_running(app).await;
    }
    let words = format!("failed to look for joined clusters in namespace {}", fleet.definitions);
    site.until_said("far", &words).await;
    assert_eq!(east.get(CONFIG_MAP, "far").await, None);

    proxy.clear_faults();
    site.until_running("far").await;
    assert_kept(east, "far", "one").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_waits_while_the_clusters_are_not_known() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let (proxy, kubeconfig) = site.proxy().await;
    let first = fleet.portolan(&[]).await;
    site.declare("shop", placed(&[config("settings", "one")], &["east"]))
        .await;
    site.until_running("shop").await;
    drop(first);
    let secrets = format!("/api/v1/namespaces/{}/secrets", fleet.definitions);
    proxy.inject(usize::MAX, ApiFault::Status(403), move |request| {
        request.path.starts_with(&secrets)
    });
    let second = site.start(&kubeconfig, &fleet.flags(&[]));
    second.ready(SOON).await;
    site.delete(APPLICATION, "shop").await;
    fleet.until_waiting("shop", "cluster").await;
    // A Secret that can't be read is no proof that the cluster is gone.
    assert_eq!(fleet.records("shop", "east").await.len(), 1);
    assert!(east.get(CONFIG_MAP, "settings").await.is_some());

    proxy.clear_faults();
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(east.get(CONFIG_MAP, "settings").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_named_local_changes_nothing_for_the_cluster_of_the_controller() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    fleet.join("local", east).await;
    let _portolan = fleet.portolan(&[]).await;
    site.declare("named", placed(&[config("named", "one")], &["local"]))
        .await;
    site.declare("unnamed", spec(&[config("unnamed", "one")])).await;
    for name in ["named", "unnamed"] {
        site.until_running(name).await;
        assert_kept(site, name, "one").await;
        assert_eq!(east.get(CONFIG_MAP, name).await, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_of_the_controller_is_not_joined_by_another_name() {
    let fleet = Fleet::without_clusters().await;
    let site = &fleet.site;
    let own = credential(site, &site.control_plane.url());
    fleet.join_with("mirror", TOKEN, json!({}), own).await;
    let _portolan = fleet.portolan(&[PATIENT]).await;
    site.declare("shop", placed(&[config("settings", "one")], &["mirror"]))
        .await;
    site.until_said("shop", "use the name local").await;
    assert_eq!(site.get(CONFIG_MAP, "settings").await, None);
    assert_eq!(site.trackers("shop").await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_of_a_cluster_count_as_they_are_when_an_application_changes() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[PATIENT]).await;
    let select = |value: &str| {
        let topology = json!({ "clusterLabelSelector": { "region": "eu" } });
        placed_by(&[config("settings", value)], topology)
    };
    site.declare("shop", select("one")).await;
    site.until_said("shop", "failed to find any cluster matches given labels")
        .await;
    let labels = json!({ "region": "eu" });
    let data = credential(east, &east.control_plane.url());
    fleet.join_with("east", TOKEN, labels, data).await;
    site.until_running("shop").await;
    assert_kept(east, "settings", "one").await;

    // The label moves to another cluster, and the next version with it.
    let west = fleet.west().await;
    let data = credential(&west, &west.control_plane.url());
    fleet.join_with("west", TOKEN, json!({ "region": "eu" }), data).await;
    fleet.join("east", east).await;
    // The version that runs stays where it is.
    assert_kept(east, "settings", "one").await;
    site.declare("shop", select("two")).await;
    site.until_running("shop").await;
    assert_kept(&west, "settings", "two").await;
    east.until_gone(CONFIG_MAP, "settings").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_is_not_missed_in_a_cluster_that_its_topology_did_not_select_when_it_ran() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[]).await;
    let topology = json!({ "clusterLabelSelector": { "region": "eu" }, "allowEmpty": true });
    let mut spec = placed_by(&[config("first", "one"), config("second", "one")], topology);
    let first = json!({ "component": "first", "cluster": "east" });
    spec["workflow"] = json!({ "steps": [
        step("first", "apply-component", first),
        step("labeled", "deploy", json!({ "policies": ["topology"] })),
    ] });
    site.declare("shop", spec).await;
    site.until_running("shop").await;

    let data = credential(east, &east.control_plane.url());
    fleet.join_with("east", TOKEN, json!({ "region": "eu" }), data).await;
    // Each restore is a pass.
    assert_kept(east, "first", "one").await;
    assert_kept(east, "first", "one").await;
    let app = site.until_running("shop").await;
    let services = app["status"]["services"].as_array().unwrap();
    let names: Vec<_> = services.iter().map(|service| &service["name"]).collect();
    assert_eq!(names, ["first"]);
    assert_eq!(east.get(CONFIG_MAP, "second").await, None);
}
