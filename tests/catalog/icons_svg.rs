//! SVG icons in a table of their own.

use portolan::catalog::{Catalog, ErrorKind, Fence, SaveOutcome, StorageLimits, SyncCommit};
use rstest::rstest;

use super::{Fixture, On, at, chart, repository, rows, search::snapshot};

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
    let with_icon = catalog.charts_with_svg_icon(&repository(), "").await;
    assert!(with_icon.unwrap().is_empty());
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
        .execute(
            "DROP TABLE portolan_svg_icons; DROP TABLE portolan_deprecated_charts; DROP TABLE portolan_news;
             DELETE FROM portolan_migrations WHERE version > 5",
        )
        .await;
    let reader = Catalog::open_read_only(&fixture.settings).await.unwrap();
    assert_eq!(reader.svg_icon(&repository(), "stable/a").await.unwrap(), None);
    assert_eq!(snapshot(&reader).await.charts().count(), 1);
    let upgraded = Catalog::open(&fixture.settings).await.unwrap();
    assert!(!upgraded.has_svg_icon(&repository(), "stable/a").await.unwrap());
}

#[rstest]
#[tokio::test]
async fn an_upgrade_makes_svgs_due_that_an_earlier_release_refused(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"]), chart("b", &["1.0.0"])]).await;
    let missing = fixture.catalog.missing_icons(&repository(), at(0), 10).await.unwrap();
    let messages = [
        "SVG icons are not stored, the chart keeps the URL",
        "unknown image format",
    ];
    for (icon, message) in missing.iter().zip(messages) {
        let repository = repository();
        let recorded = fixture
            .catalog
            .record_icon_failure(&repository, "uid-1", icon, message, at(60));
        assert_eq!(recorded.await.unwrap(), SaveOutcome::Written);
    }
    fixture
        .tables
        .execute(
            "DROP TABLE portolan_svg_icons; DROP TABLE portolan_deprecated_charts; DROP TABLE portolan_news;
             DELETE FROM portolan_migrations WHERE version > 5",
        )
        .await;
    let upgraded = Catalog::open(&fixture.settings).await.unwrap();
    let due = upgraded.missing_icons(&repository(), at(0), 10).await.unwrap();
    assert_eq!(due.iter().map(|icon| &*icon.chart_id).collect::<Vec<_>>(), ["stable/a"]);
}

/// More charts than a page has.
#[rstest]
#[tokio::test]
async fn readers_see_the_svgs_of_all_pages(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let charts = (0..600).map(|number| chart(&format!("c{number:03}"), &["1.0.0"]));
    fixture.sync(charts.collect()).await;
    // All but the first page.
    fixture
        .tables
        .execute(
            "INSERT INTO portolan_svg_icons SELECT repo_namespace, repo_name, chart_id, info ->> 'icon', 'PHN2Zy8+'
             FROM charts WHERE chart_id >= 'stable/c256'",
        )
        .await;
    let snapshot = snapshot(&fixture.catalog).await;
    let with_icon = snapshot.charts().filter(|(_, chart)| chart.has_icon);
    let with_icon: Vec<&str> = with_icon.map(|(_, chart)| &*chart.chart_id).collect();
    assert_eq!((with_icon.len(), with_icon[0]), (344, "stable/c256"));
}

#[rstest]
#[tokio::test]
async fn svgs_count_against_the_limit_of_files_and_are_counted_again(#[values(On::Sqlite, On::Postgres)] on: On) {
    let mut fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    save(&fixture).await;
    let charts = || vec![chart("a", &["1.0.0"]), chart("b", &["1.0.0"])];
    fixture.sync(charts()).await;
    let files = fixture.tables.number(BYTES).await;
    let all = "SELECT CAST(sum(charts + files) AS BIGINT) FROM portolan_stored_bytes";
    let bytes = u64::try_from(fixture.tables.number(all).await).unwrap();
    fixture.settings.limits = StorageLimits {
        repository: Some((bytes + 10) * 8 / 7),
        namespace: None,
    };
    fixture.catalog.close().await;
    fixture.catalog = Catalog::open(&fixture.settings).await.unwrap();
    let catalog = &fixture.catalog;
    let icon = catalog.missing_icons(&repository(), at(0), 10).await.unwrap().remove(0);
    let error = catalog
        .save_svg_icon(&repository(), "uid-1", &icon, SVG)
        .await
        .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::QuotaExceeded { .. }), "{error}");
    assert_eq!(stored(&fixture).await, ["stable/a"]);
    assert_eq!(fixture.tables.number(BYTES).await, files);

    fixture
        .tables
        .execute("UPDATE portolan_stored_bytes SET files = 7")
        .await;
    let record = catalog.record(&repository()).await.unwrap().unwrap();
    let mut commit = SyncCommit::new(record, Some("uid-1".into()), "checksum");
    commit.is_complete = true;
    catalog.commit(commit, rows(charts())).await.unwrap();
    assert_eq!(fixture.tables.number(BYTES).await, files);
}
