//! Versions whose files are not imported. Kubeapps' reader fails without a row, so they get an empty one.

use portolan::catalog::{ChartInfo, CommitSummary, FilesMode, SyncCommit};
use rstest::rstest;

use super::{
    Fixture, On, at, chart,
    files::{info, names, of, save, wanted},
    quotas::{actual, stored},
    record, repository, rows,
};

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
    let skip = async |uid: &str, mode| fixture.catalog.skip_files(&repository(), uid, mode).await.unwrap();
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
#[case::latest_on_sqlite(On::Sqlite, FilesMode::Latest, &["stable/a-1.0.0", "stable/b-2.0.0", "stable/b-1.0.0"])]
#[case::latest_on_postgres(On::Postgres, FilesMode::Latest, &["stable/a-1.0.0", "stable/b-2.0.0", "stable/b-1.0.0"])]
#[case::none_on_postgres(On::Postgres, FilesMode::None, &["stable/a-2.0.0", "stable/a-1.0.0", "stable/b-3.0.0", "stable/b-2.0.0", "stable/b-1.0.0"])]
#[case::none_on_sqlite_has_no_reader(On::Sqlite, FilesMode::None, &[])]
#[tokio::test]
async fn a_commit_writes_empty_files_with_its_charts(
    #[case] on: On,
    #[case] mode: FilesMode,
    #[case] expected: &[&str],
) {
    let fixture = Fixture::new(on).await;
    sync(
        &fixture,
        mode,
        vec![chart("a", &["2.0.0", "1.0.0"]), chart("b", &["2.0.0", "1.0.0"])],
    )
    .await;
    let charts = vec![
        chart("a", &["2.0.0", "1.0.0"]),
        chart("b", &["3.0.0", "2.0.0", "1.0.0"]),
    ];
    let committed = sync(&fixture, mode, charts).await;
    assert_eq!((committed.changed, committed.unchanged), (1, 1));
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(fixture.files().await, expected);
    assert_eq!(stored(&fixture).await, actual(&fixture, on).await);
    let rest = fixture.catalog.skip_files(&repository(), "uid-1", mode).await.unwrap();
    let without_reader = if (on, mode) == (On::Sqlite, FilesMode::None) {
        5
    } else {
        0
    };
    assert_eq!(rest, without_reader);
}

/// An entry of Postgres' index has at most 2,704 bytes.
#[tokio::test]
async fn a_version_with_a_long_name_gets_no_empty_files_and_stops_no_other() {
    let fixture = Fixture::new(On::Postgres).await;
    // Hardly compressible, because Postgres compresses an entry first.
    let long: String = (0..100).map(|n| crate::support::archives::sha256(&[n])).collect();
    let long = format!("1.0.0-{long}");
    let committed = sync(&fixture, FilesMode::None, vec![chart("a", &["2.0.0", &long, "1.0.0"])]).await;
    assert_eq!((committed.added, committed.rejected), (1, Vec::new()));
    assert_eq!(fixture.files().await, ["stable/a-1.0.0", "stable/a-2.0.0"]);
}

async fn sync(fixture: &Fixture, mode: FilesMode, charts: Vec<ChartInfo>) -> CommitSummary {
    let stored = fixture.catalog.record(&repository()).await.unwrap();
    let expected = stored.as_ref().map(|record| record.uid.clone());
    let mut commit = SyncCommit::new(stored.unwrap_or_else(record), expected, format!("{charts:?}"));
    commit.chart_files = mode;
    fixture.catalog.commit(commit, rows(charts)).await.unwrap()
}
