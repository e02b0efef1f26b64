//! News that a commit inserts.

use std::time::Duration;

use portolan::catalog::news::{Event, EventKind, MAX_LISTED, VersionChange};
use portolan::catalog::{
    Catalog, ChartInfo, CommitSummary, ErrorKind, HeldLease, LeaseGeneration, Record, Retention, SyncCommit,
};
use rstest::rstest;
use tokio::time::timeout;

use super::batches::refuse_poison;
use super::retention::keep;
use super::{Fixture, On, at, chart, record, repository, rows, settings};
use crate::support::postgres_proxy::{Moment, PostgresProxy};
use crate::support::signal::Signal;

pub const ORIGIN: &str = "here";
pub const SINK: &str = "kubeapps/hook";
pub const SINKS: [&str; 2] = [SINK, "ops/all"];
const SOON: Duration = Duration::from_secs(30);

pub fn owned(sinks: &[&str]) -> Vec<String> {
    sinks.iter().map(|sink| (*sink).to_owned()).collect()
}

fn declared() -> Record {
    Record {
        origin: ORIGIN.to_owned(),
        ..record()
    }
}

async fn next_commit(catalog: &Catalog, sinks: &[&str]) -> SyncCommit {
    let stored = catalog.record(&repository()).await.unwrap();
    let uid = stored.as_ref().map(|stored| stored.uid.clone());
    let mut commit = SyncCommit::new(stored.unwrap_or_else(declared), uid, "checksum");
    commit.sinks = owned(sinks);
    commit
}

pub async fn sync(fixture: &Fixture, sinks: &[&str], charts: Vec<ChartInfo>) -> CommitSummary {
    let commit = next_commit(&fixture.catalog, sinks).await;
    fixture.catalog.commit(commit, rows(charts)).await.unwrap()
}

async fn sync_keeping(fixture: &Fixture, keep: Retention, charts: Vec<ChartInfo>) -> u64 {
    let mut commit = next_commit(&fixture.catalog, &[SINK]).await;
    commit.retention = Some(keep);
    fixture.catalog.commit(commit, rows(charts)).await.unwrap().news
}

/// Events of a sink in the order of their rows.
async fn events(fixture: &Fixture, sink: &str) -> Vec<Event> {
    let select = format!("SELECT event FROM portolan_news WHERE sink = '{sink}' ORDER BY created, id");
    let events = fixture.tables.texts(&select).await;
    events
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect()
}

pub async fn ids(fixture: &Fixture) -> Vec<String> {
    let select = "SELECT id FROM portolan_news ORDER BY created, id";
    fixture.tables.texts(select).await
}

async fn clear(fixture: &Fixture) {
    fixture.tables.execute("DELETE FROM portolan_news").await;
}

fn changes(event: &Event) -> Vec<String> {
    let change = |change| match change {
        VersionChange::Added => "+",
        VersionChange::Removed => "-",
    };
    let listed = event.charts.iter();
    listed
        .map(|news| format!("{}{} {}", change(news.change), news.chart, news.version))
        .collect()
}

#[rstest]
#[tokio::test]
async fn a_commit_inserts_a_row_of_its_changes_for_each_sink(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let inserted = fixture.catalog.news_inserted();
    let first = vec![
        chart("gone", &["2.0.0", "1.0.0"]),
        chart("kept", &["1.0.0"]),
        chart("web/site", &["2.0.0", "1.0.0"]),
    ];
    assert_eq!(sync(&fixture, &SINKS, first).await.news, 2);
    for sink in SINKS {
        let events = events(&fixture, sink).await;
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].kind, EventKind::FirstSync);
        assert_eq!((events[0].charts.len(), events[0].more), (5, 0));
    }
    clear(&fixture).await;

    let second = vec![
        chart("kept", &["1.0.0"]),
        chart("new", &["0.1.0"]),
        chart("web/site", &["3.0.0", "2.0.0"]),
    ];
    assert_eq!(sync(&fixture, &SINKS, second.clone()).await.news, 2);
    for sink in SINKS {
        let events = events(&fixture, sink).await;
        assert_eq!(events.len(), 1);
        let event = &events[0];
        assert_eq!((event.kind, event.more), (EventKind::Versions, 0));
        assert_eq!(
            (event.namespace.as_str(), event.repository.as_str()),
            ("kubeapps", "stable")
        );
        let mut changes = changes(event);
        changes.sort();
        assert_eq!(
            changes,
            [
                "+new 0.1.0",
                "+web/site 3.0.0",
                "-gone 1.0.0",
                "-gone 2.0.0",
                "-web/site 1.0.0"
            ]
        );
        let added = event.charts.iter().find(|news| news.version == "3.0.0").unwrap();
        assert_eq!(added.digest.as_deref(), Some("digest-3.0.0"));
        assert_eq!(added.app_version.as_deref(), Some("app-3.0.0"));
    }
    assert_eq!(*inserted.borrow(), 4);
    assert_eq!(sync(&fixture, &SINKS, second).await.news, 0, "nothing has changed");
}

#[rstest]
#[tokio::test]
async fn many_changes_are_listed_in_part_and_counted(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let versions: Vec<String> = (0..MAX_LISTED + 3).map(|at| format!("1.{at}.0")).collect();
    let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
    sync(&fixture, &[SINK], vec![chart("web", &["1.0.0"])]).await;
    clear(&fixture).await;
    sync(
        &fixture,
        &[SINK],
        vec![chart("db", &["1.0.0"]), chart("web", &versions)],
    )
    .await;
    let events = events(&fixture, SINK).await;
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].charts.len(), events[0].more), (MAX_LISTED, 3));
}

#[rstest]
#[tokio::test]
async fn without_sinks_no_statement_touches_the_outbox(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let hide = "ALTER TABLE portolan_news RENAME TO hidden";
    fixture.tables.execute(hide).await;
    for versions in [&["1.0.0"][..], &["2.0.0"]] {
        let charts = vec![chart("web", versions), chart(versions[0], &["1.0.0"])];
        assert_eq!(sync(&fixture, &[], charts).await.news, 0);
        let stored = fixture.catalog.record(&repository()).await.unwrap().unwrap();
        let uid = stored.uid.clone();
        fixture.catalog.save(&stored, Some(&uid), None).await.unwrap();
    }
    // The sink makes the difference.
    let commit = next_commit(&fixture.catalog, &[SINK]).await;
    let refused = fixture
        .catalog
        .commit(commit, rows(vec![chart("web", &["3.0.0"])]))
        .await;
    assert!(refused.is_err());
}

#[rstest]
#[tokio::test]
async fn a_chart_that_the_database_rejects_is_no_news(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, &[SINK], vec![chart("a", &["1.0.0"]), chart("b", &["1.0.0"])]).await;
    clear(&fixture).await;
    refuse_poison(&fixture, on).await;
    let poisoned = |name| {
        let mut chart = chart(name, &["2.0.0", "1.0.0"]);
        chart.description = "poison".to_owned();
        chart
    };
    let charts = vec![chart("a", &["2.0.0", "1.0.0"]), poisoned("b"), poisoned("c")];
    sync(&fixture, &[SINK], charts).await;
    let events = events(&fixture, SINK).await;
    assert_eq!(changes(&events[0]), ["+a 2.0.0"]);
}

#[rstest]
#[tokio::test]
async fn a_row_in_another_format_is_no_news(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, &[SINK], vec![chart("a", &["1.0.0"]), chart("b", &["1.0.0"])]).await;
    clear(&fixture).await;
    let other = "UPDATE charts SET info = '{\"chartVersions\": []}' WHERE chart_id = 'stable/a'";
    fixture.tables.execute(other).await;
    let committed = sync(&fixture, &[SINK], vec![chart("a", &["1.0.0"]), chart("b", &["1.0.0"])]).await;
    assert_eq!((committed.changed, committed.news), (1, 0));
}

#[rstest]
#[tokio::test]
async fn an_id_is_that_of_the_change_and_a_version_that_returns_is_news_again(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let (fixture, other) = (Fixture::new(on).await, Fixture::new(on).await);
    for fixture in [&fixture, &other] {
        // Two charts that are removed, in any order.
        sync(fixture, &[SINK], vec![chart("a", &["1.0.0"]), chart("b", &["1.0.0"])]).await;
        sync(fixture, &[SINK], vec![chart("c", &["1.0.0"])]).await;
    }
    let mut both = [ids(&fixture).await, ids(&other).await];
    both.iter_mut().for_each(|ids| ids.sort());
    assert_eq!(both[0], both[1]);

    clear(&fixture).await;
    for versions in [&["2.0.0", "1.0.0"][..], &["1.0.0"], &["2.0.0", "1.0.0"]] {
        assert_eq!(sync(&fixture, &[SINK], vec![chart("c", versions)]).await.news, 1);
    }
    let events = events(&fixture, SINK).await;
    assert_eq!(events.len(), 3);
    let added = events.iter().filter(|event| changes(event) == ["+c 2.0.0"]);
    assert_eq!(added.count(), 2);
}

#[rstest]
#[tokio::test]
async fn a_retained_version_is_removed_when_it_expires(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let charts = |versions: &[&str]| vec![chart("a", versions)];
    let first = vec![chart("a", &["2.0.0", "1.0.0"]), chart("b", &["1.0.0"])];
    sync_keeping(&fixture, keep(0), first).await;
    assert_eq!(sync_keeping(&fixture, keep(1), charts(&["2.0.0"])).await, 0);
    clear(&fixture).await;
    let stored = fixture.catalog.record(&repository()).await.unwrap().unwrap();
    let sinks = owned(&[SINK]);
    let drop_at = async |seconds| {
        let dropped = fixture.catalog.drop_expired(&stored, "uid-1", at(seconds), &sinks);
        dropped.await.unwrap()
    };
    assert_eq!(drop_at(100).await, 0);
    assert!(events(&fixture, SINK).await.is_empty());
    assert_eq!(drop_at(101).await, 2);
    let events = events(&fixture, SINK).await;
    // Charts that end come first.
    assert_eq!(changes(&events[0]), ["-b 1.0.0", "-a 1.0.0"]);
}

#[rstest]
#[tokio::test]
async fn a_failure_and_its_end_are_inserted_once_with_the_record(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, &[], vec![chart("a", &["1.0.0"])]).await;
    let sinks = owned(&SINKS);
    // Each write begins with the stored record, as in another process.
    let save = async |is_reported: bool, message: &str| {
        let mut record = fixture.catalog.record(&repository()).await.unwrap().unwrap();
        let was_reported = std::mem::replace(&mut record.state.failure_reported, is_reported);
        record.state.message = message.to_owned();
        let uid = record.uid.clone();
        let saved = fixture
            .catalog
            .save_with_news(&record, Some(&uid), None, &sinks, was_reported);
        saved.await.unwrap();
    };
    save(false, "refused").await;
    assert_eq!(fixture.tables.count("portolan_news").await, 0);
    save(true, "refused").await;
    save(true, "timed out").await;
    for sink in SINKS {
        let events = events(&fixture, sink).await;
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].kind, EventKind::Failed);
        assert_eq!(events[0].message.as_deref(), Some("refused"));
    }
    clear(&fixture).await;
    save(false, "synced").await;
    save(false, "synced").await;
    let events = events(&fixture, SINK).await;
    assert_eq!(
        events.iter().map(|event| event.kind).collect::<Vec<_>>(),
        [EventKind::Recovered]
    );
}

#[rstest]
#[tokio::test]
async fn a_failure_that_no_sync_records_is_reported_and_remembered(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, &[], vec![chart("a", &["1.0.0"])]).await;
    let stored = async || fixture.catalog.record(&repository()).await.unwrap().unwrap();
    let (before, sinks) = (stored().await, owned(&[SINK]));
    let report = async || fixture.catalog.report_failure(&before, "no pod starts", &sinks).await;
    report().await.unwrap();
    let events = events(&fixture, SINK).await;
    assert_eq!((events.len(), events[0].kind), (1, EventKind::Failed));
    assert_eq!(events[0].message.as_deref(), Some("no pod starts"));
    let mut expected = before.clone();
    (expected.state.failure_reported, expected.revision) = (true, stored().await.revision);
    assert_eq!(stored().await, expected);
    assert!(report().await.is_err(), "the record was written meanwhile");
}

#[rstest]
#[tokio::test]
async fn a_commit_inserts_that_its_repository_has_recovered(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, &[], vec![chart("a", &["1.0.0"])]).await;
    let mut failed = fixture.catalog.record(&repository()).await.unwrap().unwrap();
    failed.state.failure_reported = true;
    fixture.catalog.save(&failed, Some("uid-1"), None).await.unwrap();
    let commit = next_commit(&fixture.catalog, &[SINK])
        .await
        .complete_record_with(|_, record| {
            record.state.failure_reported = false;
            None
        });
    let committed = fixture
        .catalog
        .commit(commit, rows(vec![chart("a", &["2.0.0", "1.0.0"])]));
    assert_eq!(committed.await.unwrap().news, 2);
    let events = events(&fixture, SINK).await;
    let mut kinds: Vec<String> = events.iter().map(|event| format!("{:?}", event.kind)).collect();
    kinds.sort();
    assert_eq!(kinds, ["Recovered", "Versions"]);
}

#[rstest]
#[tokio::test]
async fn a_process_that_lost_the_lease_inserts_no_news(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, &[SINK], vec![chart("a", &["1.0.0"])]).await;
    let lease = |transitions, holder: &str| HeldLease {
        origin: ORIGIN.to_owned(),
        name: "kubeapps/portolan".to_owned(),
        generation: LeaseGeneration {
            created: 100,
            transitions,
        },
        holder: holder.to_owned(),
    };
    let former = Catalog::open(&fixture.settings).await.unwrap();
    former.hold_lease(lease(1, "former"));
    fixture.catalog.hold_lease(lease(2, "current"));
    fixture.catalog.claim_leases().await.unwrap();
    let before = ids(&fixture).await;
    let commit = next_commit(&former, &[SINK]).await;
    let error = former
        .commit(commit, rows(vec![chart("a", &["2.0.0"])]))
        .await
        .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Fenced { .. }), "{error}");
    assert_eq!(ids(&fixture).await, before);
}

#[rstest]
#[tokio::test]
async fn a_process_that_dies_around_a_commit_loses_no_news_and_inserts_none_twice(
    #[values(Moment::Before, Moment::After)] moment: Moment,
) {
    let fixture = Fixture::new(On::Postgres).await;
    sync(&fixture, &[SINK], vec![chart("a", &["1.0.0"])]).await;
    clear(&fixture).await;
    let charts = vec![chart("a", &["1.0.0"]), chart("b", &["1.0.0"])];

    let proxy = PostgresProxy::in_front_of(fixture.database.as_ref().unwrap()).await;
    let dying = Catalog::open(&settings(&proxy.url)).await.unwrap();
    let commit = next_commit(&dying, &[SINK]).await;
    let reached = std::sync::Arc::<Signal>::default();
    proxy.hold("INSERT INTO charts", 0, moment, reached.clone());
    let committing = tokio::spawn({
        let charts = charts.clone();
        async move { dying.commit(commit, rows(charts)).await }
    });
    timeout(SOON, reached.given()).await.unwrap();
    committing.abort();
    proxy.disconnect();

    let inserted = events(&fixture, SINK).await.len();
    assert_eq!(inserted, usize::from(moment == Moment::After));
    sync(&fixture, &[SINK], charts).await;
    let events = events(&fixture, SINK).await;
    assert_eq!(events.len(), 1);
    assert_eq!(changes(&events[0]), ["+b 1.0.0"]);
}
