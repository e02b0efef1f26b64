//! Baselines: minimal work on the same bytes, and full parses of them. Each runs in a separate process.

use std::io::{BufRead, Read};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use flate2::read::GzDecoder;
use granit_parser::{BufferedInput, Parser};
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};
use sqlx::{Connection, SqliteConnection};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::rig::measure::{Sample, cpu, peak_memory};

/// Starts this program as a baseline process; its name and files follow.
pub const ARGUMENT: &str = "--baseline";

/// Names of the baselines in the table.
pub const RECEIVING: &str = "receiving";
pub const PARSE: &str = "parse";
pub const EVENTS: &str = "events";
pub const UNPACKING: &str = "unpacking";

/// Requests of one URL over which a measurement is averaged.
const REQUESTS: u32 = 4;

/// A process that downloads bodies and hashes them, over connections that stay open.
pub struct Receiver {
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Receiver {
    /// Starts the process, which ends when this value is dropped.
    pub fn start() -> Self {
        let mut child = command("receive")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the baseline starts");
        Self {
            stdin: child.stdin.take().expect("stdin is piped"),
            stdout: BufReader::new(child.stdout.take().expect("stdout is piped")).lines(),
            _child: child,
        }
    }

    /// Measures the download and SHA-256 of all these URLs.
    pub async fn receive(&mut self, urls: &[String]) -> Sample {
        let line = format!("{}\n", urls.join(" "));
        self.stdin
            .write_all(line.as_bytes())
            .await
            .expect("the process reads stdin");
        let answer = self.stdout.next_line().await.expect("the process writes a line");
        sample(&answer.expect("the process writes a line"))
    }
}

/// Measures `serde_yaml` on a file in memory, into the `Value` of `serde_json`, the cheaper of the two usual trees.
pub async fn parse(file: &Path) -> Sample {
    once("parse", &[file]).await
}

/// Measures the same parse, and one transaction that writes all chart rows of a SQLite database.
pub async fn parse_and_write(file: &Path, database: &Path) -> Sample {
    once("write", &[file, database]).await
}

/// Measures all events of granit-parser on a file in memory.
pub async fn events(file: &Path) -> Sample {
    once("events", &[file]).await
}

/// Measures reading, SHA-256 and unpacking of all archives of a directory, one after the other.
pub async fn unpack(directory: &Path) -> Sample {
    once("unpack", &[directory]).await
}

async fn once(name: &str, files: &[&Path]) -> Sample {
    let output = command(name).args(files).output().await.expect("the baseline starts");
    assert!(output.status.success(), "the baseline {name} succeeds");
    sample(&String::from_utf8_lossy(&output.stdout))
}

fn command(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program is available"));
    command.args([ARGUMENT, name]);
    command
}

fn sample(text: &str) -> Sample {
    let mut numbers = text.split_whitespace();
    let mut next = || numbers.next().and_then(|number| number.parse().ok()).expect("numbers");
    Sample {
        cpu: next(),
        wall: next(),
        peak: next() as u64,
        ..Sample::default()
    }
}

/// Runs a baseline. Prints its CPU and wall time in seconds, and peak memory in bytes.
pub fn child(arguments: &[String]) {
    // Like Portolan's own.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime starts");
    let [name, files @ ..] = arguments else {
        panic!("the name of a baseline is missing");
    };
    match name.as_str() {
        "receive" => runtime.block_on(receive_all()),
        "unpack" => measured(1, || unpack_all(&files[0])),
        _ => {
            let text = std::fs::read_to_string(&files[0]).expect("the file can be read");
            match name.as_str() {
                "parse" => measured(1, || tree(&text)),
                "events" => measured(1, || count_events(&text)),
                _ => {
                    let (mut connection, rows) = runtime.block_on(chart_rows(&files[1]));
                    measured(1, || (tree(&text), runtime.block_on(write(&mut connection, &rows))));
                }
            }
        }
    }
}

fn measured<T>(times: u32, mut work: impl FnMut() -> T) {
    let own = std::process::id();
    let (started, before) = (Instant::now(), cpu(own).expect("this process runs"));
    for _ in 0..times {
        std::hint::black_box(work());
    }
    let (used, wall) = (cpu(own).expect("this process runs") - before, started.elapsed());
    let of_one = |time: std::time::Duration| time.as_secs_f64() / f64::from(times);
    println!("{} {} {}", of_one(used), of_one(wall), peak_memory(own));
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
        std::hint::black_box(event.expect("valid YAML"));
        count += 1;
    }
    count
}

fn unpack_all(directory: &str) {
    for archive in std::fs::read_dir(directory).expect("the directory can be read") {
        let path = archive.expect("the directory can be read").path();
        let archive = std::fs::read(path).expect("the archive can be read");
        std::hint::black_box(Sha256::digest(&archive));
        let mut archive = tar::Archive::new(GzDecoder::new(archive.as_slice()));
        for entry in archive.entries().expect("a tar archive") {
            let mut file = Vec::new();
            let read = entry.and_then(|mut entry| entry.read_to_end(&mut file));
            read.expect("the archive can be unpacked");
            std::hint::black_box(file);
        }
    }
}

/// Downloads the URLs of each line of stdin.
async fn receive_all() {
    portolan::http::install_crypto_provider();
    // A registry answers with an OCI manifest only if that is accepted.
    let accepted = HeaderValue::from_static("application/vnd.oci.image.manifest.v1+json, */*");
    let client = reqwest::Client::builder()
        .no_proxy()
        .default_headers(HeaderMap::from_iter([(ACCEPT, accepted)]))
        .build()
        .expect("a client");
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("stdin is UTF-8");
        let urls: Vec<&str> = line.split(' ').collect();
        // Opens the connection and takes the memory that a body needs.
        receive(&client, urls[0]).await;
        let times = if urls.len() == 1 { REQUESTS } else { 1 };
        measured(times, || {
            let all = async {
                for url in &urls {
                    receive(&client, url).await;
                }
            };
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(all));
        });
    }
}

async fn receive(client: &reqwest::Client, url: &str) {
    let response = client.get(url).send().await.expect("the server answers");
    let mut response = response.error_for_status().expect("the server has the page");
    let mut hash = Sha256::new();
    while let Some(chunk) = response.chunk().await.expect("the body is complete") {
        hash.update(&chunk);
    }
    std::hint::black_box(hash.finalize());
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
        let update = sqlx::query("UPDATE charts SET info = $1 WHERE id = $2")
            .bind(info)
            .bind(id);
        update.execute(&mut *transaction).await.expect("a row is written");
    }
    transaction.commit().await.expect("the transaction is committed");
}
