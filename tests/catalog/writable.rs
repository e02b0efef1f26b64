//! The check that the database is writable.

use std::time::Duration;

use portolan::catalog::Catalog;
use rstest::rstest;
use tokio::time::timeout;

use super::{Fixture, On, chart, settings};
use crate::support::eventually::{SOON, eventually};

/// The kubelet's default timeout of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

#[rstest]
#[tokio::test]
async fn a_database_without_recent_writes_is_tested_by_a_row_that_leaves_no_trace(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let fixture = Fixture::new(on).await;
    assert_eq!(fixture.catalog.check_writable().await, Ok(()));
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    assert_eq!(fixture.catalog.check_writable().await, Ok(()));
    assert_eq!(fixture.catalog.records().await.unwrap().len(), 1);
    let rows = fixture
        .tables
        .number("SELECT count(*) FROM portolan_index_cache WHERE name = ''")
        .await;
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn a_busy_writer_of_sqlite_counts_as_writable() {
    let fixture = Fixture::new(On::Sqlite).await;
    fixture.tables.execute("BEGIN IMMEDIATE").await;
    let checked = timeout(PROBE_TIMEOUT, fixture.catalog.check_writable()).await;
    assert_eq!(checked.unwrap(), Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_database_is_not_writable_until_it_is_reached_again() {
    let fixture = Fixture::new(On::Postgres).await;
    let (gate, url) = fixture.database.as_ref().unwrap().behind_gate().await;
    let catalog = Catalog::open(&settings(&url)).await.unwrap();
    assert_eq!(catalog.check_writable().await, Ok(()));
    gate.close().await;
    // The last write is recent, but a later call failed.
    catalog.ping().await.unwrap_err();
    let checked = timeout(PROBE_TIMEOUT, catalog.check_writable()).await;
    assert!(checked.unwrap().is_err());
    gate.open().await;
    eventually(SOON, "the database to be writable", async || {
        catalog.check_writable().await
    })
    .await;
}
