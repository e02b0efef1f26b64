//! A running Portolan with honest repositories, whose charts are compared with what they declare.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use sqlx::{Connection, Executor, PgConnection};

use super::BESIDE;
use super::fault::Fault;
use crate::support::chart_server::{ChartServer, Page};
use crate::support::eventually::try_eventually;
use crate::support::portolan::{BINARY, Portolan, command, command_as, run};
use crate::support::postgres::{PostgresServer, TestDatabase};
use crate::support::small_disk::SmallDisk;
use crate::support::world::{SOON, World, succeeded};

/// Time until everything has recovered after a fault has gone.
pub const RECOVERY: Duration = Duration::from_secs(60);
/// Time of a call to a database that does not respond, and a margin.
const CALL_TIMEOUT: Duration = Duration::from_secs(90);
/// Value of `CONNECTION LIMIT`.
pub const UNLIMITED: i64 = -1;
const INTERVAL: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Sqlite,
    Postgres,
}

impl Engine {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "Postgres",
        }
    }
}

pub enum Database {
    Sqlite(SmallDisk),
    /// With the URL for Portolan, whose connections can be limited.
    Postgres(Box<PostgresServer>, TestDatabase, String),
}

/// The newest version of each chart, by namespace, repository and chart.
type Charts = BTreeMap<String, String>;

/// Durations of one round.
#[derive(Debug, Default)]
pub struct Round {
    /// Until a new honest repository was Ready during the fault; `None` if the fault makes that impossible.
    pub ready: Option<Duration>,
    pub deleted: Option<Duration>,
    /// From the end of the fault until the catalog was as declared.
    pub recovered: Duration,
}

pub struct Arena {
    pub world: World,
    pub hostile: ChartServer,
    pub database: Database,
    pub portolan: Portolan,
    clock: Option<PathBuf>,
    expected: Charts,
    pub rounds: usize,
}

impl Arena {
    /// Starts Portolan with at least two honest repositories, and waits until they are synced. With `clock`, its wall
    /// clock can be set.
    pub async fn new(engine: Engine, residents: usize, clock: bool) -> Self {
        let world = World::new().await;
        let database = match engine {
            Engine::Sqlite => Database::Sqlite(SmallDisk::new(512)),
            Engine::Postgres => {
                let server = PostgresServer::start().await;
                let database = server.database().await;
                let url = database.with_limit(UNLIMITED).await;
                Database::Postgres(Box::new(server), database, url)
            }
        };
        let clock = clock.then(|| world.directory.write("clock", "+0\n"));
        let portolan = start(&world, &database, clock.as_deref()).await;
        let mut arena = Self {
            hostile: ChartServer::start().await,
            world,
            database,
            portolan,
            clock,
            expected: Charts::new(),
            rounds: 0,
        };
        for number in 0..residents {
            arena.declare(&format!("resident-{number}"), 0);
        }
        let url = arena.world.server.url("/ticking");
        arena
            .world
            .server
            .serve("/ticking/index.yaml", Page::new("apiVersion: v1\nentries: {}\n"));
        arena.write("honest-ticking", "ticking", &url, "  interval: \"* * * * * *\"\n");
        arena.until_as_declared(SOON).await.unwrap();
        arena
    }

    /// Injects a fault, keeps it for a time, lifts it, and waits for recovery. An error says what went wrong.
    pub async fn round(&mut self, fault: Fault, hold: Duration) -> Result<Round, String> {
        self.rounds += 1;
        let name = format!("newcomer-{}", self.rounds);
        let failures = self.failures().await;
        let injected = fault.inject(self).await;
        let liveness = tokio::spawn(until_not_alive(self.portolan.address().to_owned()));

        let during = self.during(fault, &name, failures, hold).await;
        fault.lift(self, injected).await;
        let lifted = Instant::now();
        self.undeclare(&name);
        self.declare("resident-1", self.rounds);
        self.resync("resident-1").await;
        self.until_as_declared(RECOVERY).await?;
        self.is_ready().await?;
        let recovered = lifted.elapsed();
        self.until_ticked().await?;
        if liveness.is_finished() {
            return Err(liveness.await.unwrap());
        }
        liveness.abort();
        during.map(|round| Round { recovered, ..round })
    }

    /// Declares, changes and deletes honest repositories during a fault.
    async fn during(&mut self, fault: Fault, name: &str, failures: f64, hold: Duration) -> Result<Round, String> {
        let (held, mut round) = (Instant::now(), Round::default());
        // A change of a resident must not be lost, whatever happens meanwhile.
        self.declare("resident-0", self.rounds);
        self.resync("resident-0").await;
        self.declare(name, self.rounds);
        if !fault.stops_commits() {
            round.ready = Some(self.until_stored(name, BESIDE).await?);
        }
        if fault.fails_syncs() {
            self.until_failed_or_stored(name, failures).await?;
        }
        self.undeclare(name);
        if !fault.stops_commits() {
            round.deleted = Some(self.until_stored(name, BESIDE).await?);
            self.until_ticked().await?;
        }
        tokio::time::sleep(hold.saturating_sub(held.elapsed())).await;
        Ok(round)
    }

    /// Declares an honest repository in a namespace of its own, whose chart has the version `1.N.0`.
    fn declare(&mut self, name: &str, version: usize) {
        let index =
            format!("apiVersion: v1\nentries:\n  web:\n  - {{name: web, version: 1.{version}.0, urls: [web.tgz]}}\n");
        self.world
            .server
            .serve(&format!("/{name}/index.yaml"), Page::new(index));
        self.write(
            &format!("honest-{name}"),
            name,
            &self.world.server.url(&format!("/{name}")),
            "",
        );
        self.expected
            .insert(format!("honest-{name}/{name}/web"), format!("1.{version}.0"));
    }

    async fn resync(&self, name: &str) {
        let (namespace, manifests) = (format!("honest-{name}"), self.world.manifests());
        succeeded(command([
            "resync",
            name,
            "--namespace",
            &namespace,
            "--manifests",
            &manifests,
        ]))
        .await;
    }

    /// Deletes an honest repository if it is declared.
    fn undeclare(&mut self, name: &str) {
        if self.expected.remove(&format!("honest-{name}/{name}/web")).is_some() {
            self.remove(&format!("honest-{name}"), name);
        }
    }

    /// Writes a manifest; `more` is appended to the spec.
    pub fn write(&self, namespace: &str, name: &str, url: &str, more: &str) {
        let kind = if url.starts_with("oci:") || more.contains("ociRepositories") {
            "oci"
        } else {
            "helm"
        };
        let manifest = format!(
            "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata: {{namespace: {namespace}, name: {name}}}\n\
             spec:\n  type: {kind}\n  url: \"{url}\"\n{more}"
        );
        self.world.write(&format!("{namespace}-{name}.yaml"), manifest);
    }

    pub fn remove(&self, namespace: &str, name: &str) {
        let path = Path::new(&self.world.manifests()).join(format!("{namespace}-{name}.yaml"));
        std::fs::remove_file(path).unwrap();
    }

    /// Starts Portolan again after it was killed.
    pub async fn start_again(&mut self) {
        self.portolan = start(&self.world, &self.database, self.clock.as_deref()).await;
    }

    /// Requests the end of Portolan while repositories change, and returns how long it took.
    pub async fn stop(&mut self) -> Duration {
        let asked = self.world.server.count("/resident-0/index.yaml");
        self.declare("resident-0", 1);
        self.resync("resident-0").await;
        // A database that does not respond is asked first.
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.world.server.count("/resident-0/index.yaml") == asked && Instant::now() < deadline {
            tokio::time::sleep(INTERVAL).await;
        }
        let started = Instant::now();
        self.portolan.signal("TERM");
        self.portolan.exit(SOON).await;
        started.elapsed()
    }

    /// Sets the wall clock of Portolan relative to the system's.
    pub fn set_clock(&self, offset: &str) {
        let clock = self.clock.as_ref().expect("the arena has a clock");
        std::fs::write(clock, format!("{offset}\n")).unwrap();
    }

    /// Connects to the Postgres server.
    pub async fn session(&self) -> PgConnection {
        let Database::Postgres(_, database, _) = &self.database else {
            panic!("the database is SQLite")
        };
        PgConnection::connect(&database.url).await.unwrap()
    }

    /// Waits until the charts of a repository are as declared, and returns how long that took.
    async fn until_stored(&self, name: &str, deadline: Duration) -> Result<Duration, String> {
        self.until(deadline, name, |charts| charts_of(name, charts)).await
    }

    /// Same for all repositories; those of hostile tenants have to be gone.
    async fn until_as_declared(&self, deadline: Duration) -> Result<Duration, String> {
        self.until(deadline, "all repositories", |charts| charts.iter().collect())
            .await
    }

    async fn until(
        &self,
        deadline: Duration,
        what: &str,
        part: impl for<'a> Fn(&'a Charts) -> BTreeMap<&'a String, &'a String>,
    ) -> Result<Duration, String> {
        let started = Instant::now();
        let expected = part(&self.expected);
        let stored = try_eventually(deadline, what, async || match self.stored().await {
            Ok(stored) if part(&stored) == expected => Ok(()),
            stored => {
                let stored = stored.as_ref().map(&part);
                Err(format!("expected {expected:?}, stored {stored:?}"))
            }
        });
        stored.await.map(|()| started.elapsed())
    }

    /// Reads the catalog as users do.
    async fn stored(&self) -> Result<Charts, String> {
        let mut command = command_in(&self.database, &["search", "--limit", "1000", "-o", "json"]);
        command.args(["--database-url", &url(&self.database)]);
        let output = run(command).await;
        let errors = || String::from_utf8_lossy(&output.stderr).into_owned();
        let hits: Vec<Value> =
            serde_json::from_slice(&output.stdout).map_err(|error| format!("{error}: {}", errors()))?;
        let text = |hit: &Value, key: &str| hit[key].as_str().unwrap_or_default().to_owned();
        let key = |hit: &Value| ["namespace", "repository", "chart"].map(|key| text(hit, key)).join("/");
        Ok(hits.iter().map(|hit| (key(hit), text(hit, "version"))).collect())
    }

    /// Waits for two scheduled syncs, of which one began after the call.
    async fn until_ticked(&self) -> Result<(), String> {
        let ticks = || self.world.server.count("/ticking/index.yaml");
        let expected = ticks() + 2;
        let ticked = async || (ticks() >= expected).then_some(());
        try_eventually(BESIDE, "two scheduled syncs", ticked).await
    }

    /// Waits until the fault has had an effect on a repository, or none: a full disk may have room in its files.
    async fn until_failed_or_stored(&self, name: &str, before: f64) -> Result<(), String> {
        let has_failed_or_stored = async || {
            let is_stored = |stored| charts_of(name, &stored) == charts_of(name, &self.expected);
            let is_over = self.failures().await > before || self.stored().await.is_ok_and(is_stored);
            is_over.then_some(())
        };
        try_eventually(CALL_TIMEOUT, "a sync that fails", has_failed_or_stored).await
    }

    async fn failures(&self) -> f64 {
        let metrics = self.portolan.metrics().await;
        metrics
            .sum("controller_runtime_reconcile_errors_total", &[])
            .unwrap_or_default()
    }

    async fn is_ready(&self) -> Result<(), String> {
        match self.portolan.get("/readyz?verbose").await {
            Ok((200, _)) => Ok(()),
            Ok((status, body)) => Err(format!("/readyz: {status} {body}")),
            Err(error) => Err(format!("/readyz: {error}")),
        }
    }
}

/// Returns the charts of an honest repository.
fn charts_of<'a>(name: &str, charts: &'a Charts) -> BTreeMap<&'a String, &'a String> {
    let prefix = format!("honest-{name}/");
    charts.iter().filter(|chart| chart.0.starts_with(&prefix)).collect()
}

/// Asks for `/livez` until the response is not 200, which it returns.
pub async fn until_not_alive(address: String) -> String {
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .build()
        .unwrap();
    loop {
        match client.get(format!("http://{address}/livez")).send().await {
            Ok(response) if response.status() == 200 => tokio::time::sleep(INTERVAL).await,
            Ok(response) => return format!("/livez: {}", response.status()),
            Err(error) => return format!("/livez: {error}"),
        }
    }
}

/// Returns the URL for commands that read the catalog.
fn url(database: &Database) -> String {
    match database {
        Database::Sqlite(disk) => format!("sqlite://{}", disk.path("portolan.db").display()),
        Database::Postgres(_, database, _) => database.url.clone(),
    }
}

fn command_in(database: &Database, arguments: &[&str]) -> Command {
    match database {
        Database::Sqlite(disk) => {
            let mut words = disk.enter();
            words.push(BINARY.to_owned());
            words.extend(arguments.iter().map(|argument| (*argument).to_owned()));
            command_as(Path::new(&words[0]), &words[1..])
        }
        Database::Postgres(..) => command_as(Path::new(BINARY), arguments),
    }
}

async fn start(world: &World, database: &Database, clock: Option<&Path>) -> Portolan {
    // Half of a container of 512 MiB.
    let mut command = command_in(
        database,
        &["run", "--manifests", &world.manifests(), "--memory-budget=256Mi"],
    );
    let url = match database {
        Database::Postgres(_, _, url) => url.clone(),
        Database::Sqlite(_) => url(database),
    };
    command.args(["--database-url", &url, "--min-interval=1s", "--icons"]);
    // A debug build decodes a large index twice in half a minute; rows are compared here anyway.
    command.args(["--verify-delta=false", "--chart-files=latest", "--drain-timeout=2s"]);
    if let Some(clock) = clock {
        fake_time(&mut command, clock);
    }
    let portolan = Portolan::start(command);
    portolan.ready(SOON).await;
    portolan.with_probes()
}

/// Makes a program read its wall clock, and not its monotonic clock, through a file.
fn fake_time(command: &mut Command, file: &Path) {
    let below = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let library = below
        .map(|entry| entry.path())
        .chain(["/usr/lib".into(), "/usr/lib64".into()])
        .map(|directory| directory.join("faketime/libfaketimeMT.so.1"))
        .find(|path| path.exists())
        .expect("libfaketime is missing: run `make tools`");
    command
        .env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", file)
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("DONT_FAKE_MONOTONIC", "1");
}

/// Ends a transaction and its session.
pub async fn roll_back(mut session: PgConnection) {
    session.execute("ROLLBACK").await.unwrap();
    session.close().await.unwrap();
}
