//! SVG icons in a table of their own.

use portolan::catalog::{Catalog, Fence, SaveOutcome};
use rstest::rstest;

use super::{Fixture, On, at, chart, repository, search::snapshot};

const SVG: &[u8] = b"<svg onload='alert(1)'>\xff\0</svg>";
const BYTES: &str = "SELECT CAST(sum(files) AS BIGINT) FROM portolan_stored_bytes";

/// Stores the SVG for all charts without an icon.
async fn save(fixture: &Fixture) {
    let catalog = &fixture.catalog;
    for icon in catalog.missing_icons(&repository(), at(0), 10).await.unwrap() {
        let saved = catalog.save_svg_icon(&repository(), "uid-1", &icon, SVG).await;
        assert_eq!(saved.unwrap(), SaveOutcome::Written);
    }
}

async fn stored(fixture: &Fixture) -> Vec<String> {
    fixture
        .tables
        .texts("SELECT chart_id FROM portolan_svg_icons ORDER BY chart_id")
        .await
}

#[rstest]
#[tokio::test]
async fn an_svg_is_stored_as_it_came_and_not_in_the_rows_of_kubeapps(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let catalog = &fixture.catalog;
    let icon = catalog.missing_icons(&repository(), at(0), 10).await.unwrap().remove(0);
    let mut snapshot = snapshot(catalog).await;
    let obsolete = catalog.save_svg_icon(&repository(), "uid-0", &icon, SVG).await;
    assert_eq!(obsolete.unwrap(), SaveOutcome::Obsolete);
    for changed in [1, 0] {
        save(&fixture).await;
        let saved = catalog.save_svg_icon(&repository(), "uid-1", &icon, SVG).await;
        assert_eq!(saved.unwrap(), SaveOutcome::Written);
        assert_eq!(snapshot.refresh(catalog).await.unwrap(), changed);
        assert!(snapshot.charts().all(|(_, chart)| chart.has_icon));
    }
    assert_eq!(
        catalog.svg_icon(&repository(), "stable/a").await.unwrap().as_deref(),
        Some(SVG)
    );
    assert!(catalog.has_svg_icon(&repository(), "stable/a").await.unwrap());
    assert_eq!(fixture.charts().await[0].raw_icon, None);
    assert!(catalog.record(&repository()).await.unwrap().unwrap().trusted);
    assert!(
        catalog
            .missing_icons(&repository(), at(0), 10)
            .await
            .unwrap()
            .is_empty()
    );
}

#[rstest]
#[tokio::test]
async fn an_svg_counts_while_its_url_is_unchanged_and_is_collected_afterwards(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let before = fixture.tables.number(BYTES).await;
    save(&fixture).await;
    assert!(fixture.tables.number(BYTES).await > before);
    fixture.sync(vec![chart("a", &["1.1.0", "1.0.0"])]).await;
    let catalog = &fixture.catalog;
    assert!(catalog.has_svg_icon(&repository(), "stable/a").await.unwrap());
    let mut other = chart("a", &["1.1.0"]);
    other.icon = "https://example.com/other.svg".into();
    fixture.sync(vec![other]).await;
    assert_eq!(catalog.svg_icon(&repository(), "stable/a").await.unwrap(), None);
    assert!(!catalog.has_svg_icon(&repository(), "stable/a").await.unwrap());
    assert!(catalog.charts_with_svg_icon(&repository()).await.unwrap().is_empty());
    assert_eq!(catalog.missing_icons(&repository(), at(0), 10).await.unwrap().len(), 1);
    catalog.collect_files(&repository(), true).await.unwrap();
    assert_eq!(stored(&fixture).await.len(), 1);
    catalog.collect_files(&repository(), false).await.unwrap();
    assert!(stored(&fixture).await.is_empty());
    assert_eq!(fixture.tables.number(BYTES).await, before);
}

#[rstest]
#[tokio::test]
async fn svgs_are_deleted_with_their_chart_and_repository(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let fill = async || {
        fixture.sync(vec![chart("a", &["1.0.0"]), chart("b", &["1.0.0"])]).await;
        save(&fixture).await;
        assert_eq!(stored(&fixture).await, ["stable/a", "stable/b"]);
    };
    fill().await;
    let both = fixture.tables.number(BYTES).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    assert_eq!(stored(&fixture).await, ["stable/a"]);
    assert_eq!(fixture.tables.number(BYTES).await, both / 2);
    fill().await;
    fixture.catalog.recreate().await.unwrap();
    assert!(stored(&fixture).await.is_empty());
    fill().await;
    fixture.catalog.remove(&repository(), Fence::None).await.unwrap();
    assert!(stored(&fixture).await.is_empty());
    fixture
        .tables
        .execute("INSERT INTO portolan_svg_icons VALUES ('kubeapps', 'gone', 'gone/a', 'u', 's')")
        .await;
    assert_eq!(fixture.catalog.collect_stray_rows(|_| false, false).await.unwrap(), 1);
    assert!(stored(&fixture).await.is_empty());
}

#[rstest]
#[tokio::test]
async fn a_database_of_an_earlier_release_has_no_svgs(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    fixture
        .tables
        .execute("DROP TABLE portolan_svg_icons; DELETE FROM portolan_migrations WHERE version > 5")
        .await;
    let reader = Catalog::open_read_only(&fixture.settings).await.unwrap();
    assert_eq!(reader.svg_icon(&repository(), "stable/a").await.unwrap(), None);
    assert_eq!(snapshot(&reader).await.charts().count(), 1);
    let upgraded = Catalog::open(&fixture.settings).await.unwrap();
    assert!(!upgraded.has_svg_icon(&repository(), "stable/a").await.unwrap());
}
