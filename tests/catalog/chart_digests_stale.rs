//! Digests that are stale at the time of the commit: nothing is written, and the next commit compares all charts.

use portolan::catalog::{ChartDigest, ErrorKind};
use rstest::rstest;

use super::{
    Fixture, On, chart,
    chart_digests::{SyncState, commit, compared, digest_of, read_state},
    repository,
    retention::{counts, keep},
};

const CACHE_KEY: &str = "decoder 1";

/// Returns a fixture with three charts, and their digests.
async fn stored(on: On) -> (Fixture, SyncState) {
    let fixture = Fixture::new(on).await;
    let charts = ["a", "b", "c"].map(|name| chart(name, &["2", "1"]));
    let first = read_state(&fixture, &repository(), CACHE_KEY).await;
    let (changed, digests) = compared(None, CACHE_KEY, &charts);
    commit(&fixture, &first, None, changed, Some(digests)).await.unwrap();
    let known = read_state(&fixture, &repository(), CACHE_KEY).await;
    assert_eq!(known.digests.as_ref().unwrap().charts.len(), 3);
    (fixture, known)
}

/// Returns everything that a commit may write.
async fn everything(fixture: &Fixture) -> Vec<String> {
    let mut all = Vec::new();
    for sql in [
        "SELECT chart_id || CAST(info AS TEXT) || id FROM charts ORDER BY id",
        "SELECT checksum || last_update || id FROM repos ORDER BY id",
        "SELECT CAST(revision AS TEXT) FROM portolan_repositories",
        "SELECT cache_key || digest_key FROM portolan_index_cache",
        "SELECT key || digest || coalesce(chart_id, '') || coalesce(row_id, 0) FROM portolan_chart_digests ORDER BY key",
        "SELECT chart_id || version FROM portolan_kept_versions ORDER BY 1",
    ] {
        all.extend(fixture.tables.texts(sql).await);
    }
    all
}

#[rstest]
#[case::the_row_of_the_repository("UPDATE repos SET last_update = 'theirs'")]
#[case::a_deleted_row("DELETE FROM charts WHERE chart_id = 'stable/b'")]
#[case::a_replaced_row("UPDATE charts SET id = id + 1000 WHERE chart_id = 'stable/b'")]
#[case::a_row_of_another_chart("UPDATE charts SET chart_id = 'stable/x' WHERE chart_id = 'stable/b'")]
#[case::a_retained_version(
    "INSERT INTO portolan_kept_versions (namespace, name, chart_id, version, missing_since, expires)
     VALUES ('kubeapps', 'stable', 'stable/b', '0', 0, 9000000000000)"
)]
#[case::a_deleted_digest("DELETE FROM portolan_chart_digests WHERE key = 'b'")]
#[case::a_digest_of_another_chart("UPDATE portolan_chart_digests SET chart_id = 'stable/x' WHERE key = 'b'")]
#[case::a_digest_without_a_row("UPDATE portolan_chart_digests SET chart_id = NULL WHERE key = 'b'")]
#[case::a_digest_without_a_row_id("UPDATE portolan_chart_digests SET row_id = NULL WHERE key = 'b'")]
#[case::a_deleted_index("DELETE FROM portolan_index_cache")]
#[case::another_digest_key("UPDATE portolan_index_cache SET digest_key = 'another'")]
#[case::another_cache_key("UPDATE portolan_index_cache SET cache_key = 'another'")]
#[tokio::test]
async fn changes_since_the_digests_were_read_abort_the_commit(
    #[values(On::Sqlite, On::Postgres)] on: On,
    #[case] meanwhile: &str,
    #[values(false, true)] keeps: bool,
) {
    let (fixture, known) = stored(on).await;
    fixture.tables.execute(meanwhile).await;
    let before = everything(&fixture).await;
    let charts = [
        chart("a", &["3", "2", "1"]),
        chart("b", &["2", "1"]),
        chart("c", &["2", "1"]),
    ];
    let keep = keeps.then(|| keep(0));
    let (changed, digests) = compared(known.digests.as_ref(), CACHE_KEY, &charts);
    assert_eq!((changed.len(), digests.unchanged.len()), (1, 2));
    let error = commit(&fixture, &known, keep.clone(), changed, Some(digests))
        .await
        .unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::StaleDigests) && error.is_transient(),
        "{error}"
    );
    assert_eq!(everything(&fixture).await, before);
    // A full comparison restores the digests.
    let (changed, digests) = compared(None, CACHE_KEY, &charts);
    let committed = commit(&fixture, &known, keep, changed, Some(digests)).await.unwrap();
    assert_eq!((committed.changed, committed.rejected.len()), (1, 0), "{committed:?}");
    let stored = fixture
        .tables
        .texts("SELECT chart_id FROM charts ORDER BY chart_id")
        .await;
    assert!(stored.iter().all(|id| keeps || id != "stable/x"), "{stored:?}");
    let digests = fixture
        .catalog
        .chart_digests(&repository(), CACHE_KEY)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(digests.charts.len(), 3);
}

#[rstest]
#[case::a_row_of_the_same_chart(|charts: &mut Charts| charts.0.push(chart("b", &["9"])))]
#[case::a_digest_of_the_same_chart(|charts: &mut Charts| charts.1.push(ChartDigest { key: "x".into(), ..digest_of(&chart("b", &["9"])) }))]
#[case::a_new_digest(|charts: &mut Charts| charts.1.push(ChartDigest { chart_id: None, ..digest_of(&chart("b", &["9"])) }))]
#[tokio::test]
async fn a_chart_that_is_both_new_and_unchanged_aborts_the_commit(
    #[values(On::Sqlite, On::Postgres)] on: On,
    #[case] add: fn(&mut Charts),
) {
    let (fixture, known) = stored(on).await;
    let before = everything(&fixture).await;
    let charts = ["a", "b", "c"].map(|name| chart(name, &["2", "1"]));
    let (changed, mut digests) = compared(known.digests.as_ref(), CACHE_KEY, &charts);
    let mut both = Charts(changed, std::mem::take(&mut digests.new));
    add(&mut both);
    digests.new = both.1;
    let error = commit(&fixture, &known, None, both.0, Some(digests)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::StaleDigests), "{error}");
    assert_eq!(everything(&fixture).await, before);
}

/// The rows of a commit and its new digests.
struct Charts(Vec<portolan::catalog::ChartInfo>, Vec<ChartDigest>);

#[rstest]
#[tokio::test]
async fn rows_without_a_chart_id_are_deleted_although_all_charts_are_unchanged(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let (fixture, known) = stored(on).await;
    fixture
        .tables
        .execute("INSERT INTO charts (repo_namespace, repo_name, info) VALUES ('kubeapps', 'stable', '{}')")
        .await;
    let charts = ["a", "b", "c"].map(|name| chart(name, &["2", "1"]));
    let (changed, digests) = compared(known.digests.as_ref(), CACHE_KEY, &charts);
    let committed = commit(&fixture, &known, None, changed, Some(digests)).await.unwrap();
    assert_eq!(counts(&committed), (0, 0, 1, 3, 0));
    assert_eq!(fixture.tables.count("charts").await, 3);
}
