//! The search of charts, and the snapshot that it reads.

use portolan::api::NamespacedName;
use portolan::catalog::query::RepositoryKeys;
use portolan::catalog::{Catalog, Fence, ONE_SHOT, Record, SyncCommit};
use portolan::serve::search::{Results, Words, search};
use portolan::serve::snapshot::Snapshot;
use rstest::rstest;

use super::{Fixture, On, chart, commit::hostile_names, repository, rows};

pub async fn snapshot(catalog: &Catalog) -> Snapshot {
    let mut snapshot = Snapshot::default();
    snapshot.refresh(catalog).await.unwrap();
    snapshot
}

fn results<'a>(snapshot: &'a Snapshot, words: &[&str]) -> Results<'a> {
    search(snapshot.charts(), &Words::new(words), 100)
}

/// The names that are found. Similar ones begin with `~`.
pub fn find(snapshot: &Snapshot, words: &[&str]) -> Vec<String> {
    let mut names = Vec::new();
    for hit in results(snapshot, words).hits {
        let mark = if hit.fuzzy { "~" } else { "" };
        names.push(format!("{mark}{}", hit.chart.name));
    }
    names
}

/// Commits a chart to another repository.
async fn commit_to(fixture: &Fixture, namespace: &str, name: &str, chart_name: &str) {
    let record = Record::new(NamespacedName::new(namespace, name), "uid");
    let charts = rows(vec![chart(chart_name, &["1.0.0"])]);
    let commit = SyncCommit::new(record, None, "x");
    fixture.catalog.commit(commit, charts).await.unwrap();
}

#[rstest]
#[tokio::test]
async fn matches_in_names_come_before_keywords_and_descriptions(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let mut by_description = chart("aaa", &["1.0.0"]);
    by_description.description = "Like WordPress, only smaller".into();
    let mut by_keyword = chart("bbb", &["1.0.0"]);
    by_keyword.keywords = Some(vec!["blog".into(), "wordpress".into()]);
    let mut silent = chart("zzz", &["1.0.0"]);
    silent.keywords = None;
    fixture
        .sync(vec![
            by_description,
            by_keyword,
            chart("my-wordpress-exporter", &["1.0.0"]),
            chart("wordpress", &["3.0.0-rc.1", "2.0.0", "1.0.0"]),
            silent,
        ])
        .await;
    let snapshot = snapshot(&fixture.catalog).await;
    assert_eq!(
        find(&snapshot, &["wordpress"]),
        ["wordpress", "my-wordpress-exporter", "bbb", "aaa"]
    );
    assert_eq!(find(&snapshot, &["PRESS", "blog"]), ["bbb"]);
    assert_eq!(find(&snapshot, &["wordpress", "nowhere"]), [""; 0]);
    assert_eq!(find(&snapshot, &[]).len(), 5);
    let found = results(&snapshot, &["wordpress"]);
    let hit = &found.hits[0];
    assert_eq!(*hit.repository, repository());
    assert_eq!((&*hit.chart.version, &*hit.chart.app_version), ("2.0.0", "app-2.0.0"));
    assert_eq!(&*hit.chart.description, "wordpress for everybody");
    assert_eq!((&*hit.chart.chart_id, hit.chart.versions), ("stable/wordpress", 3));
    assert!(!found.has_more);
}

#[rstest]
#[tokio::test]
async fn typing_errors_are_forgiven(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let names = ["wordpress", "redis", "redis-ha"];
    fixture
        .sync(names.iter().map(|name| chart(name, &["1.0.0"])).collect())
        .await;
    let snapshot = snapshot(&fixture.catalog).await;
    assert_eq!(find(&snapshot, &["wrodpress"]), ["~wordpress"]);
    assert_eq!(find(&snapshot, &["rediss", "ha"]), ["~redis-ha"]);
    assert_eq!(find(&snapshot, &["redis"]), ["redis", "redis-ha"]);
    assert_eq!(find(&snapshot, &["wordprexyz"]), [""; 0]);
}

#[rstest]
#[tokio::test]
async fn a_snapshot_can_be_limited_to_a_namespace(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("mysql", &["1.0.0"])]).await;
    for (namespace, name) in [("kubeapps", "other"), ("team", "stable")] {
        commit_to(&fixture, namespace, name, "mysql").await;
    }
    for (namespace, count) in [
        (None, 3),
        (Some("kubeapps"), 2),
        (Some("team"), 1),
        (Some("nowhere"), 0),
    ] {
        let mut snapshot = Snapshot::new(namespace.map(str::to_owned));
        assert_eq!(snapshot.refresh(&fixture.catalog).await.unwrap(), count);
        assert_eq!(find(&snapshot, &["mysql"]).len(), count, "{namespace:?}");
    }
}

/// The names of the repositories in a snapshot of the origin `us`.
async fn ours(catalog: &Catalog) -> Vec<String> {
    let mut snapshot = Snapshot::new(None).of_origin("us".to_owned());
    snapshot.refresh(catalog).await.unwrap();
    snapshot.repositories().keys().map(|name| name.name.clone()).collect()
}

#[rstest]
#[tokio::test]
async fn a_snapshot_of_an_origin_has_repositories_without_owner_only_while_it_is_alone(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let fixture = Fixture::new(on).await;
    let catalog = &fixture.catalog;
    for (name, origin) in [("ours", "us"), ("theirs", "them"), ("free", ONE_SHOT)] {
        let mut record = Record::new(NamespacedName::new("team", name), "uid");
        record.origin = origin.to_owned();
        let commit = SyncCommit::new(record, None, "x");
        let charts = rows(vec![chart("web", &["1.0.0"])]);
        catalog.commit(commit, charts).await.unwrap();
    }
    catalog.claim("", "us").await.unwrap();
    assert_eq!(ours(catalog).await, ["free", "ours"]);
    catalog.claim("other", "them").await.unwrap();
    assert_eq!(ours(catalog).await, ["ours"]);
}

#[rstest]
#[tokio::test]
async fn a_repository_that_was_never_synced_has_a_record_and_no_charts(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let name = NamespacedName::new("team", "broken");
    let record = Record::new(name.clone(), "uid");
    fixture.catalog.save(&record, None, None).await.unwrap();
    let snapshot = snapshot(&fixture.catalog).await;
    let repository = &snapshot.repositories()[&name];
    assert!(repository.keys.record.is_some() && repository.charts.is_empty());
}

#[rstest]
#[tokio::test]
async fn wildcards_and_quotes_in_a_word_are_literal(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let mut charts: Vec<_> = hostile_names().iter().map(|name| chart(name, &["1.0.0"])).collect();
    charts.push(chart("plain", &["1.0.0"]));
    fixture.sync(charts).await;
    let snapshot = snapshot(&fixture.catalog).await;
    assert_eq!(find(&snapshot, &["%_\\"]), ["100%_\\"]);
    assert_eq!(find(&snapshot, &["pl%n"]), [""; 0]);
    assert_eq!(find(&snapshot, &["') OR true"]).len(), 1);
    assert_eq!(find(&snapshot, &["plain\0"]), ["plain"]);
    assert_eq!(find(&snapshot, &["名前/"]).len(), 1);
}

fn keys(snapshot: &Snapshot) -> RepositoryKeys {
    snapshot.repositories()[&repository()].keys.clone()
}

#[rstest]
#[tokio::test]
async fn a_refresh_reads_the_charts_of_changed_repositories_only(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let catalog = &fixture.catalog;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    commit_to(&fixture, "team", "stable", "b").await;
    let mut snapshot = Snapshot::default();
    assert_eq!(snapshot.refresh(catalog).await.unwrap(), 2);
    assert_eq!(snapshot.refresh(catalog).await.unwrap(), 0);

    // An unmodified index only writes the record.
    let before = keys(&snapshot);
    let record = catalog.record(&repository()).await.unwrap().unwrap();
    catalog.save(&record, Some("uid-1"), None).await.unwrap();
    assert_eq!(snapshot.refresh(catalog).await.unwrap(), 0);
    assert_eq!(keys(&snapshot).charts, before.charts);
    assert_ne!(keys(&snapshot).record, before.record);

    fixture.sync(vec![chart("a", &["1.1.0"]), chart("c", &["1.0.0"])]).await;
    assert_eq!(snapshot.refresh(catalog).await.unwrap(), 1);
    assert_eq!(find(&snapshot, &[]), ["a", "b", "c"]);
    assert_eq!(&*results(&snapshot, &["a"]).hits[0].chart.version, "1.1.0");

    // Kubeapps' syncer writes the same tables.
    fixture
        .tables
        .execute(
            "UPDATE charts SET info = '{\"name\": \"theirs\"}' WHERE chart_id = 'stable/c';
             UPDATE repos SET checksum = 'theirs', last_update = 'now' WHERE namespace = 'kubeapps'",
        )
        .await;
    assert_eq!(snapshot.refresh(catalog).await.unwrap(), 1);
    assert_eq!(find(&snapshot, &[]), ["a", "b", "theirs"]);

    catalog.remove(&repository(), Fence::None).await.unwrap();
    assert_eq!(snapshot.refresh(catalog).await.unwrap(), 0);
    assert_eq!(find(&snapshot, &[]), ["b"]);
}

#[rstest]
#[tokio::test]
async fn rows_that_are_not_readable_are_left_out_and_counted(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    for (chart_id, info) in [
        ("'stable/list'", "[]"),
        ("'stable/empty'", "{}"),
        ("'stable/number'", "{\"name\": 1}"),
        ("NULL", "{\"name\": \"nameless\"}"),
        ("'stable/sparse'", "{\"name\": \"sparse\", \"category\": null}"),
    ] {
        let insert = format!(
            "INSERT INTO charts (repo_namespace, repo_name, chart_id, info) VALUES ('kubeapps', 'stable', {chart_id}, '{info}')"
        );
        fixture.tables.execute(&insert).await;
    }
    let snapshot = snapshot(&fixture.catalog).await;
    assert_eq!(find(&snapshot, &[]), ["a", "sparse"]);
    assert_eq!(snapshot.unreadable(), 4);
}
