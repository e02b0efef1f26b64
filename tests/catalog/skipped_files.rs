//! Versions whose files are not imported. Kubeapps' reader fails without a row, so they get an empty one.

use portolan::catalog::FilesMode;
use rstest::rstest;

use super::{
    Fixture, On, at, chart,
    files::{info, names, of, save, wanted},
    repository,
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
