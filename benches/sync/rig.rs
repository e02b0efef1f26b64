//! A folder of manifests, a database, and the processes that work with them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::measure::{cpu, cpu_of_postgres, median, peak_memory};
use crate::report::{Case, Row};
use crate::support::chart_server::ChartServer;
use crate::support::portolan::{Portolan, command};
use crate::support::postgres::{self, TestDatabase};
use crate::support::process::ScratchFolder;

/// How often a case is measured whose figure is the middle one.
pub const RUNS: usize = 3;
/// Takes the limit of requests a second off a host: what then holds a sync up is work.
pub const UNLIMITED: [&str; 2] = ["--host-requests-per-second=1000000", "--host-burst=1000000"];
/// An interval of a second, for what is measured over many syncs.
pub const EVERY_SECOND: &str = "  interval: \"* * * * * *\"\n";
const PATIENCE: Duration = Duration::from_secs(60);
/// What the log says when something was written.
const WRITTEN: &str = "SyncSucceeded";

/// What one sync took.
pub struct Sample {
    /// Seconds.
    pub wall: f64,
    /// Seconds of our process.
    pub cpu: f64,
    /// Seconds of the database's processes.
    pub postgres_cpu: f64,
    /// Bytes.
    pub peak: u64,
}

/// Readings of a process, to be taken from later ones.
pub struct Readings {
    cpu: Duration,
    postgres_cpu: Duration,
    sync_seconds: f64,
}

/// Where the rows go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Database {
    Sqlite,
    /// As it is reached without being told how: by TLS, since the server has it.
    Postgres,
    /// As Kubeapps reaches it.
    PostgresWithoutTls,
}

impl Database {
    /// Its name in tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "Postgres",
            Self::PostgresWithoutTls => "Postgres, no TLS",
        }
    }
}

/// Where processes work: one repository, one database.
pub struct Rig {
    folder: ScratchFolder,
    kind: Database,
    postgres: Option<TestDatabase>,
    url: String,
    databases: usize,
    samples: Vec<Sample>,
}

impl Rig {
    /// Nothing is declared yet, and the database is empty.
    pub async fn new(kind: Database) -> Self {
        let folder = ScratchFolder::new("bench");
        std::fs::create_dir(folder.join("manifests")).expect("a scratch folder can be written");
        let mut rig = Self {
            folder,
            kind,
            postgres: None,
            url: String::new(),
            databases: 0,
            samples: Vec::new(),
        };
        rig.fresh_database().await;
        rig
    }

    /// Another database, an empty one.
    pub async fn fresh_database(&mut self) {
        self.databases += 1;
        if self.kind == Database::Sqlite {
            let file = self.folder.join(&format!("{}.db", self.databases));
            self.url = format!("sqlite://{}", file.display());
            return;
        }
        let database = postgres::database().await;
        self.url.clone_from(&database.url);
        if self.kind == Database::PostgresWithoutTls {
            self.url.push_str("?sslmode=disable");
        }
        self.postgres = Some(database);
    }

    /// Declares the repository: the lines below `spec`, each behind two spaces.
    pub fn declare(&self, spec: &str) {
        self.declare_in("default", "measured", spec);
    }

    /// Declares one of several repositories.
    pub fn declare_in(&self, namespace: &str, name: &str, spec: &str) {
        let manifest = format!(
            "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata:\n  name: {name}\n  namespace: {namespace}\nspec:\n{spec}"
        );
        self.folder
            .write(&format!("manifests/{namespace}-{name}.yaml"), manifest);
    }

    /// Where the rows go, as the process is told it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A file beside the database.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A process with these flags.
    pub fn start(&self, flags: &[&str]) -> Portolan {
        let manifests = self.folder.join("manifests").display().to_string();
        let mut run = command([
            "run",
            "--manifests",
            &manifests,
            "--database-url",
            &self.url,
            "--min-interval=1s",
        ]);
        // Tests decode everything twice.
        run.env("PORTOLAN_VERIFY_DELTA", "false").args(flags);
        Portolan::start(run)
    }

    /// What a process has used so far.
    pub async fn readings(&self, portolan: &Portolan) -> Readings {
        let metrics = portolan.metrics().await;
        Readings {
            cpu: cpu(portolan.id()).expect("it runs"),
            postgres_cpu: self.postgres_cpu(),
            sync_seconds: metrics.sum("portolan_sync_seconds_sum", &[]).unwrap_or_default(),
        }
    }

    /// Notes all that a process has used since it was started.
    pub fn note_from_start(&mut self, portolan: &Portolan, started: Instant) {
        let wall = started.elapsed();
        self.samples.push(Sample {
            wall: wall.as_secs_f64(),
            cpu: cpu(portolan.id()).expect("it runs").as_secs_f64(),
            postgres_cpu: self.postgres_cpu().as_secs_f64(),
            peak: peak_memory(portolan.id()).expect("it runs"),
        });
    }

    /// Notes what each of so many syncs has used since these readings.
    pub async fn note_since(&mut self, before: &Readings, portolan: &Portolan, syncs: usize) {
        let after = self.readings(portolan).await;
        let of_each = |sum: f64| sum / syncs as f64;
        self.samples.push(Sample {
            wall: of_each(after.sync_seconds - before.sync_seconds),
            cpu: of_each((after.cpu - before.cpu).as_secs_f64()),
            postgres_cpu: of_each((after.postgres_cpu - before.postgres_cpu).as_secs_f64()),
            peak: peak_memory(portolan.id()).expect("it runs"),
        });
    }

    /// A process that has nothing to write, once it has started: so many syncs of it, which this path is asked for once each.
    pub async fn unchanged(&mut self, server: &ChartServer, path: &str, syncs: usize, flags: &[&str]) {
        let portolan = self.start(flags);
        portolan.ready(PATIENCE).await;
        asked(server, path, 2).await;
        let (before, asked_before) = (self.readings(&portolan).await, server.count(path));
        asked(server, path, syncs).await;
        self.note_since(&before, &portolan, server.count(path) - asked_before)
            .await;
        assert!(
            !portolan.lines().iter().any(|line| line.contains(WRITTEN)),
            "nothing has changed"
        );
        end(portolan).await;
    }

    /// What has been noted since the last time, to be put together by `row`.
    pub fn take(&mut self) -> Vec<Sample> {
        std::mem::take(&mut self.samples)
    }

    /// Samples of one case as a line of a table.
    pub fn row(&self, case: Case, samples: &[Sample], requests: &str) -> Row {
        let middle = |value: fn(&Sample) -> f64| median(samples.iter().map(value).collect());
        let row = Row {
            case,
            database: self.kind.title().to_owned(),
            wall: Some(middle(|sample| sample.wall)),
            cpu: middle(|sample| sample.cpu),
            postgres_cpu: self.postgres.is_some().then(|| middle(|sample| sample.postgres_cpu)),
            peak: samples.iter().map(|sample| sample.peak).max().unwrap_or_default(),
            requests: requests.to_owned(),
        };
        println!(
            "{} on {}: {:.4} s, {:.4} s of CPU, {} MiB",
            case.title(),
            row.database,
            row.wall.unwrap_or_default(),
            row.cpu,
            row.peak >> 20
        );
        row
    }

    /// What the database's processes have used so far.
    pub fn postgres_cpu(&self) -> Duration {
        self.postgres
            .as_ref()
            .map_or(Duration::ZERO, |database| cpu_of_postgres(&database.name))
    }
}

/// Waits for so many more requests for a path.
pub async fn asked(server: &ChartServer, path: &str, count: usize) {
    let wanted = server.count(path) + count;
    until(async || server.count(path) >= wanted).await;
}

/// Waits for something that is seen from outside the process.
pub async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < PATIENCE, "it takes no longer than {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until so many syncs have written something.
pub async fn written(portolan: &Portolan, count: usize) {
    let started = Instant::now();
    while portolan.lines().iter().filter(|line| line.contains(WRITTEN)).count() < count {
        assert!(started.elapsed() < PATIENCE, "a sync ends: {:#?}", portolan.lines());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until so many archives have been imported or have failed; how many were imported.
pub async fn imported(portolan: &Portolan, count: usize) -> usize {
    let started = Instant::now();
    loop {
        let metrics = portolan.metrics().await;
        let of = |result| {
            let sum = metrics.sum("portolan_chart_files_total", &[("result", result)]);
            sum.unwrap_or_default() as usize
        };
        if of("imported") + of("failed") >= count {
            return of("imported");
        }
        assert!(started.elapsed() < PATIENCE, "an import ends: {:#?}", portolan.lines());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Ends a process, which must end well.
pub async fn end(mut portolan: Portolan) {
    portolan.signal("TERM");
    let status = portolan.exit(PATIENCE).await;
    assert!(status.success(), "{status}: {:#?}", portolan.lines());
}
