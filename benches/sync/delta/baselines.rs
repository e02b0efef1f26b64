//! What the delta sync is held against: the least that can be done with the bytes, and what others do with them. Each in a
//! process of its own.

use std::io::BufRead;
use std::path::Path;
use std::process::Stdio;

use granit_parser::{BufferedInput, Parser};
use sha2::{Digest, Sha256};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection, SqliteConnection};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::measure::Meter;

/// Asks this program to be the process of one of them; its name and files follow.
pub const ARGUMENT: &str = "--delta-baseline";

/// Bodies over which one measurement goes.
const BODIES: u32 = 4;

/// A process that receives bodies and hashes them, over a connection that stays.
pub struct Receiver {
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Receiver {
    /// It waits for orders, and ends with this value.
    pub fn start() -> Self {
        let mut child = command("receive")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("this program can be run");
        Self {
            orders: child.stdin.take().expect("it is piped"),
            answers: BufReader::new(child.stdout.take().expect("it is piped")).lines(),
            _child: child,
        }
    }

    /// Seconds of CPU that receiving the body of a URL and its SHA-256 take: the mean of a few.
    pub async fn cpu(&mut self, url: &str) -> f64 {
        let order = format!("{url}\n");
        self.orders.write_all(order.as_bytes()).await.expect("it reads orders");
        let answer = self.answers.next_line().await.expect("it answers");
        number(&answer.expect("it answers"))
    }
}

/// Seconds of CPU that `serde_yaml` takes for a tree of a file's bytes, which are in memory: into `serde_json`'s `Value`, the
/// cheaper of the two that are usual.
pub async fn parse(file: &Path) -> f64 {
    once("parse", &[file]).await
}

/// The same, and all rows of a database in SQLite written once more in one transaction.
pub async fn parse_and_rewrite(file: &Path, database: &Path) -> f64 {
    once("rewrite", &[file, database]).await
}

/// Seconds of CPU that granit-parser takes for the events of a file's bytes, which are in memory.
pub async fn events(file: &Path) -> f64 {
    once("events", &[file]).await
}

async fn once(name: &str, files: &[&Path]) -> f64 {
    let output = command(name).args(files).output().await.expect("it can be run");
    assert!(output.status.success(), "the baseline {name} ends well");
    number(&String::from_utf8_lossy(&output.stdout))
}

fn command(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program is a file"));
    command.args([ARGUMENT, name]);
    command
}

fn number(text: &str) -> f64 {
    text.trim().parse().expect("it prints a number")
}

/// Does the work and prints seconds of CPU: of the work alone, not of the start of the process.
pub fn child(arguments: &[String]) {
    // As Portolan's own.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime starts");
    let [name, files @ ..] = arguments else {
        panic!("a baseline is wanted");
    };
    let text = |at: usize| std::fs::read_to_string(&files[at]).expect("the file is there");
    match name.as_str() {
        "receive" => runtime.block_on(receive_all()),
        "parse" => {
            let text = text(0);
            print(|| drop(std::hint::black_box(tree(&text))));
        }
        "events" => {
            let text = text(0);
            print(|| assert!(count_events(&text) > 0, "there are events"));
        }
        "rewrite" => {
            let text = text(0);
            let (mut connection, rows) = runtime.block_on(rows(Path::new(&files[1])));
            print(|| {
                drop(std::hint::black_box(tree(&text)));
                runtime.block_on(rewrite(&mut connection, &rows));
            });
        }
        other => panic!("there is no baseline {other}"),
    }
}

fn print(work: impl FnOnce()) {
    let mut meter = Meter::of(std::process::id());
    let before = meter.read();
    work();
    println!("{}", (meter.read() - before).as_secs_f64());
}

fn tree(text: &str) -> serde_json::Value {
    serde_yaml::from_str(text).expect("it is YAML")
}

/// As the decoder reads them: one character after the other.
fn count_events(text: &str) -> usize {
    let options = granit_parser::options! {
        emit_comments: false,
        emit_anchor_events: true,
    };
    let mut parser = Parser::with_options(BufferedInput::new(text.chars()), options);
    let mut count = 0;
    while let Some(event) = parser.next_event() {
        std::hint::black_box(event.expect("it is YAML"));
        count += 1;
    }
    count
}

/// Bodies of the URLs that are asked for, until the asking ends.
async fn receive_all() {
    portolan::http::install_crypto_provider();
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let mut meter = Meter::of(std::process::id());
    for url in std::io::stdin().lock().lines() {
        let url = url.expect("orders are text");
        // The connection, and the memory that bodies take, are there before.
        receive(&client, &url).await;
        let before = meter.read();
        for _ in 0..BODIES {
            receive(&client, &url).await;
        }
        println!("{}", (meter.read() - before).as_secs_f64() / f64::from(BODIES));
    }
}

async fn receive(client: &reqwest::Client, url: &str) {
    let mut response = client.get(url).send().await.expect("the server answers");
    let mut hash = Sha256::new();
    while let Some(chunk) = response.chunk().await.expect("the body comes whole") {
        hash.update(&chunk);
    }
    std::hint::black_box(hash.finalize());
}

/// The rows of charts in a database of which nobody else makes use.
async fn rows(database: &Path) -> (SqliteConnection, Vec<(i64, String)>) {
    let options = SqliteConnectOptions::new()
        .filename(database)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal);
    let mut connection = SqliteConnection::connect_with(&options).await.expect("it is there");
    let rows = sqlx::query_as("SELECT id, info FROM charts")
        .fetch_all(&mut connection)
        .await
        .expect("it has charts");
    (connection, rows)
}

async fn rewrite(connection: &mut SqliteConnection, rows: &[(i64, String)]) {
    let mut transaction = connection.begin().await.expect("a transaction");
    for (id, info) in rows {
        sqlx::query("UPDATE charts SET info = $1 WHERE id = $2")
            .bind(info)
            .bind(id)
            .execute(&mut *transaction)
            .await
            .expect("a row is written");
    }
    transaction.commit().await.expect("it is committed");
}
