//! Honest tenants beside hostile ones: a new repository, a deletion, ticks, and the memory of many syncs.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::index::Index;
use crate::many::Servers;
use crate::report::{Cpu, Peak, Row};
use crate::rig::{BenchProcess, ChartServer, Page, RUNS, SQLITE, Sample, at_seconds, helm, percentile, until};
use crate::support::archives::sha256;
use crate::support::chart_server::Fault;
use crate::support::index_generator::generate;

const NEW: &str = "New repository until its charts are stored";
const HOSTILE: usize = 64;
/// Hostile servers that respond at no time hold this many workers, whatever the number of namespaces.
const HANGING: usize = HOSTILE / 2;
const INDEX: &str = "/charts/index.yaml";
const PERIOD: Duration = Duration::from_secs(5);
const OBSERVED: Duration = Duration::from_secs(60);
const CROWD: usize = 2000;
const REPOSITORIES: usize = 20;
const TAGS: usize = 1000;
const SYNCS: usize = 64;
const WAITING: usize = 192;

/// Measures honest tenants alone and beside hostile ones, and large tenants.
pub async fn run() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut alone = None;
    for (namespaces, neighbors) in [
        (0, "alone"),
        (1, "64 hostile in another namespace"),
        (4, "64 hostile in 4 namespaces"),
        (HOSTILE, "64 hostile in 64 namespaces"),
    ] {
        let (new, deletion, late) = beside(namespaces).await;
        let most = 2.0 * *alone.get_or_insert(new) + 1.0;
        for (case, seconds, limit, most) in [
            (NEW, new, "2× alone + 1 s", most),
            ("Deletion of a repository", deletion, "2 s", 2.0),
            ("Lateness of ticks every 5 s", late, "5 s", 5.0),
        ] {
            let row = row(&format!("{case}, {neighbors}"), Sample::of_wall(seconds));
            rows.push(row.limit(limit, seconds <= most));
        }
    }
    let (spread, row) = crowd(20, "20 namespaces").await;
    rows.push(row);
    let (together, row) = crowd(1, "one namespace").await;
    rows.push(row.limit("1.1× the time of 20 namespaces", together <= 1.1 * spread));
    rows.extend([tags().await, rest().await, memory().await]);
    rows
}

fn row(case: &str, sample: Sample) -> Row {
    Row::new(case, &[sample]).on(SQLITE)
}

/// Returns seconds until a new repository is synced and until a deleted one is gone, and the lateness of ticks, beside hostile
/// repositories in this number of namespaces.
async fn beside(namespaces: usize) -> (f64, f64, f64) {
    let server = honest_server(1).await;
    let process = BenchProcess::empty(&server).await;
    let ticking = declare_ticking(&process).await;
    let mut hostile = Vec::new();
    for number in 0..if namespaces == 0 { 0 } else { HOSTILE } {
        let server = hostile_server(number).await;
        let namespace = format!("hostile-{}", number % namespaces);
        process.declare(&namespace, &format!("r{number}"), &helm(&server, "/charts"));
        hostile.push(server);
    }
    until(async || {
        let asked = hostile.iter().filter(|server| server.count(INDEX) > 0).count();
        asked >= HANGING.min(hostile.len())
    })
    .await;
    let began = Instant::now();
    let (mut new, mut deletion) = (Vec::new(), Vec::new());
    for number in 0..RUNS {
        let name = format!("new-{number}");
        let declared = Instant::now();
        process.declare("honest", &name, &helm(&server, "/charts"));
        until(async || charts(&process).await > 0).await;
        new.push(declared.elapsed().as_secs_f64());
        let removed = Instant::now();
        process.remove("honest", &name);
        until(async || charts(&process).await == 0).await;
        deletion.push(removed.elapsed().as_secs_f64());
    }
    tokio::time::sleep(OBSERVED).await;
    // The process is killed, since syncs that wait would delay its end.
    let late = lateness(&ticking, began);
    (percentile(&new, 50), percentile(&deletion, 50), late)
}

async fn charts(process: &BenchProcess<'_>) -> i64 {
    let count = process.query("SELECT count(*) FROM charts WHERE repo_namespace = 'honest'");
    count.await.unwrap_or_default()
}

async fn honest_server(seed: u64) -> ChartServer {
    let server = ChartServer::start().await;
    server.serve(INDEX, Page::new(generate(seed, 8, 11)));
    server
}

/// Starts a server that hangs, trickles, sends too much, or fails.
async fn hostile_server(number: usize) -> ChartServer {
    let server = ChartServer::start().await;
    server.serve(INDEX, Page::new(generate(2, 100, 20)));
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

/// Declares an honest repository with a schedule, and returns its server.
async fn declare_ticking(process: &BenchProcess<'_>) -> ChartServer {
    let server = honest_server(3).await;
    let spec = helm(&server, "/charts") + &at_seconds("*/5");
    process.declare("ticking", "ticking", &spec);
    until(async || server.count(INDEX) >= 2).await;
    server
}

/// Returns by how much the longest pause between two ticks exceeds the period.
fn lateness(ticking: &ChartServer, began: Instant) -> f64 {
    let requests = ticking.requests(INDEX);
    let mut times: Vec<Instant> = requests.iter().map(|request| request.at).collect();
    times.push(Instant::now());
    // The pause during which the observation begins counts too.
    let pauses = times.windows(2).filter(|pair| pair[1] >= began);
    let longest = pauses.map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
    longest.saturating_sub(PERIOD).as_secs_f64()
}

/// Measures many repositories of one tenant, or of several, until all are synced, with ticks beside them.
async fn crowd(namespaces: usize, title: &str) -> (f64, Row) {
    let server = ChartServer::start().await;
    let mut process = BenchProcess::empty(&server).await;
    let ticking = declare_ticking(&process).await;
    let servers = Servers::start().await;
    process.rest();
    let (began, written) = (Instant::now(), process.writes());
    let work = async || {
        for number in 0..CROWD {
            let (_, spec) = servers.serve(number);
            process.declare(&format!("crowd-{}", number % namespaces), &format!("r{number}"), &spec);
        }
        process.synced(written + CROWD).await;
    };
    let sample = process.measured(work).await.requests(CROWD);
    let late = lateness(&ticking, began);
    process.end().await;
    let row = row(&format!("2,000 repositories in {title} until synced"), sample);
    (sample.wall, row.limit("ticks beside it at most 5 s late", late <= 5.0))
}

async fn tags() -> Row {
    let server = ChartServer::start().await;
    let mut process = BenchProcess::empty(&server).await;
    let names: Vec<String> = (0..REPOSITORIES).map(|number| format!("galleon-{number}")).collect();
    for name in &names {
        serve_repository(&server, name);
    }
    let (url, names) = (server.url("/charts"), names.join(", "));
    let spec = format!("  type: oci\n  url: {url}\n  ociRepositories: [{names}]\n");
    let pulled = "SELECT count(*) FROM portolan_oci_tags WHERE digest <> ''";
    process.rest();
    let work = async || {
        process.declare("default", "registry", &spec);
        until(async || process.query(pulled).await == Some((REPOSITORIES * TAGS) as i64)).await;
        process.synced(1).await;
    };
    let sample = process.measured(work).await;
    process.end().await;
    row("20,000 OCI tags until Ready", sample).limits(&[Peak(150.0)])
}

/// Serves one manifest under many tags.
fn serve_repository(server: &ChartServer, name: &str) {
    let config = json!({"name": name, "version": "1.0.0", "apiVersion": "v2"}).to_string();
    let descriptor = |kind: &str, bytes: &[u8]| {
        let media_type = format!("application/vnd.cncf.helm.{kind}");
        json!({"mediaType": media_type, "digest": format!("sha256:{}", sha256(bytes)), "size": bytes.len()})
    };
    let manifest = json!({
        "schemaVersion": 2,
        "config": descriptor("config.v1+json", config.as_bytes()),
        "layers": [descriptor("chart.content.v1.tar+gzip", b"")],
    });
    let tags: Vec<String> = (0..TAGS).map(|number| format!("1.{number}.0")).collect();
    let directory = format!("/v2/charts/{name}");
    for tag in &tags {
        server.serve(&format!("{directory}/manifests/{tag}"), Page::new(manifest.to_string()));
    }
    let blob = format!("{directory}/blobs/sha256:{}", sha256(config.as_bytes()));
    server.serve(&blob, Page::new(config));
    let list = json!({"name": format!("charts/{name}"), "tags": tags});
    server.serve(&format!("{directory}/tags/list"), Page::new(list.to_string()));
}

/// Measures a minute without work: heartbeat, clock check and timers.
async fn rest() -> Row {
    let server = ChartServer::start().await;
    let process = BenchProcess::empty(&server).await;
    let sample = process.measured(async || tokio::time::sleep(OBSERVED).await).await;
    process.end().await;
    row("A minute at rest", sample.wall(0.0)).limits(&[Cpu(0.3)])
}

/// Measures the memory of syncs of the standard index in many namespaces, while others wait for their servers.
async fn memory() -> Row {
    let (server, index) = (ChartServer::start().await, Index::standard());
    let flags = ["--memory-budget=256Mi", "--stall-timeout=1h", "--fetch-timeout=1h"];
    let mut process = BenchProcess::start(SQLITE, &server, "/index.yaml", &flags).await;
    let mut hanging = Vec::new();
    for number in 0..WAITING {
        // The fault of every fourth server.
        let server = hostile_server(0).await;
        process.declare(&format!("hanging-{number}"), "r", &helm(&server, "/charts"));
        hanging.push(server);
    }
    until(async || hanging.iter().all(|server| server.count(INDEX) > 0)).await;
    process.rest();
    let (page, written) = (Page::new(index.text), process.writes());
    let work = async || {
        for number in 0..SYNCS {
            server.serve(&format!("/{number}/index.yaml"), page.clone());
            let spec = helm(&server, &format!("/{number}"));
            process.declare(&format!("large-{number}"), "r", &spec);
        }
        process.synced(written + SYNCS).await;
    };
    let sample = process.measured(work).await.requests(SYNCS);
    drop(process);
    row("16 MB index in 64 namespaces beside 192 that hang", sample).limits(&[Peak(512.0)])
}
