//! The check that the database is writable.

use std::time::Duration;

use portolan::catalog::Catalog;
use rstest::rstest;
use sqlx::Executor;
use tokio::time::timeout;

use super::faults::{lock_charts, until_waiting};
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

/// Returns the reason of a failure, which has to come soon although the last write is recent.
async fn until_unreachable(catalog: &Catalog) -> String {
    const AT_ONCE: Duration = Duration::from_secs(4);
    eventually(AT_ONCE, "the database to be unreachable", async || {
        let checked = timeout(PROBE_TIMEOUT, catalog.check_writable()).await;
        checked.unwrap().err()
    })
    .await
}

#[rstest]
#[case::that_does_not_answer(true)]
#[case::behind_a_proxy_that_closes(false)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_unreachable_at_once_and_writable_again_afterwards(#[case] stalls: bool) {
    let mut fixture = Fixture::new(On::Postgres).await;
    let (gate, url) = fixture.database.as_ref().unwrap().behind_gate().await;
    fixture.catalog = Catalog::open(&settings(&url)).await.unwrap();
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    assert_eq!(fixture.catalog.check_writable().await, Ok(()));
    if stalls {
        gate.stall();
    } else {
        gate.close().await;
    }
    let reason = until_unreachable(&fixture.catalog).await;
    assert!(reason.starts_with("the database can't be reached: "), "{reason}");
    if stalls {
        gate.resume();
    } else {
        gate.open().await;
    }
    eventually(SOON, "the database to be writable", async || {
        fixture.catalog.check_writable().await
    })
    .await;
}

#[rstest]
#[case::with_an_open_connection(false)]
#[case::without(true)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_distant_server_without_recent_writes_is_writable(#[case] has_to_connect: bool) {
    let fixture = Fixture::new(On::Postgres).await;
    let (gate, url) = fixture.database.as_ref().unwrap().behind_gate().await;
    let catalog = Catalog::open(&settings(&url)).await.unwrap();
    gate.delay(Duration::from_millis(60));
    let check = async || timeout(PROBE_TIMEOUT, catalog.check_writable()).await.unwrap();
    if has_to_connect {
        gate.disconnect();
        // To connect may take longer than one probe.
        eventually(SOON, "the database to be writable", check).await;
    } else {
        assert_eq!(check().await, Ok(()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_all_in_use_are_no_failure() {
    let mut fixture = Fixture::new(On::Postgres).await;
    fixture.settings.postgres_connections = 1;
    fixture.catalog = Catalog::open(&fixture.settings).await.unwrap();
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let mut other = lock_charts(&fixture).await;
    let check = async {
        until_waiting(&fixture, 1).await;
        // The last answer must be too old to prove anything.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        timeout(PROBE_TIMEOUT, fixture.catalog.check_writable()).await.unwrap()
    };
    let commit = fixture.try_sync("new", vec![chart("b", &["1.0.0"])]);
    let (checked, committed) = tokio::join!(check, commit);
    assert_eq!(checked, Ok(()));
    assert_eq!(committed.unwrap_err().reason(), "DatabaseBusy");
    other.execute("ROLLBACK").await.unwrap();
}
