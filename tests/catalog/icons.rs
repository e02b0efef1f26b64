//! Icons in the chart rows.

use portolan::catalog::{MissingIcon, SaveOutcome};
use rstest::rstest;

use super::{Fixture, On, at, chart, repository, search::snapshot};

async fn wanted(fixture: &Fixture, seconds: i64) -> Vec<MissingIcon> {
    fixture
        .catalog
        .missing_icons(&repository(), at(seconds), 10)
        .await
        .unwrap()
}

fn ids(wanted: &[MissingIcon]) -> Vec<&str> {
    wanted.iter().map(|icon| &*icon.chart_id).collect()
}

#[rstest]
#[tokio::test]
async fn an_icon_is_missing_until_it_is_saved_and_kept_while_its_url_is_unchanged(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let fixture = Fixture::new(on).await;
    let mut without = chart("c", &["1.0.0"]);
    without.icon = String::new();
    fixture
        .sync(vec![chart("a", &["1.0.0"]), chart("b", &["1.0.0"]), without.clone()])
        .await;
    let icons = wanted(&fixture, 0).await;
    assert_eq!(ids(&icons), ["stable/a", "stable/b"]);
    assert_eq!(
        (icons[0].url.as_str(), icons[0].tries),
        ("https://example.com/icon.png", 0)
    );
    let save = async |icon| {
        fixture
            .catalog
            .save_icon(&repository(), "uid-1", icon, b"PNG\x00")
            .await
            .unwrap()
    };
    fixture.tables.watch("charts").await;
    assert_eq!(save(&icons[0]).await, SaveOutcome::Written);
    let written = fixture.tables.writes("charts").await;
    assert_eq!(save(&icons[0]).await, SaveOutcome::Written);
    assert_eq!(
        fixture.tables.writes("charts").await,
        written,
        "the same icon is not written again"
    );
    let stored = fixture.charts().await.remove(0);
    assert_eq!(
        (stored.raw_icon.as_deref(), stored.icon_content_type.as_str()),
        (Some("UE5HAA=="), "image/png")
    );
    assert_eq!(stored.chart_versions, chart("a", &["1.0.0"]).chart_versions);
    assert_eq!(ids(&wanted(&fixture, 0).await), ["stable/b"]);

    let charts = |icon: &str| {
        let mut first = chart("a", &["1.1.0", "1.0.0"]);
        first.icon = icon.into();
        vec![first, chart("b", &["1.0.0"]), without.clone()]
    };
    fixture.sync(charts("https://example.com/icon.png")).await;
    assert_eq!(ids(&wanted(&fixture, 0).await), ["stable/b"]);
    fixture.sync(charts("https://example.com/other.png")).await;
    assert_eq!(ids(&wanted(&fixture, 0).await), ["stable/a", "stable/b"]);
    assert_eq!(save(&icons[0]).await, SaveOutcome::Obsolete, "the URL has changed");
    assert_eq!(fixture.charts().await[0].raw_icon, None);
}

#[rstest]
#[tokio::test]
async fn a_failed_icon_waits_for_its_next_try_and_another_url_does_not(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let icon = wanted(&fixture, 0).await.remove(0);
    let fail = async |uid: &str| {
        fixture
            .catalog
            .record_icon_failure(&repository(), uid, &icon, "not an\0image", at(60))
            .await
            .unwrap()
    };
    assert_eq!(fail("uid-0").await, SaveOutcome::Obsolete);
    assert_eq!(fail("uid-1").await, SaveOutcome::Written);
    assert_eq!(fail("uid-1").await, SaveOutcome::Written);
    assert!(wanted(&fixture, 59).await.is_empty());
    assert_eq!(wanted(&fixture, 60).await[0].tries, 2);
    let mut other = chart("a", &["1.0.0"]);
    other.icon = "https://example.com/other.png".into();
    fixture.sync(vec![other]).await;
    assert_eq!(wanted(&fixture, 0).await[0].tries, 0);
    fixture.sync(vec![]).await;
    assert_eq!(fixture.tables.count("portolan_icons").await, 0);
    assert_eq!(fail("uid-1").await, SaveOutcome::Obsolete);
}

#[rstest]
#[tokio::test]
async fn a_saved_icon_clears_its_failures(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let icon = wanted(&fixture, 0).await.remove(0);
    let catalog = &fixture.catalog;
    catalog
        .record_icon_failure(&repository(), "uid-1", &icon, "x", at(60))
        .await
        .unwrap();
    assert_eq!(
        catalog.save_icon(&repository(), "uid-2", &icon, b"x").await.unwrap(),
        SaveOutcome::Obsolete
    );
    assert_eq!(
        catalog.save_icon(&repository(), "uid-1", &icon, b"x").await.unwrap(),
        SaveOutcome::Written
    );
    assert_eq!(fixture.tables.count("portolan_icons").await, 0);
}

#[rstest]
#[tokio::test]
async fn readers_see_a_saved_icon_and_portolan_that_it_saved_it(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let catalog = &fixture.catalog;
    let mut snapshot = snapshot(catalog).await;
    let icon = wanted(&fixture, 0).await.remove(0);
    for changed in [1, 0] {
        catalog.save_icon(&repository(), "uid-1", &icon, b"PNG").await.unwrap();
        assert_eq!(snapshot.refresh(catalog).await.unwrap(), changed);
        assert!(snapshot.charts().all(|(_, chart)| chart.has_icon));
    }
    assert!(catalog.record(&repository()).await.unwrap().unwrap().trusted);
}

#[rstest]
#[tokio::test]
async fn a_page_of_missing_icons_is_limited_by_the_length_of_their_urls(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let charts = ["a", "b", "c", "d"].map(|name| {
        let mut chart = chart(name, &["1.0.0"]);
        chart.icon = format!("data:image/png;base64,{}", "A".repeat(1 << 20));
        chart
    });
    fixture.sync(charts.to_vec()).await;
    let first = wanted(&fixture, 0).await;
    assert_eq!(ids(&first), ["stable/a", "stable/b"]);
    for icon in &first {
        let saved = fixture.catalog.save_icon(&repository(), "uid-1", icon, b"PNG").await;
        assert_eq!(saved.unwrap(), SaveOutcome::Written);
    }
    assert_eq!(ids(&wanted(&fixture, 0).await), ["stable/c", "stable/d"]);
}
