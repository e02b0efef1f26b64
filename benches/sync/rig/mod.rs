//! Portolan in directory mode: a process with its own database, a chart server, and the cost of each sync.

pub mod baseline;
pub mod cluster;
pub mod measure;
pub mod status_watch;

use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection, Row, SqliteConnection};

use crate::rig::measure::{Sample, cpu, cpu_of_postgres, peak_memory, reset_peak_memory, resident_memory};
use crate::support::chart_server::{ChartServer, Page};
use crate::support::portolan::{Portolan, command};
use crate::support::postgres::{self, TestDatabase};
use crate::support::process::ScratchDir;

/// Number of measurements of a case, of which the table shows the median.
pub const RUNS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(20);
/// Enough for the last sync to finish after its request.
const SETTLE: Duration = Duration::from_millis(300);
/// Duration of the measurement of an idle process.
const REST: Duration = Duration::from_secs(4);
const EVERY_SECOND: &str = "  interval: \"* * * * * *\"\n";
/// Settings of every process, without limits per host, so that only the work is measured.
const FLAGS: [&str; 3] = [
    "--min-interval=1s",
    "--host-requests-per-second=1000000",
    "--host-burst=1000000",
];
/// Counts every write to a row of charts.
const SQLITE_TRIGGERS: &str = "
CREATE TABLE bench_writes (id INTEGER PRIMARY KEY);
CREATE TRIGGER bench_insert AFTER INSERT ON charts BEGIN INSERT INTO bench_writes VALUES (NULL); END;
CREATE TRIGGER bench_update AFTER UPDATE ON charts BEGIN INSERT INTO bench_writes VALUES (NULL); END;
CREATE TRIGGER bench_delete AFTER DELETE ON charts BEGIN INSERT INTO bench_writes VALUES (NULL); END;";
const POSTGRES_TRIGGERS: &str = "
CREATE TABLE bench_writes (id SERIAL);
CREATE FUNCTION bench_note() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN INSERT INTO bench_writes VALUES (DEFAULT); RETURN NULL; END $$;
CREATE TRIGGER bench_note AFTER INSERT OR UPDATE OR DELETE ON charts FOR EACH ROW EXECUTE FUNCTION bench_note();";

/// The database of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Database {
    Sqlite,
    /// Over TLS, which is the default if the server supports it.
    Postgres,
    /// Without TLS, as Kubeapps connects.
    PostgresPlain,
}

impl Database {
    pub const fn title(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "Postgres",
            Self::PostgresPlain => "Postgres, no TLS",
        }
    }
}

/// A repository on a chart server.
#[derive(Clone)]
pub struct Source<'a> {
    pub server: &'a ChartServer,
    /// The path that each sync requests once.
    pub path: &'static str,
    /// The lines below `spec`, each indented by two spaces.
    pub spec: String,
}

/// Counters at the start of a measurement.
pub struct Readings {
    at: Instant,
    cpu: Duration,
    postgres_cpu: Duration,
    requests: usize,
    polls: usize,
    rows: Option<i64>,
    sync_seconds: f64,
}

/// A process that was started without any repository.
pub struct BenchProcess<'a> {
    pub portolan: Portolan,
    pub source: Source<'a>,
    directory: ScratchDir,
    url: String,
    postgres: Option<TestDatabase>,
    counts_rows: bool,
    idle: u64,
    /// CPU that an idle process takes, in seconds per second.
    idle_cpu: f64,
    /// A sync that finds nothing new.
    pub unchanged: Sample,
}

impl<'a> BenchProcess<'a> {
    /// Starts a process with an empty database.
    pub async fn start(database: Database, source: &Source<'a>, flags: &[&str]) -> Self {
        let directory = ScratchDir::new("bench");
        std::fs::create_dir(directory.join("manifests")).expect("a scratch directory can be written");
        let postgres = match database {
            Database::Sqlite => None,
            _ => Some(postgres::database().await),
        };
        let mut url = match &postgres {
            Some(postgres) => postgres.url.clone(),
            None => format!("sqlite://{}", directory.join("portolan.db").display()),
        };
        if database == Database::PostgresPlain {
            url.push_str("?sslmode=disable");
        }
        let manifests = directory.join("manifests").display().to_string();
        let mut run = command(["run", "--manifests", &manifests, "--database-url", &url]);
        // The tests decode every index twice.
        run.env("PORTOLAN_VERIFY_DELTA", "false").args(FLAGS).args(flags);
        let mut process = Self {
            portolan: Portolan::start(run),
            source: source.clone(),
            directory,
            url,
            postgres,
            counts_rows: false,
            idle: 0,
            idle_cpu: 0.0,
            unchanged: Sample::default(),
        };
        process.portolan.ready(PATIENCE).await;
        tokio::time::sleep(SETTLE).await;
        process.rest();
        process
    }

    /// Measures memory relative to the current usage from now on.
    pub fn rest(&mut self) {
        self.idle = resident_memory(self.portolan.id());
    }

    pub fn declare(&self, namespace: &str, name: &str, spec: &str) {
        let manifest = format!(
            "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata:\n  name: {name}\n  namespace: {namespace}\nspec:\n{spec}"
        );
        self.directory
            .write(&format!("manifests/{namespace}-{name}.yaml"), manifest);
    }

    pub fn remove(&self, namespace: &str, name: &str) {
        let manifest = self.directory.join(&format!("manifests/{namespace}-{name}.yaml"));
        std::fs::remove_file(manifest).expect("the manifest exists");
    }

    fn declare_source(&self, more: &str) {
        self.declare("default", "measured", &format!("{}{more}", self.source.spec));
    }

    /// Measures the first sync, of a page that is served already.
    pub async fn first(&mut self) -> Sample {
        let before = self.readings().await;
        self.declare_source("");
        self.synced(1).await;
        tokio::time::sleep(SETTLE).await;
        let sample = self.since(&before).await;
        self.count_rows().await;
        let rows = self.query("SELECT count(*) FROM charts").await;
        Sample {
            rows: rows.map(|rows| rows as usize),
            ..sample
        }
    }

    /// Measures a first sync and the import of this many archives, all with this result; wall time ends with the last one.
    pub async fn import(&mut self, archives: usize, result: &str) -> Sample {
        let before = self.readings().await;
        self.declare_source("");
        // Reading metrics costs the process CPU, so wait for the requests first.
        until(async || self.source.server.request_count() > before.requests + archives).await;
        until(async || {
            let metrics = self.portolan.metrics().await;
            let ended = metrics.sum("portolan_chart_files_total", &[("result", result)]);
            ended.is_some_and(|ended| ended as usize >= archives)
        })
        .await;
        let wall = before.at.elapsed().as_secs_f64();
        Sample {
            wall,
            ..self.since(&before).await
        }
    }

    /// Syncs the repository every second from now on, and measures an idle second and a sync that finds nothing new.
    pub async fn sync_every_second(&mut self, syncs: usize) {
        let before = self.readings().await;
        tokio::time::sleep(REST).await;
        let used = cpu(self.portolan.id()).expect("it runs") - before.cpu;
        self.idle_cpu = used.as_secs_f64() / before.at.elapsed().as_secs_f64();
        self.declare_source(EVERY_SECOND);
        self.unchanged = self.unchanged(syncs).await;
    }

    /// Measures syncs that find nothing new: the mean of this many.
    pub async fn unchanged(&self, syncs: usize) -> Sample {
        self.quiet(2).await;
        let before = self.readings().await;
        self.quiet(syncs).await;
        let all = self.since(&before).await;
        let syncs = self.polls() - before.polls;
        let of_one = |sum: f64| sum / syncs as f64;
        Sample {
            cpu: of_one(all.cpu),
            wall: of_one(all.wall),
            postgres_cpu: of_one(all.postgres_cpu),
            requests: all.requests.map(|requests| requests.div_ceil(syncs)),
            ..all
        }
    }

    /// Measures the sync that finds this page. The cost of the unchanged syncs after it is subtracted.
    pub async fn change(&self, page: Page) -> Sample {
        self.after(async || self.source.server.serve(self.source.path, page.clone()))
            .await
    }

    /// Measures the sync that finds the result of this action.
    pub async fn after(&self, action: impl AsyncFn()) -> Sample {
        let before = self.readings().await;
        action().await;
        // Portolan sends the second request when the first sync has ended.
        self.quiet(2).await;
        let all = self.since(&before).await;
        let others = self.polls() - before.polls - 1;
        let without = |sum: f64, one: f64| sum - others as f64 * one;
        Sample {
            cpu: without(all.cpu, self.unchanged.cpu),
            wall: without(all.wall, self.unchanged.wall),
            postgres_cpu: without(all.postgres_cpu, self.unchanged.postgres_cpu).max(0.0),
            requests: all.requests.map(|requests| requests - others),
            ..all
        }
    }

    /// Waits for this many more syncs and the end of the last one.
    async fn quiet(&self, syncs: usize) {
        let wanted = self.polls() + syncs;
        until(async || self.polls() >= wanted).await;
        tokio::time::sleep(SETTLE).await;
    }

    fn polls(&self) -> usize {
        self.source.server.count(self.source.path)
    }

    pub fn writes(&self) -> usize {
        let lines = self.portolan.lines();
        lines.iter().filter(|line| line.contains("SyncSucceeded")).count()
    }

    pub async fn synced(&self, count: usize) {
        until(async || self.writes() >= count).await;
    }

    /// Returns counters; CPU is read last.
    pub async fn readings(&self) -> Readings {
        let (rows, sync_seconds) = (self.rows().await, self.sync_seconds().await);
        reset_peak_memory(self.portolan.id());
        Readings {
            at: Instant::now(),
            requests: self.source.server.request_count(),
            polls: self.polls(),
            rows,
            sync_seconds,
            postgres_cpu: self.postgres_cpu(),
            cpu: cpu(self.portolan.id()).expect("it runs"),
        }
    }

    /// Returns the usage since `before`, without that of an idle process; CPU is read first.
    pub async fn since(&self, before: &Readings) -> Sample {
        let used = cpu(self.portolan.id()).expect("it runs") - before.cpu;
        let postgres_cpu = self.postgres_cpu().saturating_sub(before.postgres_cpu);
        let idle_cpu = self.idle_cpu * before.at.elapsed().as_secs_f64();
        Sample {
            cpu: used.as_secs_f64() - idle_cpu,
            postgres_cpu: postgres_cpu.as_secs_f64(),
            peak: peak_memory(self.portolan.id()),
            idle: self.idle,
            requests: Some(self.source.server.request_count() - before.requests),
            wall: self.sync_seconds().await - before.sync_seconds,
            rows: (self.rows().await.zip(before.rows)).map(|(after, before)| (after - before) as usize),
            baseline: 0.0,
        }
    }

    /// Returns the bytes that all repositories store, by Portolan's own count.
    pub async fn stored_bytes(&self) -> i64 {
        let sum = self.query("SELECT CAST(sum(charts + files) AS BIGINT) FROM portolan_stored_bytes");
        sum.await.expect("a count")
    }

    async fn sync_seconds(&self) -> f64 {
        let metrics = self.portolan.metrics().await;
        metrics.sum("portolan_sync_seconds_sum", &[]).unwrap_or_default()
    }

    fn postgres_cpu(&self) -> Duration {
        let database = self.postgres.as_ref();
        database.map_or(Duration::ZERO, |database| cpu_of_postgres(&database.name))
    }

    /// Counts writes to rows of charts from now on.
    pub async fn count_rows(&mut self) {
        let triggers = match self.postgres {
            Some(_) => POSTGRES_TRIGGERS,
            None => SQLITE_TRIGGERS,
        };
        self.query(triggers).await;
        self.counts_rows = true;
    }

    async fn rows(&self) -> Option<i64> {
        if self.counts_rows {
            self.query("SELECT count(*) FROM bench_writes").await
        } else {
            None
        }
    }

    /// Runs statements over a separate connection and returns the number that the last one selects.
    pub async fn query(&self, statements: &'static str) -> Option<i64> {
        if self.postgres.is_none() {
            let mut connection = SqliteConnection::connect(&self.url).await.expect("SQLite opens");
            let row = sqlx::raw_sql(statements).fetch_optional(&mut connection).await;
            connection.close().await.expect("SQLite closes");
            return row.expect("the statements succeed").map(|row| row.get(0));
        }
        let mut connection = PgConnection::connect(&self.url).await.expect("Postgres answers");
        let row = sqlx::raw_sql(statements).fetch_optional(&mut connection).await;
        connection.close().await.expect("Postgres closes");
        // The CPU of this connection's process must not count.
        tokio::time::sleep(POLL * 3).await;
        row.expect("the statements succeed").map(|row| row.get(0))
    }

    /// Returns the directory with the database.
    pub async fn end(self) -> ScratchDir {
        end(self.portolan).await;
        self.directory
    }
}

pub async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < PATIENCE, "the condition holds within {PATIENCE:?}");
        tokio::time::sleep(POLL).await;
    }
}

pub async fn end(mut portolan: Portolan) {
    portolan.signal("TERM");
    let status = portolan.exit(PATIENCE).await;
    assert!(status.success(), "{status}: {:#?}", portolan.lines());
}
