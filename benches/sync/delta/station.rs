//! One process over one repository, and what each of its syncs takes.

use std::time::{Duration, Instant};

use super::rows::Rows;
use crate::measure::{self, Meter};
use crate::rig::{Database, EVERY_SECOND, Rig, asked, written};
use crate::support::chart_server::{ChartServer, Page};
use crate::support::portolan::Portolan;

/// Where the index is.
pub const PATH: &str = "/big/index.yaml";
const PATIENCE: Duration = Duration::from_secs(60);
const FLAGS: [&str; 1] = ["--chart-files=none"];
/// After a request that needs next to nothing: what was to be done is done.
const SETTLE: Duration = Duration::from_millis(300);
/// How long the process is watched while nothing is to be done.
const REST: Duration = Duration::from_secs(4);

/// What one sync took.
#[derive(Clone, Copy, Default)]
pub struct Sync {
    /// Seconds of our process.
    pub cpu: f64,
    /// Seconds of the database's processes.
    pub postgres_cpu: f64,
    /// Rows of charts written or removed.
    pub rows: usize,
    /// Requests for the index.
    pub requests: usize,
    /// Bytes above what the process took before its first sync.
    pub peak: u64,
}

/// What is known when a sync begins.
struct Before {
    at: Instant,
    cpu: Duration,
    postgres_cpu: Duration,
    requests: usize,
}

/// A process that was started without any repository.
pub struct Station {
    pub rig: Rig,
    pub server: ChartServer,
    pub portolan: Portolan,
    database: Database,
    meter: Meter,
    /// Bytes before the first sync.
    idle: u64,
    /// Of them, pages of files.
    idle_files: u64,
    /// Seconds of CPU that a second takes in which nothing is to be done.
    pub upkeep: f64,
    /// A sync that finds nothing new, by an ETag.
    pub not_modified: Sync,
}

impl Station {
    /// Nothing is declared.
    pub async fn start(database: Database) -> Self {
        let rig = Rig::new(database).await;
        let portolan = rig.start(&FLAGS);
        portolan.ready(PATIENCE).await;
        tokio::time::sleep(SETTLE).await;
        let pid = portolan.id();
        Self {
            server: ChartServer::start().await,
            rig,
            database,
            meter: Meter::of(pid),
            idle: measure::resident_memory(pid).expect("it runs"),
            idle_files: measure::resident_files(pid).expect("it runs"),
            portolan,
            upkeep: 0.0,
            not_modified: Sync::default(),
        }
    }

    /// The URL of the index.
    pub fn url(&self) -> String {
        self.server.url(PATH)
    }

    /// Bytes by which pages of files, the program's own for the most, have become more since the start.
    pub fn more_files(&self) -> u64 {
        let files = measure::resident_files(self.portolan.id()).expect("it runs");
        files.saturating_sub(self.idle_files)
    }

    /// Declares the repository, which is synced at once.
    pub fn declare(&self, more: &str) {
        let url = self.server.url("/big");
        self.rig.declare(&format!("  type: helm\n  url: {url}\n{more}"));
    }

    /// The first sync, of an index that is accepted.
    pub async fn first(&mut self, page: Page) -> Sync {
        let before = self.begin();
        self.server.serve(PATH, page);
        self.declare("");
        written(&self.portolan, 1).await;
        tokio::time::sleep(SETTLE).await;
        Rows::watch(&self.rig, self.database).await;
        self.end(&before)
    }

    /// A first sync that may come to nothing: it ends with an event of whatever kind.
    pub async fn attempt(&mut self, page: Page) -> Sync {
        let before = self.begin();
        self.server.serve(PATH, page);
        self.declare("");
        let started = Instant::now();
        let has_ended = |line: &String| {
            ["SyncSucceeded", "SyncFailed", "SyncStalled"]
                .iter()
                .any(|word| line.contains(word))
        };
        while !self.portolan.lines().iter().any(has_ended) {
            assert!(started.elapsed() < PATIENCE, "it ends: {:#?}", self.portolan.lines());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(SETTLE).await;
        self.end(&before)
    }

    /// Has the repository synced every second from now on, and finds out what a second takes without a sync, and a sync that
    /// finds nothing new.
    pub async fn settle(&mut self, syncs: usize) {
        let before = self.begin();
        tokio::time::sleep(REST).await;
        self.upkeep = (self.meter.read() - before.cpu).as_secs_f64() / before.at.elapsed().as_secs_f64();
        self.declare(EVERY_SECOND);
        self.not_modified = self.unchanged(None, syncs).await;
    }

    /// Syncs that find nothing new: the mean of so many. A page takes the place of the one that is served.
    pub async fn unchanged(&mut self, page: Option<Page>, syncs: usize) -> Sync {
        if let Some(page) = page {
            self.server.serve(PATH, page);
        }
        self.quiet(2).await;
        let rows = Rows::now(&self.rig, self.database).await;
        let before = self.begin();
        self.quiet(syncs).await;
        let all = self.end(&before);
        let of_each = |sum: f64| sum / all.requests as f64;
        Sync {
            cpu: of_each(all.cpu),
            postgres_cpu: of_each(all.postgres_cpu),
            rows: Rows::now(&self.rig, self.database).await.since(&rows),
            requests: 1,
            peak: all.peak,
        }
    }

    /// The sync that finds this page, which is another. What the syncs behind it take is taken off.
    pub async fn change(&mut self, page: Page) -> Sync {
        let rows = Rows::now(&self.rig, self.database).await;
        let before = self.begin();
        self.server.serve(PATH, page);
        // The second request is sent when the first sync has ended.
        self.quiet(2).await;
        let all = self.end(&before);
        let others = (all.requests - 1) as f64;
        let seen = self.server.seen(PATH);
        let bodies = seen[before.requests..]
            .iter()
            .filter(|seen| seen.status.is_some_and(|status| status == 200));
        Sync {
            cpu: all.cpu - others * self.not_modified.cpu,
            postgres_cpu: all.postgres_cpu - others * self.not_modified.postgres_cpu,
            rows: Rows::now(&self.rig, self.database).await.since(&rows),
            requests: bodies.count(),
            peak: all.peak,
        }
    }

    /// Waits for so many more requests, and for what the last one takes.
    pub async fn quiet(&self, requests: usize) {
        asked(&self.server, PATH, requests).await;
        tokio::time::sleep(SETTLE).await;
    }

    fn begin(&mut self) -> Before {
        measure::reset_peak_memory(self.portolan.id());
        Before {
            at: Instant::now(),
            cpu: self.meter.read(),
            postgres_cpu: self.rig.postgres_cpu(),
            requests: self.server.count(PATH),
        }
    }

    /// What was used since, but for the upkeep of the time.
    fn end(&mut self, before: &Before) -> Sync {
        let cpu = (self.meter.read() - before.cpu).as_secs_f64();
        Sync {
            cpu: cpu - self.upkeep * before.at.elapsed().as_secs_f64(),
            postgres_cpu: self
                .rig
                .postgres_cpu()
                .saturating_sub(before.postgres_cpu)
                .as_secs_f64(),
            rows: 0,
            requests: self.server.count(PATH) - before.requests,
            peak: measure::peak_memory(self.portolan.id())
                .expect("it runs")
                .saturating_sub(self.idle),
        }
    }
}
