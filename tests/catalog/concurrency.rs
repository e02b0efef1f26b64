//! Concurrent access to one database.

use portolan::api::NamespacedName;
use portolan::catalog::{Catalog, ChartRow, ErrorKind, Record, SyncCommit};
use rstest::rstest;
use tokio::sync::oneshot;

use super::{
    Fixture, On, chart,
    files::{of, save},
    record, repository, rows,
};

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_commits_of_a_repository_are_serialized(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![]).await;
    // Another process has its own catalog.
    let other = Catalog::open(&fixture.settings).await.unwrap();
    let write = |catalog: Catalog, prefix: &'static str| async move {
        let charts = (0..300)
            .map(|at| chart(&format!("{prefix}-{at:03}"), &["1.0.0"]))
            .collect();
        catalog
            .commit(SyncCommit::new(record(), Some("uid-1".into()), prefix), rows(charts))
            .await
    };
    let (left, right) = tokio::join!(
        tokio::spawn(write(fixture.catalog.clone(), "left")),
        tokio::spawn(write(other, "right"))
    );
    let (left, right) = (left.unwrap().unwrap(), right.unwrap().unwrap());
    assert_eq!((left.added, right.added), (300, 300));
    assert_eq!(
        left.removed + right.removed,
        300,
        "the second commit deletes the charts of the first"
    );
    let names = fixture.chart_names().await;
    assert_eq!(names.len(), 300);
    let last = if left.removed == 300 { "left" } else { "right" };
    assert!(names.iter().all(|name| name.starts_with(last)));
    assert_eq!(fixture.tables.texts("SELECT checksum FROM repos").await, [last]);
    assert!(fixture.catalog.record(&repository()).await.unwrap().unwrap().trusted);
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_first_commits_one_is_superseded(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let write = |catalog: Catalog, uid: &'static str| async move {
        let record = Record::new(repository(), uid);
        catalog
            .commit(SyncCommit::new(record, None, uid), rows(vec![chart(uid, &["1.0.0"])]))
            .await
    };
    let (left, right) = tokio::join!(
        tokio::spawn(write(fixture.catalog.clone(), "left")),
        tokio::spawn(write(fixture.catalog.clone(), "right"))
    );
    let (left, right) = (left.unwrap(), right.unwrap());
    let (winner, error) = match (left, right) {
        (Ok(_), Err(error)) => ("left", error),
        (Err(error), Ok(_)) => ("right", error),
        other => panic!("{other:?}"),
    };
    assert!(matches!(error.kind(), ErrorKind::Superseded { .. }), "{error}");
    assert_eq!(fixture.chart_names().await, [winner]);
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repositories_are_committed_concurrently(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let writes = (0..16).map(|at| {
        let catalog = fixture.catalog.clone();
        tokio::spawn(async move {
            let name = NamespacedName::new("kubeapps", format!("repo-{at}"));
            let charts = (0..50).map(|at| chart(&at.to_string(), &["1.0.0"])).collect();
            catalog
                .commit(SyncCommit::new(Record::new(name, "uid"), None, "x"), rows(charts))
                .await
                .unwrap()
        })
    });
    for committed in futures::future::join_all(writes).await {
        assert_eq!(committed.unwrap().added, 50);
    }
    assert_eq!(fixture.tables.count("charts").await, 800);
    assert_eq!(fixture.catalog.records().await.unwrap().len(), 16);
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn readers_see_the_previous_state_during_a_commit(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("before", &["1.0.0"])]).await;
    let (half_way, reached) = oneshot::channel();
    let (go_on, wait) = oneshot::channel::<()>();
    let (mut half_way, mut wait) = (Some(half_way), Some(wait));
    let charts = (0..600).map(move |at| {
        if at == 590 {
            // Some batches are written. The transaction stays open until the readers are done.
            half_way.take().unwrap().send(()).unwrap();
            tokio::task::block_in_place(|| wait.take().unwrap().blocking_recv().unwrap());
        }
        let info = chart(&format!("after-{at:03}"), &["1.0.0"]);
        Ok(ChartRow {
            chart_id: info.id.clone(),
            info,
        })
    });
    let catalog = fixture.catalog.clone();
    let writing = tokio::spawn(async move {
        catalog
            .commit(SyncCommit::new(record(), Some("uid-1".into()), "x"), charts)
            .await
    });
    reached.await.unwrap();
    let reader = Catalog::open_read_only(&fixture.settings).await.unwrap();
    for catalog in [&fixture.catalog, &reader] {
        assert_eq!(catalog.record(&repository()).await.unwrap().unwrap().charts, 1);
        assert_eq!(catalog.repositories().await.unwrap()[0].charts, 1);
        catalog.ping().await.unwrap();
    }
    go_on.send(()).unwrap();
    assert_eq!(writing.await.unwrap().unwrap().added, 600);
    assert_eq!(reader.record(&repository()).await.unwrap().unwrap().charts, 600);
}

/// The write waits for the commit and then finds the version deleted.
#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn files_of_a_version_that_a_commit_deletes_are_obsolete(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    fixture.sync(vec![chart("a", &["2.0.0", "1.0.0"])]).await;
    let (half_way, reached) = oneshot::channel();
    let (go_on, wait) = oneshot::channel::<()>();
    let (mut half_way, mut wait) = (Some(half_way), Some(wait));
    let charts = (0..300).map(move |at| {
        if at == 290 {
            // The chart is written.
            half_way.take().unwrap().send(()).unwrap();
            tokio::task::block_in_place(|| wait.take().unwrap().blocking_recv().unwrap());
        }
        let name = if at == 0 { "a".into() } else { format!("other-{at}") };
        let info = chart(&name, &["2.0.0"]);
        Ok(ChartRow {
            chart_id: info.id.clone(),
            info,
        })
    });
    let catalog = fixture.catalog.clone();
    let commit = SyncCommit::new(record(), Some("uid-1".into()), "x");
    let writing = tokio::spawn(async move { catalog.commit(commit, charts).await });
    reached.await.unwrap();
    let (old, new) = (of("a", "1.0.0"), of("a", "2.0.0"));
    let mut saving = Box::pin(async { tokio::join!(save(&fixture, &old, "x"), save(&fixture, &new, "x")) });
    assert!(futures::poll!(saving.as_mut()).is_pending());
    go_on.send(()).unwrap();
    assert_eq!(saving.await, (false, true));
    assert_eq!(writing.await.unwrap().unwrap().changed, 1);
    assert_eq!(fixture.files().await, ["stable/a-2.0.0"]);
}
