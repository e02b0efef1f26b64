//! Ownership and removal of rows: recreated objects, missed deletions, and foreign rows.

use std::time::{Duration, Instant};

use portolan::api::FINALIZER;
use rstest::rstest;
use serde_json::{Value, json};

use super::rows::{Postgres, one_shot};
use super::{World, condition, finalizers, index};
use crate::support::chart_server::Fault;
use crate::support::eventually::eventually;
use crate::support::portolan::Portolan;

async fn stop(mut portolan: Portolan) {
    portolan.signal("TERM");
    let status = portolan.exit(super::SOON).await;
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recreated_object_with_the_same_url_keeps_its_rows_but_no_validators() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let portolan = world.portolan(postgres.url(), &[]).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"]), ("worker", &["2.0.0"])]));
    let first = world.declare("stable", &url).await;
    world.until_ready("stable").await;
    let numbers = postgres.rows.numbers().await;
    assert_eq!(numbers.len(), 2);
    stop(portolan).await;

    // Like the restore of a backup.
    world.delete_without_finalizer("stable").await;
    let second = world.declare("stable", &url).await;
    assert_ne!(first.metadata.uid, second.metadata.uid);
    let portolan = world.portolan(postgres.url(), &[]).await;
    let object = world.until_ready("stable").await;

    assert_eq!(finalizers(&object), [FINALIZER]);
    assert_eq!(postgres.rows.numbers().await, numbers, "the rows were rewritten");
    let requests = world.server.requests("/stable/index.yaml");
    assert!(
        !requests.last().unwrap().is_conditional(),
        "the validators of the old object were used"
    );
    let uids = postgres.rows.pairs("SELECT name, uid FROM portolan_repositories").await;
    assert_eq!(
        uids.unwrap(),
        [("stable".to_owned(), second.metadata.uid.clone().unwrap())]
    );

    // The rows belong to the new object: its deletion removes them.
    world.delete("stable").await;
    world.gone("stable").await;
    postgres.rows.assert_empty().await;
    drop(portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recreated_object_with_another_url_inherits_nothing() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let portolan = world.portolan(postgres.url(), &[]).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    stop(portolan).await;

    // The new URL has no valid index, so that only the deletion can remove the rows.
    world.delete_without_finalizer("stable").await;
    world.declare("stable", &world.server.url("/other")).await;
    let _portolan = world.portolan(postgres.url(), &[]).await;
    postgres.rows.until_charts(&[]).await;
    let object = world
        .until("stable", "the missing index to be reported", |object| {
            condition(object, "Stalled").is_some()
        })
        .await;
    assert!(
        !super::message(&object).contains("remain available"),
        "{}",
        super::message(&object)
    );

    world.serve("other", index(&[("job", &["0.1.0"])]));
    world.resync("stable", "now").await;
    postgres.rows.until_charts(&["stable/job 0.1.0"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeatedly_replaced_objects_end_with_the_charts_of_the_last() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let _portolan = world.portolan(postgres.url(), &[]).await;
    let urls = [
        world.serve("odd", index(&[("odd", &["1.0.0"])])),
        world.serve("even", index(&[("even", &["1.0.0"])])),
    ];
    for round in 0..6 {
        world.declare("stable", &urls[round % 2]).await;
        if round % 3 == 0 {
            world.until_ready("stable").await;
        }
        if round % 2 == 0 {
            world.set_finalizers("stable", &[]).await;
        }
        world.delete("stable").await;
        world.gone("stable").await;
    }
    let last = world.declare("stable", &urls[0]).await;
    let object = world.until_ready("stable").await;
    assert_eq!(
        (object.metadata.uid.as_ref(), finalizers(&object)),
        (last.metadata.uid.as_ref(), vec![FINALIZER])
    );
    postgres.rows.until_charts(&["stable/odd 1.0.0"]).await;
    world.delete("stable").await;
    world.gone("stable").await;
    postgres.rows.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repositories_deleted_while_portolan_was_down_are_removed_at_start() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let portolan = world.portolan(postgres.url(), &[]).await;
    for name in ["held", "unheld", "stays"] {
        let url = world.serve(name, index(&[("web", &["1.0.0"])]));
        world.declare(name, &url).await;
        world.until_ready(name).await;
    }
    stop(portolan).await;

    world.delete("held").await;
    let held = world.repositories.get("held").await.unwrap();
    assert!(held.metadata.deletion_timestamp.is_some());
    world.delete_without_finalizer("unheld").await;

    let portolan = world.portolan(postgres.url(), &[]).await;
    world.gone("held").await;
    postgres.rows.until_charts(&["stays/web 1.0.0"]).await;
    let remembered = postgres.rows.pairs("SELECT name, namespace FROM portolan_repositories");
    assert_eq!(
        remembered.await.unwrap(),
        [("stays".to_owned(), world.namespace.clone())]
    );
    assert_eq!(
        portolan.metrics().await.sum("portolan_pending_removals", &[]),
        Some(0.0),
        "two of three removals need no confirmation"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_half_and_more_than_five_removals_need_confirmation() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let portolan = world.portolan(postgres.url(), &[]).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    let names: Vec<String> = (0..6).map(|number| format!("r{number}")).collect();
    for name in &names {
        world.declare(name, &url).await;
    }
    for name in &names {
        world.until_ready(name).await;
    }
    let all = postgres.rows.charts().await.unwrap();
    assert_eq!(all.len(), 6);
    stop(portolan).await;
    for name in &names {
        world.delete_without_finalizer(name).await;
    }

    let portolan = world.portolan(postgres.url(), &[]).await;
    let line = portolan.line_with("--confirm-removals", super::SOON).await;
    assert!(line.contains("6 of 6"), "{line}");
    let metrics = portolan.metrics().await;
    assert_eq!(metrics.sum("portolan_pending_removals", &[]), Some(6.0));
    assert_eq!(postgres.rows.charts().await.unwrap(), all);
    stop(portolan).await;
    assert_eq!(postgres.rows.charts().await.unwrap(), all);

    let portolan = world.portolan(postgres.url(), &["--confirm-removals"]).await;
    eventually(super::SOON, "all rows to be removed", async || {
        match postgres.rows.count("SELECT count(*) FROM portolan_repositories").await {
            0 => Ok(()),
            left => Err(format!("{left} are left")),
        }
    })
    .await;
    postgres.rows.assert_empty().await;
    let metrics = portolan.metrics().await;
    assert_eq!(metrics.sum("portolan_pending_removals", &[]), Some(0.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_one_shot_syncs_are_never_orphans() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    one_shot(&world.namespace, "by-hand", &url, postgres.url()).await;
    let portolan = world.portolan(postgres.url(), &[]).await;
    world.declare("declared", &url).await;
    world.until_ready("declared").await;
    stop(portolan).await;
    world.delete_without_finalizer("declared").await;

    // The orphan is removed, so that the comparison is complete.
    let portolan = world.portolan(postgres.url(), &[]).await;
    postgres.rows.until_charts(&["by-hand/web 1.0.0"]).await;
    stop(portolan).await;
    assert_eq!(postgres.rows.charts().await.unwrap(), ["by-hand/web 1.0.0"]);
}

#[rstest]
#[case::the_first_sync(false)]
#[case::a_later_one(true)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_cancels_a_stalled_download(#[case] synced_before: bool) {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let portolan = world.portolan(postgres.url(), &[]).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    let mut fetched = 0;
    if synced_before {
        world.declare("stable", &url).await;
        world.until_ready("stable").await;
        fetched = world.server.requests("/stable/index.yaml").len();
    }
    world.server.break_path("/stable/index.yaml", Fault::StallAfter(20));
    if synced_before {
        world.resync("stable", "now").await;
    } else {
        world.declare("stable", &url).await;
    }
    world.until_fetched("stable", fetched + 1).await;

    let deleted = Instant::now();
    world.delete("stable").await;
    world.gone("stable").await;
    assert!(
        deleted.elapsed() < Duration::from_secs(10),
        "the deletion waited for the sync: {:?}",
        deleted.elapsed()
    );
    postgres.rows.assert_empty().await;

    // Nothing is written afterwards.
    world.server.clear_faults("/stable/index.yaml");
    stop(portolan).await;
    postgres.rows.assert_empty().await;
}

#[rstest]
#[case::suspended(json!({ "suspend": true }), "Suspended")]
#[case::of_a_url_that_is_none(json!({ "url": "no url" }), "InvalidURL")]
#[case::with_a_filter_that_is_none(json!({ "filterRule": { "jq": "(" } }), "InvalidFilter")]
#[case::with_a_secret_that_is_not_there(json!({ "auth": { "header": { "secretKeyRef": { "name": "gone", "key": "a" } } } }), "SecretNotFound")]
#[case::with_an_interval_that_is_none(json!({ "interval": "now and then" }), "Synced")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_is_deleted_regardless_of_its_spec(#[case] spec: Value, #[case] shown: &str) {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let _portolan = world.portolan(postgres.url(), &[]).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    world.edit("stable", json!({ "spec": spec })).await;
    world
        .until("stable", shown, |object| {
            let suspended = object.status.as_ref().and_then(|status| status.suspended);
            super::is_current(object)
                && (condition(object, "Ready").is_some_and(|(_, reason)| reason == shown)
                    || (shown == "Suspended" && suspended == Some(true)))
        })
        .await;
    postgres.rows.until_charts(&["stable/web 1.0.0"]).await;
    world.delete("stable").await;
    world.gone("stable").await;
    postgres.rows.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charts_are_removed_even_if_the_finalizer_was_removed_first() {
    const OTHERS: &str = "example.com/hold";
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let portolan = world.portolan(postgres.url(), &[]).await;
    for name in ["at-once", "held"] {
        let url = world.serve(name, index(&[("web", &["1.0.0"])]));
        world.declare(name, &url).await;
        world.until_ready(name).await;
    }

    // Deleted before Portolan reads it: only the event reports the deletion.
    portolan.signal("STOP");
    world.delete_without_finalizer("at-once").await;
    portolan.signal("CONT");
    postgres.rows.until_charts(&["held/web 1.0.0"]).await;

    // Being deleted with another finalizer, and ours already removed, as Kubeapps' controller does.
    portolan.signal("STOP");
    world.set_finalizers("held", &[OTHERS]).await;
    world.delete("held").await;
    portolan.signal("CONT");
    postgres.rows.until_charts(&[]).await;
    let object = world.repositories.get("held").await.unwrap();
    assert_eq!(finalizers(&object), [OTHERS]);
    world.set_finalizers("held", &[]).await;
    world.gone("held").await;
    postgres.rows.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_cluster_does_not_start_on_a_database_in_use() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let portolan = world.portolan(postgres.url(), &[]).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    stop(portolan).await;
    postgres
        .rows
        .execute("UPDATE portolan_clusters SET origin = 'another-cluster'")
        .await;

    let mut refused = Portolan::start(world.command(&world.kubeconfig, postgres.url(), &[]));
    let status = refused.exit(super::SOON).await;
    assert_eq!(status.code(), Some(1));
    let error = refused.line_with("another-cluster", super::SOON).await;
    assert!(error.contains("--cluster-id"), "{error}");

    // With an ID of its own it shares the database, and removes nothing of the other.
    world.delete_without_finalizer("stable").await;
    let portolan = world.portolan(postgres.url(), &["--cluster-id=second"]).await;
    let url = world.serve("other", index(&[("web", &["2.0.0"])]));
    world.declare("other", &url).await;
    world.until_ready("other").await;
    postgres
        .rows
        .until_charts(&["other/web 2.0.0", "stable/web 1.0.0"])
        .await;
    stop(portolan).await;
}

/// Returns an index of this many charts.
fn index_of(charts: usize) -> String {
    let names: Vec<String> = (0..charts).map(|number| format!("chart-{number:02}")).collect();
    let charts: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), &["1.0.0"][..])).collect();
    index(&charts)
}

#[rstest]
#[case::restored_with_another_uid(true)]
#[case::taken_over_without_a_record(false)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_charts_are_the_baseline_of_a_repository_without_one(#[case] restored: bool) {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let portolan = world.portolan(postgres.url(), &[]).await;
    let url = world.serve("stable", index_of(12));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    stop(portolan).await;
    if restored {
        world.delete_without_finalizer("stable").await;
        world.declare("stable", &url).await;
    } else {
        postgres.rows.execute("DELETE FROM portolan_repositories").await;
    }

    world.serve("stable", index_of(1));
    let _portolan = world.portolan(postgres.url(), &[]).await;
    world.until_ready_is("stable", "False", "ShrinkRefused").await;
    assert_eq!(postgres.rows.charts().await.unwrap().len(), 12);
    // Another source has another size.
    let other = world.serve("other", index_of(2));
    world.edit("stable", json!({ "spec": { "url": other } })).await;
    world.until_ready("stable").await;
    assert_eq!(postgres.rows.charts().await.unwrap().len(), 2);
}
