//! Canceled writes, for example of a repository that is being deleted, leave no partial data.

use std::pin::pin;
use std::task::Poll;

use portolan::catalog::Catalog;
use portolan::catalog::Fence;
use rstest::rstest;

use super::{Fixture, On, chart, repository, settings};
use crate::cluster::SOON;
use crate::support::eventually::eventually;
use crate::support::gate::Gate;

/// Polls the future until it has been pending `pendings` times. Returns `None` if it was canceled then.
async fn cancel_after<T>(pendings: usize, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = pendings;
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Waits until no connection to Postgres is within a transaction.
async fn until_no_transaction_is_open(fixture: &Fixture) {
    const OPEN: &str = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'portolan' AND state LIKE '%in transaction%'";
    // The pool reuses its only connection after the server has processed the cancellation.
    fixture.catalog.ping().await.unwrap();
    eventually(SOON, "all transactions to end", async || {
        match fixture.tables.number(OPEN).await {
            0 => Ok(()),
            open => Err(format!("{open} connections wait within a transaction")),
        }
    })
    .await;
}

/// Returns a fixture with a single connection to Postgres. It runs through a gate that forwards responses only while the
/// test waits, so that every await is pending.
async fn fixture(on: On) -> (Fixture, Option<Gate>) {
    let mut fixture = Fixture::new(on).await;
    let Some(database) = &fixture.database else {
        return (fixture, None);
    };
    let (gate, url) = database.behind_gate().await;
    let mut settings = settings(&url);
    settings.postgres_connections = 1;
    fixture.catalog = Catalog::open(&settings).await.unwrap();
    (fixture, Some(gate))
}

#[rstest]
#[tokio::test]
async fn a_canceled_write_leaves_no_open_transaction_and_no_partial_write(#[values(On::Sqlite, On::Postgres)] on: On) {
    let (fixture, _gate) = fixture(on).await;
    let charts = |version: &str| {
        (0..3)
            .map(|at| chart(&format!("c{at}"), &[version]))
            .collect::<Vec<_>>()
    };
    fixture.sync(charts("0.0.0")).await;
    let mut canceled = 0;
    for pendings in 0.. {
        let version = format!("1.{pendings}.0");
        let ended = cancel_after(pendings, fixture.try_sync(&version, charts(&version))).await;
        if on == On::Postgres {
            until_no_transaction_is_open(&fixture).await;
        }
        let stored = fixture.charts().await;
        let versions: Vec<_> = stored.iter().map(|chart| &chart.chart_versions[0].version).collect();
        assert_eq!(versions.len(), 3, "canceled after {pendings}");
        assert!(
            versions.iter().all(|other| *other == versions[0]),
            "canceled after {pendings}: {versions:?}"
        );
        match ended {
            None => canceled += 1,
            Some(ended) => {
                assert_eq!(ended.unwrap().changed, 3);
                assert_eq!(*versions[0], version);
                break;
            }
        }
    }
    // SQLite may answer before the first poll.
    let least = if on == On::Postgres { 10 } else { 1 };
    assert!(canceled >= least, "canceled only {canceled} times");
    assert!(fixture.catalog.remove(&repository(), Fence::None).await.unwrap());
    assert!(fixture.chart_names().await.is_empty());
}
