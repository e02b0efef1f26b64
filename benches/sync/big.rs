//! One repository with the standard big index: the first sync, and the ways in which it goes on.

use std::time::{Duration, Instant};

use crate::baseline;
use crate::index::Index;
use crate::measure::{cpu, cpu_of_postgres, median, peak_memory};
use crate::report::{Case, Report, Row, thousands};
use crate::support::chart_server::{ChartServer, Page};
use crate::support::portolan::{Portolan, command};
use crate::support::postgres::{self, TestDatabase};
use crate::support::process::ScratchFolder;

const RUNS: usize = 3;
/// Syncs over which the cheap ones are averaged: the clock that CPU is read from ticks a hundred times a second.
const NOT_MODIFIED: usize = 20;
const NO_ETAG: usize = 8;
const PATH: &str = "/big/index.yaml";
const PATIENCE: Duration = Duration::from_secs(60);
/// What the log says when something was written.
const WRITTEN: &str = "SyncSucceeded";

/// Measures all of it on both databases.
pub async fn run(report: &mut Report) {
    let index = Index::standard();
    let described = format!(
        "{}, {:.1} MB, {} versions",
        index.origin,
        index.text.len() as f64 / 1e6,
        thousands(index.versions())
    );
    println!("{described}");
    for on_postgres in [false, true] {
        let mut bench = Bench::new(&index, on_postgres).await;
        for _ in 0..RUNS {
            bench.fresh_database().await;
            bench.first_sync().await;
        }
        report.rows.push(bench.take(Case::First));
        bench.settle().await;
        bench.unchanged(NOT_MODIFIED).await;
        report.rows.push(bench.take(Case::NotModified));
        bench.server.serve(PATH, Page::new(index.text.clone()).without_etag());
        bench.unchanged(NO_ETAG).await;
        report.rows.push(bench.take(Case::NoEtag));
        bench.server.serve(PATH, Page::new(index.text.clone()));
        let (charts, versions) = bench.new_versions().await;
        report.rows.push(bench.take(Case::NewVersion));
        report.index = Some(format!(
            "{described} ({} of them, in {charts} charts, are kept; the rest is of deprecated charts)",
            thousands(versions)
        ));
    }
    let folder = ScratchFolder::new("baseline");
    report
        .rows
        .extend(baseline::rows(&folder.write("index.yaml", &index.text)));
}

/// What one sync took.
struct Sample {
    wall: f64,
    cpu: f64,
    postgres_cpu: f64,
    peak: u64,
    requests: f64,
}

/// A server, a folder of manifests and a database.
struct Bench<'a> {
    index: &'a Index,
    server: ChartServer,
    folder: ScratchFolder,
    on_postgres: bool,
    postgres: Option<TestDatabase>,
    database: String,
    databases: usize,
    samples: Vec<Sample>,
}

/// Readings of a process, to be taken from later ones.
struct Readings {
    cpu: Duration,
    postgres_cpu: Duration,
    requests: usize,
    sync_seconds: f64,
}

impl<'a> Bench<'a> {
    async fn new(index: &'a Index, on_postgres: bool) -> Self {
        let server = ChartServer::start().await;
        server.serve(PATH, Page::new(index.text.clone()));
        let folder = ScratchFolder::new("bench");
        std::fs::create_dir(folder.join("manifests")).expect("a scratch folder can be written");
        Self {
            index,
            server,
            folder,
            on_postgres,
            postgres: None,
            database: String::new(),
            databases: 0,
            samples: Vec::new(),
        }
    }

    async fn fresh_database(&mut self) {
        self.databases += 1;
        if self.on_postgres {
            let database = postgres::database().await;
            self.database.clone_from(&database.url);
            self.postgres = Some(database);
        } else {
            let file = self.folder.join(&format!("{}.db", self.databases));
            self.database = format!("sqlite://{}", file.display());
        }
    }

    /// Declares the repository; without an interval the default holds.
    fn declare(&self, interval: &str) {
        let url = self.server.url("/big");
        let manifest = format!(
            "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata:\n  name: big\nspec:\n  type: helm\n  url: {url}\n{interval}"
        );
        self.folder.write("manifests/big.yaml", manifest);
    }

    fn start(&self) -> Portolan {
        let manifests = self.folder.join("manifests").display().to_string();
        Portolan::start(command([
            "run",
            "--manifests",
            &manifests,
            "--database-url",
            &self.database,
            "--min-interval=1s",
        ]))
    }

    async fn first_sync(&mut self) {
        self.declare("");
        let before = self.server.seen(PATH).len();
        let started = Instant::now();
        let portolan = self.start();
        written(&portolan, 1).await;
        let wall = started.elapsed();
        self.samples.push(Sample {
            wall: wall.as_secs_f64(),
            cpu: cpu(portolan.id()).expect("it runs").as_secs_f64(),
            postgres_cpu: self.postgres_cpu().as_secs_f64(),
            peak: peak_memory(portolan.id()).expect("it runs"),
            requests: (self.server.seen(PATH).len() - before) as f64,
        });
        end(portolan).await;
    }

    /// From now on the repository is synced every second. The change of the declaration alone makes it be compared once.
    async fn settle(&self) {
        self.declare("  interval: \"* * * * * *\"\n");
        let portolan = self.start();
        self.ticks(2).await;
        end(portolan).await;
    }

    /// Waits for so many more requests for the index.
    async fn ticks(&self, count: usize) {
        let wanted = self.server.seen(PATH).len() + count;
        let started = Instant::now();
        while self.server.seen(PATH).len() < wanted {
            assert!(started.elapsed() < PATIENCE, "a tick every second");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// A process that has nothing to write, once it has started.
    async fn unchanged(&mut self, count: usize) {
        let portolan = self.start();
        portolan.ready(PATIENCE).await;
        self.ticks(2).await;
        let before = self.readings(&portolan).await;
        self.ticks(count).await;
        let after = self.readings(&portolan).await;
        let requests = after.requests - before.requests;
        let of_each = |sum: f64| sum / requests as f64;
        self.samples.push(Sample {
            wall: of_each(after.sync_seconds - before.sync_seconds),
            cpu: of_each((after.cpu - before.cpu).as_secs_f64()),
            postgres_cpu: of_each((after.postgres_cpu - before.postgres_cpu).as_secs_f64()),
            peak: peak_memory(portolan.id()).expect("it runs"),
            requests: 1.0,
        });
        assert!(
            !portolan.lines().iter().any(|line| line.contains(WRITTEN)),
            "nothing has changed"
        );
        end(portolan).await;
    }

    /// A process that finds one more version, time and again. The charts and versions that were there before.
    async fn new_versions(&mut self) -> (usize, usize) {
        let portolan = self.start();
        portolan.ready(PATIENCE).await;
        self.ticks(2).await;
        let metrics = portolan.metrics().await;
        let count = |name| metrics.sum(name, &[]).expect("it is told") as usize;
        let kept = (
            count("portolan_repository_charts"),
            count("portolan_repository_versions"),
        );
        for number in 1..=RUNS {
            let text = self.index.with_one_more(number);
            let before = self.readings(&portolan).await;
            self.server.serve(PATH, Page::new(text));
            written(&portolan, number).await;
            let after = self.readings(&portolan).await;
            let wall = after.sync_seconds - before.sync_seconds;
            self.samples.push(Sample {
                wall,
                cpu: (after.cpu - before.cpu).as_secs_f64(),
                postgres_cpu: (after.postgres_cpu - before.postgres_cpu).as_secs_f64(),
                peak: peak_memory(portolan.id()).expect("it runs"),
                requests: 1.0,
            });
        }
        end(portolan).await;
        kept
    }

    async fn readings(&self, portolan: &Portolan) -> Readings {
        let metrics = portolan.metrics().await;
        Readings {
            cpu: cpu(portolan.id()).expect("it runs"),
            postgres_cpu: self.postgres_cpu(),
            requests: self.server.seen(PATH).len(),
            sync_seconds: metrics.sum("portolan_sync_seconds_sum", &[]).unwrap_or_default(),
        }
    }

    fn postgres_cpu(&self) -> Duration {
        self.postgres
            .as_ref()
            .map_or(Duration::ZERO, |database| cpu_of_postgres(&database.name))
    }

    /// What has been measured since the last time, as one line.
    fn take(&mut self, case: Case) -> Row {
        let samples = std::mem::take(&mut self.samples);
        let middle = |value: fn(&Sample) -> f64| median(samples.iter().map(value).collect());
        let row = Row {
            case,
            database: if self.on_postgres { "Postgres" } else { "SQLite" }.to_owned(),
            wall: Some(middle(|sample| sample.wall)),
            cpu: middle(|sample| sample.cpu),
            postgres_cpu: self.on_postgres.then(|| middle(|sample| sample.postgres_cpu)),
            peak: samples.iter().map(|sample| sample.peak).max().unwrap_or_default(),
            requests: format!("{:.0}", middle(|sample| sample.requests)),
        };
        println!(
            "{} on {}: {:.4} s of CPU, {} MiB",
            case.title(),
            row.database,
            row.cpu,
            row.peak >> 20
        );
        row
    }
}

/// Waits until so many syncs have written something.
async fn written(portolan: &Portolan, count: usize) {
    let started = Instant::now();
    while portolan.lines().iter().filter(|line| line.contains(WRITTEN)).count() < count {
        assert!(started.elapsed() < PATIENCE, "a sync ends: {:#?}", portolan.lines());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn end(mut portolan: Portolan) {
    portolan.signal("TERM");
    let status = portolan.exit(PATIENCE).await;
    assert!(status.success(), "{status}: {:#?}", portolan.lines());
}
