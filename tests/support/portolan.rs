//! The real binary, started as users start it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::eventually::eventually;
use super::ports::free_port;
use super::probes::Probes;
use super::process::Process;

pub const BINARY: &str = env!("CARGO_BIN_EXE_portolan");

/// The Dockerfile, whose ENV lines apply to the tests too.
const IMAGE: &str = include_str!("../../Dockerfile");

/// Returns a `portolan` command in the environment of the container image, without settings of the current user.
pub fn command<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    command_as(Path::new(BINARY), arguments)
}

/// Same, with another program name.
pub fn command_as<S: AsRef<OsStr>>(program: &Path, arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("KUBECONFIG")
        .env_remove("DB_PASSWORD")
        .env_remove("RUST_LOG");
    for (name, _) in std::env::vars_os() {
        // A proxy would respond instead of unreachable servers.
        let is_proxy = name.to_string_lossy().to_ascii_lowercase().ends_with("_proxy");
        if is_proxy || name.to_string_lossy().starts_with("PORTOLAN_") {
            command.env_remove(name);
        }
    }
    command.envs(image_environment());
    // Most tests use charts without archives. Tests of files set the flag, which takes precedence.
    command.env("PORTOLAN_CHART_FILES", "none");
    command.env("PORTOLAN_VERIFY_DELTA", "true");
    // All servers of the tests are on this machine.
    command.env("PORTOLAN_ALLOW_LOOPBACK", "true");
    command
}

fn image_environment() -> impl Iterator<Item = (&'static str, &'static str)> {
    let set = IMAGE.lines().filter_map(|line| line.strip_prefix("ENV "));
    set.map(|set| {
        assert!(!set.contains(' '), "one unquoted setting per line: {set}");
        set.split_once('=').expect("a name and a value")
    })
}

/// Runs a command without blocking the servers of the test.
pub async fn run(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output())
        .await
        .expect("no panic")
        .expect("the binary can be run")
}

/// A running `portolan run`; killed on drop.
pub struct Portolan {
    process: Process,
    lines: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
    http: String,
    probes: Mutex<Option<Probes>>,
}

impl Portolan {
    /// Starts a command (`command(["run", …])`) with its own listen address.
    pub fn start(mut command: Command) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        command
            .arg(format!("--listen={address}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = Process::spawn(&mut command, "KILL");
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let child = process.child();
        let output = child.stdout.take().expect("stdout is piped");
        let errors = child.stderr.take().expect("stderr is piped");
        let readers = vec![collect(output, &lines), collect(errors, &lines)];
        Self {
            process,
            lines,
            readers,
            http: format!("http://{address}"),
            probes: Mutex::default(),
        }
    }

    /// Asks for its liveness probe until it gets a signal or the test ends, which then fails if an answer was late.
    #[must_use]
    pub fn with_probes(self) -> Self {
        *self.probes.lock().expect("mutex is not poisoned") = Some(Probes::of(&self));
        self
    }

    fn end_probes(&self) {
        let probes = self.probes.lock().map(|mut probes| probes.take());
        drop(probes);
    }

    /// Returns all lines printed so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("mutex is not poisoned").clone()
    }

    /// Drops all lines printed so far, for example expected errors.
    pub fn forget_lines(&self) {
        self.lines.lock().expect("mutex is not poisoned").clear();
    }

    /// Waits for a line with this text and returns it.
    pub async fn line_with(&self, text: &str, deadline: Duration) -> String {
        eventually(deadline, &format!("a line with {text:?}"), async || {
            let lines = self.lines();
            lines
                .iter()
                .find(|line| line.contains(text))
                .cloned()
                .ok_or_else(|| tail(&lines))
        })
        .await
    }

    /// Waits until `/readyz` returns 200.
    pub async fn ready(&self, deadline: Duration) {
        eventually(deadline, "Portolan to be ready", async || {
            match self.get("/readyz").await {
                Ok((200, _)) => Ok(()),
                Ok((status, body)) => Err(format!("{status} {body}\n{}", tail(&self.lines()))),
                Err(error) => Err(format!("{error}\n{}", tail(&self.lines()))),
            }
        })
        .await;
    }

    /// Requests a path of its HTTP server; returns status and body.
    pub async fn get(&self, path: &str) -> Result<(u16, String), reqwest::Error> {
        portolan::http::install_crypto_provider();
        // Loading the system's certificates is slow in a debug build.
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?;
        let response = client.get(format!("{}{path}", self.http)).send().await?;
        Ok((response.status().as_u16(), response.text().await?))
    }

    /// Returns host and port of its HTTP server.
    pub fn address(&self) -> &str {
        self.http.trim_start_matches("http://")
    }

    pub async fn metrics(&self) -> Metrics {
        Metrics::parse(&self.get("/metrics").await.expect("Portolan answers").1)
    }

    /// Returns the number of polls of reconciles on threads of the runtime, and of those that took more than 10 ms.
    pub async fn polls(&self) -> (f64, f64) {
        let metrics = self.metrics().await;
        let sum = |name, labels| metrics.sum(name, labels).unwrap_or_default();
        let all = sum("portolan_runtime_poll_seconds_count", &[]);
        (
            all,
            all - sum("portolan_runtime_poll_seconds_bucket", &[("le", "0.01")]),
        )
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal by its short name: `TERM`, `KILL`, `STOP`, …
    pub fn signal(&self, name: &str) {
        self.end_probes();
        self.process.signal(name);
    }

    /// Returns true if it has exited.
    pub fn has_exited(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()));
        status.map_or(true, |status| status.contains("State:\tZ"))
    }

    /// Waits for its exit; then `lines` contains all output.
    pub async fn exit(&mut self, deadline: Duration) -> ExitStatus {
        self.end_probes();
        let status = self.process.wait(deadline).await;
        for reader in self.readers.drain(..) {
            reader.join().expect("readers do not panic");
        }
        status
    }
}

impl Drop for Portolan {
    fn drop(&mut self) {
        self.end_probes();
        if std::thread::panicking() {
            eprintln!("last output of Portolan:\n{}", tail(&self.lines()));
            return;
        }
        let lines = self.lines();
        let difference = lines
            .iter()
            .find(|line| line.contains("incremental decode differs from full decode"));
        assert!(difference.is_none(), "{difference:?}");
    }
}

fn collect(from: impl Read + Send + 'static, lines: &Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
    let lines = Arc::clone(lines);
    std::thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            lines
                .lock()
                .expect("mutex is not poisoned")
                .push(String::from_utf8_lossy(&line).into_owned());
        }
    })
}

fn tail(lines: &[String]) -> String {
    lines[lines.len().saturating_sub(40)..]
        .iter()
        .fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "    {line}"); // a string takes all that is written
            text
        })
}

/// Returns the peak memory of the process in MiB.
pub fn peak_memory(portolan: &Portolan) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", portolan.id())).expect("the process is running");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("Linux reports it");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib / 1024
}

/// Samples in the text format of Prometheus or OpenMetrics.
pub struct Metrics(Vec<Sample>);

struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Metrics {
    /// Parses all samples. An invalid line fails the test.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(
            lines
                .map(|line| sample(line).unwrap_or_else(|| panic!("invalid sample: {line}")))
                .collect(),
        )
    }

    /// Returns the sum over the samples of this name with at least these labels; `None` if there is none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let fits = |sample: &&Sample| {
            let mut wanted = labels.iter();
            sample.name == name
                && wanted.all(|(label, value)| sample.labels.get(*label).is_some_and(|have| have == value))
        };
        let found: Vec<f64> = self.0.iter().filter(fits).map(|sample| sample.value).collect();
        (!found.is_empty()).then(|| found.iter().sum())
    }
}

/// Parses `name{label="value",…} number`, where a value may contain `\"`, `\\` and `\n`.
fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, mut rest) = series.split_once('{').unwrap_or((series, "}"));
    let mut labels = BTreeMap::new();
    while rest != "}" {
        let (label, after) = rest.split_once("=\"")?;
        let mut text = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next()? {
                (_, '\\') => text.push(match characters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (end, '"') => break end,
                (_, other) => text.push(other),
            }
        };
        labels.insert(label.trim_start_matches(',').to_owned(), text);
        rest = &after[end + 1..];
    }
    Some(Sample {
        name: name.to_owned(),
        labels,
        value: value.parse().ok()?,
    })
}
