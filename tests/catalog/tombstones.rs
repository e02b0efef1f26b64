//! A sync of a deleted repository writes nothing.

use portolan::catalog::{ErrorKind, Fence, SyncCommit};
use rstest::rstest;

use super::{Fixture, On, chart, record, repository, rows};

#[rstest]
#[tokio::test]
async fn a_late_sync_of_a_deleted_repository_commits_nothing(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let catalog = &fixture.catalog;
    fixture.sync(vec![chart("web", &["1.0.0"])]).await;
    let uid = record().uid;
    assert_eq!(catalog.deleted_at(&uid).await.unwrap(), None);
    let removed = catalog
        .remove_deleted(&repository(), Fence::Uid(Some(&uid)), &uid)
        .await;
    assert!(removed.unwrap());
    assert!(catalog.deleted_at(&uid).await.unwrap().is_some());

    // A commit, and the record of a failure.
    let late = SyncCommit::new(record(), None, "checksum");
    let error = catalog
        .commit(late, rows(vec![chart("web", &["1.0.0"])]))
        .await
        .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Superseded { .. }), "{error}");
    let error = catalog.save(&record(), None, None).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Superseded { .. }), "{error}");
    assert!(catalog.record(&repository()).await.unwrap().is_none());

    // Another object of the same name.
    let mut successor = record();
    successor.uid = "successor".to_owned();
    let commit = SyncCommit::new(successor, None, "checksum");
    catalog
        .commit(commit, rows(vec![chart("web", &["1.0.0"])]))
        .await
        .unwrap();
    let removed = catalog
        .remove_deleted(&repository(), Fence::Uid(Some(&uid)), &uid)
        .await;
    assert!(!removed.unwrap(), "the rows are those of the successor");
    assert!(catalog.record(&repository()).await.unwrap().is_some());
}

#[rstest]
#[tokio::test]
async fn a_deletion_is_forgotten_if_the_repository_exists(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let catalog = &fixture.catalog;
    let uid = record().uid;
    catalog
        .remove_deleted(&repository(), Fence::Uid(None), &uid)
        .await
        .unwrap();
    assert!(
        fixture
            .try_sync("checksum", vec![chart("web", &["1.0.0"])])
            .await
            .is_err()
    );
    let deleted_at = catalog.deleted_at(&uid).await.unwrap().unwrap();
    // Another deletion than the one that was read.
    catalog
        .forget_deletion(&repository(), &uid, deleted_at - 1)
        .await
        .unwrap();
    assert_eq!(catalog.deleted_at(&uid).await.unwrap(), Some(deleted_at));
    catalog.forget_deletion(&repository(), &uid, deleted_at).await.unwrap();
    fixture.sync(vec![chart("web", &["1.0.0"])]).await;
}

#[rstest]
#[tokio::test]
async fn a_tombstone_expires_with_the_next_deletion_after_a_day(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let catalog = &fixture.catalog;
    for uid in ["old", "young"] {
        catalog
            .remove_deleted(&repository(), Fence::Uid(None), uid)
            .await
            .unwrap();
    }
    fixture
        .tables
        .execute("UPDATE portolan_tombstones SET deleted_at = deleted_at - 86401 WHERE uid = 'old'")
        .await;
    catalog
        .remove_deleted(&repository(), Fence::Uid(None), "new")
        .await
        .unwrap();
    let left = fixture
        .tables
        .texts("SELECT uid FROM portolan_tombstones ORDER BY uid")
        .await;
    assert_eq!(left, ["new", "young"]);
}
