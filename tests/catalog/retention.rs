//! Retention of versions and charts that left the index.

use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
    time::Duration,
};

use portolan::catalog::{ChartInfo, CommitSummary, FilesMode, RetainedPart, Retention, SyncCommit};
use rstest::rstest;

use super::{
    Fixture, On, at, chart,
    files::{names, of, save, wanted},
    record, repository, rows,
    search::snapshot,
};

/// Orders versions as texts, newest first.
fn newest_first(a: &str, b: &str) -> Ordering {
    b.cmp(a)
}

pub fn keep(now: i64) -> Retention {
    Retention {
        now: at(now),
        duration: Duration::from_secs(100),
        order: newest_first,
        filtered_out: HashSet::new(),
        retained: HashMap::new(),
    }
}

async fn sync(fixture: &Fixture, keep: Option<Retention>, charts: Vec<ChartInfo>) -> CommitSummary {
    let stored = fixture.catalog.record(&repository()).await.unwrap();
    let mut commit = SyncCommit::new(record(), stored.map(|stored| stored.uid), "checksum");
    if let Some(keep) = keep {
        commit.retention = Some(keep);
    }
    fixture.catalog.commit(commit, rows(charts)).await.unwrap()
}

/// Added, changed, removed, unchanged, kept.
pub fn counts(committed: &CommitSummary) -> (u64, u64, u64, u64, u64) {
    let CommitSummary {
        added,
        changed,
        removed,
        unchanged,
        kept,
        ..
    } = committed;
    (*added, *changed, *removed, *unchanged, *kept)
}

async fn versions(fixture: &Fixture) -> Vec<String> {
    let charts = fixture.charts().await;
    let of_chart = |info: &ChartInfo| {
        let versions: Vec<&str> = info.chart_versions.iter().map(|v| v.version.as_str()).collect();
        format!("{} {}", info.name, versions.join(" "))
    };
    charts.iter().map(of_chart).collect()
}

pub async fn marks(fixture: &Fixture) -> Vec<String> {
    fixture
        .tables
        .texts("SELECT chart_id || ' ' || version FROM portolan_kept_versions ORDER BY chart_id, version")
        .await
}

#[rstest]
#[tokio::test]
async fn a_missing_version_is_retained_with_its_files_until_it_expires(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, Some(keep(0)), vec![chart("a", &["3", "2", "1"])]).await;
    save(&fixture, &of("a", "2"), "x").await;
    fixture.tables.watch("charts").await;
    let before = fixture.tables.writes("charts").await;
    let shrunk = || vec![chart("a", &["3", "1"])];
    let committed = sync(&fixture, Some(keep(1)), shrunk()).await;
    assert_eq!(counts(&committed), (0, 0, 0, 1, 1));
    assert!(!committed.is_change());
    // The duration counts from the first sync without the version.
    let committed = sync(&fixture, Some(keep(50)), shrunk()).await;
    assert_eq!(counts(&committed), (0, 0, 0, 1, 1));
    assert_eq!(fixture.tables.writes("charts").await, before);
    let committed = sync(&fixture, Some(keep(100)), vec![chart("a", &["4", "3", "1"])]).await;
    assert_eq!(counts(&committed), (0, 1, 0, 0, 1));
    assert_eq!(versions(&fixture).await, ["a 4 3 2 1"]);
    assert_eq!(fixture.files().await, ["stable/a-2"]);
    let committed = sync(&fixture, Some(keep(101)), vec![chart("a", &["4", "3", "1"])]).await;
    assert_eq!(counts(&committed), (0, 1, 0, 0, 0));
    assert_eq!(versions(&fixture).await, ["a 4 3 1"]);
    assert!(fixture.files().await.is_empty());
    assert!(marks(&fixture).await.is_empty());
}

#[rstest]
#[tokio::test]
async fn a_missing_chart_is_retained_until_it_expires(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let both = || vec![chart("a", &["2", "1"]), chart("b", &["1"])];
    sync(&fixture, Some(keep(0)), both()).await;
    sync(&fixture, Some(keep(1)), vec![chart("a", &["2"]), chart("b", &["1"])]).await;
    let committed = sync(&fixture, Some(keep(50)), vec![chart("b", &["1"])]).await;
    assert_eq!(counts(&committed), (0, 0, 0, 2, 2));
    assert_eq!(versions(&fixture).await, ["a 2 1", "b 1"]);
    // Its versions left one after the other and expire in the same order.
    let committed = sync(&fixture, Some(keep(101)), vec![chart("b", &["1"])]).await;
    assert_eq!(counts(&committed), (0, 1, 0, 1, 1));
    assert_eq!(versions(&fixture).await, ["a 2", "b 1"]);
    let committed = sync(&fixture, Some(keep(150)), vec![chart("b", &["1"])]).await;
    assert_eq!(counts(&committed), (0, 0, 1, 1, 0));
    assert_eq!(versions(&fixture).await, ["b 1"]);
    assert!(marks(&fixture).await.is_empty());
}

#[rstest]
#[tokio::test]
async fn a_version_that_returns_to_the_index_has_no_mark(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let all = || vec![chart("a", &["2", "1"]), chart("b", &["1"])];
    sync(&fixture, Some(keep(0)), all()).await;
    sync(&fixture, Some(keep(1)), vec![chart("a", &["2"])]).await;
    assert_eq!(marks(&fixture).await, ["stable/a 1", "stable/b 1"]);
    let committed = sync(&fixture, Some(keep(2)), all()).await;
    assert_eq!(counts(&committed), (0, 0, 0, 2, 0));
    assert!(marks(&fixture).await.is_empty());
    // The duration restarts when it leaves again.
    sync(&fixture, Some(keep(99)), vec![chart("a", &["2"])]).await;
    let committed = sync(&fixture, Some(keep(150)), vec![chart("a", &["2"])]).await;
    assert_eq!(committed.kept, 2);
    let mut republished = all();
    republished[0].chart_versions[1].digest = "another".into();
    sync(&fixture, Some(keep(151)), republished.clone()).await;
    assert_eq!(fixture.charts().await, republished);
}

#[rstest]
#[tokio::test]
async fn filtered_versions_and_versions_of_another_url_are_not_retained(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(
        &fixture,
        Some(keep(0)),
        vec![chart("a", &["2", "1"]), chart("b", &["1"])],
    )
    .await;
    let mut filtered = keep(1);
    filtered.filtered_out.insert("stable/b".into());
    let committed = sync(&fixture, Some(filtered), vec![chart("a", &["2"])]).await;
    assert_eq!(counts(&committed), (0, 0, 1, 1, 1));
    sync(&fixture, Some(keep(2)), vec![chart("a", &["2"]), chart("c", &["1"])]).await;
    let mut moved = chart("a", &["2"]);
    moved.repo.url = "https://other.example.com".into();
    let committed = sync(&fixture, Some(keep(2)), vec![moved]).await;
    assert_eq!(counts(&committed), (0, 1, 1, 0, 0));
    assert_eq!(versions(&fixture).await, ["a 2"]);
}

#[rstest]
#[tokio::test]
async fn retained_versions_are_deleted_if_retention_is_disabled(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(
        &fixture,
        Some(keep(0)),
        vec![chart("a", &["2", "1"]), chart("b", &["1"])],
    )
    .await;
    sync(&fixture, Some(keep(1)), vec![chart("a", &["2"])]).await;
    let committed = sync(&fixture, None, vec![chart("a", &["2"])]).await;
    assert_eq!(counts(&committed), (0, 1, 1, 0, 0));
    assert_eq!(versions(&fixture).await, ["a 2"]);
    assert!(marks(&fixture).await.is_empty());
}

#[rstest]
#[tokio::test]
async fn a_shorter_duration_counts_from_the_same_start(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, Some(keep(0)), vec![chart("a", &["2", "1"])]).await;
    sync(&fixture, Some(keep(0)), vec![chart("a", &["2"])]).await;
    let short = |now| Retention {
        duration: Duration::from_secs(10),
        ..keep(now)
    };
    assert_eq!(sync(&fixture, Some(short(9)), vec![chart("a", &["2"])]).await.kept, 1);
    assert_eq!(
        fixture
            .catalog
            .drop_expired(&record(), "uid-1", at(9), &[])
            .await
            .unwrap(),
        0
    );
    assert_eq!(
        fixture
            .catalog
            .drop_expired(&record(), "uid-1", at(10), &[])
            .await
            .unwrap(),
        1
    );
    assert_eq!(versions(&fixture).await, ["a 2"]);
}

#[rstest]
#[tokio::test]
async fn icons_and_files_of_retained_versions_stay(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let mut with_icon = chart("a", &["2", "1"]);
    with_icon.raw_icon = Some("aWNvbg==".into());
    with_icon.icon_content_type = "image/png".into();
    sync(&fixture, Some(keep(0)), vec![with_icon.clone()]).await;
    let mut next = chart("a", &["3", "2"]);
    next.description = "another".into();
    sync(&fixture, Some(keep(1)), vec![next]).await;
    let stored = fixture.charts().await.remove(0);
    assert_eq!(
        (stored.raw_icon, stored.description),
        (with_icon.raw_icon.clone(), "another".into())
    );
    assert_eq!(versions(&fixture).await, ["a 3 2 1"]);
    sync(&fixture, Some(keep(2)), vec![]).await;
    sync(&fixture, Some(keep(101)), vec![]).await;
    assert_eq!(versions(&fixture).await, ["a 3 2"]);
    assert_eq!(fixture.charts().await[0].raw_icon, with_icon.raw_icon);
    assert_eq!(
        names(&wanted(&fixture, FilesMode::All).await),
        ["a 3", "a 2"],
        "files of retained versions are imported"
    );
}

#[rstest]
#[tokio::test]
async fn expired_versions_are_deleted_without_a_sync_and_only_for_the_same_uid(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let fixture = Fixture::new(on).await;
    sync(
        &fixture,
        Some(keep(0)),
        vec![chart("a", &["3", "2", "1"]), chart("b", &["1"]), chart("c", &["1"])],
    )
    .await;
    for (name, version) in [("a", "1"), ("a", "2"), ("b", "1")] {
        save(&fixture, &of(name, version), "x").await;
    }
    sync(
        &fixture,
        Some(keep(1)),
        vec![chart("a", &["3", "2"]), chart("c", &["1"])],
    )
    .await;
    sync(&fixture, Some(keep(2)), vec![chart("a", &["3"]), chart("c", &["1"])]).await;
    let drop_at = async |uid: &str, seconds| {
        fixture
            .catalog
            .drop_expired(&record(), uid, at(seconds), &[])
            .await
            .unwrap()
    };
    fixture.tables.watch("charts").await;
    let before = fixture.tables.writes("charts").await;
    assert_eq!(drop_at("uid-1", 100).await, 0);
    assert_eq!(drop_at("uid-0", 101).await, 0);
    assert_eq!(fixture.tables.writes("charts").await, before);
    assert_eq!(drop_at("uid-1", 101).await, 2);
    assert_eq!(versions(&fixture).await, ["a 3 2", "c 1"]);
    assert_eq!(fixture.files().await, ["stable/a-2"]);
    assert_eq!(marks(&fixture).await, ["stable/a 2"]);
    assert!(fixture.catalog.record(&repository()).await.unwrap().unwrap().trusted);
    let committed = sync(&fixture, Some(keep(101)), vec![chart("a", &["3"]), chart("c", &["1"])]).await;
    assert_eq!(counts(&committed), (0, 0, 0, 2, 1));
}

#[rstest]
#[tokio::test]
async fn readers_see_that_expired_versions_are_deleted_and_portolan_that_it_did_it(
    #[values(On::Sqlite, On::Postgres)] on: On,
    #[values(false, true)] is_written_by_others: bool,
) {
    let fixture = Fixture::new(on).await;
    let catalog = &fixture.catalog;
    sync(&fixture, Some(keep(0)), vec![chart("a", &["2", "1"])]).await;
    sync(&fixture, Some(keep(1)), vec![chart("a", &["2"])]).await;
    if is_written_by_others {
        fixture.tables.execute("UPDATE repos SET last_update = 'theirs'").await;
    }
    let mut snapshot = snapshot(catalog).await;
    let drop_at = async |seconds| {
        catalog
            .drop_expired(&record(), "uid-1", at(seconds), &[])
            .await
            .unwrap()
    };
    assert_eq!(drop_at(100).await, 0);
    assert_eq!(snapshot.refresh(catalog).await.unwrap(), 0);
    assert_eq!(drop_at(101).await, 1);
    assert_eq!(snapshot.refresh(catalog).await.unwrap(), 1);
    // Otherwise the next sync would compare every chart, or skip the charts of another writer.
    let record = catalog.record(&repository()).await.unwrap().unwrap();
    assert_eq!(record.trusted, !is_written_by_others);
}

#[rstest]
#[tokio::test]
async fn charts_with_unknown_content_are_retained_without_a_duration(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let all = ["a", "b", "c"].map(|name| chart(name, &["2", "1"]));
    sync(&fixture, None, all.to_vec()).await;
    let holding = Retention {
        duration: Duration::ZERO,
        retained: HashMap::from([
            (all[0].id.clone(), RetainedPart::Chart),
            (
                all[1].id.clone(),
                RetainedPart::Versions(HashSet::from(["1".to_owned()])),
            ),
        ]),
        ..keep(0)
    };
    let committed = sync(&fixture, Some(holding), Vec::new()).await;
    assert_eq!((committed.removed, committed.kept), (1, 3));
    assert_eq!(fixture.charts().await, [chart("a", &["2", "1"]), chart("b", &["1"])]);
    // They are deleted once their state is known.
    let committed = sync(&fixture, None, Vec::new()).await;
    assert_eq!((committed.removed, committed.kept), (2, 0));
}
