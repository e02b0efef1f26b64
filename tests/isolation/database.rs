//! A database that grants fewer connections than configured, and tables that another session locks: repositories wait for
//! the end of the lock, and no longer.

use std::time::{Duration, Instant};

use rstest::rstest;
use sqlx::{Connection, Executor, PgConnection};

use super::{INDEX, declare};
use crate::support::chart_server::Page;
use crate::support::eventually::{SOON, eventually};
use crate::support::portolan::Portolan;
use crate::support::postgres::{self, TestDatabase};
use crate::support::world::World;

/// Declares repositories, each in a namespace of its own.
fn declare_all(world: &World, count: usize) {
    world.server.serve("/charts/index.yaml", Page::new(INDEX));
    for number in 0..count {
        declare(
            world,
            &format!("tenant-{number}"),
            "stable",
            &world.server.url("/charts"),
        );
    }
}

async fn until_synced(database: &TestDatabase, count: i64, deadline: Duration) {
    let mut session = PgConnection::connect(&database.url).await.unwrap();
    eventually(deadline, "all repositories to be synced", async || {
        let synced = sqlx::query_scalar("SELECT count(*) FROM charts")
            .fetch_one(&mut session)
            .await;
        let synced: i64 = synced.unwrap_or_default();
        (synced == count).then_some(()).ok_or(synced)
    })
    .await;
}

async fn failed_reconciles(portolan: &Portolan) -> f64 {
    let labels = [("controller", "apprepository")];
    let metrics = portolan.metrics().await;
    metrics
        .sum("controller_runtime_reconcile_errors_total", &labels)
        .unwrap_or_default()
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_repositories_are_synced_with_the_connections_that_the_server_grants(#[values(1, 3)] granted: u32) {
    const REPOSITORIES: usize = 20;
    let (world, database) = (World::new().await, postgres::database().await);
    declare_all(&world, REPOSITORIES);
    let url = database.with_limit(i64::from(granted)).await;
    let portolan = world.run_on(&url, &[]).await;
    until_synced(&database, REPOSITORIES as i64, SOON).await;
    let labels = [("resource", "database_connections")];
    let limit = portolan.metrics().await.sum("portolan_budget_limit", &labels);
    assert_eq!(limit, Some(f64::from(granted)));
    let lines = portolan.lines();
    let warnings = lines.iter().filter(|line| line.contains("grants fewer connections"));
    assert_eq!(warnings.count(), 1, "{lines:#?}");
    assert_eq!(portolan.get("/readyz").await.unwrap().0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_repositories_are_synced_soon_after_the_end_of_a_lock_on_the_charts() {
    const REPOSITORIES: usize = 12;
    /// Five seconds until all are due, and the time of the syncs on a busy machine.
    const AFTER: Duration = Duration::from_secs(15);
    /// A backoff of their own would end within this time.
    const HELD: Duration = Duration::from_secs(15);
    /// Sessions that wait for a lock in this database.
    const WAITING: &str = "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
        WHERE NOT granted AND datname = current_database()";
    let (world, database) = (World::new().await, postgres::database().await);
    let portolan = world.run_on(&database.url, &[]).await;
    let mut session = PgConnection::connect(&database.url).await.unwrap();
    session
        .execute("BEGIN; LOCK TABLE charts IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    declare_all(&world, REPOSITORIES);
    eventually(2 * SOON, "each repository to fail", async || {
        let failed = failed_reconciles(&portolan).await;
        (failed >= REPOSITORIES as f64).then_some(()).ok_or(failed)
    })
    .await;
    // What reads the table beside the repositories gives up as well.
    let mut waiting = async || -> i64 { sqlx::query_scalar(WAITING).fetch_one(&mut session).await.unwrap() };
    eventually(SOON, "the end of all waits", async || match waiting().await {
        0 => Ok(()),
        count => Err(count),
    })
    .await;
    let held = Instant::now();
    while held.elapsed() < HELD {
        assert_eq!(waiting().await, 0, "none is tried again during the lock");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    session.execute("ROLLBACK").await.unwrap();
    until_synced(&database, REPOSITORIES as i64, AFTER).await;
    assert_eq!(failed_reconciles(&portolan).await, REPOSITORIES as f64);
}
