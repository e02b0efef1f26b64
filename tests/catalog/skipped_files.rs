//! Versions whose files are not imported. Kubeapps' reader fails without a row, so they get an empty one.

use portolan::catalog::{ChangedCharts, FilesMode};
use rstest::rstest;

use super::{
    Fixture, On, at, chart,
    files::{info, names, of, save, wanted},
    repository,
};
use crate::support::archives::sha256;

#[rstest]
#[tokio::test]
async fn skipped_versions_get_empty_files_and_are_missing_in_another_mode(
    #[values(On::Sqlite, On::Postgres)] on: On,
    #[values(true, false)] with_digest: bool,
) {
    let fixture = Fixture::new(on).await;
    let mut charts = vec![
        chart("a", &["3.0.0", "2.0.0", "1.0.0", "1.0.0"]),
        chart("b", &["1.0.0"]),
    ];
    for version in charts.iter_mut().flat_map(|chart| &mut chart.chart_versions) {
        if !with_digest {
            version.digest.clear();
        }
    }
    fixture.sync(charts).await;
    let skip = async |uid: &str, mode| {
        let name = repository();
        let skipped = fixture.catalog.skip_files(&name, uid, mode, &ChangedCharts::ALL);
        skipped.await.unwrap()
    };
    let mut newer = of("a", "2.0.0");
    if !with_digest {
        newer.digest.clear();
    }
    save(&fixture, &newer, "kept").await;

    assert_eq!(skip("uid-0", FilesMode::None).await, 0);
    assert_eq!(skip("uid-1", FilesMode::All).await, 0);
    assert_eq!(fixture.files().await, ["stable/a-2.0.0"]);
    assert_eq!(skip("uid-1", FilesMode::Latest).await, 1);
    assert_eq!(fixture.files().await, ["stable/a-1.0.0", "stable/a-2.0.0"]);
    assert_eq!(
        names(&wanted(&fixture, FilesMode::Latest).await),
        ["a 3.0.0", "b 1.0.0"]
    );
    assert_eq!(skip("uid-1", FilesMode::None).await, 2);
    assert_eq!(skip("uid-1", FilesMode::None).await, 0);
    let empty = info(&fixture, "stable/b-1.0.0").await;
    assert_eq!(
        empty,
        serde_json::json!({"ID": "stable/b-1.0.0", "Readme": "", "DefaultValues": "", "AdditionalDefaultValues": {},
            "Schema": "", "Repo": {"namespace": "kubeapps", "name": "stable", "url": "https://charts.example.com", "type": ""},
            "Digest": ""})
    );
    assert_eq!(info(&fixture, "stable/a-2.0.0").await["Readme"], "kept");

    let all = wanted(&fixture, FilesMode::All).await;
    assert_eq!(names(&all), ["a 3.0.0", "b 1.0.0", "a 1.0.0"]);
    for files in &all.files {
        assert_eq!(files.tries, 0);
        save(&fixture, files, "x").await;
    }
    let rest = fixture
        .catalog
        .missing_files(&repository(), FilesMode::All, at(1000), 10)
        .await;
    assert!(rest.unwrap().files.is_empty());
    assert_eq!(fixture.tables.count("portolan_files").await, 0);
}

#[rstest]
#[tokio::test]
async fn only_the_charts_that_a_commit_wrote_need_empty_files(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let skip = async |charts: &ChangedCharts| {
        let name = repository();
        let skipped = fixture.catalog.skip_files(&name, "uid-1", FilesMode::None, charts);
        skipped.await.unwrap()
    };
    let first = fixture.sync(vec![chart("a", &["1.0.0"]), chart("b", &["1.0.0"])]).await;
    assert_eq!(skip(&ChangedCharts::default()).await, 0);
    assert_eq!(skip(&first.written).await, 2);
    let charts = vec![chart("a", &["1.0.0"]), chart("b", &["2.0.0", "1.0.0"])];
    let changed = fixture.sync(charts).await.written;
    let ids: Vec<&String> = changed.listed().unwrap().iter().collect();
    assert_eq!(ids, ["stable/b"]);
    fixture.tables.execute("DELETE FROM files").await;
    assert_eq!(skip(&changed).await, 2, "the versions of b");
    assert_eq!(skip(&ChangedCharts::ALL).await, 1);
}

/// An entry of Postgres' index has at most 2,704 bytes.
#[tokio::test]
async fn a_version_with_a_long_name_gets_no_empty_files_and_stops_no_other() {
    let fixture = Fixture::new(On::Postgres).await;
    // Hardly compressible, because Postgres compresses an entry first.
    let long: String = (0..100).map(|n| sha256(&[n])).collect();
    let long = format!("1.0.0-{long}");
    fixture.sync(vec![chart("a", &["2.0.0", &long, "1.0.0"])]).await;
    let name = repository();
    let skipped = fixture
        .catalog
        .skip_files(&name, "uid-1", FilesMode::None, &ChangedCharts::ALL);
    assert_eq!(skipped.await.unwrap(), 2);
    assert_eq!(fixture.files().await, ["stable/a-1.0.0", "stable/a-2.0.0"]);
}
