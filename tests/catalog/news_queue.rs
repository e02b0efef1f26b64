//! The outbox of news: the order in which rows are due, and the rows that are deleted.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use portolan::catalog::news::DueNews;
use portolan::catalog::{Fence, SyncCommit};
use rstest::rstest;

use super::news::{ORIGIN, SINK, SINKS, ids, owned, sync};
use super::{Fixture, On, chart, repository, rows};

/// The origin of another cluster on the same database.
const OTHER: &str = "there";

/// Inserts a row of a repository that need not exist.
async fn insert(fixture: &Fixture, row: (&str, &str, &str), created: i64) {
    insert_many(fixture, ORIGIN, row, created..=created).await;
}

/// Inserts a row for each time of creation, which follows the ID if there are several.
async fn insert_many(
    fixture: &Fixture,
    origin: &str,
    (namespace, sink, id): (&str, &str, &str),
    created: RangeInclusive<i64>,
) {
    let is_one = created.start() == created.end();
    let values = created.map(|created| {
        let id = if is_one {
            id.to_owned()
        } else {
            format!("{id}{created}")
        };
        let event = r#"{"kind":"failed","namespace":"n","repository":"r"}"#;
        format!("('{id}', '{origin}', '{namespace}', 'stable', '{sink}', '{event}', {created}, 0, {created})")
    });
    let values = values.collect::<Vec<_>>().join(", ");
    let columns = "id, origin, namespace, name, sink, event, created, tries, next_try";
    fixture
        .tables
        .execute(&format!("INSERT INTO portolan_news ({columns}) VALUES {values}"))
        .await;
}

fn time(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap()
}

async fn look(fixture: &Fixture, repositories: Option<&[String]>, now: i64, busy: &[&str]) -> DueNews {
    let (now, busy) = (time(now), owned(busy));
    let due = fixture.catalog.due_news(ORIGIN, repositories, now, &busy, 10);
    due.await.unwrap()
}

fn ids_of(due: DueNews) -> Vec<String> {
    due.rows.into_iter().map(|row| row.id).collect()
}

async fn due(fixture: &Fixture, now: i64, busy: &[&str]) -> Vec<String> {
    ids_of(look(fixture, None, now, busy).await)
}

#[rstest]
#[tokio::test]
async fn a_row_that_can_not_be_read_holds_no_later_row(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    insert(&fixture, ("kubeapps", "a/s", "a1"), 10).await;
    insert(&fixture, ("kubeapps", "a/s", "a2"), 20).await;
    fixture
        .tables
        .execute("UPDATE portolan_news SET event = '{\"kind\":\"of a later release\"}' WHERE id = 'a1'")
        .await;
    assert_eq!(due(&fixture, 50, &[]).await, [""; 0]);
    assert_eq!(due(&fixture, 50, &[]).await, ["a2"]);
}

#[rstest]
#[tokio::test]
async fn the_oldest_row_of_each_sink_is_due_until_it_is_delivered(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    assert_eq!(look(&fixture, None, 50, &[]).await, DueNews::default());
    for (sink, id, created) in [
        ("a/s", "a2", 20),
        ("a/s", "a1", 10),
        ("b/s", "b1", 15),
        ("c/s", "c1", 90),
    ] {
        insert(&fixture, ("kubeapps", sink, id), created).await;
    }
    assert_eq!(due(&fixture, 50, &[]).await, ["a1", "b1"]);
    assert_eq!(due(&fixture, 50, &["a/s"]).await, ["b1"]);
    let busy = owned(&["a/s"]);
    let limited = fixture.catalog.due_news(ORIGIN, None, time(50), &busy, 1);
    assert_eq!(limited.await.unwrap().rows.len(), 1);

    fixture.catalog.postpone_news("a1", "a/s", time(60)).await.unwrap();
    let due_now = look(&fixture, None, 50, &[]).await;
    assert_eq!(due_now.next_try, Some(time(15)));
    assert_eq!(ids_of(due_now), ["b1"], "the second row waits for the first one");
    assert_eq!(look(&fixture, None, 12, &[]).await.next_try, Some(time(15)));
    let backlog = fixture.catalog.news_backlog(ORIGIN).await.unwrap();
    assert_eq!((backlog.rows, backlog.oldest), (4, Some(time(10))));
    let rows = look(&fixture, None, 60, &[]).await.rows;
    assert_eq!(
        (rows[0].id.as_str(), rows[0].tries, rows[0].next_try),
        ("a1", 1, time(60))
    );

    fixture.catalog.news_delivered("a1", "a/s").await.unwrap();
    assert_eq!(due(&fixture, 50, &[]).await, ["b1", "a2"]);
    assert_eq!(fixture.catalog.drop_sink(ORIGIN, "b/s").await.unwrap(), 1);
    insert(&fixture, ("kubeapps", "d/s", "d1"), 19).await;
    assert_eq!(fixture.catalog.expire_news(ORIGIN, time(20)).await.unwrap(), 1);
    assert_eq!(ids(&fixture).await, ["a2", "c1"]);
}

#[rstest]
#[tokio::test]
async fn rows_of_another_cluster_are_neither_due_nor_counted_nor_deleted(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    insert_many(&fixture, OTHER, ("team", "ops/all", "o"), 1..=1_000).await;
    for sink in 0..20 {
        insert_many(&fixture, OTHER, ("team", &format!("a/{sink}"), "o"), 1..=50).await;
    }
    insert(&fixture, ("kubeapps", "ops/all", "ours"), 2_000).await;
    assert_eq!(due(&fixture, 3_000, &[]).await, ["ours"]);
    let backlog = fixture.catalog.news_backlog(ORIGIN).await.unwrap();
    assert_eq!((backlog.rows, backlog.oldest), (1, Some(time(2_000))));
    assert_eq!(fixture.catalog.trim_news(ORIGIN, 1, 1).await.unwrap(), 0);
    assert_eq!(fixture.catalog.expire_news(ORIGIN, time(1_500)).await.unwrap(), 0);
    assert_eq!(fixture.catalog.drop_sink(ORIGIN, "ops/all").await.unwrap(), 1);
    assert_eq!(fixture.tables.count("portolan_news").await, 2_000);
}

#[rstest]
#[tokio::test]
async fn rows_of_repositories_that_another_process_watches_are_not_due(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    insert_many(&fixture, ORIGIN, ("team", "ops/all", "o"), 1..=1_000).await;
    insert(&fixture, ("kubeapps", "ops/all", "ours"), 2_000).await;
    let watched = owned(&["kubeapps/other", "kubeapps/stable"]);
    assert_eq!(ids_of(look(&fixture, Some(&watched), 3_000, &[]).await), ["ours"]);
    assert_eq!(look(&fixture, Some(&[]), 3_000, &[]).await, DueNews::default());
    assert_eq!(due(&fixture, 3_000, &[]).await, ["o1"]);
}

#[rstest]
#[tokio::test]
async fn the_news_of_a_repository_that_is_taken_over_is_that_of_the_new_cluster(
    #[values(On::Sqlite, On::Postgres)] on: On,
    #[values(true, false)] is_synced: bool,
) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, &[SINK], vec![chart("a", &["1.0.0"])]).await;
    let mut adopted = fixture.catalog.record(&repository()).await.unwrap().unwrap();
    let former = std::mem::replace(&mut adopted.uid, "uid of the new object".to_owned());
    adopted.origin = OTHER.to_owned();
    if is_synced {
        let commit = SyncCommit::new(adopted, Some(former), "checksum");
        let charts = rows(vec![chart("a", &["1.0.0"])]);
        fixture.catalog.commit(commit, charts).await.unwrap();
    } else {
        // Its first sync fails.
        let sinks = owned(&[SINK]);
        let saved = fixture
            .catalog
            .save_with_news(&adopted, Some(&former), None, &sinks, false);
        saved.await.unwrap();
    }
    assert_eq!(fixture.catalog.news_backlog(ORIGIN).await.unwrap().rows, 0);
    assert_eq!(fixture.catalog.news_backlog(OTHER).await.unwrap().rows, 1);
}

#[rstest]
#[tokio::test]
async fn a_look_at_long_queues_takes_as_long_as_one_at_short_queues(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let fill = async |created: RangeInclusive<i64>| {
        for sink in 0..10 {
            let sink = format!("a/{sink}");
            insert_many(&fixture, ORIGIN, ("kubeapps", &sink, "r"), created.clone()).await;
        }
    };
    // The shortest of several looks: others wait for the processor.
    let fastest = async || {
        let mut fastest = Duration::MAX;
        for _ in 0..10 {
            let start = Instant::now();
            assert_eq!(due(&fixture, 2_000, &[]).await.len(), 10);
            fastest = fastest.min(start.elapsed());
        }
        fastest
    };
    fill(1..=2).await;
    let short = fastest().await;
    fill(3..=1_000).await;
    let long = fastest().await;
    assert!(long < short * 10 + Duration::from_millis(10), "{short:?}, {long:?}");
}

#[rstest]
#[tokio::test]
async fn rows_of_a_namespace_with_many_sinks_do_not_come_before_all_others(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    for at in 0..5 {
        insert(&fixture, ("kubeapps", &format!("kubeapps/{at}"), &format!("k{at}")), at).await;
    }
    insert(&fixture, ("team", "team/hook", "t"), 40).await;
    assert_eq!(due(&fixture, 50, &[]).await[..2], ["k0", "t"]);
}

#[rstest]
#[tokio::test]
async fn the_oldest_rows_of_a_namespace_that_floods_go_first(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    for at in 0..8 {
        insert(&fixture, ("flood", "ops/all", &format!("f{at}")), 100 + at).await;
        insert(&fixture, ("flood", &format!("flood/{at}"), &format!("f{at}")), 100 + at).await;
    }
    // Older than all rows of the flood.
    for at in 0..2 {
        insert(&fixture, ("calm", "ops/all", &format!("c{at}")), at).await;
        insert(&fixture, ("calm", "calm/hook", &format!("c{at}")), at).await;
    }
    let trim = async |sink, total| fixture.catalog.trim_news(ORIGIN, sink, total).await.unwrap();
    assert_eq!(trim(10, 20).await, 0);
    assert_eq!(trim(5, 20).await, 5);
    let of_operator = "SELECT id FROM portolan_news WHERE sink = 'ops/all' ORDER BY id";
    assert_eq!(fixture.tables.texts(of_operator).await, ["c0", "c1", "f5", "f6", "f7"]);
    assert_eq!(trim(5, 8).await, 7);
    let calm = "SELECT count(*) FROM portolan_news WHERE namespace = 'calm'";
    assert_eq!(fixture.tables.number(calm).await, 4);
    assert_eq!(fixture.tables.count("portolan_news").await, 8);
}

#[rstest]
#[tokio::test]
async fn rows_go_with_their_repository(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, &SINKS, vec![chart("a", &["1.0.0"])]).await;
    assert!(fixture.catalog.remove(&repository(), Fence::None).await.unwrap());
    assert_eq!(fixture.tables.count("portolan_news").await, 0);
    // Of a repository that an earlier release removed.
    insert(&fixture, ("team", SINK, "stray"), 1).await;
    assert_eq!(fixture.catalog.collect_stray_rows(|_| false, false).await.unwrap(), 1);
    assert_eq!(fixture.tables.count("portolan_news").await, 0);
}
