//! Read queries.

use portolan::api::NamespacedName;
use portolan::catalog::Fence;
use portolan::catalog::{Catalog, ErrorKind, Record, SyncCommit};
use rstest::rstest;

use super::{
    Fixture, On, chart, record, repository, rows,
    search::{find, snapshot},
};

#[rstest]
#[tokio::test]
async fn a_chart_is_shown_in_one_namespace_or_in_each(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("team/nginx", &["2.0.0", "1.0.0"])]).await;
    let other = Record::new(NamespacedName::new("other", "stable"), "uid");
    fixture
        .catalog
        .commit(
            SyncCommit::new(other, None, "x"),
            rows(vec![chart("team/nginx", &["1.0.0"])]),
        )
        .await
        .unwrap();
    let shown = fixture.catalog.show("stable", "team/nginx", None).await.unwrap();
    let namespaces: Vec<&str> = shown.iter().map(|chart| chart.repository.namespace.as_str()).collect();
    assert_eq!(namespaces, ["kubeapps", "other"]);
    assert_eq!(shown[0].info, chart("team/nginx", &["2.0.0", "1.0.0"]));
    assert_eq!(
        fixture
            .catalog
            .show("stable", "team%2Fnginx", Some("other"))
            .await
            .unwrap()
            .len(),
        1
    );
    assert_eq!(fixture.catalog.show("stable", "nothing", None).await.unwrap(), []);

    fixture
        .tables
        .execute("UPDATE charts SET info = '{\"ID\": 1}' WHERE repo_namespace = 'other'")
        .await;
    let error = fixture.catalog.show("stable", "team/nginx", None).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Malformed { .. }), "{error}");
    assert!(error.to_string().contains("other/stable/team%2Fnginx"), "{error}");
}

#[rstest]
#[tokio::test]
async fn repositories_are_listed_with_and_without_record_and_charts(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture
        .sync(vec![chart("a", &["2.0.0", "1.0.0"]), chart("b", &["1.0.0"])])
        .await;
    fixture
        .tables
        .execute(
            "INSERT INTO repos (namespace, name) VALUES ('a', 'theirs');
             INSERT INTO charts (repo_namespace, repo_name, chart_id, info)
                VALUES ('a', 'theirs', 'theirs/x', '{\"repo\": {\"url\": \"https://theirs\"}, \"chartVersions\": null}')",
        )
        .await;
    let mut failing = Record::new(NamespacedName::new("z", "failing"), "uid-2");
    failing.url = "https://failing".into();
    fixture.catalog.save(&failing, None, None).await.unwrap();
    let summaries = fixture.catalog.repositories().await.unwrap();
    let short: Vec<_> = summaries
        .iter()
        .map(|s| {
            (
                s.name.to_string(),
                s.url.as_str(),
                s.charts,
                s.versions,
                s.record.is_some(),
            )
        })
        .collect();
    assert_eq!(
        short,
        [
            ("a/theirs".into(), "https://theirs", 1, 0, false),
            ("kubeapps/stable".into(), "https://charts.example.com", 2, 3, true),
            ("z/failing".into(), "https://failing", 0, 0, true),
        ]
    );
}

#[rstest]
#[tokio::test]
async fn a_database_that_only_kubeapps_has_written_can_be_read(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    fixture
        .tables
        .execute("DROP TABLE portolan_syncs; DROP TABLE portolan_repositories; DROP TABLE portolan_migrations")
        .await;
    let reader = Catalog::open_read_only(&fixture.settings).await.unwrap();
    assert_eq!(reader.repositories().await.unwrap()[0].charts, 1);
    assert_eq!(reader.records().await.unwrap(), []);
    assert_eq!(reader.record(&repository()).await.unwrap(), None);
    assert_eq!(reader.history(&repository(), 10).await.unwrap(), []);
    assert_eq!(find(&snapshot(&reader).await, &["a"]), ["a"]);
    assert_eq!(reader.show("stable", "a", None).await.unwrap().len(), 1);
    reader.ping().await.unwrap();
    fixture
        .tables
        .execute("DROP TABLE files; DROP TABLE charts; DROP TABLE repos")
        .await;
    assert_eq!(reader.repositories().await.unwrap(), []);
    assert_eq!(find(&snapshot(&reader).await, &[]), [""; 0]);
    assert_eq!(*reader.rebuilt().borrow(), 0);
}

#[rstest]
#[tokio::test]
async fn a_read_only_catalog_refuses_writes(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let reader = Catalog::open_read_only(&fixture.settings).await.unwrap();
    for error in [
        reader.save(&record(), None, None).await.unwrap_err(),
        reader
            .commit(SyncCommit::new(record(), None, "x"), rows(vec![]))
            .await
            .unwrap_err(),
        reader.remove(&repository(), Fence::None).await.unwrap_err(),
        reader.recreate().await.unwrap_err(),
        reader.ensure_tables().await.unwrap_err(),
    ] {
        assert!(matches!(error.kind(), ErrorKind::ReadOnly), "{error}");
    }
}
