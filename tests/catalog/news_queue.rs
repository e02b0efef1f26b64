//! The outbox of news: the order in which rows are due, and the rows that are deleted.

use jiff::Timestamp;
use portolan::catalog::Fence;
use rstest::rstest;

use super::news::{ORIGIN, SINK, SINKS, ids, owned, sync};
use super::{Fixture, On, chart, repository};

/// Inserts a row of a repository that need not exist.
async fn insert(fixture: &Fixture, (namespace, sink, id): (&str, &str, &str), created: i64) {
    let event = r#"{"kind":"failed","namespace":"n","repository":"r"}"#;
    fixture
        .tables
        .execute(&format!(
            "INSERT INTO portolan_news (id, namespace, name, sink, event, created, tries, next_try)
             VALUES ('{id}', '{namespace}', 'stable', '{sink}', '{event}', {created}, 0, {created})"
        ))
        .await;
}

fn time(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap()
}

async fn due(fixture: &Fixture, now: i64, busy: &[&str]) -> Vec<String> {
    let due = fixture.catalog.due_news(ORIGIN, time(now), &owned(busy), 10).await;
    due.unwrap().into_iter().map(|row| row.id).collect()
}

#[rstest]
#[tokio::test]
async fn a_row_that_can_not_be_read_holds_no_later_row(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, &[], vec![chart("a", &["1.0.0"])]).await;
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
    sync(&fixture, &[], vec![chart("a", &["1.0.0"])]).await;
    for (sink, id, created) in [
        ("a/s", "a2", 20),
        ("a/s", "a1", 10),
        ("b/s", "b1", 15),
        ("c/s", "c1", 90),
    ] {
        insert(&fixture, ("kubeapps", sink, id), created).await;
    }
    // Rows of another cluster, whose Secrets this one does not know.
    insert(&fixture, ("elsewhere", "d/s", "d1"), 1).await;
    assert_eq!(due(&fixture, 50, &[]).await, ["a1", "b1"]);
    assert_eq!(due(&fixture, 50, &["a/s"]).await, ["b1"]);
    let limited = fixture.catalog.due_news(ORIGIN, time(50), &owned(&["a/s"]), 1).await;
    assert_eq!(limited.unwrap().len(), 1);

    fixture.catalog.postpone_news("a1", "a/s", time(60)).await.unwrap();
    assert_eq!(
        due(&fixture, 50, &[]).await,
        ["b1"],
        "the second row waits for the first one"
    );
    let backlog = fixture.catalog.news_backlog(ORIGIN).await.unwrap();
    assert_eq!(
        (backlog.rows, backlog.oldest, backlog.next_try),
        (4, Some(time(10)), Some(time(15)))
    );
    let rows = fixture.catalog.due_news(ORIGIN, time(60), &[], 10).await.unwrap();
    assert_eq!(
        (rows[0].id.as_str(), rows[0].tries, rows[0].next_try),
        ("a1", 1, time(60))
    );

    fixture.catalog.news_delivered("a1", "a/s").await.unwrap();
    assert_eq!(due(&fixture, 50, &[]).await, ["b1", "a2"]);
    assert_eq!(fixture.catalog.drop_sink(ORIGIN, "b/s").await.unwrap(), 1);
    assert_eq!(fixture.catalog.drop_sink(ORIGIN, "d/s").await.unwrap(), 0);
    assert_eq!(fixture.catalog.expire_news(time(20)).await.unwrap(), 1);
    assert_eq!(ids(&fixture).await, ["a2", "c1"]);
}

#[rstest]
#[tokio::test]
async fn rows_of_a_namespace_with_many_sinks_do_not_come_before_all_others(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    sync(&fixture, &[], vec![chart("a", &["1.0.0"])]).await;
    fixture
        .tables
        .execute("INSERT INTO portolan_repositories (namespace, name, uid, origin, url, kind, change_key, credentials, index_digest, generation, details, revision)
            SELECT 'team', name, uid, origin, url, kind, change_key, credentials, index_digest, generation, details, revision FROM portolan_repositories")
        .await;
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
    let trim = async |sink, total| fixture.catalog.trim_news(sink, total).await.unwrap();
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
