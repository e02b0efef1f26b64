//! Connections: created and refused databases, and TLS.

use std::time::Duration;

use portolan::catalog::Fence;
use portolan::catalog::{Catalog, CatalogSettings, Database, ErrorKind, Login, Password, SyncCommit, lock::SqliteLock};
use sqlx::{Connection, PgConnection};

use super::{Fixture, On, chart, record, rows, settings};
use crate::support::postgres::{self, PostgresServer};

#[tokio::test]
async fn a_sqlite_file_is_created_with_a_write_ahead_log() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(&format!("sqlite://{}", directory.path().join("new.db").display()));
    let error = Catalog::open_read_only(&settings).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoDatabase { .. }), "{error}");
    assert!(error.to_string().contains("portolan run"), "{error}");
    assert!(!directory.path().join("new.db").exists());

    let catalog = Catalog::open(&settings).await.unwrap();
    catalog
        .commit(SyncCommit::new(record(), None, "x"), rows(vec![chart("a", &["1.0.0"])]))
        .await
        .unwrap();
    assert!(
        directory.path().join("new.db-wal").exists(),
        "readers do not wait for writers only with a write-ahead log"
    );
    catalog.close().await;
    assert!(
        !directory.path().join("new.db-wal").exists(),
        "a closed database is one file"
    );
    let reader = Catalog::open_read_only(&settings).await.unwrap();
    assert_eq!(reader.repositories().await.unwrap().len(), 1);
}

#[tokio::test]
async fn sqlite_row_ids_are_never_reused() {
    let fixture = Fixture::new(On::Sqlite).await;
    let first = fixture.sync(vec![chart("a", &["1.0.0"])]).await.repos_id;
    fixture.catalog.remove(&super::repository(), Fence::None).await.unwrap();
    let second = fixture.sync(vec![chart("a", &["1.0.0"])]).await.repos_id;
    assert!(second > first);
}

#[tokio::test]
async fn a_file_that_is_not_a_sqlite_database_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("text.db");
    std::fs::write(
        &file,
        "this is not a database, but long enough to be opened as one".repeat(20),
    )
    .unwrap();
    let error = Catalog::open(&settings(&format!("sqlite://{}", file.display())))
        .await
        .unwrap_err();
    assert!(!error.is_transient());
    assert!(error.to_string().contains("not a SQLite database"), "{error}");
    let error = Catalog::open(&settings("sqlite:///nowhere/at/all.db"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("--database-url"), "{error}");
}

#[tokio::test]
async fn a_locked_sqlite_database_can_be_read() {
    let fixture = Fixture::new(On::Sqlite).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let _held = SqliteLock::acquire(fixture.settings.database.sqlite_path().unwrap()).unwrap();
    let reader = Catalog::open_read_only(&fixture.settings).await.unwrap();
    assert_eq!(reader.repositories().await.unwrap().len(), 1, "reading needs no lock");
}

#[tokio::test]
async fn an_unreachable_postgres_is_a_transient_error() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let login = Login {
        user: Some("portolan".into()),
        database: Some("assets".into()),
        password: Some(Password::new("hunter2")),
    };
    let settings = CatalogSettings::new(Database::parse(&closed.to_string(), &login).unwrap());
    let error = Catalog::open(&settings).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(error.to_string().contains("check that the database is up"), "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_missing_database_is_an_error_with_its_name() {
    let database = postgres::database().await;
    let url = database.url.rsplit_once('/').unwrap().0.to_owned() + "/missing";
    let error = Catalog::open(&settings(&url)).await.unwrap_err();
    assert!(
        error.to_string().contains("missing") && error.to_string().contains("create the database"),
        "{error}"
    );
}

#[tokio::test]
async fn a_connection_that_broke_while_it_was_idle_is_replaced_before_its_use() {
    // The pool measures idleness by the clock of the system.
    const IDLE: Duration = Duration::from_millis(10_200);
    let database = postgres::database().await;
    let (gate, url) = database.behind_gate().await;
    let mut settings = settings(&url);
    settings.postgres_connections = 1;
    let catalog = Catalog::open(&settings).await.unwrap();
    catalog.ping().await.unwrap();
    tokio::time::sleep(IDLE).await;
    gate.disconnect();
    catalog.ping().await.unwrap();
}

#[tokio::test]
async fn the_address_form_of_kubeapps_works() {
    let database = postgres::database().await;
    let url = url::Url::parse(&database.url).unwrap();
    let login = Login {
        user: Some(url.username().into()),
        database: Some(url.path().trim_start_matches('/').into()),
        password: url.password().map(Password::new),
    };
    let address = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
    let mut settings = CatalogSettings::new(Database::parse(&address, &login).unwrap());
    settings.postgres_connections = 1;
    let catalog = Catalog::open(&settings).await.unwrap();
    // One connection serves all calls in turn.
    let pings = futures::future::join_all((0..8).map(|_| catalog.ping())).await;
    assert!(pings.iter().all(Result::is_ok));
}

#[tokio::test]
async fn postgres_connections_use_tls_and_verify_the_certificate() {
    let server = PostgresServer::start().await;
    let database = server.database().await;
    let at = |parameters: &str| {
        settings(&format!(
            "{}?{parameters}",
            database.url.replace("127.0.0.1", "localhost")
        ))
    };
    let verified = format!("sslrootcert={}&sslmode", server.ca_file.display());
    for mode in [
        "sslmode=require",
        &format!("{verified}=verify-ca"),
        &format!("{verified}=verify-full"),
    ] {
        let catalog = Catalog::open(&at(mode)).await.unwrap();
        catalog.ping().await.unwrap();
        let mut admin = PgConnection::connect(&database.url).await.unwrap();
        let encrypted: Vec<bool> = sqlx::query_scalar(
            "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
             WHERE application_name = 'portolan' AND datname = current_database() AND state IS NOT NULL",
        )
        .fetch_all(&mut admin)
        .await
        .unwrap();
        assert!(!encrypted.is_empty() && encrypted.iter().all(|ssl| *ssl), "{mode}");
        catalog.close().await;
    }
    let error = Catalog::open(&at("sslmode=verify-full")).await.unwrap_err();
    assert!(
        error.to_string().contains("sslrootcert"),
        "unknown certificate authority: {error}"
    );
    for mode in ["sslmode=prefer", "sslmode=disable"] {
        Catalog::open(&at(mode)).await.unwrap().ping().await.unwrap();
    }
}
