//! Honest tenants beside hostile ones: a new repository, a deletion, ticks, and the memory of many syncs.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::index::Index;
use crate::report::Limit::{Cpu, Peak};
use crate::report::Row;
use crate::rig::measure::{Sample, median};
use crate::rig::{BenchProcess, Database, RUNS, until};
use crate::standard;
use crate::support::archives::sha256;
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::index_generator;

const HOSTILE: usize = 64;
/// Hostile servers that respond at no time hold this many workers, whatever the number of namespaces.
const HANGING: usize = HOSTILE / 2;
const INDEX: &str = "/charts/index.yaml";
const PERIOD: Duration = Duration::from_secs(5);
const EVERY_FIVE_SECONDS: &str = "  interval: \"*/5 * * * * *\"\n";
const OBSERVED: Duration = Duration::from_secs(60);
const CROWD: usize = 2000;
/// The default limit of requests per host does not delay the repositories of many servers.
const SERVERS: usize = 20;
const REPOSITORIES: usize = 20;
const TAGS: usize = 1000;
const SYNCS: usize = 64;
const WAITING: usize = 192;

/// Measures honest tenants alone and beside hostile ones, and large tenants.
pub async fn run() -> Vec<Row> {
    let mut rows = Vec::new();
    let alone = Honest::beside(0).await;
    rows.extend(alone.rows("alone", &alone));
    for namespaces in [1, 4, HOSTILE] {
        let beside = Honest::beside(namespaces).await;
        let hostile = match namespaces {
            1 => format!("{HOSTILE} hostile in another namespace"),
            _ => format!("{HOSTILE} hostile in {namespaces} namespaces"),
        };
        rows.extend(beside.rows(&hostile, &alone));
    }
    let (spread, late) = crowd(SERVERS).await;
    rows.push(of_crowd("20 namespaces", spread, late));
    let (together, late) = crowd(1).await;
    let row = of_crowd("one namespace", together, late);
    rows.push(row.limit("1.1× the time of 20 namespaces", together.wall <= 1.1 * spread.wall));
    rows.push(tags().await);
    rows.push(rest().await);
    rows.push(memory().await);
    rows
}

/// Times of an honest tenant in seconds.
struct Honest {
    new: f64,
    deletion: f64,
    late: f64,
}

impl Honest {
    /// Measures beside hostile repositories in this number of namespaces.
    async fn beside(namespaces: usize) -> Self {
        let server = ChartServer::start().await;
        server.serve(INDEX, Page::new(index_generator::generate(1, 8, 11)));
        let process = BenchProcess::start(Database::Sqlite, &standard::source(&server), &[]).await;
        let ticking = Ticking::start(&process).await;
        let mut hostile = Vec::new();
        for number in 0..if namespaces == 0 { 0 } else { HOSTILE } {
            let server = hostile_server(number).await;
            let namespace = format!("hostile-{}", number % namespaces);
            process.declare(&namespace, &format!("r{number}"), &spec(&server));
            hostile.push(server);
        }
        until(async || {
            let asked = hostile.iter().filter(|server| server.count(INDEX) > 0).count();
            asked >= HANGING.min(hostile.len())
        })
        .await;
        ticking.begin();
        let (mut new, mut deletion) = (Vec::new(), Vec::new());
        for number in 0..RUNS {
            let name = format!("new-{number}");
            let declared = Instant::now();
            process.declare("honest", &name, &spec(&server));
            until(async || charts(&process).await > 0).await;
            new.push(declared.elapsed().as_secs_f64());
            let removed = Instant::now();
            process.remove("honest", &name);
            until(async || charts(&process).await == 0).await;
            deletion.push(removed.elapsed().as_secs_f64());
        }
        tokio::time::sleep(OBSERVED).await;
        let late = ticking.late();
        // Killed, since syncs that wait would delay its end.
        drop(process);
        Self {
            new: median(new),
            deletion: median(deletion),
            late,
        }
    }

    fn rows(&self, neighbors: &str, alone: &Self) -> Vec<Row> {
        let row = |case: &str, wall| {
            let sample = Sample {
                wall,
                ..Sample::default()
            };
            Row::new(&format!("{case}, {neighbors}"), &[sample]).database("SQLite")
        };
        vec![
            row("New repository until its charts are stored", self.new)
                .limit("2× alone + 1 s", self.new <= 2.0 * alone.new + 1.0),
            row("Deletion of a repository", self.deletion).limit("2 s", self.deletion <= 2.0),
            row("Lateness of ticks every 5 s", self.late).limit("5 s", self.late <= 5.0),
        ]
    }
}

async fn charts(process: &BenchProcess<'_>) -> i64 {
    let count = process.query("SELECT count(*) FROM charts WHERE repo_namespace = 'honest'");
    count.await.unwrap_or_default()
}

fn spec(server: &ChartServer) -> String {
    format!("  type: helm\n  url: {}\n", server.url("/charts"))
}

/// Starts a server that hangs, trickles, sends too much, or fails.
async fn hostile_server(number: usize) -> ChartServer {
    let server = ChartServer::start().await;
    server.serve(INDEX, Page::new(index_generator::generate(2, 100, 20)));
    let fault = match number % 4 {
        0 => Fault::StallAfter(10),
        // Twice the speed below which a download is aborted.
        1 => Fault::Drip(200, Duration::from_millis(100)),
        2 => Fault::EndlessGzip,
        _ => Fault::status(500),
    };
    server.break_path(INDEX, fault);
    server
}

/// An honest repository with a schedule.
struct Ticking {
    server: ChartServer,
    begin: std::cell::Cell<Instant>,
}

impl Ticking {
    async fn start(process: &BenchProcess<'_>) -> Self {
        let server = ChartServer::start().await;
        server.serve(INDEX, Page::new(index_generator::generate(3, 8, 11)));
        process.declare("ticking", "ticking", &format!("{}{EVERY_FIVE_SECONDS}", spec(&server)));
        until(async || server.count(INDEX) >= 2).await;
        let begin = std::cell::Cell::new(Instant::now());
        Self { server, begin }
    }

    fn begin(&self) {
        self.begin.set(Instant::now());
    }

    /// Returns by how much the longest pause between two requests exceeds the period.
    fn late(&self) -> f64 {
        let requests = self.server.requests(INDEX);
        let mut times: Vec<Instant> = requests.iter().map(|request| request.at).collect();
        times.push(Instant::now());
        // The pause during which the observation begins counts too.
        let pauses = times.windows(2).filter(|pair| pair[1] >= self.begin.get());
        let longest = pauses.map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
        longest.saturating_sub(PERIOD).as_secs_f64()
    }
}

/// Measures many repositories of one tenant, or of several, until all are synced. Returns the lateness of ticks beside them.
async fn crowd(namespaces: usize) -> (Sample, f64) {
    let server = ChartServer::start().await;
    let mut process = BenchProcess::start(Database::Sqlite, &standard::source(&server), &[]).await;
    let ticking = Ticking::start(&process).await;
    let mut servers = Vec::new();
    for _ in 0..SERVERS {
        servers.push(ChartServer::start().await);
    }
    process.rest();
    let (before, written) = (process.readings().await, process.writes());
    ticking.begin();
    let started = Instant::now();
    for number in 0..CROWD {
        let (server, path) = (&servers[number % SERVERS], format!("/{number}"));
        let page = Page::new(index_generator::generate(number as u64, 3, 5));
        server.serve(&format!("{path}/index.yaml"), page);
        let spec = format!("  type: helm\n  url: {}\n", server.url(&path));
        process.declare(&format!("crowd-{}", number % namespaces), &format!("r{number}"), &spec);
    }
    process.synced(written + CROWD).await;
    let (wall, late) = (started.elapsed().as_secs_f64(), ticking.late());
    let sample = process.since(&before).await;
    process.end().await;
    let requests = Some(CROWD);
    (
        Sample {
            wall,
            requests,
            ..sample
        },
        late,
    )
}

fn of_crowd(namespaces: &str, sample: Sample, late: f64) -> Row {
    let row = Row::new(&format!("2,000 repositories in {namespaces} until synced"), &[sample]).database("SQLite");
    row.limit("ticks beside it at most 5 s late", late <= 5.0)
}

/// Measures a registry of 20,000 tags until all are pulled.
async fn tags() -> Row {
    let server = ChartServer::start().await;
    let mut process = BenchProcess::start(Database::Sqlite, &standard::source(&server), &[]).await;
    let names: Vec<String> = (0..REPOSITORIES).map(|number| format!("galleon-{number}")).collect();
    for name in &names {
        serve_repository(&server, name);
    }
    process.rest();
    let (before, started) = (process.readings().await, Instant::now());
    let names = names.join(", ");
    let spec = format!(
        "  type: oci\n  url: {}\n  ociRepositories: [{names}]\n",
        server.url("/charts")
    );
    process.declare("default", "registry", &spec);
    let pulled = "SELECT count(*) FROM portolan_oci_tags WHERE digest <> ''";
    until(async || process.query(pulled).await == Some((REPOSITORIES * TAGS) as i64)).await;
    process.synced(1).await;
    let wall = started.elapsed().as_secs_f64();
    let sample = Sample {
        wall,
        ..process.since(&before).await
    };
    process.end().await;
    Row::new("20,000 OCI tags until Ready", &[sample])
        .database("SQLite")
        .limits(&[Peak(150.0)])
}

/// Serves one manifest under many tags.
fn serve_repository(server: &ChartServer, name: &str) {
    let config = json!({"name": name, "version": "1.0.0", "apiVersion": "v2"}).to_string();
    let digest = |bytes: &[u8]| format!("sha256:{}", sha256(bytes));
    let manifest = json!({
        "schemaVersion": 2,
        "config": {
            "mediaType": "application/vnd.cncf.helm.config.v1+json",
            "digest": digest(config.as_bytes()),
            "size": config.len(),
        },
        "layers": [{
            "mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
            "digest": digest(b""),
            "size": 0,
        }],
    });
    let tags: Vec<String> = (0..TAGS).map(|number| format!("1.{number}.0")).collect();
    for tag in &tags {
        let page = Page::new(manifest.to_string());
        server.serve(&format!("/v2/charts/{name}/manifests/{tag}"), page);
    }
    let blob = format!("/v2/charts/{name}/blobs/{}", digest(config.as_bytes()));
    server.serve(&blob, Page::new(config));
    let list = json!({"name": format!("charts/{name}"), "tags": tags});
    server.serve(&format!("/v2/charts/{name}/tags/list"), Page::new(list.to_string()));
}

/// Measures a minute without work: heartbeat, clock check and timers.
async fn rest() -> Row {
    let server = ChartServer::start().await;
    let process = BenchProcess::start(Database::Sqlite, &standard::source(&server), &[]).await;
    let before = process.readings().await;
    tokio::time::sleep(OBSERVED).await;
    let sample = process.since(&before).await;
    process.end().await;
    let sample = Sample { wall: 0.0, ..sample };
    Row::new("A minute at rest", &[sample])
        .database("SQLite")
        .limits(&[Cpu(0.3)])
}

/// Measures the memory of syncs of the standard index in many namespaces, while others wait for their servers.
async fn memory() -> Row {
    let (server, index) = (ChartServer::start().await, Index::standard());
    let flags = ["--memory-budget=256Mi", "--stall-timeout=1h", "--fetch-timeout=1h"];
    let mut process = BenchProcess::start(Database::Sqlite, &standard::source(&server), &flags).await;
    let mut hanging = Vec::new();
    for number in 0..WAITING {
        // The fault of every fourth server.
        let server = hostile_server(0).await;
        process.declare(&format!("hanging-{number}"), "r", &spec(&server));
        hanging.push(server);
    }
    until(async || hanging.iter().all(|server| server.count(INDEX) > 0)).await;
    process.rest();
    let (before, written, started) = (process.readings().await, process.writes(), Instant::now());
    let page = Page::new(index.text);
    for number in 0..SYNCS {
        server.serve(&format!("/{number}/index.yaml"), page.clone());
        let spec = format!("  type: helm\n  url: {}\n", server.url(&format!("/{number}")));
        process.declare(&format!("large-{number}"), "r", &spec);
    }
    process.synced(written + SYNCS).await;
    let wall = started.elapsed().as_secs_f64();
    let sample = Sample {
        wall,
        requests: Some(SYNCS),
        ..process.since(&before).await
    };
    drop(process);
    Row::new("16 MB index in 64 namespaces beside 192 that hang", &[sample])
        .database("SQLite")
        .limits(&[Peak(512.0)])
}
