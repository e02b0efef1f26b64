//! Many repositories in one process: a thousand different ones, and the same one in many namespaces.

use std::time::{Duration, Instant};

use super::figures::Crowd;
use super::rows::Rows;
use crate::index::Index;
use crate::measure::{Meter, peak_memory, reset_peak_memory, resident_memory};
use crate::rig::{Database, Rig, UNLIMITED, end};
use crate::support::chart_server::{ChartServer, Page};
use crate::support::index_generator;
use crate::support::portolan::Portolan;

/// How many different ones, and when they are synced.
pub const MANY: (usize, &str) = (1000, EVERY_TEN_SECONDS);
pub const MOST: (usize, &str) = (5000, EVERY_THIRTY_SECONDS);
/// Of 100 KB each; contents are shared by some, addresses by none.
const CONTENTS: usize = 10;
const NAMESPACES: usize = 200;
/// Rounds over which the unchanged ones are averaged.
const ROUNDS: usize = 3;
const EVERY_TEN_SECONDS: &str = "  interval: \"*/10 * * * * *\"\n";
const EVERY_TWENTY_SECONDS: &str = "  interval: \"*/20 * * * * *\"\n";
const EVERY_THIRTY_SECONDS: &str = "  interval: \"*/30 * * * * *\"\n";
/// Some of it is slow where each repository is decoded by itself.
const PATIENCE: Duration = Duration::from_secs(1200);
const LOOK: Duration = Duration::from_millis(200);
const WRITTEN: &str = "SyncSucceeded";

/// A process without any repository, and a server.
struct Crowded {
    rig: Rig,
    server: ChartServer,
    portolan: Portolan,
    meter: Meter,
    idle: u64,
}

impl Crowded {
    async fn start() -> Self {
        let rig = Rig::new(Database::Sqlite).await;
        let portolan = rig.start(&["--chart-files=none", UNLIMITED[0], UNLIMITED[1]]);
        portolan.ready(PATIENCE).await;
        tokio::time::sleep(LOOK).await;
        Self {
            server: ChartServer::start().await,
            rig,
            meter: Meter::of(portolan.id()),
            idle: resident_memory(portolan.id()).expect("it runs"),
            portolan,
        }
    }

    fn written(&self) -> usize {
        let lines = self.portolan.lines();
        lines.iter().filter(|line| line.contains(WRITTEN)).count()
    }

    fn requests(&self) -> usize {
        self.server.all_seen().len()
    }

    /// The most since [`Crowded::rest`], above what it was then.
    fn peak(&self, at_rest: u64) -> u64 {
        let peak = peak_memory(self.portolan.id()).expect("it runs");
        peak.saturating_sub(self.idle).saturating_sub(at_rest)
    }

    /// What it takes now, above what it took without any repository.
    fn rest(&self) -> u64 {
        reset_peak_memory(self.portolan.id());
        resident_memory(self.portolan.id())
            .expect("it runs")
            .saturating_sub(self.idle)
    }

    /// Looks rarely, since each look costs the more the more there is.
    async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !holds(self) {
            assert!(started.elapsed() < PATIENCE, "{what} within {PATIENCE:?}");
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Many repositories, all unchanged.
pub async fn many((count, interval): (usize, &str)) -> Crowd {
    let mut crowded = Crowded::start().await;
    let contents: Vec<Page> = (0..CONTENTS)
        .map(|seed| Page::new(index_generator::generate(seed as u64, 8, 11)))
        .collect();
    for number in 0..count {
        let path = format!("/{number}");
        crowded
            .server
            .serve(&format!("{path}/index.yaml"), contents[number % CONTENTS].clone());
        let url = crowded.server.url(&path);
        crowded.rig.declare_in(
            &format!("team-{}", number % 20),
            &format!("repository-{number}"),
            &format!("  type: helm\n  url: {url}\n{interval}"),
        );
    }
    crowded
        .until("all are synced", |crowded| crowded.written() >= count)
        .await;
    let settled = crowded.requests() + 2 * count;
    crowded
        .until("they are synced again", |crowded| crowded.requests() >= settled)
        .await;
    let (before, cpu, at_rest) = (crowded.requests(), crowded.meter.read(), crowded.rest());
    let wanted = before + ROUNDS * count;
    crowded
        .until("rounds go on", |crowded| crowded.requests() >= wanted)
        .await;
    let (seen, cpu) = (crowded.server.all_seen(), crowded.meter.read() - cpu);
    let measured = &seen[before..];
    let bodies = measured
        .iter()
        .filter(|seen| seen.status.is_none_or(|status| status != 304));
    let rounds = measured.len() as f64 / count as f64;
    let crowd = Crowd {
        repositories: count,
        cpu: cpu.as_secs_f64() / rounds,
        alone: None,
        bodies: bodies.count(),
        requests: count,
        rows: 0,
        at_rest,
        peak: crowded.peak(at_rest),
    };
    println!("{count} repositories unchanged: {:.3} s of CPU a round", crowd.cpu);
    end(crowded.portolan).await;
    crowd
}

/// The standard big index in many namespaces, with one new version: after it was measured in one alone.
pub async fn namespaces(index: &Index) -> Crowd {
    const PATH: &str = "/big/index.yaml";
    let mut crowded = Crowded::start().await;
    crowded.server.serve(PATH, Page::new(index.text.clone()));
    let mut crowd = Crowd {
        repositories: NAMESPACES,
        cpu: 0.0,
        alone: None,
        bodies: 0,
        requests: 0,
        rows: 0,
        at_rest: 0,
        peak: 0,
    };
    let mut declared = 0;
    for (number, count) in [(1, 1), (2, NAMESPACES)] {
        let written = crowded.written() + count - declared;
        let url = crowded.server.url("/big");
        for number in declared..count {
            let spec = format!("  type: helm\n  url: {url}\n{EVERY_TWENTY_SECONDS}");
            crowded.rig.declare_in(&format!("team-{number}"), "measured", &spec);
        }
        declared = count;
        crowded
            .until("all are synced", |crowded| crowded.written() >= written)
            .await;
        if number == 1 {
            Rows::watch(&crowded.rig, Database::Sqlite).await;
        }
        // What came with the declaration is over when nothing is asked for any more but every twenty seconds.
        let settled = crowded.requests() + 1;
        crowded
            .until("they go on", |crowded| crowded.requests() >= settled)
            .await;
        tokio::time::sleep(Duration::from_secs(5)).await;

        let (rows, before) = (Rows::now(&crowded.rig, Database::Sqlite).await, crowded.requests());
        crowd.at_rest = crowded.rest();
        let (written, cpu) = (crowded.written() + count, crowded.meter.read());
        crowded.server.serve(PATH, Page::new(index.with_one_more(number)));
        crowded
            .until("all have the new version", |crowded| crowded.written() >= written)
            .await;
        let cpu = (crowded.meter.read() - cpu).as_secs_f64();
        let seen = crowded.server.all_seen();
        let has_body = |status: Option<axum::http::StatusCode>| status.is_some_and(|status| status == 200);
        println!("{count} namespaces, one new version: {cpu:.3} s of CPU");
        crowd.alone = crowd.alone.or(Some(cpu));
        crowd.cpu = cpu;
        crowd.requests = seen.len() - before;
        crowd.bodies = seen[before..].iter().filter(|seen| has_body(seen.status)).count();
        crowd.rows = Rows::now(&crowded.rig, Database::Sqlite).await.since(&rows);
        crowd.peak = crowded.peak(crowd.at_rest);
    }
    end(crowded.portolan).await;
    crowd
}
