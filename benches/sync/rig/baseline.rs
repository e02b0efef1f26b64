//! Baselines: minimal work on the same bytes, and full parses of them. Each runs in a separate process.

use std::ffi::OsStr;
use std::hint::black_box;
use std::io::Read;
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use flate2::read::GzDecoder;
use granit_parser::{BufferedInput, Parser};
use portolan::budget::ResourceMetrics;
use portolan::server::{Server, ServerLimits};
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};
use sqlx::{Connection, SqliteConnection};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::Sample;
use super::measure::{PEAK, cpu, memory};

/// Starts this program as a baseline process; its name and arguments follow.
pub const ARGUMENT: &str = "--baseline";
/// The name in the table of a download with SHA-256.
pub const RECEIVING: &str = "receiving";
/// Requests of one URL over which a measurement is averaged.
const REQUESTS: usize = 4;

/// Measures a baseline:
///
/// - `receive`: download and SHA-256 of all these URLs over a connection that is open
/// - `parse`: `serde_yaml` on a file in memory, into the `Value` of `serde_json`, the cheaper of the two usual trees
/// - `write`: the same parse, and one transaction that writes all chart rows of a SQLite database
/// - `events`: all events of granit-parser on a file in memory
/// - `unpack`: reading, SHA-256 and unpacking of all archives of a directory, one after the other
pub async fn measure<S: AsRef<OsStr>>(name: &str, arguments: &[S]) -> Sample {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program is available"));
    command.args([ARGUMENT, name]).args(arguments);
    let output = command.output().await.expect("the baseline starts");
    assert!(output.status.success(), "the baseline {name} succeeds");
    let output = String::from_utf8_lossy(&output.stdout);
    let mut numbers = output.split_whitespace();
    let mut next = || numbers.next().and_then(|number| number.parse().ok()).expect("numbers");
    Sample {
        cpu: next(),
        wall: next(),
        peak: next() as u64,
        ..Sample::default()
    }
}

/// Starts a server with the listener of the catalog, whose only response has this size. It ends on drop.
pub fn static_server(address: &str, bytes: usize) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program is available"));
    command
        .args([ARGUMENT, "static", address, &bytes.to_string()])
        .kill_on_drop(true);
    command.spawn().expect("the server starts")
}

async fn serve_static(address: &str, bytes: usize) {
    let body = Bytes::from(vec![b'x'; bytes]);
    let routes = Router::new().fallback(move || std::future::ready(body.clone()));
    let (address, limits) = (address.parse().expect("an address"), ServerLimits::for_catalog(256));
    let server = Server::bind(&address, routes, limits, ResourceMetrics::unregistered()).await;
    server.expect("the address is free").run(CancellationToken::new()).await;
}

/// Runs a baseline. Prints its CPU and wall time in seconds, and peak memory in bytes.
pub fn child(words: &[&str]) {
    // Like Portolan's own.
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    let read = |file: &str| std::fs::read_to_string(file).expect("the file can be read");
    match words {
        ["receive", urls @ ..] => {
            let client = client();
            // Opens the connection and takes the memory that a body needs.
            runtime.block_on(receive(&client, urls[0]));
            let times = if urls.len() == 1 { REQUESTS } else { 1 };
            measured(times, || {
                for url in urls {
                    runtime.block_on(receive(&client, url));
                }
            });
        }
        ["unpack", directory] => measured(1, || unpack_all(directory)),
        ["parse", file] => {
            let text = read(file);
            measured(1, || tree(&text));
        }
        ["events", file] => {
            let text = read(file);
            measured(1, || count_events(&text));
        }
        ["write", file, database] => {
            let text = read(file);
            let (mut connection, rows) = runtime.block_on(chart_rows(database));
            measured(1, || (tree(&text), runtime.block_on(write(&mut connection, &rows))));
        }
        ["static", address, bytes] => {
            let bytes = bytes.parse().expect("a number");
            runtime.block_on(serve_static(address, bytes));
        }
        _ => panic!("an unknown baseline: {words:?}"),
    }
}

fn measured<T>(times: usize, mut work: impl FnMut() -> T) {
    let own = std::process::id();
    let (started, before) = (Instant::now(), cpu(own).expect("this process runs"));
    for _ in 0..times {
        black_box(work());
    }
    let used = cpu(own).expect("this process runs") - before;
    let (wall, times) = (started.elapsed().as_secs_f64(), times as f64);
    println!("{} {} {}", used / times, wall / times, memory(own, PEAK));
}

fn tree(text: &str) -> serde_json::Value {
    serde_yaml::from_str(text).expect("valid YAML")
}

/// Reads one character after the other, as the decoder does.
fn count_events(text: &str) -> usize {
    let options = granit_parser::options! {
        emit_comments: false,
        emit_anchor_events: true,
    };
    let mut parser = Parser::with_options(BufferedInput::new(text.chars()), options);
    let mut count = 0;
    while let Some(event) = parser.next_event() {
        black_box(event.expect("valid YAML"));
        count += 1;
    }
    count
}

fn unpack_all(directory: &str) {
    for archive in std::fs::read_dir(directory).expect("the directory can be read") {
        let path = archive.expect("the directory can be read").path();
        let archive = std::fs::read(path).expect("the archive can be read");
        black_box(Sha256::digest(&archive));
        let mut archive = tar::Archive::new(GzDecoder::new(archive.as_slice()));
        for entry in archive.entries().expect("a tar archive") {
            let mut file = Vec::new();
            let read = entry.and_then(|mut entry| entry.read_to_end(&mut file));
            read.expect("the archive can be unpacked");
            black_box(file);
        }
    }
}

fn client() -> reqwest::Client {
    portolan::http::install_crypto_provider();
    // A registry answers with an OCI manifest only if that is accepted.
    let accepted = HeaderValue::from_static("application/vnd.oci.image.manifest.v1+json, */*");
    let headers = HeaderMap::from_iter([(ACCEPT, accepted)]);
    let builder = reqwest::Client::builder().no_proxy().default_headers(headers);
    builder.build().expect("a client")
}

async fn receive(client: &reqwest::Client, url: &str) {
    let response = client.get(url).send().await.expect("the server answers");
    let mut response = response.error_for_status().expect("the server has the page");
    let mut hash = Sha256::new();
    while let Some(chunk) = response.chunk().await.expect("the body is complete") {
        hash.update(&chunk);
    }
    black_box(hash.finalize());
}

async fn chart_rows(database: &str) -> (SqliteConnection, Vec<(i64, String)>) {
    let connection = SqliteConnection::connect(&format!("sqlite://{database}")).await;
    let mut connection = connection.expect("the database can be opened");
    // The trigger would count the writes.
    let dropped = sqlx::raw_sql("DROP TRIGGER IF EXISTS bench_update").execute(&mut connection);
    dropped.await.expect("the trigger is dropped");
    let rows = sqlx::query_as("SELECT id, info FROM charts").fetch_all(&mut connection);
    let rows = rows.await.expect("the database has charts");
    (connection, rows)
}

async fn write(connection: &mut SqliteConnection, rows: &[(i64, String)]) {
    let mut transaction = connection.begin().await.expect("a transaction");
    for (id, info) in rows {
        let update = sqlx::query("UPDATE charts SET info = $1 WHERE id = $2");
        let updated = update.bind(info).bind(id).execute(&mut *transaction).await;
        updated.expect("a row is written");
    }
    transaction.commit().await.expect("the transaction is committed");
}
