//! Limits of the bytes that a repository and a namespace store.

use portolan::api::NamespacedName;
use portolan::catalog::{
    Catalog, ChangedCharts, ChartInfo, CommitSummary, Error, ErrorKind, FilesMode, Record, StorageLimits, SyncCommit,
};
use rstest::rstest;

use super::files::{failed, imported, of};
use super::{Fixture, On, chart, record, repository, rows};

/// Reopens the catalog with these limits.
async fn limit(fixture: &mut Fixture, repository: Option<u64>, namespace: Option<u64>) {
    fixture.settings.limits = StorageLimits { repository, namespace };
    fixture.catalog.close().await;
    fixture.catalog = Catalog::open(&fixture.settings).await.unwrap();
}

/// Charts with text that Postgres can't compress much.
fn large(count: u32) -> Vec<ChartInfo> {
    let text = |seed: u32| {
        let mut state = u64::from(seed) + 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'a' + u8::try_from(state >> 33 & 15).unwrap())
        };
        (0..4000).map(|_| next()).collect::<String>()
    };
    let chart = |at| ChartInfo {
        description: text(at),
        ..chart(&format!("c{at}"), &["1.0.0"])
    };
    (0..count).map(chart).collect()
}

async fn stored(fixture: &Fixture) -> (i64, i64) {
    let column = async |column: &str| {
        let sum = format!("SELECT CAST(sum({column}) AS BIGINT) FROM portolan_stored_bytes");
        fixture.tables.number(&sum).await
    };
    (column("charts").await, column("files").await)
}

/// Returns the sums over all rows.
async fn actual(fixture: &Fixture, on: On) -> (i64, i64) {
    let size = match on {
        On::Sqlite => "octet_length",
        On::Postgres => "pg_column_size",
    };
    let sum = async |table: &str, column: &str| {
        let sum = format!("SELECT CAST(coalesce(sum({size}({column})), 0) AS BIGINT) FROM {table}");
        fixture.tables.number(&sum).await
    };
    let metadata = sum("portolan_chart_metadata", "metadata").await;
    (sum("charts", "info").await, sum("files", "info").await + metadata)
}

async fn save(fixture: &Fixture, chart: &str, readme: &str) -> Result<(), Error> {
    let mut results = [imported(&of(chart, "1.0.0"), readme)];
    let saved = fixture.catalog.write_files(&repository(), "uid-1", &mut results).await;
    saved.map(drop)
}

#[rstest]
#[tokio::test]
async fn the_count_follows_all_changes_of_charts_and_files(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(large(8)).await;
    assert_eq!(stored(&fixture).await, actual(&fixture, on).await, "added");
    for name in ["c0", "c1", "c2"] {
        save(&fixture, name, &"readme ".repeat(500)).await.unwrap();
    }
    save(&fixture, "c2", "short").await.unwrap();
    assert_eq!(stored(&fixture).await, actual(&fixture, on).await, "files");
    let mut changed = large(6);
    changed[0].description = "short".to_owned();
    changed[1].chart_versions[0].version = "2.0.0".to_owned();
    changed.remove(2);
    fixture.try_sync("changed", changed).await.unwrap();
    let (charts, files) = actual(&fixture, on).await;
    assert_eq!(stored(&fixture).await, (charts, files), "changed and removed");
    assert!(charts > 0 && files > 0);
}

#[rstest]
#[tokio::test]
async fn charts_beyond_the_limit_are_refused_and_the_stored_ones_stay(#[values(On::Sqlite, On::Postgres)] on: On) {
    let mut fixture = Fixture::new(on).await;
    fixture.sync(large(4)).await;
    let before = actual(&fixture, on).await;
    limit(&mut fixture, Some(u64::try_from(before.0).unwrap() + 2000), None).await;
    let error = fixture.try_sync("more", large(5)).await.unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::QuotaExceeded { .. }) && !error.is_transient(),
        "{error}"
    );
    assert_eq!(error.reason(), "QuotaExceeded");
    let message = error.to_string();
    assert!(
        message.contains("kubeapps/stable") && message.contains("--max-repository-bytes"),
        "{message}"
    );
    assert_eq!(actual(&fixture, on).await, before);
    assert_eq!(stored(&fixture).await, before);
    let removed: CommitSummary = fixture.try_sync("less", large(3)).await.unwrap();
    assert_eq!(removed.removed, 1, "a repository at its limit may shrink");
}

/// Files fill at most seven eighths, so that charts can still be synced.
#[rstest]
#[tokio::test]
async fn files_beyond_the_limit_are_refused_and_charts_are_still_synced(#[values(On::Sqlite, On::Postgres)] on: On) {
    let mut fixture = Fixture::new(on).await;
    fixture.sync(large(2)).await;
    let charts = u64::try_from(actual(&fixture, on).await.0).unwrap();
    limit(&mut fixture, Some((charts + 1000) * 8 / 7), None).await;
    save(&fixture, "c0", "short").await.unwrap();
    let error = save(&fixture, "c1", &large(1)[0].description).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::QuotaExceeded { .. }), "{error}");
    assert!(error.to_string().contains("seven eighths"), "{error}");
    assert_eq!(fixture.files().await, ["stable/c0-1.0.0"]);
    let mut changed = large(2);
    changed[0].home = "https://elsewhere.example".to_owned();
    assert_eq!(fixture.try_sync("changed", changed).await.unwrap().changed, 1);
    assert_eq!(stored(&fixture).await, actual(&fixture, on).await);
}

#[rstest]
#[tokio::test]
async fn charts_and_files_count_against_one_limit(#[values(On::Sqlite, On::Postgres)] on: On) {
    let mut fixture = Fixture::new(on).await;
    fixture.sync(large(2)).await;
    for name in ["c0", "c1"] {
        save(&fixture, name, &large(1)[0].description).await.unwrap();
    }
    let (charts, files) = actual(&fixture, on).await;
    // Enough for the charts alone, but not for charts and files.
    limit(&mut fixture, Some(u64::try_from(charts + files).unwrap() + 1000), None).await;
    let error = fixture.try_sync("more", large(3)).await.unwrap_err();
    assert_eq!(error.reason(), "QuotaExceeded");
    assert_eq!(actual(&fixture, on).await, (charts, files));
}

#[rstest]
#[tokio::test]
async fn of_several_results_those_within_the_limit_are_written(#[values(On::Sqlite, On::Postgres)] on: On) {
    let mut fixture = Fixture::new(on).await;
    fixture.sync(large(4)).await;
    let charts = u64::try_from(actual(&fixture, on).await.0).unwrap();
    let text = &large(1)[0].description;
    limit(&mut fixture, Some((charts + 10_000) * 8 / 7), None).await;
    let mut results = ["c0", "c1", "c2", "c3"].map(|name| imported(&of(name, "1.0.0"), text));
    let written = fixture.catalog.write_files(&repository(), "uid-1", &mut results).await;
    assert!(
        matches!(&written, Err(error) if matches!(error.kind(), ErrorKind::QuotaExceeded { .. })),
        "{written:?}"
    );
    let files = fixture.files().await;
    assert!(
        files.starts_with(&["stable/c0-1.0.0".to_owned()]) && files.len() < 4,
        "{files:?}"
    );
    assert_eq!(stored(&fixture).await, actual(&fixture, on).await);
}

#[rstest]
#[tokio::test]
async fn empty_rows_count_too(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(large(4)).await;
    super::files::write(&fixture, [failed(&of("c0", "1.0.0"), 60)]).await;
    let skipped = fixture
        .catalog
        .skip_files(&repository(), "uid-1", FilesMode::None, &ChangedCharts::ALL)
        .await;
    assert_eq!(skipped.unwrap(), 3);
    assert_eq!(stored(&fixture).await, actual(&fixture, on).await);
}

#[rstest]
#[tokio::test]
async fn a_namespace_has_a_limit_for_all_its_repositories(#[values(On::Sqlite, On::Postgres)] on: On) {
    let mut fixture = Fixture::new(on).await;
    fixture.sync(large(4)).await;
    let charts = u64::try_from(actual(&fixture, on).await.0).unwrap();
    limit(&mut fixture, None, Some(charts + 2000)).await;
    let commit = async |namespace: &str| {
        let record = Record::new(NamespacedName::new(namespace, "second"), "uid");
        let commit = SyncCommit::new(record, None, "checksum");
        fixture.catalog.commit(commit, rows(large(1))).await
    };
    let error = commit("kubeapps").await.unwrap_err();
    assert!(error.to_string().contains("--max-namespace-bytes"), "{error}");
    commit("elsewhere").await.unwrap();
}

#[rstest]
#[tokio::test]
async fn a_requested_sync_counts_all_rows(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(large(2)).await;
    save(&fixture, "c0", "readme").await.unwrap();
    fixture
        .tables
        .execute("UPDATE portolan_stored_bytes SET charts = 1, files = 2")
        .await;
    let stored_record = fixture.catalog.record(&repository()).await.unwrap();
    let mut commit = SyncCommit::new(stored_record.unwrap_or_else(record), Some("uid-1".into()), "checksum");
    commit.is_complete = true;
    fixture.catalog.commit(commit, rows(large(2))).await.unwrap();
    assert_eq!(stored(&fixture).await, actual(&fixture, on).await);
}
