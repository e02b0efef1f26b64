//! Writes of a leader after another one has claimed the database.

use std::sync::mpsc;
use std::time::Duration;

use portolan::catalog::{Catalog, Error, ErrorKind, Fault, HeldLease, LeaseGeneration, SyncCommit};
use rstest::rstest;
use sqlx::{Connection, Executor, PgConnection};
use tokio::time::timeout;

use super::{Fixture, On, chart, record, repository, rows};

const LEASE: &str = "kubeapps/portolan";

fn lease(name: &str, (created, transitions): (i64, i64), holder: &str) -> HeldLease {
    HeldLease {
        origin: "here".to_owned(),
        name: name.to_owned(),
        generation: LeaseGeneration { created, transitions },
        holder: holder.to_owned(),
    }
}

/// Another process on the same database, which holds the Lease in this generation.
async fn leader(fixture: &Fixture, generation: (i64, i64), holder: &str) -> Catalog {
    let catalog = Catalog::open(&fixture.settings).await.unwrap();
    catalog.hold_lease(lease(LEASE, generation, holder));
    catalog
}

/// Writes a record in one statement, or in a transaction if it is the first one.
async fn write(catalog: &Catalog) -> Result<(), Error> {
    let stored = catalog.record(&repository()).await?;
    let uid = stored.as_ref().map(|record| record.uid.clone());
    catalog.save(&stored.unwrap_or_else(record), uid.as_deref(), None).await
}

#[rstest]
#[tokio::test]
async fn an_older_leader_writes_nothing_after_a_newer_one_has_claimed_the_database(
    #[values(On::Sqlite, On::Postgres)] on: On,
) {
    let fixture = Fixture::new(on).await;
    let first = leader(&fixture, (100, 3), "first").await;
    write(&first).await.unwrap();
    write(&first).await.unwrap();
    // The Lease was deleted and created again.
    let second = leader(&fixture, (200, 0), "second").await;
    second.claim_leases().await.unwrap();

    let before = fixture.catalog.record(&repository()).await.unwrap();
    let error = write(&first).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Fenced { .. }), "{error}");
    assert!(
        error.to_string().contains("second") && error.to_string().contains(LEASE),
        "{error}"
    );
    assert_eq!(first.fenced().await.to_string(), error.to_string());
    assert!(matches!(first.claim_leases().await, Err(error) if matches!(error.kind(), ErrorKind::Fenced { .. })));
    assert_eq!(fixture.catalog.record(&repository()).await.unwrap(), before);
    // A command of a user needs no Lease.
    write(&fixture.catalog).await.unwrap();
    write(&second).await.unwrap();
    assert!(timeout(Duration::ZERO, second.fenced()).await.is_err());
}

#[rstest]
#[tokio::test]
async fn each_lease_of_a_process_is_checked(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let first = leader(&fixture, (100, 0), "first").await;
    first.hold_lease(lease("kubeapps/portolan-1", (100, 0), "first"));
    write(&first).await.unwrap();
    assert_eq!(fixture.tables.count("portolan_fences").await, 2);
    let second = Catalog::open(&fixture.settings).await.unwrap();
    second.hold_lease(lease("kubeapps/portolan-1", (100, 1), "second"));
    second.claim_leases().await.unwrap();
    let error = write(&first).await.unwrap_err();
    assert!(error.to_string().contains("kubeapps/portolan-1"), "{error}");
    write(&second).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_at_the_same_time_do_not_block_each_other_after_a_lease_was_taken() {
    let fixture = Fixture::new(On::Postgres).await;
    let catalog = leader(&fixture, (100, 0), "first").await;
    catalog.claim_leases().await.unwrap();
    for transitions in 1..=10 {
        catalog.hold_lease(lease(LEASE, (100, transitions), "first"));
        let writes = (0..8).map(|_| catalog.claim_leases());
        for written in futures::future::join_all(writes).await {
            written.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_in_progress_neither_delays_a_claim_nor_is_committed_after_it() {
    let fixture = Fixture::new(On::Postgres).await;
    let first = leader(&fixture, (100, 0), "first").await;
    first.claim_leases().await.unwrap();
    // The transaction waits for a row, as if its process was suspended.
    let (send, receive) = mpsc::channel();
    let (started, starts) = tokio::sync::oneshot::channel();
    let mut started = Some(started);
    let waiting = rows(vec![chart("a", &["1.0.0"])]).inspect(move |_| {
        if let Some(started) = started.take() {
            started.send(()).unwrap();
            // Blocks no other task; the time limit ends a test that fails.
            tokio::task::block_in_place(|| receive.recv_timeout(Duration::from_secs(30)).unwrap());
        }
    });
    let writer = first.clone();
    let commit = tokio::spawn(async move { writer.commit(SyncCommit::new(record(), None, "one"), waiting).await });
    starts.await.unwrap();

    let second = leader(&fixture, (100, 1), "second").await;
    timeout(Duration::from_secs(5), second.claim_leases())
        .await
        .unwrap()
        .unwrap();
    send.send(()).unwrap();
    let error = commit.await.unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Fenced { .. }), "{error}");
    assert_eq!(fixture.charts().await, []);
    let commit = SyncCommit::new(record(), None, "two");
    second.commit(commit, rows(vec![chart("b", &["1.0.0"])])).await.unwrap();
    assert_eq!(fixture.chart_names().await, ["b"]);
}

#[tokio::test]
async fn a_leader_claims_a_new_database_file_by_its_next_write() {
    let fixture = Fixture::new(On::Sqlite).await;
    let first = leader(&fixture, (100, 3), "first").await;
    write(&first).await.unwrap();
    std::fs::remove_file(fixture.settings.database.sqlite_path().unwrap()).unwrap();
    assert!(first.follow_file("here").await.unwrap());
    write(&first).await.unwrap();
    let second = leader(&fixture, (100, 2), "an earlier leader").await;
    assert!(matches!(write(&second).await, Err(error) if matches!(error.kind(), ErrorKind::Fenced { .. })));
    assert!(timeout(Duration::ZERO, first.fenced()).await.is_err());
}

#[rstest]
#[tokio::test]
async fn a_leader_claims_tables_that_were_dropped(#[values(On::Sqlite, On::Postgres)] on: On) {
    let fixture = Fixture::new(on).await;
    let first = leader(&fixture, (100, 3), "first").await;
    write(&first).await.unwrap();
    fixture.tables.execute("DROP TABLE portolan_fences").await;
    assert!(matches!(write(&first).await, Err(error) if matches!(error.kind(), ErrorKind::TablesRebuilt)));
    write(&first).await.unwrap();
    assert_eq!(fixture.tables.count("portolan_fences").await, 1);
}

/// A leader that was suspended between the check of the fences and its commit.
#[tokio::test]
async fn a_new_leader_names_the_transactions_of_the_former_one_that_it_waits_for() {
    let fixture = Fixture::new(On::Postgres).await;
    let first = leader(&fixture, (100, 3), "first").await;
    write(&first).await.unwrap();
    let mut suspended = PgConnection::connect(&fixture.url).await.unwrap();
    suspended
        .execute("BEGIN; SELECT holder FROM portolan_fences FOR SHARE")
        .await
        .unwrap();
    let second = leader(&fixture, (100, 4), "second").await;
    let error = second.claim_leases().await.unwrap_err();
    assert_eq!(error.fault(), Some(Fault::Locked), "{error}");
    assert!(second.probe(Fault::Locked).await.is_err(), "a lock on rows");
    let blockers = second.blockers().await.unwrap();
    assert_eq!((blockers.former_holder.as_str(), blockers.sessions.len()), ("first", 1));
    let session = blockers.sessions[0].to_string();
    assert!(
        session.contains("from 127.0.0.1 (idle in transaction, for "),
        "{session}"
    );
    suspended.execute("ROLLBACK").await.unwrap();
    second.claim_leases().await.unwrap();
    assert_eq!(second.blockers().await.unwrap().sessions, []);
}
