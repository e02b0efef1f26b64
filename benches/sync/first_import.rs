//! Chart files of a large repository: all archives imported, all refused, and beside a repository whose archives hang.

use crate::files::{MIB, lines};
use crate::report::Limit::{Cpu, Peak, Wall};
use crate::report::Row;
use crate::rig::measure::Sample;
use crate::rig::{BenchProcess, Database, RUNS, Source, until};
use crate::support::archives::{Archive, Chart, index};
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::index_generator::Random;

const CHARTS: usize = 160;
/// Versions of an index of 16 MB whose charts are not deprecated.
const ARCHIVES: usize = 13_337;
const HANGING: usize = 64;
const PATH: &str = "/charts/index.yaml";
const FLAGS: [&str; 1] = ["--chart-files=all"];
/// The memory budget of a container of 512 MiB.
const BUDGET: [&str; 2] = ["--chart-files=all", "--memory-budget=256Mi"];

/// Measures from the declaration of the repository until the last archive is stored.
pub async fn run() -> Vec<Row> {
    let archives = archives();
    let (server, refusing, hanging) = (
        ChartServer::start().await,
        ChartServer::start().await,
        ChartServer::start().await,
    );
    let index = index(
        archives
            .iter()
            .map(|archive| archive.index_entry(&[&archive.file_name()])),
    );
    server.serve_archives("charts", &archives);
    for server in [&server, &refusing] {
        server.serve(PATH, Page::new(index.clone()));
    }
    serve_hanging(&hanging, &archives);
    let bytes: usize = archives.iter().map(|archive| archive.bytes.len()).sum();
    println!("{ARCHIVES} archives of {CHARTS} charts, {:.1} MB", bytes as f64 / 1e6);
    let mut rows = Vec::new();
    for database in [Database::PostgresPlain, Database::Sqlite] {
        let (mut imported, mut refused, mut stored) = (Vec::new(), Vec::new(), 0);
        for _ in 0..RUNS {
            let mut process = BenchProcess::start(database, &source(&server), &FLAGS).await;
            imported.push(process.import(ARCHIVES, "imported").await);
            stored = process.stored_bytes().await;
            process.end().await;
            let mut process = BenchProcess::start(database, &source(&refusing), &FLAGS).await;
            refused.push(process.import(ARCHIVES, "failed").await);
            process.end().await;
        }
        let stores = format!("stores {:.0} MiB", stored as f64 / MIB);
        let row = Row::new("13,337 archives", &imported).database(database.title());
        rows.push(row.limits(&[Cpu(4.5), Wall(10.0), Peak(100.0)]).limit(&stores, true));
        let row = Row::new("13,337 archives, all refused", &refused).database(database.title());
        rows.push(row.limits(&[Cpu(4.0), Wall(4.0), Peak(100.0)]));
    }
    let mut samples = Vec::new();
    for _ in 0..RUNS {
        samples.push(beside(&source(&server), &hanging).await);
    }
    let row = Row::new("13,337 archives, beside hanging ones", &samples).database(Database::PostgresPlain.title());
    rows.push(row.limits(&[Cpu(4.5), Wall(10.0), Peak(256.0)]));
    rows
}

/// Measures the import while a repository of another namespace waits for its archives.
async fn beside(source: &Source<'_>, hanging: &ChartServer) -> Sample {
    let mut process = BenchProcess::start(Database::PostgresPlain, source, &BUDGET).await;
    let before = hanging.request_count();
    let spec = format!("  type: helm\n  url: {}\n", hanging.url("/charts"));
    process.declare("hostile", "hanging", &spec);
    // The index, and the archives that one repository fetches at once.
    until(async || hanging.request_count() >= before + 1 + 4).await;
    let sample = process.import(ARCHIVES, "imported").await;
    process.end().await;
    sample
}

fn serve_hanging(server: &ChartServer, archives: &[Archive]) {
    let archives = &archives[..HANGING];
    server.serve_archives("charts", archives);
    let entries = archives
        .iter()
        .map(|archive| archive.index_entry(&[&archive.file_name()]));
    server.serve(PATH, Page::new(index(entries)));
    for archive in archives {
        let path = format!("/charts/{}", archive.file_name());
        server.break_path(&path, Fault::StallAfter(100));
    }
}

fn source(server: &ChartServer) -> Source<'_> {
    Source {
        server,
        path: PATH,
        spec: format!("  type: helm\n  url: {}\n", server.url("/charts")),
    }
}

/// Small archives: README, values and a few templates.
fn archives() -> Vec<Archive> {
    let mut random = Random(1);
    let mut archives = Vec::with_capacity(ARCHIVES);
    for number in 0..ARCHIVES {
        let (chart, version) = (number % CHARTS, number / CHARTS);
        let bytes = 4_000 + random.below(8_000);
        let mut made = Chart::new(&format!("galleon-{chart}"), &format!("1.{}.0", 999 - version))
            .field("appVersion", format!("{version}.0"))
            .field("home", "https://example.com/galleon")
            .field("keywords", vec!["ship", "sail", "harbor"])
            .file("README.md", lines(&mut random, bytes / 3))
            .file("values.yaml", lines(&mut random, bytes / 4));
        for template in ["deployment", "service", "ingress"] {
            made = made.file(&format!("templates/{template}.yaml"), lines(&mut random, bytes / 8));
        }
        archives.push(made.pack());
    }
    archives
}
