//! Imports of chart files: archives of common size, and those of a large repository, also refused or beside archives that hang.

use std::ops::Range;

use serde_json::json;

use crate::report::{Cpu, Peak, Row, Wall};
use crate::rig::{BenchProcess, ChartServer, POSTGRES, POSTGRES_PLAIN, Page, RUNS, SQLITE, Sample};
use crate::rig::{baseline, helm, until};
use crate::support::archives::{Archive, Chart, index};
use crate::support::chart_server::Fault;
use crate::support::index_generator::Random;
use crate::support::process::ScratchDir;

const CHARTS: usize = 20;
const ARCHIVES: usize = 500;
/// A repository whose index has 16 MB: versions of charts that are not deprecated.
const LARGE_CHARTS: usize = 160;
const LARGE: usize = 13_337;
const HANGING: usize = 64;
const PATH: &str = "/charts/index.yaml";
const ALL: &str = "--chart-files=all";
/// The memory budget of a container of 512 MiB.
const BUDGET: &str = "--memory-budget=256Mi";

/// Measures the import of archives like those of public repositories, whose largest part are templates.
pub async fn run() -> Vec<Row> {
    let files = [
        ("README.md", 5),
        ("values.yaml", 6),
        ("values-production.yaml", 20),
        ("values.schema.json", 20),
    ];
    let templates: Vec<String> = (0..16).map(|number| format!("templates/part-{number}.yaml")).collect();
    let templates = templates.iter().map(|path| (path.as_str(), 30));
    let files: Vec<(&str, usize)> = files.into_iter().chain(templates).collect();
    let archives = archives(ARCHIVES, CHARTS, 85_000..270_000, &files);
    let (server, directory) = (ChartServer::start().await, ScratchDir::new("baseline"));
    serve(&server, &archives);
    for archive in &archives {
        directory.write(&archive.file_name(), &archive.bytes);
    }
    let (mut rows, mut baselines) = (Vec::new(), Vec::new());
    for database in [SQLITE, POSTGRES_PLAIN, POSTGRES] {
        let (mut samples, mut stored) = (Vec::new(), 0.0);
        for _ in 0..RUNS {
            let unpacked = baseline::measure("unpack", &[directory.path()]).await;
            baselines.push(unpacked);
            let (sample, bytes) = import(database, &server, ARCHIVES, "imported").await;
            samples.push(sample.against(unpacked.cpu));
            stored = bytes;
        }
        let row = Row::new("500 archives", &samples).against("unpacking");
        let row = row.on(database).limits(&[Peak(100.0)]);
        rows.push(row.limit(&format!("stores {stored:.0} MiB"), true));
    }
    let name = format!("unpacking the same {:.1} MB", megabytes(&archives));
    rows.push(Row::baseline(&name, &baselines));
    rows
}

pub async fn large() -> Vec<Row> {
    let files = [
        ("README.md", 3),
        ("values.yaml", 4),
        ("templates/deployment.yaml", 8),
        ("templates/service.yaml", 8),
        ("templates/ingress.yaml", 8),
    ];
    let archives = archives(LARGE, LARGE_CHARTS, 4_000..12_000, &files);
    let server = ChartServer::start().await;
    serve(&server, &archives);
    let refusing = ChartServer::start().await;
    refusing.serve(PATH, Page::new(index_of(&archives)));
    let hanging = ChartServer::start().await;
    serve(&hanging, &archives[..HANGING]);
    for archive in &archives[..HANGING] {
        let path = format!("/charts/{}", archive.file_name());
        hanging.break_path(&path, Fault::StallAfter(100));
    }
    println!("{LARGE} archives, {:.1} MB", megabytes(&archives));
    let mut rows = Vec::new();
    for database in [POSTGRES_PLAIN, SQLITE] {
        let (mut imported, mut refused, mut stored) = (Vec::new(), Vec::new(), 0.0);
        for _ in 0..RUNS {
            let (sample, bytes) = import(database, &server, LARGE, "imported").await;
            imported.push(sample);
            stored = bytes;
            refused.push(import(database, &refusing, LARGE, "failed").await.0);
        }
        let row = Row::new("13,337 archives", &imported).on(database);
        let row = row.limits(&[Cpu(4.5), Wall(10.0), Peak(100.0)]);
        rows.push(row.limit(&format!("stores {stored:.0} MiB"), true));
        let row = Row::new("13,337 archives, all refused", &refused).on(database);
        rows.push(row.limits(&[Cpu(4.0), Wall(4.0), Peak(100.0)]));
    }
    let mut samples = Vec::new();
    for _ in 0..RUNS {
        samples.push(beside(&server, &hanging).await);
    }
    let row = Row::new("13,337 archives, beside hanging ones", &samples).on(POSTGRES_PLAIN);
    rows.push(row.limits(&[Cpu(4.5), Wall(10.0), Peak(256.0)]));
    rows
}

/// Measures from the declaration of the repository until the last archive. Also returns the MiB that are stored.
async fn import(database: &str, server: &ChartServer, archives: usize, result: &str) -> (Sample, f64) {
    let process = BenchProcess::start(database, server, PATH, &[ALL]).await;
    let sample = process.import(archives, result).await;
    let stored = process.stored().await;
    process.end().await;
    (sample, stored)
}

/// Measures the import while a repository of another namespace waits for its archives.
async fn beside(server: &ChartServer, hanging: &ChartServer) -> Sample {
    let process = BenchProcess::start(POSTGRES_PLAIN, server, PATH, &[ALL, BUDGET]).await;
    let before = hanging.request_count();
    process.declare("hostile", "hanging", &helm(hanging, "/charts"));
    // The index, and the archives that one repository fetches at once.
    until(async || hanging.request_count() >= before + 1 + 4).await;
    let sample = process.import(LARGE, "imported").await;
    process.end().await;
    sample
}

fn serve(server: &ChartServer, archives: &[Archive]) {
    server.serve_archives("charts", archives);
    server.serve(PATH, Page::new(index_of(archives)));
}

fn index_of(archives: &[Archive]) -> String {
    let entry = |archive: &Archive| archive.index_entry(&[&archive.file_name()]);
    index(archives.iter().map(entry))
}

fn megabytes(archives: &[Archive]) -> f64 {
    archives.iter().map(|archive| archive.bytes.len() as f64 / 1e6).sum()
}

/// Returns archives with these files, each of which has a part of the bytes.
fn archives(count: usize, charts: usize, bytes: Range<usize>, files: &[(&str, usize)]) -> Vec<Archive> {
    let mut random = Random(1);
    let archive = |number: usize| {
        let bytes = bytes.start + random.below(bytes.len());
        let (name, version) = (format!("galleon-{}", number % charts), number / charts);
        let mut chart = Chart::new(&name, &format!("1.{}.0", 999 - version))
            .field("appVersion", format!("{version}.0"))
            .field("home", "https://example.com/galleon")
            .field("keywords", vec!["ship", "sail", "harbor"]);
        for (path, part) in files {
            let mut text = lines(&mut random, bytes / part);
            if path.ends_with(".json") {
                text = json!({"$comment": text}).to_string();
            }
            chart = chart.file(path, text);
        }
        chart.pack()
    };
    (0..count).map(archive).collect()
}

/// Returns about this many bytes of text that compresses to less than a quarter.
fn lines(random: &mut Random, bytes: usize) -> String {
    const WORDS: [&str; 12] = [
        "anchor", "ballast", "capstan", "davit", "fender", "gunwale", "halyard", "keel", "mizzen", "rudder", "sextant",
        "tiller",
    ];
    let mut text = String::with_capacity(bytes + 80);
    while text.len() < bytes {
        let [first, second, third, fourth] = std::array::from_fn(|_| random.pick(&WORDS));
        let number = random.next() >> 32;
        text.push_str(&format!(
            "  {first}{second}: the {third} of the {fourth} is {number:08x}\n"
        ));
    }
    text
}
