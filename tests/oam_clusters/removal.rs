//! Clusters that are removed or dead while Applications have objects there: nothing counts as deleted without proof.

use serde_json::{Value, json};

use super::fleet::{Fleet, PATIENT, has, placed};
use crate::oam_apps::apps::{config, spec};
use crate::oam_apps::{APPLICATION, CONFIG_MAP};
use crate::support::eventually::{SOON, eventually};

/// Ends the deletion of objects in `dead` without them.
const FORGET: [&str; 5] = ["delete", "shop", "--forget-cluster", "dead", "--yes"];

impl Fleet {
    /// Waits until the trackers of an Application have this number of records in a cluster.
    async fn until_recorded(&self, app: &str, cluster: &str, count: usize) {
        eventually(SOON, &format!("{count} records in {cluster}"), async || {
            let records = self.records(app, cluster).await;
            if records.len() == count {
                Ok(())
            } else {
                Err(format!("{records:#?}"))
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_a_removed_cluster_stay_recorded_until_their_application_is_deleted() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[PATIENT]).await;
    let both = placed(&[config("settings", "one")], &["local", "east"]);
    site.declare("shop", both).await;
    site.until_running("shop").await;
    fleet.detach("east").await;

    // The next version does not declare the object there, which can't be deleted now.
    site.declare("shop", placed(&[config("settings", "two")], &["local"]))
        .await;
    site.until(CONFIG_MAP, "settings", "changed", has("two")).await;
    fleet.until_waiting("shop", "east").await;
    assert_eq!(fleet.records("shop", "east").await.len(), 1);
    assert!(has("one")(&east.get(CONFIG_MAP, "settings").await.unwrap()));

    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(site.get(CONFIG_MAP, "settings").await, None);
    assert_eq!(site.trackers("shop").await, Vec::<Value>::new());
    assert!(
        east.get(CONFIG_MAP, "settings").await.is_some(),
        "no request could delete it"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_joined_again_gets_its_objects_kept_and_collected() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[PATIENT]).await;
    let both = [config("settings", "one"), config("dropped", "one")];
    site.declare("shop", placed(&both, &["east"])).await;
    site.until_running("shop").await;
    fleet.detach("east").await;
    east.edit(CONFIG_MAP, "settings", json!({ "data": { "key": "drift" } }))
        .await;
    site.declare("shop", placed(&both[..1], &["east"])).await;
    site.until_said("shop", "failed to get cluster east: no such cluster")
        .await;
    assert!(has("drift")(&east.get(CONFIG_MAP, "settings").await.unwrap()));

    fleet.join("east", east).await;
    site.until_running("shop").await;
    east.until(CONFIG_MAP, "settings", "restored", has("one")).await;
    east.until_gone(CONFIG_MAP, "dropped").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_waits_for_a_dead_cluster_until_it_is_forgotten() {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let proxy = fleet.join_proxy("dead", east).await;
    let _portolan = fleet.portolan(&[]).await;
    site.declare("shop", placed(&[config("settings", "one")], &["local", "dead"]))
        .await;
    site.until_running("shop").await;
    proxy.gate.close().await;

    site.delete(APPLICATION, "shop").await;
    fleet.until_waiting("shop", "dead").await;
    // The rest is deleted.
    site.until_gone(CONFIG_MAP, "settings").await;
    assert_eq!(fleet.records("shop", "dead").await.len(), 1);

    site.app(&FORGET).await;
    site.until_gone(APPLICATION, "shop").await;
    assert!(has("one")(&east.get(CONFIG_MAP, "settings").await.unwrap()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_ends_once_a_dead_cluster_answers_or_its_secret_is_gone() {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let _portolan = fleet.portolan(&[]).await;
    for (app, cluster, comes_back) in [("first", "back", true), ("second", "lost", false)] {
        let proxy = fleet.join_proxy(cluster, east).await;
        site.declare(app, placed(&[config(app, "one")], &[cluster])).await;
        site.until_running(app).await;
        proxy.gate.close().await;
        site.delete(APPLICATION, app).await;
        fleet.until_waiting(app, cluster).await;
        if comes_back {
            proxy.gate.open().await;
        } else {
            fleet.detach(cluster).await;
        }
        site.until_gone(APPLICATION, app).await;
        assert_eq!(east.get(CONFIG_MAP, app).await.is_none(), comes_back, "{app}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_that_leaves_a_dead_cluster_runs_and_its_objects_there_are_deleted_later() {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let proxy = fleet.join_proxy("dead", east).await;
    let _portolan = fleet.portolan(&[]).await;
    let settings = [config("settings", "one")];
    site.declare("shop", placed(&settings, &["dead"])).await;
    site.until_running("shop").await;
    proxy.gate.close().await;
    site.declare("shop", spec(&settings)).await;
    site.until(APPLICATION, "shop", "its workflow to succeed", |app| {
        let status = &app["status"];
        let is_current = status["observedGeneration"] == app["metadata"]["generation"];
        is_current && status["workflow"]["status"] == "succeeded"
    })
    .await;
    site.until(CONFIG_MAP, "settings", "created", has("one")).await;
    fleet.until_waiting("shop", "dead").await;
    assert_eq!(fleet.records("shop", "dead").await.len(), 1);
    assert!(east.get(CONFIG_MAP, "settings").await.is_some());

    proxy.gate.open().await;
    east.until_gone(CONFIG_MAP, "settings").await;
    fleet.until_recorded("shop", "dead", 0).await;
    site.until_running("shop").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn components_in_a_removed_cluster_are_shown_as_unhealthy_beside_those_of_others() {
    let fleet = Fleet::new().await;
    let site = &fleet.site;
    let _portolan = fleet.portolan(&[]).await;
    site.declare("shop", placed(&[config("settings", "one")], &["local", "east"]))
        .await;
    site.until_running("shop").await;
    fleet.detach("east").await;

    let service = |app: &Value, cluster: &str| {
        let mut services = app["status"]["services"].as_array().into_iter().flatten();
        services
            .find(|one| one["cluster"] == cluster)
            .cloned()
            .unwrap_or_default()
    };
    let is_missed = |app: &Value| {
        let message = service(app, "east")["message"].clone();
        message.as_str().is_some_and(|text| text.contains("no such cluster"))
    };
    let app = site
        .until(APPLICATION, "shop", "its cluster to be missed", is_missed)
        .await;
    assert_ne!(service(&app, "east")["healthy"], true);
    assert_eq!(service(&app, "local")["healthy"], true);
    assert_eq!(fleet.records("shop", "east").await.len(), 1);
}
