//! A proxy of a Postgres server that recognizes commits, and holds one of them before or after it takes place.
//!
//! It reads the messages of version 3 of the protocol, without TLS: a batch ends with Sync, or is a simple Query. A
//! batch is a commit if it executes COMMIT after a write, or a write outside of a transaction.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::postgres::TestDatabase;
use super::signal::Signal;

/// First words of statements that write.
const WRITES: [&str; 7] = ["INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "TRUNCATE"];

/// Side of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The server does not receive it.
    Before,
    /// The server executes it, and the client receives no response.
    After,
}

struct Interruption {
    label: String,
    /// Number of commits with this label to let pass.
    pass: usize,
    moment: Moment,
    signal: Arc<Signal>,
}

#[derive(Default)]
struct Shared {
    commits: Mutex<Vec<String>>,
    interruption: Mutex<Option<Interruption>>,
    cuts: watch::Sender<u64>,
}

/// A running proxy; it ends with the test's runtime.
pub struct PostgresProxy {
    /// The URL of the database through this proxy.
    pub url: String,
    shared: Arc<Shared>,
}

impl PostgresProxy {
    pub async fn in_front_of(database: &TestDatabase) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (server, shared) = (database.server(), Arc::<Shared>::default());
        let serving = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, server, Arc::clone(&serving)));
            }
        });
        let url = database.url.replace(&server.to_string(), &address.to_string());
        Self {
            url: format!("{url}?sslmode=disable"),
            shared,
        }
    }

    /// Returns the first write of each commit, such as `INSERT INTO charts`.
    pub fn commits(&self) -> Vec<String> {
        self.shared.commits.lock().expect("mutex is not poisoned").clone()
    }

    /// Holds the commit with this label that follows `pass` others, and gives the signal.
    pub fn hold(&self, label: &str, pass: usize, moment: Moment, signal: Arc<Signal>) {
        *self.shared.interruption.lock().expect("mutex is not poisoned") = Some(Interruption {
            label: label.to_owned(),
            pass,
            moment,
            signal,
        });
    }

    /// Closes all connections; new ones are accepted.
    pub fn disconnect(&self) {
        self.shared.cuts.send_modify(|count| *count += 1);
    }
}

impl Shared {
    /// Records a commit; returns the interruption that it meets.
    fn record(&self, label: String) -> Option<Interruption> {
        let mut interruption = self.interruption.lock().expect("mutex is not poisoned");
        let meets = match interruption.as_mut() {
            Some(expected) if expected.label == label => {
                let is_next = expected.pass == 0;
                expected.pass = expected.pass.saturating_sub(1);
                is_next
            }
            _ => false,
        };
        self.commits.lock().expect("mutex is not poisoned").push(label);
        if meets { interruption.take() } else { None }
    }
}

async fn serve(client: TcpStream, server: SocketAddr, shared: Arc<Shared>) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let mut cut = shared.cuts.subscribe();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let held = watch::Sender::new(None);
    // An error is a closed connection, which both sides notice.
    tokio::select! {
        _ = cut.changed() => (),
        _ = requests(from_client, to_server, &shared, &held) => (),
        _ = responses(from_server, to_client, held.subscribe()) => (),
    }
}

/// Forwards the client's messages, and holds the interrupted commit.
async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    held: &watch::Sender<Option<Arc<Signal>>>,
) -> std::io::Result<()> {
    // The first message has no type.
    let length = from.read_u32().await?;
    let mut startup = length.to_be_bytes().to_vec();
    startup.resize(length as usize, 0);
    from.read_exact(&mut startup[4..]).await?;
    to.write_all(&startup).await?;
    let mut session = Session::default();
    let mut batch = Vec::new();
    loop {
        let message = read_message(&mut from).await?;
        session.read(&message);
        let ends_batch = !matches!(message[0], b'P' | b'B' | b'D' | b'E' | b'C');
        batch.extend_from_slice(&message);
        if !ends_batch {
            continue;
        }
        let interruption = session.end_batch().and_then(|label| shared.record(label));
        match interruption {
            None => {}
            Some(interruption) if interruption.moment == Moment::Before => {
                interruption.signal.give();
                // Until the client closes the connection, as does the server's side then.
                loop {
                    read_message(&mut from).await?;
                }
            }
            Some(interruption) => {
                held.send_replace(Some(interruption.signal));
            }
        }
        to.write_all(&batch).await?;
        batch.clear();
    }
}

/// Forwards the server's messages, until a commit is held.
async fn responses(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    held: watch::Receiver<Option<Arc<Signal>>>,
) -> std::io::Result<()> {
    loop {
        let message = read_message(&mut from).await?;
        let signal = held.borrow().clone();
        match signal {
            None => to.write_all(&message).await?,
            Some(signal) if message[0] == b'Z' => {
                signal.give();
                std::future::pending::<()>().await;
            }
            Some(_) => {}
        }
    }
}

/// Reads a message with its type and length.
async fn read_message(from: &mut OwnedReadHalf) -> std::io::Result<Vec<u8>> {
    let mut message = vec![0; 5];
    from.read_exact(&mut message).await?;
    let length = u32::from_be_bytes([message[1], message[2], message[3], message[4]]);
    message.resize(length as usize + 1, 0);
    from.read_exact(&mut message[5..]).await?;
    Ok(message)
}

/// The statements of a connection.
#[derive(Default)]
struct Session {
    statements: HashMap<String, String>,
    portals: HashMap<String, String>,
    executed: Vec<String>,
    is_in_transaction: bool,
    first_write: Option<String>,
}

impl Session {
    fn read(&mut self, message: &[u8]) {
        let mut texts = message[5..]
            .split(|byte| *byte == 0)
            .map(|text| String::from_utf8_lossy(text).into_owned());
        let mut text = || texts.next().unwrap_or_default();
        match message[0] {
            b'P' => drop(self.statements.insert(text(), text())),
            b'B' => {
                let (portal, statement) = (text(), text());
                let statement = self.statements.get(&statement).cloned().unwrap_or_default();
                self.portals.insert(portal, statement);
            }
            b'E' => self.executed.extend(self.portals.get(&text()).cloned()),
            b'Q' => {
                let statements = text();
                self.executed.extend(statements.split(';').map(str::to_owned));
            }
            _ => {}
        }
    }

    /// Returns the first write of the batch's commit, if it has one.
    fn end_batch(&mut self) -> Option<String> {
        let mut committed = None;
        for statement in std::mem::take(&mut self.executed) {
            let words = after_with(words(&statement));
            match words.first().map(|word| word.to_uppercase()).as_deref() {
                Some("BEGIN" | "START") => self.is_in_transaction = true,
                Some("ROLLBACK") if words.len() == 1 => {
                    self.is_in_transaction = false;
                    self.first_write = None;
                }
                Some("COMMIT" | "END") => {
                    self.is_in_transaction = false;
                    committed = self.first_write.take().or(committed);
                }
                Some(word) if WRITES.contains(&word) => {
                    let label = label(&words);
                    self.first_write.get_or_insert(label);
                }
                _ => {}
            }
        }
        if self.is_in_transaction {
            return committed;
        }
        self.first_write.take().or(committed)
    }
}

/// Returns the words of a statement without comments.
fn words(statement: &str) -> Vec<&str> {
    let lines = statement.lines().filter(|line| !line.trim_start().starts_with("--"));
    lines.flat_map(str::split_whitespace).collect()
}

/// Returns the part of a statement that writes, if it begins with common table expressions.
fn after_with(words: Vec<&str>) -> Vec<&str> {
    let is_with = words.first().is_some_and(|word| word.eq_ignore_ascii_case("WITH"));
    // `FOR UPDATE` locks rows.
    let writes = words.windows(2).position(|pair| {
        let is_lock = pair[0].eq_ignore_ascii_case("FOR");
        !is_lock && WRITES.contains(&pair[1].trim_start_matches('('))
    });
    match writes {
        Some(before) if is_with => words[before + 1..].to_vec(),
        _ => words,
    }
}

/// Returns the words up to the table.
fn label(words: &[&str]) -> String {
    let length = match words[0].to_uppercase().as_str() {
        "UPDATE" | "TRUNCATE" => 2,
        _ => 3,
    };
    words[..length.min(words.len())].join(" ")
}

#[test]
fn a_batch_is_a_commit_if_it_ends_a_transaction_that_wrote() {
    let mut session = Session::default();
    let mut end = |statements: &str| {
        let mut message = vec![b'Q', 0, 0, 0, 0];
        message.extend_from_slice(statements.as_bytes());
        message.push(0);
        session.read(&message);
        session.end_batch()
    };
    assert_eq!(end("BEGIN"), None);
    assert_eq!(end("INSERT INTO charts VALUES (1)"), None);
    assert_eq!(end("UPDATE repos SET name = 'a'"), None);
    assert_eq!(end("COMMIT").as_deref(), Some("INSERT INTO charts"));
    assert_eq!(end("BEGIN; SELECT 1; COMMIT"), None);
    assert_eq!(end("BEGIN; DELETE FROM charts; ROLLBACK"), None);
    assert_eq!(end("UPDATE repos SET name = 'a'").as_deref(), Some("UPDATE repos"));
    assert_eq!(end("WITH a AS (SELECT 1) SELECT * FROM a FOR UPDATE"), None);
    let statement = "-- a comment\nWITH a AS (SELECT 1)\nINSERT INTO charts SELECT * FROM a";
    assert_eq!(end(statement).as_deref(), Some("INSERT INTO charts"));
}
