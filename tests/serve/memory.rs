//! A tenant with too many charts, or with charts that take long to read, beside others.

use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::{Value, json};
use sqlx::{Connection, Executor, PgConnection};

use super::{SOON, Serving, database, fill};
use crate::catalog::On;
use crate::cluster::rows::Rows;
use crate::support::eventually::eventually;
use crate::support::postgres;
use crate::support::world::World;

const CHARTS: usize = 3000;

/// Writes a repository of many charts with long descriptions, as Kubeapps' syncer would.
async fn insert_huge(rows: &Rows, on: On, charts: usize) {
    let cast = match on {
        On::Sqlite => "",
        On::Postgres => "::jsonb",
    };
    let description = "x".repeat(4096);
    let insert = format!(
        "INSERT INTO repos (namespace, name, checksum, last_update) VALUES ('huge', 'all', 'x', 'today');
         WITH RECURSIVE numbers (n) AS (SELECT 10001 UNION ALL SELECT n + 1 FROM numbers WHERE n < 10000 + {charts})
         INSERT INTO charts (repo_namespace, repo_name, chart_id, info)
         SELECT 'huge', 'all', 'all/chart-' || n, ('{{\"name\": \"chart-' || n || '\", \"description\": \"{description}\",
             \"chartVersions\": [{{\"version\": \"1.0.0\"}}, {{\"version\": \"0.9.0\"}}]}}'){cast} FROM numbers"
    );
    rows.execute(&insert).await;
}

/// Waits until all charts are read, of which lists show some only.
async fn until_read(serving: &Serving) -> Value {
    eventually(SOON, "the huge repository to be read", async || {
        let list = serving.json("/charts?namespace=huge").await;
        if list["incomplete"] == true && list["items"][0].is_object() {
            Ok(list)
        } else {
            Err(list.to_string())
        }
    })
    .await
}

#[rstest]
#[tokio::test]
async fn a_tenant_with_too_many_charts_gets_incomplete_lists_and_others_do_not(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let world = World::new().await;
    let url = database(&world, on).await;
    fill(&world, &url, "stable", &[("web", &["1.0.0"])]).await;
    let rows = Rows::of(&url).await;
    insert_huge(&rows, on, CHARTS).await;
    let flags = ["--manifests", &world.manifests(), "--catalog-memory=1Mi"];
    let serving = Serving::start(&url, &flags).await;
    let other_replica = Serving::start(&url, &flags).await;

    let list = until_read(&serving).await;
    let first = list["items"][0]["name"].clone();
    assert_eq!(first, "chart-10001");
    assert_eq!(serving.json("/charts").await["incomplete"], true);
    let others = serving.json("/charts?namespace=default").await;
    assert_eq!(
        (super::names(&others), &others["incomplete"]),
        (vec!["web".to_owned()], &json!(false))
    );

    // Left out of lists, and reachable by address.
    let last = format!("chart-{}", 10_000 + CHARTS);
    let found = serving.names(&format!("/charts?namespace=huge&q={last}")).await;
    assert!(!found.contains(&last), "{found:?}");
    assert_eq!(serving.json(&format!("/charts/huge/all/{last}")).await["versions"], 2);
    let repository = serving.json("/repositories/huge/all").await;
    assert_eq!(
        [&repository["charts"], &repository["versions"]],
        [&json!(CHARTS), &json!(2 * CHARTS)]
    );
    let metrics = serving.portolan.metrics().await;
    let count = |state| metrics.sum("portolan_snapshot_charts", &[("state", state)]);
    assert!(count("left_out") > Some(0.0), "{:?}", count("left_out"));
    assert_eq!(
        count("left_out")
            .zip(count("served"))
            .map(|(left_out, served)| left_out + served),
        Some(CHARTS as f64 + 1.0)
    );
    assert!(metrics.sum("portolan_snapshot_bytes", &[]) <= Some(512.0 * 1024.0));

    // All replicas leave out the same charts.
    until_read(&other_replica).await;
    assert_eq!(shown(&other_replica).await, shown(&serving).await);

    rows.execute(
        "DELETE FROM charts WHERE chart_id > 'all/chart-10010'; UPDATE repos SET checksum = 'y' WHERE name = 'all'",
    )
    .await;
    eventually(SOON, "complete lists", async || {
        let list = serving.json("/charts").await;
        if list["incomplete"] == false && super::names(&list).len() == 11 {
            Ok(())
        } else {
            Err(list.to_string())
        }
    })
    .await;
}

/// The number of charts in lists.
async fn shown(serving: &Serving) -> Option<f64> {
    let metrics = serving.portolan.metrics().await;
    metrics.sum("portolan_snapshot_charts", &[("state", "served")])
}

/// Rows of the namespace `huge` are read as soon as the lock is free.
const STALL: &str = "ALTER TABLE charts RENAME TO all_charts;
    CREATE FUNCTION stall() RETURNS boolean LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN true; END $$;
    CREATE VIEW charts AS SELECT * FROM all_charts WHERE repo_namespace <> 'huge' OR stall()";

#[tokio::test]
async fn no_request_waits_for_the_charts_of_another_tenant() {
    let world = World::new().await;
    let url = postgres::database().await.url;
    fill(&world, &url, "stable", &[("web", &["1.0.0"])]).await;
    let rows = Rows::of(&url).await;
    insert_huge(&rows, On::Postgres, 10).await;
    rows.execute(STALL).await;
    let mut lock = PgConnection::connect(&url).await.unwrap();
    lock.execute("SELECT pg_advisory_lock(42)").await.unwrap();

    let serving = Serving::of(&world, &url).await;
    let list = serving.json("/charts").await;
    assert_eq!(
        (super::names(&list), &list["incomplete"]),
        (vec!["web".to_owned()], &json!(true))
    );
    assert_eq!(serving.json("/charts?namespace=default").await["incomplete"], false);
    // The repository is there, and so is its address.
    assert_eq!(serving.names("/repositories?namespace=huge").await, ["all"]);

    // Changes of others are shown.
    let change = "UPDATE all_charts SET info = jsonb_set(info, '{name}', '\"sea\"') WHERE repo_namespace = 'default';
        UPDATE repos SET checksum = 'changed'";
    rows.execute(change).await;
    eventually(SOON, "the change in the other namespace", async || {
        let asked = Instant::now();
        let list = serving.json("/charts?namespace=default").await;
        assert!(asked.elapsed() < Duration::from_secs(4), "the request waited");
        if super::names(&list) == ["sea"] && list["stale"] == false {
            Ok(())
        } else {
            Err(list.to_string())
        }
    })
    .await;

    lock.execute("SELECT pg_advisory_unlock(42)").await.unwrap();
    eventually(SOON, "the charts of the huge repository", async || {
        let list = serving.json("/charts").await;
        if list["incomplete"] == false && super::names(&list).len() == 11 {
            Ok(())
        } else {
            Err(list.to_string())
        }
    })
    .await;
}
