//! Rows that a sync writes.

use portolan::api::NamespacedName;
use portolan::catalog::{ChartInfo, SyncCommit};
use rstest::rstest;

use super::{Fixture, On, chart, repository, rows};

#[rstest]
#[tokio::test]
async fn the_first_commit_writes_charts_repository_and_record(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let charts = vec![chart("mysql", &["2.0.0", "1.0.0"]), chart("team/nginx", &["1.0.0"])];
    let committed = fixture.sync(charts.clone()).await;
    assert_eq!((committed.added, committed.changed, committed.removed), (2, 0, 0));
    assert_eq!(fixture.charts().await, charts);
    assert_eq!(
        fixture.tables.texts("SELECT chart_id FROM charts ORDER BY id").await,
        ["stable/mysql", "stable/team%2Fnginx"]
    );
    assert_eq!(
        fixture
            .tables
            .texts("SELECT namespace || ' ' || name || ' ' || checksum FROM repos")
            .await,
        ["kubeapps stable checksum"]
    );
    let last_update = fixture.tables.texts("SELECT last_update FROM repos").await.remove(0);
    assert!(last_update.ends_with(" +0000 UTC"), "{last_update}");
    assert_eq!(
        fixture.tables.number("SELECT CAST(id AS BIGINT) FROM repos").await,
        committed.repos_id
    );
    let stored = fixture.catalog.record(&repository()).await.unwrap().unwrap();
    assert!(stored.trusted);
    assert_eq!((stored.uid.as_str(), stored.charts), ("uid-1", 2));
}

#[rstest]
#[tokio::test]
async fn unchanged_charts_write_no_row_of_kubeapps(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let charts = || vec![chart("mysql", &["1.0.0"]), chart("nginx", &["1.0.0"])];
    fixture.sync(charts()).await;
    fixture.tables.watch("charts").await;
    fixture.tables.watch("repos").await;
    let before = (
        fixture.tables.writes("charts").await,
        fixture.tables.writes("repos").await,
    );
    let committed = fixture.sync(charts()).await;
    assert_eq!((committed.unchanged, committed.is_change()), (2, false));
    assert_eq!(
        (
            fixture.tables.writes("charts").await,
            fixture.tables.writes("repos").await
        ),
        before
    );
    assert!(fixture.catalog.record(&repository()).await.unwrap().unwrap().trusted);
}

#[rstest]
#[tokio::test]
async fn new_creation_times_are_written_only_with_another_change(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("mysql", &["2.0.0", "1.0.0"])]).await;
    fixture.tables.watch("charts").await;
    let before = fixture.tables.writes("charts").await;
    let mut newer = chart("mysql", &["2.0.0", "1.0.0"]);
    for version in &mut newer.chart_versions {
        version.created = "2026-01-01T00:00:00Z".into();
    }
    let committed = fixture.sync(vec![newer.clone()]).await;
    assert_eq!((committed.unchanged, committed.changed), (1, 0));
    assert_eq!(fixture.tables.writes("charts").await, before);

    newer.description.push('!');
    let committed = fixture.sync(vec![newer.clone()]).await;
    assert_eq!((committed.unchanged, committed.changed), (0, 1));
    assert_eq!(fixture.charts().await, [newer]);
}

#[rstest]
#[tokio::test]
async fn a_new_version_writes_one_row(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture
        .sync(vec![
            chart("a", &["1.0.0"]),
            chart("b", &["1.0.0"]),
            chart("c", &["1.0.0"]),
        ])
        .await;
    let ids = fixture
        .tables
        .texts("SELECT CAST(id AS TEXT) FROM charts ORDER BY chart_id")
        .await;
    fixture.tables.watch("charts").await;
    let before = fixture.tables.writes("charts").await;
    let next = vec![
        chart("a", &["1.0.0"]),
        chart("b", &["1.1.0", "1.0.0"]),
        chart("c", &["1.0.0"]),
    ];
    let committed = fixture.try_sync("another", next.clone()).await.unwrap();
    assert_eq!(
        (
            committed.added,
            committed.changed,
            committed.removed,
            committed.unchanged
        ),
        (0, 1, 0, 2)
    );
    let after = fixture.tables.writes("charts").await;
    assert_eq!(after.iter().filter(|write| !before.contains(write)).count(), 1);
    assert_eq!(fixture.charts().await, next);
    assert_eq!(
        fixture
            .tables
            .texts("SELECT CAST(id AS TEXT) FROM charts ORDER BY chart_id")
            .await,
        ids
    );
    assert_eq!(fixture.tables.texts("SELECT checksum FROM repos").await, ["another"]);
}

#[rstest]
#[tokio::test]
async fn missing_charts_are_deleted_with_their_files(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"]), chart("b", &["1.0.0"])]).await;
    let other = NamespacedName::new("kubeapps", "other");
    let other_record = portolan::catalog::Record::new(other.clone(), "uid-2");
    let mut theirs = chart("a", &["1.0.0"]);
    theirs.id = "other/a".into();
    fixture
        .catalog
        .commit(SyncCommit::new(other_record, None, "x"), rows(vec![theirs]))
        .await
        .unwrap();
    for (repo, name) in [("stable", "a"), ("stable", "b"), ("other", "a")] {
        insert_file(&fixture, repo, name, "1.0.0").await;
    }
    let committed = fixture.sync(vec![chart("b", &["1.0.0"])]).await;
    assert_eq!((committed.removed, committed.unchanged), (1, 1));
    assert_eq!(
        fixture
            .tables
            .texts("SELECT chart_id FROM charts ORDER BY chart_id")
            .await,
        ["other/a", "stable/b"]
    );
    assert_eq!(
        fixture
            .tables
            .texts("SELECT chart_files_id FROM files ORDER BY chart_files_id")
            .await,
        ["other/a-1.0.0", "stable/b-1.0.0"]
    );
    let empty = fixture.sync(vec![]).await;
    assert_eq!(empty.removed, 1);
    assert_eq!(fixture.tables.count("charts").await, 1);
}

#[rstest]
#[tokio::test]
async fn files_of_a_missing_version_are_deleted(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture
        .sync(vec![
            chart("a", &["2.0.0", "1.0.0"]),
            chart("b", &["1.0.0"]),
            chart("c", &["1.0.0"]),
        ])
        .await;
    for (name, version) in [
        ("a", "2.0.0"),
        ("a", "1.0.0"),
        ("b", "1.0.0"),
        ("c", "0.9.0"),
        ("c", "1.0.0"),
    ] {
        insert_file(&fixture, "stable", name, version).await;
    }
    let next = vec![
        chart("a", &["2.0.0"]),
        chart("b", &["1.1.0", "1.0.0"]),
        chart("c", &["1.0.0"]),
    ];
    fixture.sync(next).await;
    // The chart c was not written, so its files were not checked.
    assert_eq!(
        fixture
            .tables
            .texts("SELECT chart_files_id FROM files ORDER BY chart_files_id")
            .await,
        ["stable/a-2.0.0", "stable/b-1.0.0", "stable/c-0.9.0", "stable/c-1.0.0"]
    );
}

pub async fn insert_file(fixture: &Fixture, repo: &str, name: &str, version: &str) {
    fixture
        .tables
        .execute(&format!(
            "INSERT INTO files (chart_id, repo_name, repo_namespace, chart_files_id, info)
             VALUES ('{repo}/{name}', '{repo}', 'kubeapps', '{repo}/{name}-{version}', '{{}}')"
        ))
        .await;
}

#[rstest]
#[tokio::test]
async fn an_imported_icon_stays_while_its_url_is_the_same(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let with_icon = |name: &str| ChartInfo {
        raw_icon: Some("aWNvbg==".into()),
        icon_content_type: "image/png".into(),
        ..chart(name, &["1.0.0"])
    };
    fixture
        .sync(vec![with_icon("a"), with_icon("b"), chart("c", &["1.0.0"])])
        .await;
    let mut moved = chart("b", &["1.0.0"]);
    moved.icon = "https://example.com/other.png".into();
    let committed = fixture
        .sync(vec![chart("a", &["1.1.0", "1.0.0"]), moved, chart("c", &["1.1.0"])])
        .await;
    assert_eq!(committed.changed, 3);
    let stored = fixture.charts().await;
    let icons: Vec<_> = stored
        .iter()
        .map(|info| (info.raw_icon.as_deref(), info.icon_content_type.as_str()))
        .collect();
    assert_eq!(icons, [(Some("aWNvbg=="), "image/png"), (None, ""), (None, "")]);
    assert_eq!(stored[0].chart_versions.len(), 2);
}

#[rstest]
#[tokio::test]
async fn hostile_chart_names_affect_no_other_chart(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let hostile = hostile_names();
    let all: Vec<ChartInfo> = hostile.iter().map(|name| chart(name, &["1.0.0"])).collect();
    let other = portolan::catalog::Record::new(NamespacedName::new("kubeapps", "x') OR true --"), "uid-2");
    fixture
        .catalog
        .commit(SyncCommit::new(other, None, "x"), rows(vec![chart("safe", &["1.0.0"])]))
        .await
        .unwrap();
    fixture.sync(all.clone()).await;
    let again = fixture.sync(all.clone()).await;
    assert_eq!(again.unchanged as usize, hostile.len());
    // Each deletion affects one chart only.
    for gone in 0..hostile.len() {
        let committed = fixture.sync(all[gone + 1..].to_vec()).await;
        assert_eq!(committed.removed, 1, "{}", hostile[gone]);
        assert_eq!(fixture.tables.count("charts").await as usize, hostile.len() - gone);
    }
}

pub fn hostile_names() -> Vec<&'static str> {
    vec![
        "x') OR true OR (info->>'name' = 'y",
        "o'neill",
        "a\"b\\c",
        "{\"a\": [1]}",
        "100%_\\",
        "$1 ? :a @b",
        "名前/é\u{202e}",
        "'; DROP TABLE charts; --",
        "null",
    ]
}
