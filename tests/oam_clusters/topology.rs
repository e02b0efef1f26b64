//! Objects are created in the clusters that topologies select.

use serde_json::{Value, json};

use super::fleet::{Fleet, PATIENT, TOKEN, credential, has, placed, placed_by};
use crate::oam_apps::apps::{config, web};
use crate::oam_apps::site::Site;
use crate::oam_apps::workflows::status;
use crate::oam_apps::{APPLICATION, CONFIG_MAP, DEPLOYMENT, setup};

const SERVICE: &str = "v1 Service";
const CLUSTER: &str = "app.oam.dev/cluster";

/// Returns the clusters of a list in the status, sorted.
fn clusters<'a>(app: &'a Value, list: &str) -> Vec<&'a str> {
    let entries = app["status"][list].as_array().into_iter().flatten();
    let mut clusters: Vec<_> = entries
        .map(|entry| entry["cluster"].as_str().unwrap_or("local"))
        .collect();
    clusters.sort_unstable();
    clusters
}

/// Joins both clusters with the label `region`.
async fn join_regions(fleet: &Fleet) -> Site {
    let west = fleet.west().await;
    for (name, region, cluster) in [("east", "eu", &fleet.east), ("west", "us", &west)] {
        let data = credential(cluster, &cluster.control_plane.url());
        fleet.join_with(name, TOKEN, json!({ "region": region }), data).await;
    }
    west
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_created_in_the_cluster_that_a_topology_names() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[]).await;
    site.declare("shop", placed(&[web("front", 2)], &["east"])).await;
    let app = site.until_running("shop").await;
    for kind in [DEPLOYMENT, SERVICE] {
        let object = east.get(kind, "front").await.unwrap();
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["app.oam.dev/name"], "shop");
        assert_eq!(labels["app.oam.dev/namespace"], site.namespace);
        assert_eq!(labels[CLUSTER], "east");
        assert_eq!(site.get(kind, "front").await, None);
    }
    let deployment = east.get(DEPLOYMENT, "front").await.unwrap();
    assert_eq!(deployment["spec"]["replicas"], 2);

    let service = &app["status"]["services"][0];
    assert_eq!(service["cluster"], "east");
    assert_eq!(service["namespace"], site.namespace);
    assert!(
        service["healthy"] == true && service["message"] == "Ready:2/2",
        "{service:#}"
    );
    assert_eq!(clusters(&app, "appliedResources"), ["east", "east"]);
    assert_eq!(fleet.records("shop", "east").await.len(), 2);
    assert_eq!(status(&app, "deploy-topology")["phase"], "succeeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn components_are_deployed_to_all_clusters_of_a_topology_and_to_another_namespace() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let west = fleet.with_west().await;
    let _portolan = fleet.portolan(&[]).await;
    let everywhere = placed(&[config("settings", "one")], &["local", "east", "west"]);
    site.declare("shop", everywhere).await;
    let app = site.until_running("shop").await;
    for cluster in [site, east, &west] {
        let object = cluster.get(CONFIG_MAP, "settings").await.unwrap();
        assert!(has("one")(&object), "{object:#}");
    }
    for list in ["services", "appliedResources"] {
        assert_eq!(clusters(&app, list), ["east", "local", "west"], "{list}");
    }

    let other = site.control_plane.namespace().await;
    setup::namespace(east.control_plane, &other).await;
    let there = Site::of(east.control_plane, other.clone()).await;
    let topology = json!({ "clusters": ["east"], "namespace": other });
    site.declare("moved", placed_by(&[config("other", "one")], topology))
        .await;
    let app = site.until_running("moved").await;
    assert!(there.get(CONFIG_MAP, "other").await.is_some());
    assert_eq!(app["status"]["services"][0]["namespace"], other);
    assert_eq!(east.get(CONFIG_MAP, "other").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_are_selected_by_their_labels() {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let west = join_regions(&fleet).await;
    let _portolan = fleet.portolan(&[PATIENT]).await;
    let select = |name: &str, labels: Value| {
        let topology = json!({ "clusterLabelSelector": labels });
        placed_by(&[config(name, "one")], topology)
    };
    site.declare("european", select("european", json!({ "region": "eu" })))
        .await;
    site.declare("all", select("all", json!({}))).await;
    let joined = json!({ "cluster.core.oam.dev/control-plane": "false" });
    site.declare("joined", select("joined", joined)).await;
    site.declare("nowhere", select("nowhere", json!({ "region": "mars" })))
        .await;
    for app in ["european", "all", "joined"] {
        site.until_running(app).await;
    }
    for (name, expected) in [
        ("european", [false, true, false]),
        ("all", [true, true, true]),
        ("joined", [false, true, true]),
    ] {
        for (cluster, is_expected) in [site, east, &west].into_iter().zip(expected) {
            let found = cluster.get(CONFIG_MAP, name).await;
            assert_eq!(
                found.is_some(),
                is_expected,
                "{name} in {}",
                cluster.control_plane.url()
            );
        }
    }
    site.until_said("nowhere", "failed to find any cluster matches given labels")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_not_joined_fails_its_step_by_name_until_it_is_joined() {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[PATIENT]).await;
    site.declare("shop", placed(&[config("settings", "one")], &["local", "east"]))
        .await;
    let app = site
        .until_said("shop", "failed to get cluster east: no such cluster")
        .await;
    assert_ne!(app["status"]["status"], "running");
    // An Application is never half deployed because of a wrong name.
    assert_eq!(site.get(CONFIG_MAP, "settings").await, None);

    fleet.join("east", east).await;
    site.until_running("shop").await;
    for cluster in [site, east] {
        assert!(cluster.get(CONFIG_MAP, "settings").await.is_some());
    }
    // Others never needed it.
    site.declare("local", placed(&[config("other", "one")], &["local"]))
        .await;
    site.until_running("local").await;
    let app = site.get(APPLICATION, "local").await.unwrap();
    assert_eq!(clusters(&app, "services"), ["local"]);
}
