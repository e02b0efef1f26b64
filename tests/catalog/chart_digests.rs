//! Cached chart digests, and syncs that skip unchanged charts.

use portolan::api::NamespacedName;
use portolan::catalog::Fence;
use portolan::catalog::{
    ChartDigest, ChartDigests, ChartInfo, CommitSummary, DigestUpdate, Error, ErrorKind, Record, Retention, SyncCommit,
    UnchangedChart,
};
use rstest::rstest;

use super::{
    Fixture, On, Tables, batches::refuse_poison, chart, commit::hostile_names, record, repository, retention::counts,
    rows,
};

const CACHE_KEY: &str = "decoder 1";

/// Returns the digest of a chart. A deprecated chart has no row.
pub fn digest_of(info: &ChartInfo) -> ChartDigest {
    let mut text = info.clone();
    for version in &mut text.chart_versions {
        version.created.clear();
    }
    ChartDigest {
        key: info.name.clone(),
        digest: serde_json::to_string(&text).unwrap(),
        stats: format!("{} versions", info.chart_versions.len()),
        chart_id: (info.category != "deprecated").then(|| info.id.clone()),
    }
}

fn deprecated(name: &str) -> ChartInfo {
    ChartInfo {
        category: "deprecated".into(),
        ..chart(name, &["1.0.0"])
    }
}

/// State that a sync reads before it fetches the index.
#[derive(Clone)]
pub struct SyncState {
    pub record: Record,
    pub uid: Option<String>,
    pub digests: Option<ChartDigests>,
}

pub async fn read_state(fixture: &Fixture, name: &NamespacedName, cache_key: &str) -> SyncState {
    let stored = fixture.catalog.record(name).await.unwrap();
    SyncState {
        uid: stored.as_ref().map(|record| record.uid.clone()),
        record: stored.unwrap_or_else(|| Record::new(name.clone(), "uid-1")),
        digests: fixture.catalog.chart_digests(name, cache_key).await.unwrap(),
    }
}

/// Compares an index with the cached digests. Returns the changed charts and the digests to store.
pub fn compared(known: Option<&ChartDigests>, cache_key: &str, charts: &[ChartInfo]) -> (Vec<ChartInfo>, DigestUpdate) {
    let cached = known.map_or(&[][..], |known| &known.charts);
    let mut new = DigestUpdate {
        cache_key: cache_key.into(),
        digest_key: known.map_or_else(|| "key 1".into(), |known| known.digest_key.clone()),
        ..DigestUpdate::default()
    };
    let mut changed = Vec::new();
    for info in charts {
        let cut = digest_of(info);
        if cached.contains(&cut) {
            new.unchanged.push(UnchangedChart {
                key: cut.key,
                chart_id: cut.chart_id,
            });
        } else {
            changed.extend(cut.chart_id.is_some().then(|| info.clone()));
            new.new.push(cut);
        }
    }
    (changed, new)
}

pub async fn commit(
    fixture: &Fixture,
    known: &SyncState,
    keep: Option<Retention>,
    changed: Vec<ChartInfo>,
    digests: Option<DigestUpdate>,
) -> Result<CommitSummary, Error> {
    let mut commit = SyncCommit::new(known.record.clone(), known.uid.clone(), "checksum");
    commit.retention = keep;
    commit.digests = digests;
    fixture.catalog.commit(commit, rows(changed)).await
}

/// Syncs incrementally.
pub async fn sync(fixture: &Fixture, keep: Option<Retention>, charts: &[ChartInfo]) -> CommitSummary {
    let known = read_state(fixture, &repository(), CACHE_KEY).await;
    let (changed, digests) = compared(known.digests.as_ref(), CACHE_KEY, charts);
    commit(fixture, &known, keep, changed, Some(digests)).await.unwrap()
}

/// Returns the keys of the cached digests.
pub async fn cached_keys(fixture: &Fixture) -> Option<Vec<String>> {
    let digests = fixture.catalog.chart_digests(&repository(), CACHE_KEY).await.unwrap()?;
    let mut keys: Vec<String> = digests.charts.into_iter().map(|cut| cut.key).collect();
    keys.sort();
    Some(keys)
}

pub fn three() -> Vec<ChartInfo> {
    ["a", "b", "c"].map(|name| chart(name, &["2", "1"])).to_vec()
}

#[rstest]
#[tokio::test]
async fn chart_digests_are_returned_for_the_same_cache_key(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    assert_eq!(
        fixture.catalog.chart_digests(&repository(), CACHE_KEY).await.unwrap(),
        None
    );
    let mut charts: Vec<ChartInfo> = hostile_names()
        .into_iter()
        .map(|name| chart(name, &["1.0.0"]))
        .collect();
    charts.push(deprecated("old"));
    let committed = sync(&fixture, None, &charts).await;
    assert_eq!(committed.added as usize, charts.len() - 1);
    let mut digests = fixture
        .catalog
        .chart_digests(&repository(), CACHE_KEY)
        .await
        .unwrap()
        .unwrap();
    let mut expected: Vec<ChartDigest> = charts.iter().map(digest_of).collect();
    digests.charts.sort_by(|a, b| a.key.cmp(&b.key));
    expected.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(digests.charts, expected);
    assert_eq!(digests.digest_key, "key 1");
    assert!(!format!("{digests:?}").contains("key 1"), "the key must not be printed");
    assert_eq!(
        fixture.catalog.chart_digests(&repository(), "decoder 2").await.unwrap(),
        None
    );
    let other = NamespacedName::new("kubeapps", "other");
    assert_eq!(fixture.catalog.chart_digests(&other, CACHE_KEY).await.unwrap(), None);
    let again = sync(&fixture, None, &charts).await;
    assert_eq!((again.unchanged, again.is_change()), (charts.len() as u64 - 1, false));
}

#[rstest]
#[tokio::test]
async fn another_cache_key_or_digest_key_replaces_all_digests(
    #[values(On::Sqlite, On::Postgres)] on: On,
    #[values(("decoder 2", "key 1"), ("decoder 1", "key 2"))] other: (&str, &str),
) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, None, &three()).await;
    let known = read_state(&fixture, &repository(), CACHE_KEY).await;
    let (cache_key, digest_key) = other;
    let (changed, digests) = compared(None, cache_key, &three()[..2]);
    let digests = DigestUpdate {
        digest_key: digest_key.into(),
        ..digests
    };
    let committed = commit(&fixture, &known, None, changed, Some(digests)).await.unwrap();
    assert_eq!(counts(&committed), (0, 0, 1, 2, 0));
    assert_eq!(
        (
            fixture.tables.count("portolan_index_cache").await,
            fixture.tables.count("portolan_chart_digests").await
        ),
        (1, 2)
    );
    let digests = fixture
        .catalog
        .chart_digests(&repository(), cache_key)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((digests.digest_key.as_str(), digests.charts.len()), (digest_key, 2));
}

#[rstest]
#[tokio::test]
async fn digests_of_charts_without_their_row_are_not_returned(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let mut charts = three();
    charts.push(deprecated("old"));
    sync(&fixture, None, &charts).await;
    fixture
        .tables
        .execute(
            "DELETE FROM charts WHERE chart_id = 'stable/a'; UPDATE charts SET id = id + 1000 WHERE chart_id = 'stable/b'",
        )
        .await;
    assert_eq!(cached_keys(&fixture).await.unwrap(), ["c", "old"]);
    let committed = sync(&fixture, None, &charts).await;
    assert_eq!(counts(&committed), (1, 0, 0, 2, 0));
    assert_eq!(cached_keys(&fixture).await.unwrap(), ["a", "b", "c", "old"]);
}

#[rstest]
#[tokio::test]
async fn no_digests_are_returned_after_another_process_wrote_the_repository(
    #[values(On::Sqlite, On::Postgres)] on: On,
    #[values(
        "UPDATE repos SET checksum = 'theirs'",
        "UPDATE repos SET last_update = 'theirs'",
        "DELETE FROM repos"
    )]
    touched: &str,
) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, None, &three()).await;
    fixture.tables.execute(touched).await;
    assert_eq!(cached_keys(&fixture).await, None);
    sync(&fixture, None, &three()).await;
    assert_eq!(cached_keys(&fixture).await.unwrap(), ["a", "b", "c"]);
}

#[rstest]
#[tokio::test]
async fn recreated_tables_and_deleted_repositories_leave_no_digests(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, None, &three()).await;
    fixture.catalog.recreate().await.unwrap();
    assert_eq!(cached_keys(&fixture).await, None);
    assert_eq!(fixture.tables.count("portolan_chart_digests").await, 0);
    assert_eq!(sync(&fixture, None, &three()).await.added, 3);
    fixture
        .tables
        .execute("DROP TABLE files; DROP TABLE charts; DROP TABLE repos")
        .await;
    assert!(fixture.catalog.ensure_tables().await.unwrap());
    assert_eq!(cached_keys(&fixture).await, None);
    assert_eq!(sync(&fixture, None, &three()).await.added, 3);
    assert!(fixture.catalog.remove(&repository(), Fence::None).await.unwrap());
    for table in ["portolan_index_cache", "portolan_chart_digests"] {
        assert_eq!(fixture.tables.count(table).await, 0, "{table}");
    }
}

#[rstest]
#[tokio::test]
async fn a_commit_without_digests_deletes_the_stored_ones(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, None, &three()).await;
    assert_eq!(fixture.sync(three()).await.unchanged, 3);
    for table in ["portolan_index_cache", "portolan_chart_digests"] {
        assert_eq!(fixture.tables.count(table).await, 0, "{table}");
    }
}

/// The rows are changed without touching `repos`: a sync that read them would repair them.
#[rstest]
#[tokio::test]
async fn rows_of_unchanged_charts_are_neither_read_nor_written(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let mut charts = three();
    charts.push(deprecated("old"));
    sync(&fixture, None, &charts).await;
    fixture
        .tables
        .execute("UPDATE charts SET info = '{}' WHERE chart_id <> 'stable/b'")
        .await;
    fixture.tables.watch("charts").await;
    let before = fixture.tables.writes("charts").await;
    charts[1] = chart("b", &["3", "2", "1"]);
    charts.push(chart("d", &["1"]));
    let committed = sync(&fixture, None, &charts).await;
    assert_eq!(counts(&committed), (1, 1, 0, 2, 0));
    let after = fixture.tables.writes("charts").await;
    assert_eq!(after.iter().filter(|write| !before.contains(write)).count(), 2);
    assert_eq!(
        fixture
            .tables
            .number("SELECT count(*) FROM charts WHERE CAST(info AS TEXT) = '{}'")
            .await,
        2
    );
    // A full comparison repairs them.
    assert_eq!(counts(&fixture.sync(charts[..3].to_vec()).await), (0, 2, 1, 1, 0));
}

/// Returns a value that changes with every write of the cache tables, even with equal values.
async fn written_digests(fixture: &Fixture) -> Vec<String> {
    match &fixture.tables {
        Tables::Sqlite(_) => fixture.tables.texts("SELECT what FROM writes ORDER BY rowid").await,
        Tables::Postgres(_) => {
            fixture
                .tables
                .texts(
                    "SELECT key || ' ' || ctid::text || ' ' || xmin::text || ' ' || xmax::text FROM portolan_chart_digests
                     UNION ALL SELECT cache_key || ' ' || ctid::text || ' ' || xmin::text || ' ' || xmax::text FROM portolan_index_cache
                     ORDER BY 1",
                )
                .await
        }
    }
}

#[rstest]
#[tokio::test]
async fn unchanged_digests_are_not_written(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let mut charts = three();
    charts.push(deprecated("old"));
    sync(&fixture, None, &charts).await;
    if on == On::Sqlite {
        fixture.tables.execute("CREATE TABLE writes (what TEXT)").await;
        for table in ["portolan_chart_digests", "portolan_index_cache"] {
            for (event, row) in [("INSERT", "new"), ("UPDATE", "new"), ("DELETE", "old")] {
                let key = if table == "portolan_chart_digests" {
                    "key"
                } else {
                    "cache_key"
                };
                fixture
                    .tables
                    .execute(&format!(
                        "CREATE TRIGGER watch_{table}_{event} AFTER {event} ON {table}
                         BEGIN INSERT INTO writes VALUES ('{table} {event} ' || {row}.{key}); END"
                    ))
                    .await;
            }
        }
    }
    let before = written_digests(&fixture).await;
    // Only creation times change.
    for info in &mut charts {
        info.chart_versions[0].created = "2026-01-01T00:00:00Z".into();
    }
    assert_eq!(counts(&sync(&fixture, None, &charts).await), (0, 0, 0, 3, 0));
    assert_eq!(written_digests(&fixture).await, before);
    // A full comparison with the same key.
    let known = read_state(&fixture, &repository(), CACHE_KEY).await;
    let (changed, digests) = compared(None, CACHE_KEY, &charts);
    let committed = commit(&fixture, &known, None, changed, Some(digests)).await.unwrap();
    assert_eq!(counts(&committed), (0, 0, 0, 3, 0));
    assert_eq!(written_digests(&fixture).await, before);
    // One chart changes.
    charts[0].description.push('!');
    assert_eq!(counts(&sync(&fixture, None, &charts).await), (0, 1, 0, 2, 0));
    let after = written_digests(&fixture).await;
    assert_eq!(after.iter().filter(|write| !before.contains(write)).count(), 1);
    assert_eq!(cached_keys(&fixture).await.unwrap(), ["a", "b", "c", "old"]);
}

#[rstest]
#[tokio::test]
async fn a_rejected_chart_has_no_digest(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let mut charts = three();
    sync(&fixture, None, &charts[..2]).await;
    refuse_poison(&fixture, on).await;
    charts[1].description = "poison".into();
    charts[2].description = "poison".into();
    for _ in 0..2 {
        let committed = sync(&fixture, None, &charts).await;
        assert_eq!((committed.unchanged, committed.rejected.len()), (1, 2));
        assert_eq!(cached_keys(&fixture).await.unwrap(), ["a"]);
    }
    assert_eq!(counts(&sync(&fixture, None, &three()).await), (1, 0, 0, 2, 0));
    assert_eq!(cached_keys(&fixture).await.unwrap(), ["a", "b", "c"]);
}

#[rstest]
#[tokio::test]
async fn digests_that_cannot_be_stored_are_skipped(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    // Postgres limits an index row to 2,704 bytes after compression, so the key must not be compressible.
    let noise = (0..2000_u32).filter_map(|at| char::from_u32(0x4e00 + (at * 7919) % 20_000));
    let no_row = |key: &str| ChartDigest {
        key: key.into(),
        digest: "digest".into(),
        ..ChartDigest::default()
    };
    let duplicate = |key: &str| ChartDigest {
        chart_id: Some("stable/duplicate".into()),
        ..no_row(key)
    };
    let new = vec![
        no_row(&noise.collect::<String>()),
        no_row("a\0"),
        ChartDigest {
            stats: "\0".into(),
            ..no_row("b")
        },
        no_row("twice"),
        no_row("twice"),
        // After one of them leaves, the row may come from the other.
        duplicate("c"),
        duplicate("d"),
        no_row("stored"),
    ];
    let digests = DigestUpdate {
        cache_key: CACHE_KEY.into(),
        digest_key: "key 1".into(),
        unchanged: Vec::new(),
        new,
    };
    let known = read_state(&fixture, &repository(), CACHE_KEY).await;
    commit(&fixture, &known, None, vec![chart("duplicate", &["1"])], Some(digests))
        .await
        .unwrap();
    assert_eq!(cached_keys(&fixture).await.unwrap(), ["stored"]);
    assert_eq!(fixture.chart_names().await, ["duplicate"]);
}

#[rstest]
#[tokio::test]
async fn many_digests_are_written_and_deleted_in_batches(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let charts: Vec<ChartInfo> = (0..1300).map(|at| chart(&format!("chart-{at:04}"), &["1"])).collect();
    assert_eq!(sync(&fixture, None, &charts).await.added, 1300);
    assert_eq!(cached_keys(&fixture).await.unwrap().len(), 1300);
    let committed = sync(&fixture, None, &charts[1100..]).await;
    assert_eq!(counts(&committed), (0, 0, 1100, 200, 0));
    assert_eq!(fixture.tables.count("portolan_chart_digests").await, 200);
    assert_eq!(cached_keys(&fixture).await.unwrap().len(), 200);
}

#[rstest]
#[tokio::test]
async fn of_two_syncs_with_the_same_digests_the_second_is_superseded(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, None, &three()).await;
    let known = read_state(&fixture, &repository(), CACHE_KEY).await;
    let of_one = |at: usize| {
        let mut charts = three();
        charts[at].description.push('!');
        compared(known.digests.as_ref(), CACHE_KEY, &charts)
    };
    let ((left, left_digests), (right, right_digests)) = (of_one(0), of_one(1));
    let (left, right) = tokio::join!(
        commit(&fixture, &known, None, left, Some(left_digests)),
        commit(&fixture, &known, None, right, Some(right_digests))
    );
    let (won, error) = match (left, right) {
        (Ok(_), Err(error)) => ("a", error),
        (Err(error), Ok(_)) => ("b", error),
        other => panic!("{other:?}"),
    };
    assert!(matches!(error.kind(), ErrorKind::Superseded { .. }), "{error}");
    let changed = fixture
        .tables
        .texts("SELECT key FROM portolan_chart_digests WHERE digest LIKE '%!%'")
        .await;
    assert_eq!(changed, [won]);
    // Without a revision, later writes can't be detected.
    let blind = SyncState {
        record: record(),
        ..known
    };
    let (changed, digests) = compared(blind.digests.as_ref(), CACHE_KEY, &three());
    let error = commit(&fixture, &blind, None, changed, Some(digests))
        .await
        .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::StaleDigests), "{error}");
}
