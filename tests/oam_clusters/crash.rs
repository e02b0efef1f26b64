//! The process is killed while it writes to another cluster: what exists there is recorded, and the next one goes on.

use std::sync::Arc;

use axum::http::Method;
use rstest::rstest;
use serde_json::{Value, json};

use super::fleet::{Fleet, has, placed};
use crate::oam_apps::apps::config;
use crate::oam_apps::{APPLICATION, CONFIG_MAP};
use crate::support::eventually::SOON;
use crate::support::fault_proxy::{ApiFault, ApiRequest, FaultProxy};
use crate::support::shard_leases::FLAGS;
use crate::support::signal::Signal;

/// Loses the response of the next write of a ConfigMap, and gives the signal once the write is processed.
fn hold(proxy: &FaultProxy, method: Method) -> Arc<Signal> {
    let signal = Arc::<Signal>::default();
    let is_held = move |request: &ApiRequest| {
        request.method == method && request.path.contains("/configmaps") && !request.query.contains_key("dryRun")
    };
    proxy.inject(1, ApiFault::ResponseHeld(Arc::clone(&signal)), is_held);
    signal
}

async fn given(signal: &Signal) {
    tokio::time::timeout(SOON, signal.given())
        .await
        .expect("the write is processed");
}

#[rstest]
#[case::kept(true)]
#[case::deleted(false)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_a_killed_process_has_created_is_recorded(#[case] is_kept: bool) {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let proxy = fleet.join_proxy("east", east).await;
    let created = hold(&proxy, Method::POST);
    let mut first = fleet.portolan(&[]).await;
    site.declare("shop", placed(&[config("settings", "one")], &["east"]))
        .await;
    given(&created).await;
    first.signal("KILL");
    first.exit(SOON).await;
    let object = east.get(CONFIG_MAP, "settings").await.unwrap();
    assert_eq!(fleet.records("shop", "east").await.len(), 1);

    if !is_kept {
        site.delete(APPLICATION, "shop").await;
    }
    let _second = fleet.portolan(&[]).await;
    if is_kept {
        site.until_running("shop").await;
        let kept = east.get(CONFIG_MAP, "settings").await.unwrap();
        assert_eq!(kept["metadata"]["uid"], object["metadata"]["uid"]);
    } else {
        site.until_gone(APPLICATION, "shop").await;
        assert_eq!(east.get(CONFIG_MAP, "settings").await, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_that_a_killed_process_has_begun_is_finished_by_the_next_one() {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let proxy = fleet.join_proxy("east", east).await;
    let mut first = fleet.portolan(&[]).await;
    let both = [config("settings", "one"), config("other", "one")];
    site.declare("shop", placed(&both, &["east"])).await;
    site.until_running("shop").await;
    let deleted = hold(&proxy, Method::DELETE);
    site.delete(APPLICATION, "shop").await;
    given(&deleted).await;
    first.signal("KILL");
    first.exit(SOON).await;
    // A foreign object takes the place of one that is deleted.
    let gone = if east.get(CONFIG_MAP, "settings").await.is_none() {
        "settings"
    } else {
        "other"
    };
    east.apply(CONFIG_MAP, gone, json!({ "data": { "key": "foreign" } }))
        .await;

    let _second = fleet.portolan(&[]).await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(site.trackers("shop").await, Vec::<Value>::new());
    for name in ["settings", "other"] {
        let found = east.get(CONFIG_MAP, name).await;
        assert_eq!(found.as_ref().is_some_and(has("foreign")), name == gone, "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_takes_over_the_clusters_of_a_leader_that_is_killed() {
    let fleet = Fleet::new().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let mut leader = fleet.portolan(&FLAGS).await;
    leader.line_with("started leading", SOON).await;
    site.declare("shop", placed(&[config("settings", "one")], &["east"]))
        .await;
    site.until_running("shop").await;
    let standby = fleet.portolan(&FLAGS).await;
    standby.line_with("lease held by another replica, waiting", SOON).await;
    leader.signal("KILL");
    leader.exit(SOON).await;
    east.edit(CONFIG_MAP, "settings", json!({ "data": { "key": "drift" } }))
        .await;
    standby.line_with("started leading", SOON).await;
    east.until(CONFIG_MAP, "settings", "restored", has("one")).await;
    site.declare("shop", placed(&[config("settings", "two")], &["east"]))
        .await;
    east.until(CONFIG_MAP, "settings", "changed", has("two")).await;
}
