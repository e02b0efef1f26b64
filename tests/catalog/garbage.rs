//! Rows that no sync removes.

use portolan::catalog::HISTORY_LIMIT;
use rstest::rstest;

use super::commit::insert_file;
use super::{Fixture, On, chart, repository};

const STORED: &str = "SELECT CAST(sum(files) AS BIGINT) FROM portolan_stored_bytes";

#[rstest]
#[tokio::test]
async fn files_without_a_version_are_collected_and_no_longer_counted(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture
        .sync(vec![chart("a", &["1.0.0"]), chart("a/b", &["1.0.0"])])
        .await;
    for (name, version) in [("a", "1.0.0"), ("a", "0.9.0"), ("a%2Fb", "0.1.0")] {
        insert_file(&fixture, "stable", name, version).await;
    }
    fixture
        .tables
        .execute("UPDATE portolan_stored_bytes SET files = 1000000")
        .await;
    let collect = async |dry_run| fixture.catalog.collect_files(&repository(), dry_run).await.unwrap();
    assert_eq!(collect(true).await, 2);
    assert_eq!(fixture.files().await.len(), 3, "a dry run removes nothing");
    assert_eq!(collect(false).await, 2);
    assert_eq!(fixture.files().await, ["stable/a-1.0.0"]);
    assert!(fixture.tables.number(STORED).await < 1_000_000);
    assert_eq!(collect(false).await, 0);
}

#[rstest]
#[tokio::test]
async fn files_of_a_chart_in_another_format_stay(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    insert_file(&fixture, "stable", "a", "1.0.0").await;
    for info in ["{}", r#"{"chartVersions": []}"#, r#"{"chartVersions": "odd"}"#] {
        fixture
            .tables
            .execute(&format!("UPDATE charts SET info = '{info}'"))
            .await;
        assert_eq!(
            fixture.catalog.collect_files(&repository(), false).await.unwrap(),
            0,
            "{info}"
        );
    }
    assert_eq!(fixture.files().await.len(), 1);
}

#[rstest]
#[tokio::test]
async fn history_past_its_limit_is_collected_oldest_first(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    fixture.tables.execute("DELETE FROM portolan_syncs").await;
    for at in 0..HISTORY_LIMIT + 7 {
        fixture
            .tables
            .execute(&format!(
                "INSERT INTO portolan_syncs (namespace, name, started_at, duration_ms, result, reason, message, digest, charts,
                    versions, added, changed, removed, skipped)
                 VALUES ('kubeapps', 'stable', '2026-01-02T03:04:05Z', 1, 'Succeeded', 'Synced', 'm{at}', '', 0, 0, 0, 0, 0, 0)"
            ))
            .await;
    }
    assert_eq!(fixture.catalog.collect_history(true).await.unwrap(), 7);
    assert_eq!(fixture.catalog.collect_history(false).await.unwrap(), 7);
    assert_eq!(fixture.tables.count("portolan_syncs").await, HISTORY_LIMIT);
    let oldest = "SELECT count(*) FROM portolan_syncs WHERE message IN ('m0', 'm6')";
    assert_eq!(fixture.tables.number(oldest).await, 0);
    assert_eq!(fixture.catalog.collect_history(false).await.unwrap(), 0);
}

#[rstest]
#[tokio::test]
async fn rows_without_a_repository_are_collected_unless_it_is_declared(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    for name in ["stable", "gone", "first-sync"] {
        fixture
            .tables
            .execute(&format!(
                "INSERT INTO portolan_oci_tags (namespace, name, repository, tag, digest, tries)
                 VALUES ('kubeapps', '{name}', 'r', 't', 'd', 0)"
            ))
            .await;
    }
    let collect = async |dry_run| {
        let is_declared = |name: &portolan::api::NamespacedName| name.name == "first-sync";
        fixture.catalog.collect_stray_rows(is_declared, dry_run).await.unwrap()
    };
    assert_eq!(collect(true).await, 1);
    assert_eq!(collect(false).await, 1);
    let left = fixture
        .tables
        .texts("SELECT name FROM portolan_oci_tags ORDER BY name")
        .await;
    assert_eq!(left, ["first-sync", "stable"]);
    assert_eq!(fixture.charts().await.len(), 1);
}
