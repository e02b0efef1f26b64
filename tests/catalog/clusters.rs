//! Two clusters on one database.

use portolan::catalog::{ClusterClaim, ErrorKind};
use rstest::rstest;

use super::{Fixture, On};

#[rstest]
#[tokio::test]
async fn a_second_cluster_is_refused_and_learns_how_to_go_on(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let claim = async |id, origin| fixture.catalog.claim(id, origin).await;
    assert_eq!(claim("", "first").await.unwrap(), ClusterClaim::Held);
    let error = claim("", "second").await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::OtherCluster { .. }) && !error.is_transient(),
        "{error}"
    );
    let message = error.to_string();
    assert!(
        message.contains("first") && message.contains("--cluster-id"),
        "{message}"
    );
    // The refused cluster has changed nothing, and one with an ID of its own is another user of the database.
    assert_eq!(claim("", "first").await.unwrap(), ClusterClaim::Held);
    assert_eq!(claim("east", "east/second").await.unwrap(), ClusterClaim::Held);
}

#[rstest]
#[tokio::test]
async fn a_cluster_that_is_gone_for_five_minutes_is_taken_over(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let claim = async |origin| fixture.catalog.claim("", origin).await;
    claim("first").await.unwrap();
    let age = async |milliseconds: i64| {
        let update = format!("UPDATE portolan_clusters SET renewed = renewed - {milliseconds}");
        fixture.tables.execute(&update).await;
    };
    age(290_000).await;
    assert!(claim("second").await.is_err());
    age(10_000).await;
    let from = "first".to_owned();
    assert_eq!(claim("second").await.unwrap(), ClusterClaim::TakenOver { from });
    assert!(claim("first").await.is_err(), "the former cluster comes back");
}
