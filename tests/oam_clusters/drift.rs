//! Objects in other clusters are kept, and deleted once they are not declared.

use serde_json::{Value, json};

use super::fleet::{Fleet, assert_kept, has, placed};
use crate::oam_apps::apps::{config, spec, web};
use crate::oam_apps::{APPLICATION, CONFIG_MAP, DEPLOYMENT};

/// With this period, only an event can be the cause of a pass.
const SELDOM: &str = "--application-re-sync-period=1h";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_and_deletions_in_another_cluster_are_undone() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[SELDOM]).await;
    let components = [config("settings", "one"), web("front", 1)];
    site.declare("shop", placed(&components, &["east"])).await;
    site.until_running("shop").await;
    assert_kept(east, "settings", "one").await;
    let labels = json!({ "metadata": { "labels": { "app.oam.dev/component": "other" } } });
    east.edit(DEPLOYMENT, "front", labels).await;
    east.until(DEPLOYMENT, "front", "restored", |object| {
        object["metadata"]["labels"]["app.oam.dev/component"] == "front"
    })
    .await;
    let former = east.get(CONFIG_MAP, "settings").await.unwrap();
    east.delete(CONFIG_MAP, "settings").await;
    east.until(CONFIG_MAP, "settings", "created again", |object| {
        has("one")(object) && object["metadata"]["uid"] != former["metadata"]["uid"]
    })
    .await;
    site.until_running("shop").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_while_no_process_runs_is_undone_by_the_next_one() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let first = fleet.portolan(&[]).await;
    site.declare(
        "shop",
        placed(&[config("settings", "one"), config("other", "one")], &["east"]),
    )
    .await;
    site.until_running("shop").await;
    drop(first);
    east.edit(CONFIG_MAP, "settings", json!({ "data": { "key": "drift" } }))
        .await;
    east.delete(CONFIG_MAP, "other").await;
    let _second = fleet.portolan(&[SELDOM]).await;
    east.until(CONFIG_MAP, "settings", "restored", has("one")).await;
    east.until(CONFIG_MAP, "other", "created again", has("one")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_next_version_drops_is_deleted_in_the_other_cluster() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[]).await;
    let both = [config("settings", "one"), config("dropped", "one")];
    site.declare("shop", placed(&both, &["east"])).await;
    site.until_running("shop").await;
    assert!(east.get(CONFIG_MAP, "dropped").await.is_some());

    site.declare("shop", placed(&[config("settings", "two")], &["east"]))
        .await;
    site.until_running("shop").await;
    east.until_gone(CONFIG_MAP, "dropped").await;
    assert!(has("two")(&east.get(CONFIG_MAP, "settings").await.unwrap()));

    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(east.get(CONFIG_MAP, "settings").await, None);
    assert_eq!(site.trackers("shop").await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_moves_from_one_cluster_to_another_and_home() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let west = fleet.with_west().await;
    let _portolan = fleet.portolan(&[]).await;
    let settings = [config("settings", "one")];
    let mut former = None;
    for (name, cluster) in [("east", east), ("west", &west), ("", site)] {
        let spec = match name {
            "" => spec(&settings),
            name => placed(&settings, &[name]),
        };
        site.declare("shop", spec).await;
        site.until_running("shop").await;
        cluster.until(CONFIG_MAP, "settings", "there", has("one")).await;
        if let Some(former) = former.replace(cluster) {
            former.until_gone(CONFIG_MAP, "settings").await;
        }
        assert_kept(cluster, "settings", "one").await;
    }
    for name in ["east", "west"] {
        assert_eq!(fleet.records("shop", name).await, Vec::<Value>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_the_same_name_in_another_cluster_is_another_object() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[]).await;
    site.declare("near", spec(&[config("settings", "near")])).await;
    site.declare("far", placed(&[config("settings", "far")], &["east"]))
        .await;
    for app in ["near", "far"] {
        site.until_running(app).await;
    }
    assert_kept(site, "settings", "near").await;
    assert_kept(east, "settings", "far").await;
    site.delete(APPLICATION, "far").await;
    site.until_gone(APPLICATION, "far").await;
    assert_eq!(east.get(CONFIG_MAP, "settings").await, None);
    assert!(has("near")(&site.get(CONFIG_MAP, "settings").await.unwrap()));
}
