//! Getting to the database: what is made, what is refused, and TLS.

use portolan::catalog::{Catalog, Database, Error, Login, Password, Settings, SyncCommit, lock::SqliteLock};
use sqlx::{Connection, PgConnection};

use super::{Fixture, On, chart, record, rows, settings};
use crate::support::postgres::{self, PostgresServer};

#[tokio::test]
async fn a_sqlite_file_is_made_and_kept_as_said() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(&format!("sqlite://{}", folder.path().join("new.db").display()));
    let error = Catalog::open_read_only(&settings).await.unwrap_err();
    assert!(matches!(error, Error::NoDatabase { .. }), "{error}");
    assert!(error.to_string().contains("portolan run"), "{error}");
    assert!(!folder.path().join("new.db").exists());

    let catalog = Catalog::open(&settings).await.unwrap();
    catalog
        .commit(SyncCommit::new(record(), None, "x"), rows(vec![chart("a", &["1.0.0"])]))
        .await
        .unwrap();
    assert!(
        folder.path().join("new.db-wal").exists(),
        "readers don't wait for writers only with a write-ahead log"
    );
    catalog.close().await;
    assert!(
        !folder.path().join("new.db-wal").exists(),
        "a closed database is one file"
    );
    let reader = Catalog::open_read_only(&settings).await.unwrap();
    assert_eq!(reader.repositories().await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_id_of_a_sqlite_row_is_never_given_twice() {
    let fixture = Fixture::new(On::Sqlite).await;
    let first = fixture.sync(vec![chart("a", &["1.0.0"])]).await.repos_id;
    fixture.catalog.remove(&super::repository(), None).await.unwrap();
    let second = fixture.sync(vec![chart("a", &["1.0.0"])]).await.repos_id;
    assert!(second > first);
}

#[tokio::test]
async fn what_is_no_sqlite_database_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text.db");
    std::fs::write(
        &file,
        "this is no database, but a text that is long enough to be looked at as one".repeat(20),
    )
    .unwrap();
    let error = Catalog::open(&settings(&format!("sqlite://{}", file.display())))
        .await
        .unwrap_err();
    assert!(!error.is_transient());
    assert!(error.to_string().contains("no SQLite database"), "{error}");
    let error = Catalog::open(&settings("sqlite:///nowhere/at/all.db"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("--database-url"), "{error}");
}

#[tokio::test]
async fn a_sqlite_database_is_read_while_its_lock_is_held() {
    let fixture = Fixture::new(On::Sqlite).await;
    fixture.sync(vec![chart("a", &["1.0.0"])]).await;
    let _held = SqliteLock::acquire(fixture.settings.database.sqlite_path().unwrap()).unwrap();
    let reader = Catalog::open_read_only(&fixture.settings).await.unwrap();
    assert_eq!(reader.repositories().await.unwrap().len(), 1, "reading needs no lock");
}

#[tokio::test]
async fn a_postgres_that_is_away_is_transient_and_told_at_once() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let login = Login {
        user: Some("portolan".into()),
        database: Some("assets".into()),
        password: Some(Password::new("hunter2")),
    };
    let settings = Settings::new(Database::parse(&nobody.to_string(), &login).unwrap());
    let error = Catalog::open(&settings).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(error.to_string().contains("check that the database is up"), "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named() {
    let database = postgres::database().await;
    let url = database.url.rsplit_once('/').unwrap().0.to_owned() + "/missing";
    let error = Catalog::open(&settings(&url)).await.unwrap_err();
    assert!(
        error.to_string().contains("missing") && error.to_string().contains("create the database"),
        "{error}"
    );
}

#[tokio::test]
async fn kubeapps_form_of_the_address_works() {
    let database = postgres::database().await;
    let url = url::Url::parse(&database.url).unwrap();
    let login = Login {
        user: Some(url.username().into()),
        database: Some(url.path().trim_start_matches('/').into()),
        password: url.password().map(Password::new),
    };
    let address = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap());
    let mut settings = Settings::new(Database::parse(&address, &login).unwrap());
    settings.postgres_connections = 1;
    let catalog = Catalog::open(&settings).await.unwrap();
    // One connection is enough for everything, one after the other.
    let pings = futures::future::join_all((0..8).map(|_| catalog.ping())).await;
    assert!(pings.iter().all(Result::is_ok));
}

#[tokio::test]
async fn postgres_is_spoken_to_over_tls_and_its_certificate_verified() {
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
        "an authority that nobody knows: {error}"
    );
    for mode in ["sslmode=prefer", "sslmode=disable"] {
        Catalog::open(&at(mode)).await.unwrap().ping().await.unwrap();
    }
}
