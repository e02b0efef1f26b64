//! What is remembered of an index, and what a sync that knows it neither reads nor writes.

use portolan::api::NamespacedName;
use portolan::catalog::{
    ChartDigest, ChartDigests, ChartInfo, CommitSummary, DigestUpdate, Error, Record, Retention, SyncCommit,
    UnchangedChart,
};
use rstest::rstest;

use super::{
    Fixture, On, Tables, batches::refuse_poison, chart, commit::hostile_names, record, repository, retention::counts,
    rows,
};

const CACHE_KEY: &str = "decoder 1";

/// A chart of an index as the caller knows it: a deprecated one makes no row.
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

/// What a sync has read before it fetches.
#[derive(Clone)]
pub struct Known {
    pub record: Record,
    pub uid: Option<String>,
    pub digests: Option<ChartDigests>,
}

pub async fn known(fixture: &Fixture, name: &NamespacedName, cache_key: &str) -> Known {
    let stored = fixture.catalog.record(name).await.unwrap();
    Known {
        uid: stored.as_ref().map(|record| record.uid.clone()),
        record: stored.unwrap_or_else(|| Record::new(name.clone(), "uid-1")),
        digests: fixture.catalog.chart_digests(name, cache_key).await.unwrap(),
    }
}

/// An index against what is known: what is new of it, and all that is remembered.
pub fn compared(known: Option<&ChartDigests>, cache_key: &str, charts: &[ChartInfo]) -> (Vec<ChartInfo>, DigestUpdate) {
    let known_cuts = known.map_or(&[][..], |known| &known.digests);
    let mut new = DigestUpdate {
        cache_key: cache_key.into(),
        digest_key: known.map_or_else(|| "key 1".into(), |known| known.digest_key.clone()),
        ..DigestUpdate::default()
    };
    let mut changed = Vec::new();
    for info in charts {
        let cut = digest_of(info);
        if known_cuts.contains(&cut) {
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
    known: &Known,
    keep: Option<Retention>,
    changed: Vec<ChartInfo>,
    digests: Option<DigestUpdate>,
) -> Result<CommitSummary, Error> {
    let mut commit = SyncCommit::new(known.record.clone(), known.uid.clone(), "checksum");
    commit.retention = keep;
    commit.digests = digests;
    fixture.catalog.commit(commit, rows(changed)).await
}

/// A sync that decodes and compares only what it must.
pub async fn sync(fixture: &Fixture, keep: Option<Retention>, charts: &[ChartInfo]) -> CommitSummary {
    let known = known(fixture, &repository(), CACHE_KEY).await;
    let (changed, digests) = compared(known.digests.as_ref(), CACHE_KEY, charts);
    commit(fixture, &known, keep, changed, Some(digests)).await.unwrap()
}

/// The keys of what is given.
pub async fn given(fixture: &Fixture) -> Option<Vec<String>> {
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
async fn what_is_remembered_of_an_index_comes_back_under_the_same_stamp(#[values(On::Sqlite, On::Postgres)] on: On) {
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
    assert!(!format!("{digests:?}").contains("key 1"), "the key is not to be shown");
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
async fn another_stamp_or_key_replaces_all_that_was_remembered(
    #[values(On::Sqlite, On::Postgres)] on: On,
    #[values(("decoder 2", "key 1"), ("decoder 1", "key 2"))] other: (&str, &str),
) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, None, &three()).await;
    let known = known(&fixture, &repository(), CACHE_KEY).await;
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
async fn of_charts_whose_rows_are_gone_or_others_nothing_is_given(#[values(On::Sqlite, On::Postgres)] on: On) {
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
    assert_eq!(given(&fixture).await.unwrap(), ["c", "old"]);
    let committed = sync(&fixture, None, &charts).await;
    assert_eq!(counts(&committed), (1, 0, 0, 2, 0));
    assert_eq!(given(&fixture).await.unwrap(), ["a", "b", "c", "old"]);
}

#[rstest]
#[tokio::test]
async fn nothing_is_given_where_another_hand_was_at_the_charts(
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
    assert_eq!(given(&fixture).await, None);
    sync(&fixture, None, &three()).await;
    assert_eq!(given(&fixture).await.unwrap(), ["a", "b", "c"]);
}

#[rstest]
#[tokio::test]
async fn tables_made_anew_and_removals_leave_nothing_remembered(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, None, &three()).await;
    fixture.catalog.recreate().await.unwrap();
    assert_eq!(given(&fixture).await, None);
    assert_eq!(fixture.tables.count("portolan_chart_digests").await, 0);
    assert_eq!(sync(&fixture, None, &three()).await.added, 3);
    fixture
        .tables
        .execute("DROP TABLE files; DROP TABLE charts; DROP TABLE repos")
        .await;
    assert!(fixture.catalog.ensure_tables().await.unwrap());
    assert_eq!(given(&fixture).await, None);
    assert_eq!(sync(&fixture, None, &three()).await.added, 3);
    assert!(fixture.catalog.remove(&repository(), None).await.unwrap());
    for table in ["portolan_index_cache", "portolan_chart_digests"] {
        assert_eq!(fixture.tables.count(table).await, 0, "{table}");
    }
}

#[rstest]
#[tokio::test]
async fn a_commit_that_remembers_nothing_forgets_the_last_index(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, None, &three()).await;
    assert_eq!(fixture.sync(three()).await.unchanged, 3);
    for table in ["portolan_index_cache", "portolan_chart_digests"] {
        assert_eq!(fixture.tables.count(table).await, 0, "{table}");
    }
}

/// Their rows are spoiled by a hand that leaves no trace: a sync that looked at them would put them right.
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
    // Whoever compares everything finds it.
    assert_eq!(counts(&fixture.sync(charts[..3].to_vec()).await), (0, 2, 1, 1, 0));
}

/// What differs as soon as a row of what is remembered is written, be it with the same values.
async fn memory(fixture: &Fixture) -> Vec<String> {
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
async fn what_did_not_change_is_not_remembered_again(#[values(On::Sqlite, On::Postgres)] on: On) {
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
    let before = memory(&fixture).await;
    // New times of creation alone.
    for info in &mut charts {
        info.chart_versions[0].created = "2026-01-01T00:00:00Z".into();
    }
    assert_eq!(counts(&sync(&fixture, None, &charts).await), (0, 0, 0, 3, 0));
    assert_eq!(memory(&fixture).await, before);
    // All of it compared, under the same key.
    let known = known(&fixture, &repository(), CACHE_KEY).await;
    let (changed, digests) = compared(None, CACHE_KEY, &charts);
    let committed = commit(&fixture, &known, None, changed, Some(digests)).await.unwrap();
    assert_eq!(counts(&committed), (0, 0, 0, 3, 0));
    assert_eq!(memory(&fixture).await, before);
    // One of them.
    charts[0].description.push('!');
    assert_eq!(counts(&sync(&fixture, None, &charts).await), (0, 1, 0, 2, 0));
    let after = memory(&fixture).await;
    assert_eq!(after.iter().filter(|write| !before.contains(write)).count(), 1);
    assert_eq!(given(&fixture).await.unwrap(), ["a", "b", "c", "old"]);
}

#[rstest]
#[tokio::test]
async fn a_chart_that_the_database_refuses_is_not_remembered(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let mut charts = three();
    sync(&fixture, None, &charts[..2]).await;
    refuse_poison(&fixture, on).await;
    charts[1].description = "poison".into();
    charts[2].description = "poison".into();
    for _ in 0..2 {
        let committed = sync(&fixture, None, &charts).await;
        assert_eq!((committed.unchanged, committed.rejected.len()), (1, 2));
        assert_eq!(given(&fixture).await.unwrap(), ["a"]);
    }
    assert_eq!(counts(&sync(&fixture, None, &three()).await), (1, 0, 0, 2, 0));
    assert_eq!(given(&fixture).await.unwrap(), ["a", "b", "c"]);
}

#[rstest]
#[tokio::test]
async fn what_can_not_be_remembered_is_decoded_each_time(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    // Postgres' indexes take 2,704 bytes, and compression does not help where nothing repeats.
    let noise = (0..2000_u32).filter_map(|at| char::from_u32(0x4e00 + (at * 7919) % 20_000));
    let no_row = |key: &str| ChartDigest {
        key: key.into(),
        digest: "digest".into(),
        ..ChartDigest::default()
    };
    let twin = |key: &str| ChartDigest {
        chart_id: Some("stable/twin".into()),
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
        // Which of them the row would be made of once the other goes is not known.
        twin("c"),
        twin("d"),
        no_row("remembered"),
    ];
    let digests = DigestUpdate {
        cache_key: CACHE_KEY.into(),
        digest_key: "key 1".into(),
        unchanged: Vec::new(),
        new,
    };
    let known = known(&fixture, &repository(), CACHE_KEY).await;
    commit(&fixture, &known, None, vec![chart("twin", &["1"])], Some(digests))
        .await
        .unwrap();
    assert_eq!(given(&fixture).await.unwrap(), ["remembered"]);
    assert_eq!(fixture.chart_names().await, ["twin"]);
}

#[rstest]
#[tokio::test]
async fn many_charts_are_remembered_and_forgotten_in_batches(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let charts: Vec<ChartInfo> = (0..1300).map(|at| chart(&format!("chart-{at:04}"), &["1"])).collect();
    assert_eq!(sync(&fixture, None, &charts).await.added, 1300);
    assert_eq!(given(&fixture).await.unwrap().len(), 1300);
    let committed = sync(&fixture, None, &charts[1100..]).await;
    assert_eq!(counts(&committed), (0, 0, 1100, 200, 0));
    assert_eq!(fixture.tables.count("portolan_chart_digests").await, 200);
    assert_eq!(given(&fixture).await.unwrap().len(), 200);
}

#[rstest]
#[tokio::test]
async fn of_two_that_know_the_same_the_second_is_superseded(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, None, &three()).await;
    let known = known(&fixture, &repository(), CACHE_KEY).await;
    let of_one = |at: usize| {
        let mut charts = three();
        charts[at].description.push('!');
        compared(known.digests.as_ref(), CACHE_KEY, &charts)
    };
    let ((left, left_cuts), (right, right_cuts)) = (of_one(0), of_one(1));
    let (left, right) = tokio::join!(
        commit(&fixture, &known, None, left, Some(left_cuts)),
        commit(&fixture, &known, None, right, Some(right_cuts))
    );
    let (won, error) = match (left, right) {
        (Ok(_), Err(error)) => ("a", error),
        (Err(error), Ok(_)) => ("b", error),
        other => panic!("{other:?}"),
    };
    assert!(matches!(error, Error::Superseded { .. }), "{error}");
    let changed = fixture
        .tables
        .texts("SELECT key FROM portolan_chart_digests WHERE digest LIKE '%!%'")
        .await;
    assert_eq!(changed, [won]);
    // One who has read no record can't know that nothing was written since.
    let blind = Known {
        record: record(),
        ..known
    };
    let (changed, digests) = compared(blind.digests.as_ref(), CACHE_KEY, &three());
    let error = commit(&fixture, &blind, None, changed, Some(digests))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::StaleDigests), "{error}");
}
