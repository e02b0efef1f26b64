//! Postgres that locks, does not respond, is read-only, or changes its password.

use std::time::{Duration, Instant};

use portolan::catalog::{Catalog, ErrorKind, Fault, Password, Pooler, SyncCommit};
use rstest::rstest;
use sqlx::{Connection, Executor, PgConnection};

use super::{Fixture, On, chart, record, rows, settings};
use crate::cluster::SOON;
use crate::support::eventually::eventually;
use portolan::api::NamespacedName;
use portolan::catalog::Record;

const WAITING: &str = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE NOT granted AND application_name = 'portolan' AND datname = current_database()";

/// A session of another program that has locked the charts.
pub async fn lock_charts(fixture: &Fixture) -> PgConnection {
    let mut other = PgConnection::connect(&fixture.url).await.unwrap();
    other.execute("BEGIN").await.unwrap();
    other
        .execute("LOCK TABLE charts IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    other
}

pub async fn until_waiting(fixture: &Fixture, count: i64) {
    eventually(SOON, "the number of waiting sessions", async || {
        match fixture.tables.number(WAITING).await {
            waiting if waiting == count => Ok(()),
            waiting => Err(format!("{waiting} sessions wait")),
        }
    })
    .await;
}

#[rstest]
#[tokio::test]
async fn a_foreign_lock_fails_a_commit_and_leaves_no_session_waiting(
    #[values(Pooler::Session, Pooler::Transaction)] pooler: Pooler,
) {
    let mut fixture = Fixture::new(On::Postgres).await;
    fixture.settings.pooler = pooler;
    fixture.catalog = Catalog::open(&fixture.settings).await.unwrap();
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let commit = |checksum: &str, chart_name: &str| {
        let commit = SyncCommit::new(record(), Some("uid-1".into()), checksum);
        fixture
            .catalog
            .commit(commit, rows(vec![chart(chart_name, &["1.0.0"])]))
    };
    let mut other = lock_charts(&fixture).await;
    let started = Instant::now();
    let error = commit("new", "b").await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    assert!(error.is_transient() && error.is_conflict(), "{error}");
    assert_eq!(error.reason(), "DatabaseBusy");
    until_waiting(&fixture, 0).await;
    other.execute("ROLLBACK").await.unwrap();
    commit("new", "b").await.unwrap();
    assert_eq!(fixture.chart_names().await, ["b"]);
}

#[tokio::test]
async fn the_end_of_a_lock_is_told_by_a_probe_that_does_not_wait() {
    let fixture = Fixture::new(On::Postgres).await;
    fixture.catalog.probe(Fault::Locked).await.unwrap();
    let mut other = lock_charts(&fixture).await;
    let started = Instant::now();
    let error = fixture.catalog.probe(Fault::Locked).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(error.fault(), Some(Fault::Locked), "{error}");
    other.execute("ROLLBACK").await.unwrap();
    fixture.catalog.probe(Fault::Locked).await.unwrap();
    fixture.catalog.probe(Fault::Unwritable).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_an_outage_is_told_by_a_ping_on_a_new_connection() {
    let fixture = Fixture::new(On::Postgres).await;
    let (gate, url) = fixture.database.as_ref().unwrap().behind_gate().await;
    let catalog = Catalog::open(&settings(&url)).await.unwrap();
    gate.close().await;
    let error = catalog.probe(Fault::Unreachable).await.unwrap_err();
    assert_eq!(error.fault(), Some(Fault::Unreachable), "{error}");
    gate.open().await;
    catalog.probe(Fault::Unreachable).await.unwrap();
    gate.stall();
    let error = catalog.probe(Fault::Unreachable).await.unwrap_err();
    assert_eq!(error.fault(), Some(Fault::Unreachable), "{error}");
    // The connections that were open stay silent.
    gate.resume();
    catalog.probe(Fault::Unreachable).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_beyond_the_connections_that_the_server_grants_wait_for_one() {
    const LIMIT: i64 = 2;
    let fixture = Fixture::new(On::Postgres).await;
    let url = fixture.database.as_ref().unwrap().with_limit(LIMIT).await;
    let catalog = Catalog::open(&settings(&url)).await.unwrap();
    let commits = (0..12).map(|number| {
        let name = NamespacedName::new(format!("n{number}"), "stable");
        let commit = SyncCommit::new(Record::new(name, "uid"), None, "x");
        catalog.commit(commit, rows(vec![]))
    });
    for committed in futures::future::join_all(commits).await {
        committed.unwrap();
    }
    let used = "SELECT count(*) FROM pg_stat_activity WHERE usename LIKE 'limited_%' AND datname = current_database()";
    assert!((1..=LIMIT).contains(&fixture.tables.number(used).await));
    catalog.close().await;
}

/// Behind a pooler the session belongs to other clients too.
#[tokio::test]
async fn nothing_is_set_in_a_session_behind_a_pooler() {
    let mut fixture = Fixture::new(On::Postgres).await;
    fixture
        .tables
        .execute(
            "CREATE TABLE seen (timeout text);
             CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 INSERT INTO seen VALUES (current_setting('lock_timeout')); RETURN NULL;
             END $$;
             CREATE TRIGGER see AFTER INSERT ON charts EXECUTE FUNCTION see()",
        )
        .await;
    fixture.settings.pooler = Pooler::Transaction;
    fixture.settings.postgres_connections = 1;
    fixture.catalog = Catalog::open(&fixture.settings).await.unwrap();
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    assert_eq!(fixture.tables.texts("SELECT timeout FROM seen").await, ["5s"]);
    let set = "SELECT query FROM pg_stat_activity WHERE application_name = 'portolan' AND query LIKE 'SET %'
        AND datname = current_database()";
    assert!(fixture.tables.texts(set).await.is_empty());
}

#[tokio::test]
async fn a_canceled_call_does_not_return_its_connection_to_the_pool() {
    let mut fixture = Fixture::new(On::Postgres).await;
    fixture.sync(vec![]).await;
    let mut one_connection = settings(&fixture.url);
    one_connection.postgres_connections = 1;
    fixture.catalog = Catalog::open(&one_connection).await.unwrap();
    fixture.catalog.ping().await.unwrap();
    let mut other = lock_charts(&fixture).await;
    let mut commit = Box::pin(fixture.try_sync("new", vec![chart("a", &["1.0.0"])]));
    tokio::select! {
        _ = &mut commit => panic!("the charts are locked"),
        () = until_waiting(&fixture, 1) => {}
    }
    drop(commit);
    // The driver takes five seconds at most to close a connection whose server does not respond.
    let deadline = Duration::from_secs(12);
    eventually(deadline, "another connection", async || fixture.catalog.ping().await).await;
    until_waiting(&fixture, 0).await;
    other.execute("ROLLBACK").await.unwrap();
    assert_eq!(fixture.tables.count("charts").await, 0);
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
}

#[tokio::test]
async fn a_server_that_does_not_respond_is_a_transient_error_and_then_replaced() {
    let mut fixture = Fixture::new(On::Postgres).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let (gate, url) = fixture.database.as_ref().unwrap().behind_gate().await;
    fixture.catalog = Catalog::open(&settings(&url)).await.unwrap();
    fixture.catalog.ping().await.unwrap();
    gate.close().await;
    let error = fixture.catalog.ping().await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    gate.open().await;
    eventually(SOON, "the database to respond", async || fixture.catalog.ping().await).await;
    assert_eq!(fixture.sync(vec![chart("a", &["1.0.0"])]).await.unchanged, 1);
}

/// As after a fail-over: existing connections stay read-only, and new ones are not.
#[tokio::test]
async fn a_database_that_was_read_only_is_written_again_within_15_seconds() {
    let fixture = Fixture::new(On::Postgres).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let name = fixture.database.as_ref().unwrap().name.clone();
    let read_only = async |value: &str| {
        let set = format!("ALTER DATABASE {name} SET default_transaction_read_only = {value}");
        let set = format!("BEGIN READ WRITE; {set}; COMMIT");
        fixture.tables.execute(&set).await;
    };
    read_only("on").await;
    // Connections that were opened before are not affected.
    fixture
        .tables
        .execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND application_name = 'portolan'",
        )
        .await;
    let write = async |checksum: &str| fixture.try_sync(checksum, vec![chart("b", &["1.0.0"])]).await;
    let deadline = Duration::from_secs(60);
    eventually(deadline, "the error to name the setting", async || {
        match write("b").await {
            Err(error) if *error.kind() == ErrorKind::ReadOnlyServer => Ok(error.to_string()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    read_only("off").await;
    let recovery = Duration::from_secs(15);
    eventually(recovery, "a write to succeed", async || write("b").await).await;
    assert_eq!(fixture.chart_names().await, ["b"]);
}

#[tokio::test]
async fn a_new_password_is_used_by_new_connections() {
    let fixture = Fixture::new(On::Postgres).await;
    let role = format!("role_{}", fixture.database.as_ref().unwrap().name);
    let password = async |password: &str| {
        fixture
            .tables
            .execute(&format!("ALTER ROLE {role} PASSWORD '{password}'"))
            .await;
    };
    fixture
        .tables
        .execute(&format!("CREATE ROLE {role} LOGIN SUPERUSER PASSWORD 'first'"))
        .await;
    let mut url = url::Url::parse(&fixture.url).unwrap();
    url.set_username(&role).unwrap();
    url.set_password(Some("first")).unwrap();
    let catalog = Catalog::open(&settings(url.as_str())).await.unwrap();
    let mut refused = catalog.refused_logins();
    password("second").await;
    let terminate = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'");
    fixture.tables.execute(&terminate).await;
    eventually(SOON, "the login to be refused", async || {
        let _ = catalog.ping().await;
        refused.has_changed().unwrap().then_some(())
    })
    .await;
    refused.mark_unchanged();
    catalog.set_password(&Password::new("second"));
    eventually(SOON, "the new password to be used", async || catalog.ping().await).await;
    assert!(!refused.has_changed().unwrap());
}
