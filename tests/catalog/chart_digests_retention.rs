//! Cached chart digests together with retained versions.

use rstest::rstest;

use super::{
    Fixture, On, at,
    batches::refuse_poison,
    chart,
    chart_digests::{cached_keys, sync, three},
    record,
    retention::{counts, keep, marks},
};

#[rstest]
#[tokio::test]
async fn charts_with_retained_versions_have_no_digest_until_these_expire(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let mut charts = three();
    sync(&fixture, Some(keep(0)), &charts).await;
    charts[0] = chart("a", &["2"]);
    assert_eq!(counts(&sync(&fixture, Some(keep(1)), &charts).await), (0, 0, 0, 3, 1));
    assert_eq!(cached_keys(&fixture).await.unwrap(), ["b", "c"]);
    // A missing chart is retained although the others are skipped.
    let committed = sync(&fixture, Some(keep(2)), &charts[..2]).await;
    assert_eq!(counts(&committed), (0, 0, 0, 3, 3));
    assert_eq!(marks(&fixture).await, ["stable/a 1", "stable/c 1", "stable/c 2"]);
    assert_eq!(cached_keys(&fixture).await.unwrap(), ["b"]);
    assert_eq!(
        counts(&sync(&fixture, Some(keep(50)), &charts[..2]).await),
        (0, 0, 0, 3, 3)
    );
    assert_eq!(
        fixture
            .catalog
            .drop_expired(&record(), "uid-1", at(101), &[])
            .await
            .unwrap(),
        1
    );
    assert_eq!(cached_keys(&fixture).await.unwrap(), ["a", "b"]);
    let committed = sync(&fixture, Some(keep(102)), &charts[..2]).await;
    assert_eq!(counts(&committed), (0, 0, 1, 2, 0));
    assert_eq!(fixture.charts().await, charts[..2]);
    // Without retention, retained charts are deleted.
    sync(&fixture, Some(keep(103)), &charts[..1]).await;
    assert_eq!(counts(&sync(&fixture, None, &charts[..1]).await), (0, 0, 1, 1, 0));
    assert!(marks(&fixture).await.is_empty());
}

/// A rejected chart keeps its row of another URL. No row of the second sync shows the URL of the index.
#[rstest]
#[tokio::test]
async fn charts_of_another_url_are_not_retained_if_no_chart_has_changed(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, Some(keep(0)), &[chart("a", &["1"])]).await;
    refuse_poison(&fixture, on).await;
    let mut moved = [chart("a", &["1"]), chart("b", &["1"])];
    moved[0].description = "poison".into();
    for info in &mut moved {
        info.repo.url = "https://other.example.com".into();
    }
    assert_eq!(counts(&sync(&fixture, Some(keep(1)), &moved).await), (1, 0, 0, 0, 0));
    let committed = sync(&fixture, Some(keep(2)), &moved[1..]).await;
    assert_eq!(counts(&committed), (0, 0, 1, 1, 0));
    assert_eq!(fixture.chart_names().await, ["b"]);
}
