//! Writes that are given up before they end, as that of a repository which is being deleted: at any moment, and nothing is left of
//! them.

use std::pin::pin;
use std::task::Poll;

use portolan::catalog::Catalog;
use rstest::rstest;

use super::{Fixture, On, chart, repository, settings};
use crate::cluster::SOON;
use crate::support::eventually::eventually;
use crate::support::gate::Gate;

/// Polls the future until it has been pending for so many times; nothing, if it was given up then.
async fn give_up_after<T>(pendings: usize, future: impl Future<Output = T>) -> Option<T> {
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
    // It has one connection, which is used again only when what was given up has been told to the server.
    fixture.catalog.ping().await.unwrap();
    eventually(SOON, "all transactions to end", async || {
        match fixture.tables.number(OPEN).await {
            0 => Ok(()),
            open => Err(format!("{open} connections wait within a transaction")),
        }
    })
    .await;
}

/// The fixture with a single connection to Postgres, on which no answer is there before it has been waited for: it comes through a
/// gate that only runs while the test waits.
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
async fn a_write_that_is_given_up_at_any_moment_leaves_no_transaction_open_and_nothing_half_done(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let (fixture, _gate) = fixture(on).await;
    let charts = |version: &str| {
        (0..3)
            .map(|at| chart(&format!("c{at}"), &[version]))
            .collect::<Vec<_>>()
    };
    fixture.sync(charts("0.0.0")).await;
    let mut given_up = 0;
    for pendings in 0.. {
        let version = format!("1.{pendings}.0");
        let ended = give_up_after(pendings, fixture.try_sync(&version, charts(&version))).await;
        if on == On::Postgres {
            until_no_transaction_is_open(&fixture).await;
        }
        let stored = fixture.charts().await;
        let versions: Vec<_> = stored.iter().map(|chart| &chart.chart_versions[0].version).collect();
        assert_eq!(versions.len(), 3, "given up after {pendings}");
        assert!(
            versions.iter().all(|other| *other == versions[0]),
            "given up after {pendings}: {versions:?}"
        );
        match ended {
            None => given_up += 1,
            Some(ended) => {
                assert_eq!(ended.unwrap().changed, 3);
                assert_eq!(*versions[0], version);
                break;
            }
        }
    }
    // SQLite may have answered before it is waited for.
    let least = if on == On::Postgres { 10 } else { 1 };
    assert!(given_up >= least, "it was given up {given_up} times only");
    assert!(fixture.catalog.remove(&repository(), None).await.unwrap());
    assert!(fixture.chart_names().await.is_empty());
}
