//! README, values and schema of versions: missing and stored files.

use std::collections::BTreeMap;

use portolan::api::NamespacedName;
use portolan::catalog::Fence;
use portolan::catalog::{
    ChartFiles, FetchedFiles, FilesMode, FilesProgress, FilesResult, MissingFiles, MissingFilesPage, SyncCommit,
};
use rstest::rstest;
use serde_json::{Value, json};

use super::{Fixture, On, at, chart, commit::insert_file, record, repository, rows};

pub async fn wanted(fixture: &Fixture, mode: FilesMode) -> MissingFilesPage {
    fixture
        .catalog
        .missing_files(&repository(), mode, at(0), 1000)
        .await
        .unwrap()
}

/// Returns chart and version of each, without the name of the repository.
pub fn names(wanted: &MissingFilesPage) -> Vec<String> {
    wanted
        .files
        .iter()
        .map(|files| format!("{} {}", files.chart_id.trim_start_matches("stable/"), files.version))
        .collect()
}

pub fn of(name: &str, version: &str) -> MissingFiles {
    MissingFiles {
        chart_id: format!("stable/{name}"),
        version: version.into(),
        digest: format!("digest-{version}"),
        url: Some(format!("https://example.com/{name}-{version}.tgz")),
        tries: 0,
    }
}

pub fn content(readme: &str) -> ChartFiles {
    ChartFiles {
        readme: readme.into(),
        values: "a: 1\n".into(),
        additional_values: BTreeMap::from([("values-production".into(), "a: 2\n".into())]),
        schema: "{}".into(),
    }
}

pub fn imported(wanted: &MissingFiles, readme: &str) -> FilesResult {
    let files = FetchedFiles::new(wanted.clone(), &content(readme)).unwrap();
    let metadata = format!(r#"{{"name":"{}"}}"#, wanted.version);
    FilesResult::Imported(files.with_metadata(Some(metadata)))
}

pub fn failed(wanted: &MissingFiles, next_try: i64) -> FilesResult {
    FilesResult::Failed {
        missing: wanted.clone(),
        message: "no such\0file".to_owned(),
        next_try: at(next_try),
    }
}

/// Writes results and returns the number of those that are not obsolete.
pub async fn write<const N: usize>(fixture: &Fixture, mut results: [FilesResult; N]) -> u64 {
    let name = repository();
    let written = fixture.catalog.write_files(&name, "uid-1", &mut results);
    written.await.unwrap()
}

/// Returns false if the result is obsolete.
pub async fn save(fixture: &Fixture, wanted: &MissingFiles, readme: &str) -> bool {
    write(fixture, [imported(wanted, readme)]).await == 1
}

/// Returns false if the result is obsolete.
pub async fn fail(fixture: &Fixture, wanted: &MissingFiles, next_try: i64) -> bool {
    write(fixture, [failed(wanted, next_try)]).await == 1
}

pub async fn info(fixture: &Fixture, files_id: &str) -> Value {
    let sql = format!("SELECT CAST(info AS TEXT) FROM files WHERE chart_files_id = '{files_id}'");
    serde_json::from_str(&fixture.tables.texts(&sql).await[0]).unwrap()
}

#[rstest]
#[tokio::test]
async fn the_newest_missing_version_of_each_chart_comes_first_then_chart_by_chart(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let fixture = Fixture::new(on).await;
    fixture
        .sync(vec![
            chart("a", &["3.0.0", "2.0.0", "1.0.0"]),
            chart("b", &["1.0.0"]),
            chart("c", &["2.0.0", "1.0.0"]),
        ])
        .await;
    let all = wanted(&fixture, FilesMode::All).await;
    assert_eq!(
        names(&all),
        ["a 3.0.0", "b 1.0.0", "c 2.0.0", "a 2.0.0", "a 1.0.0", "c 1.0.0"]
    );
    assert_eq!(all.files[0], of("a", "3.0.0"));
    assert_eq!(all.next_try, None);
    let latest = wanted(&fixture, FilesMode::Latest).await;
    assert_eq!(names(&latest), ["a 3.0.0", "b 1.0.0", "c 2.0.0"]);
    assert_eq!(wanted(&fixture, FilesMode::None).await, MissingFilesPage::default());
    let two = fixture
        .catalog
        .missing_files(&repository(), FilesMode::All, at(0), 2)
        .await
        .unwrap();
    assert_eq!(names(&two), ["a 3.0.0", "b 1.0.0"]);
    let other = NamespacedName::new("kubeapps", "other");
    let none = fixture.catalog.missing_files(&other, FilesMode::All, at(0), 2).await;
    assert_eq!(none.unwrap(), MissingFilesPage::default());
}

#[rstest]
#[tokio::test]
async fn a_row_of_files_has_the_format_of_kubeapps(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let mut oci = chart("team/a", &["v1.0.0+b1"]);
    oci.repo.kind = "oci".into();
    fixture.sync(vec![oci]).await;
    let wanted = wanted(&fixture, FilesMode::All).await.files.remove(0);
    assert!(save(&fixture, &wanted, "# A\0 chart").await);
    assert_eq!(
        info(&fixture, "stable/team%2Fa-v1.0.0+b1").await,
        json!({
            "ID": "stable/team%2Fa-v1.0.0+b1",
            "Readme": "# A chart",
            "DefaultValues": "a: 1\n",
            "AdditionalDefaultValues": {"values-production": "a: 2\n"},
            "Schema": "{}",
            "Repo": {"namespace": "kubeapps", "name": "stable", "url": "https://charts.example.com", "type": "oci"},
            "Digest": "digest-v1.0.0+b1",
        })
    );
    assert_eq!(
        fixture
            .tables
            .texts("SELECT chart_id || ' ' || repo_name || ' ' || repo_namespace FROM files")
            .await,
        ["stable/team%2Fa stable kubeapps"]
    );
}

#[rstest]
#[tokio::test]
async fn stored_files_are_not_missing_and_equal_ones_are_not_written_again(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["2.0.0", "1.0.0"])]).await;
    save(&fixture, &of("a", "2.0.0"), "x").await;
    assert_eq!(names(&wanted(&fixture, FilesMode::All).await), ["a 1.0.0"]);
    fixture.tables.watch("files").await;
    let before = fixture.tables.writes("files").await;
    assert!(save(&fixture, &of("a", "2.0.0"), "x").await);
    assert_eq!(fixture.tables.writes("files").await, before);
    save(&fixture, &of("a", "2.0.0"), "y").await;
    assert_ne!(fixture.tables.writes("files").await, before);
    assert_eq!(info(&fixture, "stable/a-2.0.0").await["Readme"], "y");
}

#[rstest]
#[tokio::test]
async fn files_of_a_republished_version_are_missing_and_the_old_ones_are_kept_until_then(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    save(&fixture, &of("a", "1.0.0"), "old").await;
    let mut republished = chart("a", &["1.0.0"]);
    republished.chart_versions[0].digest = "another".into();
    fixture.sync(vec![republished]).await;
    let again = wanted(&fixture, FilesMode::All).await.files.remove(0);
    assert_eq!(again.digest, "another");
    fail(&fixture, &again, 60).await;
    assert_eq!(info(&fixture, "stable/a-1.0.0").await["Readme"], "old");
    assert!(wanted(&fixture, FilesMode::All).await.files.is_empty());
    // Files of the earlier archive are obsolete.
    assert!(!save(&fixture, &of("a", "1.0.0"), "late").await);
    save(&fixture, &again, "new").await;
    assert_eq!(info(&fixture, "stable/a-1.0.0").await["Readme"], "new");
    assert_eq!(fixture.tables.count("portolan_files").await, 0);
}

#[rstest]
#[tokio::test]
async fn a_failed_version_gets_empty_files_until_its_next_try(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["2.0.0", "1.0.0"])]).await;
    assert!(fail(&fixture, &of("a", "2.0.0"), 60).await);
    assert_eq!(
        info(&fixture, "stable/a-2.0.0").await,
        json!({"ID": "stable/a-2.0.0", "Readme": "", "DefaultValues": "", "AdditionalDefaultValues": {}, "Schema": "",
            "Repo": {"namespace": "kubeapps", "name": "stable", "url": "https://charts.example.com", "type": ""}, "Digest": ""})
    );
    fail(&fixture, &of("a", "1.0.0"), 30).await;
    let waiting = wanted(&fixture, FilesMode::All).await;
    assert_eq!((names(&waiting).len(), waiting.next_try), (0, Some(at(30))));
    let latest = wanted(&fixture, FilesMode::Latest).await;
    assert_eq!(latest.next_try, Some(at(60)), "the older version does not count");

    let look = async |seconds| {
        fixture
            .catalog
            .missing_files(&repository(), FilesMode::All, at(seconds), 10)
            .await
            .unwrap()
    };
    let due = look(30).await;
    assert_eq!((names(&due), due.next_try), (vec!["a 1.0.0".into()], Some(at(60))));
    assert_eq!(due.files[0].tries, 1);
    fail(&fixture, &due.files[0], 100).await;
    assert_eq!(look(100).await.files[1].tries, 2);
    save(&fixture, &of("a", "2.0.0"), "there").await;
    assert_eq!(info(&fixture, "stable/a-2.0.0").await["Readme"], "there");
    assert_eq!(names(&look(100).await), ["a 1.0.0"]);
    assert_eq!(
        fixture.tables.texts("SELECT message FROM portolan_files").await,
        ["no suchfile"]
    );
}

#[rstest]
#[tokio::test]
async fn a_manual_resync_retries_failed_files_immediately(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    fail(&fixture, &of("a", "1.0.0"), 60).await;
    assert!(wanted(&fixture, FilesMode::All).await.files.is_empty());
    let stored = fixture.catalog.record(&repository()).await.unwrap().unwrap();
    let mut commit = SyncCommit::new(stored, Some("uid-1".into()), "checksum");
    commit.is_complete = true;
    fixture
        .catalog
        .commit(commit, rows(vec![chart("a", &["1.0.0"])]))
        .await
        .unwrap();
    assert_eq!(wanted(&fixture, FilesMode::All).await.files[0].tries, 1);
}

#[rstest]
#[tokio::test]
async fn failures_of_tries_during_a_requested_sync_are_retried(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    fail(&fixture, &of("a", "1.0.0"), 60).await;
    fixture.catalog.retry_failures(&repository(), "uid-2").await.unwrap();
    let of_another_object = wanted(&fixture, FilesMode::All).await;
    assert!(of_another_object.files.is_empty());
    fixture.catalog.retry_failures(&repository(), "uid-1").await.unwrap();
    assert_eq!(wanted(&fixture, FilesMode::All).await.files[0].tries, 1);
}

/// Without a digest only `portolan_files` distinguishes an empty row from a chart without files.
#[rstest]
#[tokio::test]
async fn a_version_without_a_digest_is_fetched_once_and_again_after_a_failure(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let fixture = Fixture::new(on).await;
    let mut bare = chart("a", &["1.0.0"]);
    bare.chart_versions[0].digest = String::new();
    fixture.sync(vec![bare.clone()]).await;
    let files = wanted(&fixture, FilesMode::All).await.files.remove(0);
    fail(&fixture, &files, -1).await;
    assert_eq!(names(&wanted(&fixture, FilesMode::All).await), ["a 1.0.0"]);
    let empty = FetchedFiles::new(files, &ChartFiles::default()).unwrap();
    write(&fixture, [FilesResult::Imported(empty)]).await;
    assert!(wanted(&fixture, FilesMode::All).await.files.is_empty());
}

#[rstest]
#[tokio::test]
async fn of_duplicate_versions_the_first_counts(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let mut twice = chart("a", &["2.0.0", "1.0.0", "1.0.0"]);
    twice.chart_versions[2].digest = "second".into();
    fixture.sync(vec![twice]).await;
    let all = wanted(&fixture, FilesMode::All).await;
    assert_eq!(names(&all), ["a 2.0.0", "a 1.0.0"]);
    assert_eq!(all.files[1].digest, "digest-1.0.0");
    for files in &all.files {
        save(&fixture, files, "x").await;
    }
    assert!(wanted(&fixture, FilesMode::All).await.files.is_empty());
    let progress = fixture
        .catalog
        .files_progress(&repository(), FilesMode::All)
        .await
        .unwrap();
    assert_eq!((progress.total, progress.imported), (2, 2));
}

/// `a` of version `1-2.0.0` and `a-1` of version `2.0.0` share one row.
#[rstest]
#[tokio::test]
async fn two_charts_with_the_same_files_id_do_not_overwrite_each_other(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture
        .sync(vec![chart("a", &["1-2.0.0"]), chart("a-1", &["2.0.0"])])
        .await;
    save(&fixture, &of("a", "1-2.0.0"), "first").await;
    assert!(wanted(&fixture, FilesMode::All).await.files.is_empty());
    save(&fixture, &of("a-1", "2.0.0"), "second").await;
    assert_eq!(info(&fixture, "stable/a-1-2.0.0").await["Readme"], "first");
    fixture
        .sync(vec![chart("a", &["1.0.0"]), chart("a-1", &["2.0.0"])])
        .await;
    assert_eq!(names(&wanted(&fixture, FilesMode::All).await), ["a 1.0.0", "a-1 2.0.0"]);
}

#[rstest]
#[tokio::test]
async fn rows_of_kubeapps_syncer_are_reused(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture
        .sync(vec![chart("a", &["2.0.0", "1.0.0"]), chart("b", &["1.0.0"])])
        .await;
    insert_file(&fixture, "stable", "b", "1.0.0").await;
    for version in ["2.0.0", "1.0.0"] {
        insert_file(&fixture, "stable", "a", version).await;
        fixture
            .tables
            .execute(&format!(
                "UPDATE files SET info = '{{\"Digest\": \"digest-{version}\", \"Values\": \"old key\"}}'
                 WHERE chart_files_id = 'stable/a-{version}'"
            ))
            .await;
    }
    // The newest version only lacks its Chart.yaml, and comes last.
    assert_eq!(names(&wanted(&fixture, FilesMode::All).await), ["b 1.0.0", "a 2.0.0"]);
}

#[rstest]
#[case::another_identity("UPDATE portolan_repositories SET uid = 'uid-2'")]
#[case::no_repository("DELETE FROM repos; DELETE FROM portolan_repositories")]
#[case::no_chart("DELETE FROM charts WHERE chart_id = 'stable/a'")]
#[tokio::test]
async fn files_of_deleted_charts_are_obsolete_and_not_an_error(
    #[values(On::Sqlite, On::Postgres)] on: On,
    #[case] gone: &str,
) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    assert!(!save(&fixture, &of("a", "0.9.0"), "x").await);
    assert!(!save(&fixture, &of("b", "1.0.0"), "x").await);
    fixture.tables.execute(gone).await;
    assert!(!save(&fixture, &of("a", "1.0.0"), "x").await);
    assert!(!fail(&fixture, &of("a", "1.0.0"), 60).await);
    assert_eq!(fixture.tables.count("files").await, 0);
    assert_eq!(fixture.tables.count("portolan_files").await, 0);
}

/// Kubeapps' `delete` does not take our lock, so a chart may be deleted between our check and our write.
#[rstest]
#[tokio::test]
async fn a_chart_that_is_deleted_during_the_write_is_not_an_error(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    match on {
        On::Sqlite => {
            fixture
                .tables
                .execute("CREATE TRIGGER gone BEFORE INSERT ON files BEGIN DELETE FROM charts; END")
                .await;
        }
        On::Postgres => {
            fixture
                .tables
                .execute(
                    "CREATE FUNCTION gone() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM charts; RETURN new; END $$;
                     CREATE TRIGGER gone BEFORE INSERT ON files FOR EACH ROW EXECUTE FUNCTION gone()",
                )
                .await;
        }
    }
    assert!(!save(&fixture, &of("a", "1.0.0"), "x").await);
    assert!(!fail(&fixture, &of("a", "1.0.0"), 60).await);
    assert_eq!(fixture.tables.count("portolan_files").await, 0);
    assert_eq!(fixture.chart_names().await, ["a"], "the write is rolled back");
}

#[rstest]
#[tokio::test]
async fn failures_of_a_version_are_deleted_with_it(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture
        .sync(vec![
            chart("a", &["2.0.0", "1.0.0"]),
            chart("b", &["1.0.0"]),
            chart("c", &["1.0.0"]),
        ])
        .await;
    for (name, version) in [("a", "2.0.0"), ("a", "1.0.0"), ("b", "1.0.0"), ("c", "1.0.0")] {
        fail(&fixture, &of(name, version), 60).await;
    }
    let stored = async || {
        let sql = "SELECT chart_files_id FROM portolan_files ORDER BY chart_files_id";
        fixture.tables.texts(sql).await
    };
    fixture.sync(vec![chart("a", &["2.0.0"]), chart("c", &["1.0.0"])]).await;
    assert_eq!(stored().await, ["stable/a-2.0.0", "stable/c-1.0.0"]);
    assert_eq!(fixture.files().await, ["stable/a-2.0.0", "stable/c-1.0.0"]);
    fixture.catalog.recreate().await.unwrap();
    assert_eq!(stored().await, Vec::<String>::new());
    fixture.sync(vec![chart("a", &["2.0.0"])]).await;
    fail(&fixture, &of("a", "2.0.0"), 60).await;
    fixture.catalog.remove(&repository(), Fence::None).await.unwrap();
    assert_eq!(stored().await, Vec::<String>::new());
}

#[rstest]
#[tokio::test]
async fn another_object_resets_failed_files(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    fail(&fixture, &of("a", "1.0.0"), 60).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    assert!(wanted(&fixture, FilesMode::All).await.files.is_empty());
    let mut other = record();
    other.uid = "uid-2".into();
    let commit = SyncCommit::new(other, Some("uid-1".into()), "checksum");
    let charts = rows(vec![chart("a", &["1.0.0"])]);
    fixture.catalog.commit(commit, charts).await.unwrap();
    assert_eq!(wanted(&fixture, FilesMode::All).await.files[0].tries, 0);
}

#[rstest]
#[tokio::test]
async fn progress_counts_stored_and_repeatedly_failed_files(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture
        .sync(vec![chart("a", &["3.0.0", "2.0.0", "1.0.0"]), chart("b", &["1.0.0"])])
        .await;
    save(&fixture, &of("a", "3.0.0"), "x").await;
    for _ in 0..FilesProgress::TRIES {
        fail(&fixture, &of("a", "2.0.0"), 60).await;
    }
    fail(&fixture, &of("b", "1.0.0"), 60).await;
    let progress = async |mode| {
        let progress = fixture.catalog.files_progress(&repository(), mode).await.unwrap();
        (progress.total, progress.imported, progress.failed)
    };
    assert_eq!(progress(FilesMode::All).await, (4, 1, 1));
    assert_eq!(progress(FilesMode::Latest).await, (2, 1, 0));
    assert_eq!(progress(FilesMode::None).await, (0, 0, 0));
}

#[rstest]
#[tokio::test]
async fn results_of_several_versions_are_written_together(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture
        .sync(vec![
            chart("a", &["2.0.0", "1.0.0"]),
            chart("b", &["1.0.0"]),
            chart("c", &["1.0.0"]),
        ])
        .await;
    fail(&fixture, &of("b", "1.0.0"), 60).await;
    let mut outdated = of("c", "1.0.0");
    outdated.digest = "another".to_owned();
    let results = [
        imported(&of("a", "2.0.0"), "first"),
        failed(&of("a", "1.0.0"), 60),
        imported(&of("b", "1.0.0"), "second"),
        imported(&outdated, "obsolete"),
        imported(&of("d", "1.0.0"), "obsolete"),
    ];
    assert_eq!(write(&fixture, results).await, 3);
    assert_eq!(
        fixture.files().await,
        ["stable/a-1.0.0", "stable/a-2.0.0", "stable/b-1.0.0"]
    );
    assert_eq!(info(&fixture, "stable/a-2.0.0").await["Readme"], "first");
    assert_eq!(info(&fixture, "stable/b-1.0.0").await["Readme"], "second");
    assert_eq!(info(&fixture, "stable/a-1.0.0").await["Digest"], "");
    let failures = "SELECT chart_files_id FROM portolan_files";
    assert_eq!(fixture.tables.texts(failures).await, ["stable/a-1.0.0"]);
}

/// Two rows of one statement that share a key are rejected together.
#[rstest]
#[tokio::test]
async fn a_result_that_the_database_rejects_does_not_prevent_the_others(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture
        .sync(vec![
            chart("a", &["1-2.0.0"]),
            chart("a-1", &["2.0.0"]),
            chart("b", &["1.0.0"]),
        ])
        .await;
    let results = [
        imported(&of("a", "1-2.0.0"), "first"),
        imported(&of("a-1", "2.0.0"), "second"),
        imported(&of("b", "1.0.0"), "third"),
    ];
    assert_eq!(write(&fixture, results).await, 3);
    assert_eq!(info(&fixture, "stable/a-1-2.0.0").await["Readme"], "first");
    assert_eq!(info(&fixture, "stable/b-1.0.0").await["Readme"], "third");
}

#[rstest]
#[tokio::test]
async fn a_warning_is_a_problem_but_no_failure(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let wanted = of("a", "1.0.0");
    fail(&fixture, &wanted, -1).await;
    let files = FetchedFiles::new(wanted.clone(), &content("x")).unwrap();
    let warned = files.with_warning(Some("another digest".to_owned()));
    write(&fixture, [FilesResult::Imported(warned)]).await;
    let problems = async || fixture.catalog.files_problems(&repository(), 5).await.unwrap();
    assert_eq!(
        problems().await,
        [("stable/a-1.0.0".to_owned(), "another digest".to_owned())]
    );
    assert!(super::files::wanted(&fixture, FilesMode::All).await.files.is_empty());
    let progress = fixture.catalog.files_progress(&repository(), FilesMode::All).await;
    assert_eq!(progress.unwrap().imported, 1);
    save(&fixture, &wanted, "y").await;
    assert!(problems().await.is_empty());
}

#[rstest]
#[tokio::test]
async fn all_digests_of_a_version_are_listed(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let mut twice = chart("a", &["2.0.0", "1.0.0", "1.0.0"]);
    twice.chart_versions[2].digest = "second".into();
    fixture.sync(vec![twice]).await;
    let digests = async |version| {
        let digests = fixture
            .catalog
            .version_digests(&repository(), "stable/a", version)
            .await;
        digests.unwrap()
    };
    assert_eq!(digests("1.0.0").await, ["digest-1.0.0", "second"]);
    assert!(digests("3.0.0").await.is_empty());
}
