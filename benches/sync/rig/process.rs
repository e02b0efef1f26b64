//! Portolan in directory mode: a process with its own database, a chart server, and the cost of each sync.

use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection, Row, SqliteConnection};

use super::measure::{PEAK, RESIDENT, Sample, cpu, cpu_of_postgres, memory, reset_peak_memory};
use super::{ChartServer, PATIENCE, POLL, Page, until};
use crate::support::portolan::Portolan;
use crate::support::postgres::{self, TestDatabase};
use crate::support::process::ScratchDir;

/// Databases, as the table names them.
pub const SQLITE: &str = "SQLite";
/// Over TLS, which is the default if the server supports it.
pub const POSTGRES: &str = "Postgres";
/// As Kubeapps connects.
pub const POSTGRES_PLAIN: &str = "Postgres, no TLS";
/// Enough for the last sync to finish after its request.
const SETTLE: Duration = Duration::from_millis(300);
const REST: Duration = Duration::from_secs(4);
/// Without limits per host, so that only the work is measured.
const FLAGS: &str = "--min-interval=1s --host-requests-per-second=1000000 --host-burst=1000000";
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

pub fn helm(server: &ChartServer, directory: &str) -> String {
    format!("  type: helm\n  url: {}\n", server.url(directory))
}

/// Returns the lines of a spec that sync a repository whenever the seconds match.
pub fn at_seconds(seconds: &str) -> String {
    format!("  interval: \"{seconds} * * * * *\"\n")
}

struct Readings {
    at: Instant,
    polls: usize,
    counters: Sample,
}

/// A process that was started without any repository.
pub struct BenchProcess<'a> {
    portolan: Portolan,
    server: &'a ChartServer,
    /// The path that each sync requests once.
    path: &'static str,
    /// The lines below `spec`, each indented by two spaces. By default, the path is the index of a Helm repository.
    pub spec: String,
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
    pub async fn start(database: &str, server: &'a ChartServer, path: &'static str, flags: &[&str]) -> Self {
        let directory = ScratchDir::new("bench");
        let manifests = directory.join("manifests");
        std::fs::create_dir(&manifests).expect("a scratch directory can be written");
        let (mut url, mut postgres) = (super::sqlite(&directory), None);
        if database != SQLITE {
            url = postgres.insert(postgres::database().await).url.clone();
        }
        if database == POSTGRES_PLAIN {
            url.push_str("?sslmode=disable");
        }
        let manifests = format!("--manifests={}", manifests.display());
        let flags = [manifests.as_str()].into_iter().chain(flags.iter().copied());
        let mut process = Self {
            portolan: super::start(&url, flags.chain(FLAGS.split(' '))),
            server,
            path,
            spec: helm(server, path.trim_end_matches("/index.yaml")),
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

    /// Starts a process with SQLite and default flags, for repositories of many servers.
    pub async fn empty(server: &'a ChartServer) -> Self {
        Self::start(SQLITE, server, "/index.yaml", &[]).await
    }

    /// Measures memory relative to the current usage from now on.
    pub fn rest(&mut self) {
        self.idle = memory(self.portolan.id(), RESIDENT);
    }

    pub fn declare(&self, namespace: &str, name: &str, spec: &str) {
        let file = format!("manifests/{namespace}-{name}.yaml");
        let metadata = format!("metadata:\n  name: {name}\n  namespace: {namespace}\n");
        let manifest = format!("apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\n{metadata}spec:\n{spec}");
        self.directory.write(&file, manifest);
    }

    pub fn remove(&self, namespace: &str, name: &str) {
        let manifest = self.directory.join(&format!("manifests/{namespace}-{name}.yaml"));
        std::fs::remove_file(manifest).expect("the manifest exists");
    }

    /// Measures the first sync, of a page that is served already.
    pub async fn first(&mut self) -> Sample {
        let before = self.readings().await;
        self.declare("default", "measured", &self.spec);
        self.synced(1).await;
        tokio::time::sleep(SETTLE).await;
        let sample = self.since(&before).await;
        self.count_rows().await;
        let rows = self.query("SELECT count(*) FROM charts").await;
        let rows = rows.map(|rows| rows as usize);
        Sample { rows, ..sample }
    }

    /// Measures a first sync and the import of this many archives, all with this result.
    pub async fn import(&self, archives: usize, result: &str) -> Sample {
        let seen = self.server.request_count();
        let ended = async || {
            let metrics = self.portolan.metrics().await;
            let ended = metrics.sum("portolan_chart_files_total", &[("result", result)]);
            ended.is_some_and(|ended| ended as usize >= archives)
        };
        let work = async || {
            self.declare("default", "measured", &self.spec);
            // Reading metrics costs the process CPU, so wait for the requests first.
            until(async || self.server.request_count() > seen + archives).await;
            until(ended).await;
        };
        self.measured(work).await
    }

    pub async fn measured(&self, work: impl AsyncFnOnce()) -> Sample {
        let before = self.readings().await;
        work().await;
        let wall = before.at.elapsed().as_secs_f64();
        self.since(&before).await.wall(wall)
    }

    /// Syncs the repository every second from now on, and measures an idle second and a sync that finds nothing new.
    pub async fn sync_every_second(&mut self, syncs: usize) {
        let before = self.readings().await;
        tokio::time::sleep(REST).await;
        let used = self.cpu() - before.counters.cpu;
        self.idle_cpu = used / before.at.elapsed().as_secs_f64();
        let spec = format!("{}{}", self.spec, at_seconds("*"));
        self.declare("default", "measured", &spec);
        self.unchanged = self.unchanged(syncs).await;
    }

    /// Measures syncs that find nothing new: the mean of this many.
    pub async fn unchanged(&self, syncs: usize) -> Sample {
        self.quiet(2).await;
        let before = self.readings().await;
        self.quiet(syncs).await;
        let all = self.since(&before).await;
        let syncs = self.polls() - before.polls;
        let requests = all.requests.map(|requests| requests.div_ceil(syncs));
        let mean = all.times(1.0 / syncs as f64);
        Sample { requests, ..mean }
    }

    /// Measures the sync that finds this page. The cost of the unchanged syncs after it is subtracted.
    pub async fn change(&self, page: Page) -> Sample {
        let serve = async || self.server.serve(self.path, page);
        self.after(serve).await
    }

    pub async fn after(&self, action: impl AsyncFnOnce()) -> Sample {
        let before = self.readings().await;
        action().await;
        // Portolan sends the second request when the first sync has ended.
        self.quiet(2).await;
        let all = self.since(&before).await;
        let others = self.polls() - before.polls - 1;
        let unchanged = self.unchanged.times(others as f64).requests(others);
        let rows = all.rows;
        let without = all.since(unchanged);
        Sample { rows, ..without }
    }

    /// Waits for this many more syncs and the end of the last one.
    async fn quiet(&self, syncs: usize) {
        let wanted = self.polls() + syncs;
        until(async || self.polls() >= wanted).await;
        tokio::time::sleep(SETTLE).await;
    }

    fn polls(&self) -> usize {
        self.server.count(self.path)
    }

    pub fn writes(&self) -> usize {
        let lines = self.portolan.lines();
        lines.iter().filter(|line| line.contains("SyncSucceeded")).count()
    }

    pub async fn synced(&self, count: usize) {
        until(async || self.writes() >= count).await;
    }

    /// Returns counters; CPU is read last.
    async fn readings(&self) -> Readings {
        let mut counters = self.counters().await;
        reset_peak_memory(self.portolan.id());
        let (at, polls) = (Instant::now(), self.polls());
        (counters.postgres_cpu, counters.cpu) = (self.postgres_cpu(), self.cpu());
        Readings { at, polls, counters }
    }

    /// Returns the usage since `before`, without that of an idle process; CPU is read first.
    async fn since(&self, before: &Readings) -> Sample {
        let idle_cpu = self.idle_cpu * before.at.elapsed().as_secs_f64();
        let now = Sample {
            cpu: self.cpu() - idle_cpu,
            postgres_cpu: self.postgres_cpu(),
            peak: memory(self.portolan.id(), PEAK),
            idle: self.idle,
            ..self.counters().await
        };
        now.since(before.counters)
    }

    /// Returns the counters that are not read from Linux; wall time is that of all syncs.
    async fn counters(&self) -> Sample {
        let metrics = self.portolan.metrics().await;
        let mut rows = None;
        if self.counts_rows {
            rows = self.query("SELECT count(*) FROM bench_writes").await;
        }
        Sample {
            rows: rows.map(|rows| rows as usize),
            wall: metrics.sum("portolan_sync_seconds_sum", &[]).unwrap_or_default(),
            requests: Some(self.server.request_count()),
            ..Sample::default()
        }
    }

    fn cpu(&self) -> f64 {
        cpu(self.portolan.id()).expect("it runs")
    }

    fn postgres_cpu(&self) -> f64 {
        let database = self.postgres.as_ref();
        database.map_or(0.0, |database| cpu_of_postgres(&database.name))
    }

    pub async fn stored(&self) -> f64 {
        let sum = self.query("SELECT CAST(sum(charts + files) AS BIGINT) FROM portolan_stored_bytes");
        sum.await.expect("a count") as f64 / 1_048_576.0
    }

    pub async fn count_rows(&mut self) {
        let is_sqlite = self.postgres.is_none();
        let triggers = if is_sqlite { SQLITE_TRIGGERS } else { POSTGRES_TRIGGERS };
        self.query(triggers).await;
        self.counts_rows = true;
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

    pub async fn end(self) -> ScratchDir {
        super::end(self.portolan).await;
        self.directory
    }
}
