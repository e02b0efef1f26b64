//! Chart.yaml of imported archives.

use portolan::catalog::{Catalog, ChartMetadata, Fence, FetchedFiles, FilesMode, FilesResult};
use rstest::rstest;

use super::files::{content, fail, failed, imported, names, of, save, wanted, write};
use super::{Fixture, On, at, chart, repository};

const ROWS: &str = "SELECT chart_files_id FROM portolan_chart_metadata ORDER BY chart_files_id";

async fn metadata(fixture: &Fixture, name: &str, version: &str) -> Option<String> {
    let (chart_id, repository) = (format!("stable/{name}"), repository());
    let read = fixture.catalog.chart_metadata(&repository, &chart_id, version);
    read.await.unwrap().map(|ChartMetadata { json }| json)
}

async fn missing(fixture: &Fixture, mode: FilesMode) -> Vec<String> {
    names(&wanted(fixture, mode).await)
}

/// The result of an archive without a valid Chart.yaml.
fn without_metadata(name: &str, version: &str) -> FilesResult {
    let files = FetchedFiles::new(of(name, version), &content("x")).unwrap();
    FilesResult::Imported(files.with_warning(Some("it is not a map".to_owned())))
}

#[rstest]
#[tokio::test]
async fn chart_yaml_is_stored_with_the_files_of_its_archive(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture
        .sync(vec![chart("a", &["2.0.0", "1.0.0"]), chart("b", &["1.0.0"])])
        .await;
    let results = [
        imported(&of("a", "2.0.0"), "x"),
        failed(&of("a", "1.0.0"), 60),
        without_metadata("b", "1.0.0"),
    ];
    assert_eq!(write(&fixture, results).await, 3);
    assert_eq!(
        metadata(&fixture, "a", "2.0.0").await.as_deref(),
        Some(r#"{"name":"2.0.0"}"#)
    );
    assert_eq!(metadata(&fixture, "a", "1.0.0").await, None);
    assert_eq!(metadata(&fixture, "b", "1.0.0").await, None);
    assert_eq!(metadata(&fixture, "b\0", "1.0.0").await, None);
    let rows = fixture.tables.texts(ROWS).await;
    assert_eq!(rows, ["stable/a-2.0.0", "stable/b-1.0.0"]);
    let problems = fixture.catalog.files_problems(&repository(), 9).await.unwrap();
    assert!(problems.contains(&("stable/b-1.0.0".to_owned(), "it is not a map".to_owned())));
}

#[rstest]
#[tokio::test]
async fn chart_yaml_counts_only_for_the_archive_of_the_stored_files(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    save(&fixture, &of("a", "1.0.0"), "x").await;
    let mut republished = chart("a", &["1.0.0"]);
    republished.chart_versions[0].digest = "another".into();
    fixture.sync(vec![republished]).await;
    assert!(
        metadata(&fixture, "a", "1.0.0").await.is_some(),
        "the old files stay too"
    );
    // Kubeapps' syncer has imported the new archive.
    fixture
        .tables
        .execute("UPDATE files SET info = '{\"Digest\": \"another\"}'")
        .await;
    assert_eq!(metadata(&fixture, "a", "1.0.0").await, None);
    assert_eq!(missing(&fixture, FilesMode::All).await, ["a 1.0.0"]);
    let mut again = of("a", "1.0.0");
    again.digest = "another".into();
    save(&fixture, &again, "y").await;
    assert!(metadata(&fixture, "a", "1.0.0").await.is_some());
    assert!(missing(&fixture, FilesMode::All).await.is_empty());
}

#[rstest]
#[tokio::test]
async fn after_an_upgrade_only_newest_versions_are_imported_again_after_all_others(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let fixture = Fixture::new(on).await;
    fixture
        .sync(vec![
            chart("a", &["3.0.0", "2.0.0", "1.0.0"]),
            chart("b", &["2.0.0", "1.0.0"]),
            chart("c", &["1.0.0"]),
        ])
        .await;
    for (name, version) in [("a", "3.0.0"), ("a", "2.0.0"), ("b", "2.0.0"), ("b", "1.0.0")] {
        save(&fixture, &of(name, version), "x").await;
    }
    fixture.tables.execute("DELETE FROM portolan_chart_metadata").await;
    assert_eq!(
        missing(&fixture, FilesMode::All).await,
        ["c 1.0.0", "a 1.0.0", "a 3.0.0", "b 2.0.0"]
    );
    assert_eq!(
        missing(&fixture, FilesMode::Latest).await,
        ["c 1.0.0", "a 3.0.0", "b 2.0.0"]
    );
    assert!(missing(&fixture, FilesMode::None).await.is_empty());
    let progress = async || {
        let progress = fixture.catalog.files_progress(&repository(), FilesMode::All).await;
        let progress = progress.unwrap();
        (progress.total, progress.imported, progress.failed)
    };
    assert_eq!(progress().await, (6, 4, 0), "their files are imported");

    save(&fixture, &of("a", "3.0.0"), "x").await;
    // The archive is gone: the files stay, and the next try waits.
    fail(&fixture, &of("b", "2.0.0"), 60).await;
    assert_eq!(missing(&fixture, FilesMode::All).await, ["c 1.0.0", "a 1.0.0"]);
    let later = fixture
        .catalog
        .missing_files(&repository(), FilesMode::All, at(60), 10)
        .await
        .unwrap();
    assert_eq!(names(&later), ["c 1.0.0", "a 1.0.0", "b 2.0.0"]);
    assert_eq!(progress().await, (6, 4, 0));
}

#[rstest]
#[tokio::test]
async fn an_archive_without_a_valid_chart_yaml_is_not_fetched_again(
    #[values(On::Sqlite, On::Postgres)] on: On,
    #[values(true, false)] with_digest: bool,
) {
    let fixture = Fixture::new(on).await;
    let mut info = chart("a", &["1.0.0"]);
    if !with_digest {
        info.chart_versions[0].digest.clear();
    }
    fixture.sync(vec![info]).await;
    let version = wanted(&fixture, FilesMode::All).await.files.remove(0);
    let files = FetchedFiles::new(version, &content("x")).unwrap();
    let files = files.with_warning(Some("it is not a map".to_owned()));
    write(&fixture, [FilesResult::Imported(files)]).await;
    assert!(missing(&fixture, FilesMode::All).await.is_empty());
    assert_eq!(fixture.tables.count("portolan_chart_metadata").await, 1);
}

/// `a` of version `1-2.0.0` and `a-1` of version `2.0.0` share one row of files.
#[rstest]
#[tokio::test]
async fn chart_yaml_belongs_to_the_chart_of_the_files(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture
        .sync(vec![chart("a", &["1-2.0.0"]), chart("a-1", &["2.0.0"])])
        .await;
    save(&fixture, &of("a", "1-2.0.0"), "first").await;
    save(&fixture, &of("a-1", "2.0.0"), "second").await;
    assert_eq!(
        metadata(&fixture, "a", "1-2.0.0").await.as_deref(),
        Some(r#"{"name":"1-2.0.0"}"#)
    );
    assert_eq!(metadata(&fixture, "a-1", "2.0.0").await, None);
    assert!(missing(&fixture, FilesMode::All).await.is_empty());
}

#[rstest]
#[tokio::test]
async fn chart_yaml_is_deleted_with_its_version_chart_and_repository(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let charts = || vec![chart("a", &["2.0.0", "1.0.0"]), chart("b", &["1.0.0"])];
    let stored = async || fixture.tables.texts(ROWS).await;
    let fill = async || {
        fixture.sync(charts()).await;
        for (name, version) in [("a", "2.0.0"), ("a", "1.0.0"), ("b", "1.0.0")] {
            save(&fixture, &of(name, version), "x").await;
        }
        assert_eq!(stored().await.len(), 3);
    };
    fill().await;
    fixture.sync(vec![chart("a", &["2.0.0"])]).await;
    assert_eq!(stored().await, ["stable/a-2.0.0"]);
    fill().await;
    fixture.catalog.recreate().await.unwrap();
    assert!(stored().await.is_empty());
    fill().await;
    fixture.catalog.remove(&repository(), Fence::None).await.unwrap();
    assert!(stored().await.is_empty());
}

#[rstest]
#[tokio::test]
async fn chart_yaml_without_files_is_collected_and_no_longer_counted(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"]), chart("b", &["1.0.0"])]).await;
    save(&fixture, &of("a", "1.0.0"), "x").await;
    save(&fixture, &of("b", "1.0.0"), "x").await;
    // Kubeapps has deleted the chart.
    fixture
        .tables
        .execute("DELETE FROM charts WHERE chart_id = 'stable/b'")
        .await;
    let bytes = "SELECT CAST(sum(files) AS BIGINT) FROM portolan_stored_bytes";
    let before = fixture.tables.number(bytes).await;
    let collect = async |dry_run| fixture.catalog.collect_files(&repository(), dry_run).await.unwrap();
    assert_eq!(collect(true).await, 0);
    assert_eq!(fixture.tables.count("portolan_chart_metadata").await, 2);
    assert_eq!(collect(false).await, 0, "only files are counted");
    assert_eq!(fixture.tables.texts(ROWS).await, ["stable/a-1.0.0"]);
    assert!(fixture.tables.number(bytes).await < before);

    fixture.catalog.remove(&repository(), Fence::None).await.unwrap();
    fixture
        .tables
        .execute("INSERT INTO portolan_chart_metadata VALUES ('kubeapps', 'gone', 'gone/a', 'gone/a-1', 'd', NULL)")
        .await;
    assert_eq!(fixture.catalog.collect_stray_rows(|_| false, false).await.unwrap(), 1);
    assert!(fixture.tables.texts(ROWS).await.is_empty());
}

#[rstest]
#[tokio::test]
async fn a_database_of_an_earlier_release_has_no_chart_yaml(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    save(&fixture, &of("a", "1.0.0"), "x").await;
    fixture
        .tables
        .execute(
            "DROP TABLE portolan_chart_metadata; DROP TABLE portolan_svg_icons; DROP TABLE portolan_deprecated_charts; DROP TABLE portolan_news;
             DELETE FROM portolan_migrations WHERE version > 4",
        )
        .await;
    let reader = Catalog::open_read_only(&fixture.settings).await.unwrap();
    let read = reader.chart_metadata(&repository(), "stable/a", "1.0.0").await;
    assert_eq!(read.unwrap(), None);
    // The upgrade keeps the files, and imports the newest version again.
    let upgraded = Catalog::open(&fixture.settings).await.unwrap();
    let page = upgraded.missing_files(&repository(), FilesMode::All, at(0), 9).await;
    assert_eq!(names(&page.unwrap()), ["a 1.0.0"]);
    assert_eq!(fixture.files().await, ["stable/a-1.0.0"]);
}
