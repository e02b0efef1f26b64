use std::net::Ipv4Addr;
use std::process::Command;
use std::str::FromStr;

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{Connection, Executor, PgConnection, Row};

use crate::support::gate::Gate;
use crate::support::postgres::{PASSWORD, PostgresServer, USER, database};

#[tokio::test]
async fn each_test_has_its_own_database() {
    let (one, other) = (database().await, database().await);
    assert_ne!(one.name, other.name);
    let mut connection = PgConnection::connect(&one.url).await.unwrap();
    connection.execute("create table chart (id integer)").await.unwrap();
    let mut connection = PgConnection::connect(&other.url).await.unwrap();
    let found = connection
        .fetch_one("select to_regclass('chart') is null")
        .await
        .unwrap();
    assert!(found.get::<bool, _>(0), "the other database has no such table");
}

#[tokio::test]
async fn a_wrong_password_is_rejected() {
    let database = database().await;
    let url = database.url.replace(PASSWORD, "wrong");
    let error = PgConnection::connect(&url).await.unwrap_err();
    assert!(error.to_string().contains(USER), "{error}");
}

#[tokio::test]
async fn a_dedicated_server_uses_tls_and_keeps_its_data_after_a_restart() {
    portolan::http::install_crypto_provider();
    let server = PostgresServer::start().await;
    let database = server.database().await;
    let plain = PgConnectOptions::from_str(&database.url).unwrap();
    let trusting = plain
        .clone()
        .ssl_mode(PgSslMode::VerifyFull)
        .ssl_root_cert(&server.ca_file);
    let mut connection = PgConnection::connect_with(&trusting).await.unwrap();
    connection.execute("create table chart (id integer)").await.unwrap();

    let distrusting = plain.ssl_mode(PgSslMode::VerifyFull);
    assert!(
        PgConnection::connect_with(&distrusting).await.is_err(),
        "the system does not trust the tests' CA"
    );

    server.stop();
    assert!(connection.execute("select 1").await.is_err());
    assert!(PgConnection::connect(&database.url).await.is_err());

    server.start_again().await;
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    connection.execute("select id from chart").await.unwrap();
}

#[tokio::test]
async fn a_database_behind_a_closed_gate_is_unreachable() {
    let database = database().await;
    let (gate, url) = database.behind_gate().await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    gate.close().await;
    let error = connection
        .execute("select 1")
        .await
        .map(|_| ())
        .expect_err("the gate is closed");
    assert!(matches!(error, sqlx::Error::Io(_)), "{error}");
    let error = PgConnection::connect(&url)
        .await
        .map(|_| ())
        .expect_err("the gate is closed");
    assert!(matches!(error, sqlx::Error::Io(_)), "{error}");
    gate.open().await;
    PgConnection::connect(&url).await.unwrap();
}

/// A program that starts has copies of all open sockets for a moment, also of a listener that is being closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_opens_again_at_once_while_programs_start() {
    let gate = Gate::in_front_of((Ipv4Addr::LOCALHOST, 9).into()).await;
    let starting = tokio::task::spawn_blocking(|| {
        for _ in 0..300 {
            let status = Command::new("true").status().expect("the program can be run");
            assert!(status.success());
        }
    });
    while !starting.is_finished() {
        gate.close().await;
        gate.open().await;
    }
    starting.await.unwrap();
    tokio::net::TcpStream::connect(gate.address()).await.unwrap();
}
