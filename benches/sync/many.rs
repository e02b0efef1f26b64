//! Many repositories in one process: a thousand different ones, and the same one in many namespaces.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use http::StatusCode;
use serde_json::json;

use crate::index::Index;
use crate::report::{AboveIdle, Cpu, Peak, Requests, Row, Rows, Times, Wall};
use crate::rig::baseline::{RECEIVING, measure};
use crate::rig::{BenchProcess, ChartServer, ControlPlane, Namespaces, Page, Running, SQLITE, Sample, StatusWatch};
use crate::rig::{at_seconds, each, helm, until};
use crate::standard::PATH;
use crate::support::chart_server::RecordedRequest;
use crate::support::index_generator::generate;

const REPOSITORIES: usize = 1000;
const APP_REPOSITORY: &str = "kubeapps.com/v1alpha1 AppRepository";
/// Indexes of 100 KB; repositories share contents, but no URL.
const CONTENTS: usize = 10;
const NAMESPACES: usize = 200;
/// Rounds over which unchanged repositories are averaged.
const ROUNDS: usize = 3;
const MEMORY: f64 = 12.0;
/// The default limit of 50 requests per second and host does not delay the repositories of many servers.
const SERVERS: usize = 20;

/// Measures a thousand repositories: until all are ready, and a round in which nothing has changed.
pub async fn run() -> Vec<Row> {
    vec![until_ready().await, unchanged().await]
}

/// Declares the repositories in an API server before Portolan starts, until the last one is ready.
async fn until_ready() -> Row {
    let control_plane = ControlPlane::start().await;
    for crd in portolan::api::crds() {
        control_plane.install_crd(&crd).await;
    }
    let namespaces = Namespaces::new(&control_plane, 1).await;
    let servers = Servers::start().await;
    let urls: Vec<String> = (0..REPOSITORIES).map(|number| servers.serve(number).0).collect();
    each(0..REPOSITORIES, async |number| {
        let metadata = json!({ "name": format!("repository-{number}") });
        let spec = json!({ "type": "helm", "url": urls[number].trim_end_matches("/index.yaml") });
        let object = json!({ "metadata": metadata, "spec": spec });
        namespaces.create(number, APP_REPOSITORY, object).await;
    })
    .await;
    let received = measure("receive", &urls).await.cpu;
    let watch = StatusWatch::new(namespaces.all(APP_REPOSITORY), |object| {
        let mut conditions = object.data["status"]["conditions"].as_array()?.iter();
        conditions.find(|condition| condition["type"] == "Ready")?["status"].as_str()
    });
    let started = Instant::now();
    let flag = format!("--watch-namespace={}", namespaces.names[0]);
    let portolan = Running::start(&control_plane.kubeconfig(), &[flag]);
    let ready = watch.all(REPOSITORIES, "True").await;
    let sample = portolan.used().await.wall((ready - started).as_secs_f64());
    portolan.end().await;
    row("1,000 repositories until Ready", sample.against(received)).limits(&[Wall(60.0), Peak(100.0)])
}

fn row(case: &str, sample: Sample) -> Row {
    Row::new(case, &[sample]).on(SQLITE).against(RECEIVING)
}

pub struct Servers(Vec<ChartServer>);

impl Servers {
    pub async fn start() -> Self {
        Self(stream::iter(0..SERVERS).then(|_| ChartServer::start()).collect().await)
    }

    /// Serves an index. Returns its URL and the spec of its repository.
    pub fn serve(&self, number: usize) -> (String, String) {
        let (server, directory) = (&self.0[number % SERVERS], format!("/{number}"));
        let path = format!("{directory}/index.yaml");
        server.serve(&path, Page::new(generate(number as u64, 3, 5)));
        (server.url(&path), helm(server, &directory))
    }
}

/// Measures a round in which every server answers 304.
async fn unchanged() -> Row {
    let server = ChartServer::start().await;
    let mut process = BenchProcess::empty(&server).await;
    let contents = (0..CONTENTS).map(|seed| Page::new(generate(seed as u64, 8, 11)));
    let contents: Vec<Page> = contents.collect();
    let mut urls = Vec::new();
    for number in 0..REPOSITORIES {
        let directory = format!("/{number}");
        let path = format!("{directory}/index.yaml");
        server.serve(&path, contents[number % CONTENTS].clone());
        urls.push(server.url(&path));
        let spec = helm(&server, &directory) + &at_seconds("*/10");
        process.declare(&format!("team-{}", number % 20), &format!("repository-{number}"), &spec);
    }
    process.synced(REPOSITORIES).await;
    let received = measure("receive", &urls).await.cpu;
    requested(&server, 2 * REPOSITORIES).await;
    process.rest();
    let seen = server.request_count();
    let rounds = async || requested(&server, ROUNDS * REPOSITORIES).await;
    let all = process.measured(rounds).await;
    let seen = server.all_requests().split_off(seen);
    assert_eq!(bodies(&seen), 0, "nothing has changed");
    process.end().await;
    let cpu = all.cpu * REPOSITORIES as f64 / seen.len() as f64;
    let sample = Sample { cpu, ..all }.wall(0.0).requests(REPOSITORIES);
    let limits = [Cpu(0.5), AboveIdle(MEMORY)];
    row("1,000 repositories, a round of 304", sample.against(received)).limits(&limits)
}

fn bodies(seen: &[RecordedRequest]) -> usize {
    let has_body = |request: &&RecordedRequest| request.status != Some(StatusCode::NOT_MODIFIED);
    seen.iter().filter(has_body).count()
}

async fn requested(server: &ChartServer, count: usize) {
    let wanted = server.request_count() + count;
    until(async || server.request_count() >= wanted).await;
}

/// Measures one new version of the standard index in one namespace, and then in all.
pub async fn namespaces() -> Vec<Row> {
    let index = Index::standard();
    let server = ChartServer::start().await;
    server.serve(PATH, Page::new(index.text.clone()));
    let mut process = BenchProcess::start(SQLITE, &server, PATH, &[]).await;
    let received = measure("receive", &[server.url(PATH)]).await.cpu;
    let spec = format!("{}{}", process.spec, at_seconds("*/20"));
    let mut samples = Vec::new();
    for namespaces in [0..1, 1..NAMESPACES] {
        let (written, count) = (process.writes() + namespaces.len(), namespaces.end);
        for number in namespaces {
            process.declare(&format!("team-{number}"), "measured", &spec);
        }
        process.synced(written).await;
        if count == 1 {
            process.count_rows().await;
        }
        // The sync after a declaration is over once the next scheduled one was requested.
        requested(&server, 1).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        process.rest();
        let (seen, written) = (server.request_count(), process.writes());
        let change = async || {
            server.serve(PATH, Page::new(index.with_one_more(count)));
            process.synced(written + count).await;
        };
        let sample = process.measured(change).await.wall(0.0);
        samples.push(sample.requests(bodies(&server.all_requests()[seen..])));
    }
    process.end().await;
    let (one, all) = (samples[0], samples[1]);
    let cpu = (all.cpu - one.cpu) / (NAMESPACES - 1) as f64;
    let further = Sample {
        cpu,
        ..Sample::default()
    };
    let name = format!("{NAMESPACES} namespaces, same index, one new version");
    vec![
        row(&name, all.against(received)).limits(&[Requests(1), Rows(NAMESPACES), AboveIdle(MEMORY)]),
        row("Each further namespace", further.against(received)).limits(&[Cpu(0.009), Times(1.0)]),
    ]
}
