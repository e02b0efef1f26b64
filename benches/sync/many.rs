//! Many repositories in one process: a thousand different ones, and the same one in many namespaces.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use http::StatusCode;
use kube::api::PostParams;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt};
use portolan::api::{AppRepository, crds};

use crate::index::Index;
use crate::report::Limit::{AboveIdle, Cpu, Peak, Requests, Rows, Times, Wall};
use crate::report::Row;
use crate::rig::baseline::{RECEIVING, Receiver};
use crate::rig::cluster::Running;
use crate::rig::measure::Sample;
use crate::rig::{BenchProcess, Database, until};
use crate::standard;
use crate::support::chart_server::{ChartServer, Page, RecordedRequest};
use crate::support::control_plane::ControlPlane;
use crate::support::index_generator;

const REPOSITORIES: usize = 1000;
/// Indexes of 100 KB; repositories share contents, but no URL.
const CONTENTS: usize = 10;
const NAMESPACES: usize = 200;
/// Rounds over which unchanged repositories are averaged.
const ROUNDS: usize = 3;
const EVERY_TEN_SECONDS: &str = "  interval: \"*/10 * * * * *\"\n";
const EVERY_TWENTY_SECONDS: &str = "  interval: \"*/20 * * * * *\"\n";
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
    for crd in crds() {
        control_plane.install_crd(&crd).await;
    }
    let namespace = control_plane.namespace().await;
    let repositories: Api<AppRepository> = Api::namespaced(control_plane.client().await, &namespace);
    let servers: Vec<ChartServer> = stream::iter(0..SERVERS).then(|_| ChartServer::start()).collect().await;
    let urls = declare(&repositories, &servers).await;
    let received = Receiver::start().receive(&urls).await;

    let started = Instant::now();
    let portolan = Running::start(&control_plane.kubeconfig(), Some(&namespace));
    let mut ready = HashSet::new();
    let events = watcher::watcher(repositories, watcher::Config::default());
    // The watch recovers from errors.
    let mut events = events.default_backoff().boxed();
    while ready.len() < REPOSITORIES {
        let event = tokio::time::timeout(Duration::from_secs(120), events.next()).await;
        let event = event.expect("repositories become ready");
        if let Some(Ok(Event::Apply(object) | Event::InitApply(object))) = event
            && is_ready(&object)
        {
            ready.insert(object.name_any());
        }
    }
    let wall = started.elapsed().as_secs_f64();
    let used = portolan.used().await;
    portolan.end().await;
    let sample = Sample { wall, ..used }.against(received.cpu);
    Row::new("1,000 repositories until Ready", &[sample])
        .database("SQLite")
        .against(RECEIVING)
        .limits(&[Wall(60.0), Peak(100.0)])
}

async fn declare(repositories: &Api<AppRepository>, servers: &[ChartServer]) -> Vec<String> {
    let declared = stream::iter(0..REPOSITORIES).map(async |number| {
        let (server, path) = (&servers[number % SERVERS], format!("/{number}"));
        let page = Page::new(index_generator::generate(number as u64, 3, 5));
        server.serve(&format!("{path}/index.yaml"), page);
        let object: AppRepository = serde_json::from_value(serde_json::json!({
            "apiVersion": "kubeapps.com/v1alpha1",
            "kind": "AppRepository",
            "metadata": { "name": format!("repository-{number}") },
            "spec": { "type": "helm", "url": server.url(&path) },
        }))
        .expect("an AppRepository");
        let created = repositories.create(&PostParams::default(), &object).await;
        created.expect("the API server accepts it");
        server.url(&format!("{path}/index.yaml"))
    });
    declared.buffer_unordered(16).collect().await
}

fn is_ready(object: &AppRepository) -> bool {
    let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Measures a round in which every server answers 304.
async fn unchanged() -> Row {
    let server = ChartServer::start().await;
    let mut process = BenchProcess::start(Database::Sqlite, &standard::source(&server), &[]).await;
    let contents: Vec<Page> = (0..CONTENTS)
        .map(|seed| Page::new(index_generator::generate(seed as u64, 8, 11)))
        .collect();
    let mut urls = Vec::new();
    for number in 0..REPOSITORIES {
        let (path, namespace) = (format!("/{number}"), format!("team-{}", number % 20));
        server.serve(&format!("{path}/index.yaml"), contents[number % CONTENTS].clone());
        urls.push(server.url(&format!("{path}/index.yaml")));
        let spec = format!("  type: helm\n  url: {}\n{EVERY_TEN_SECONDS}", server.url(&path));
        process.declare(&namespace, &format!("repository-{number}"), &spec);
    }
    process.synced(REPOSITORIES).await;
    let received = Receiver::start().receive(&urls).await;
    requested(&server, 2 * REPOSITORIES).await;
    process.rest();
    let (before, seen) = (process.readings().await, server.all_requests().len());
    requested(&server, ROUNDS * REPOSITORIES).await;
    let all = process.since(&before).await;
    let seen = server.all_requests().split_off(seen);
    assert_eq!(bodies(&seen), 0, "nothing has changed");
    process.end().await;
    let rounds = seen.len() as f64 / REPOSITORIES as f64;
    let sample = Sample {
        cpu: all.cpu / rounds,
        wall: 0.0,
        requests: Some(REPOSITORIES),
        ..all
    };
    let sample = sample.against(received.cpu);
    let row = Row::new("1,000 repositories, a round of 304", &[sample]).database("SQLite");
    row.against(RECEIVING).limits(&[Cpu(0.5), AboveIdle(MEMORY)])
}

/// Counts answers with a body.
fn bodies(seen: &[RecordedRequest]) -> usize {
    seen.iter()
        .filter(|seen| seen.status != Some(StatusCode::NOT_MODIFIED))
        .count()
}

async fn requested(server: &ChartServer, count: usize) {
    let wanted = server.all_requests().len() + count;
    until(async || server.all_requests().len() >= wanted).await;
}

/// Measures one new version of the standard index in one namespace, and then in all.
pub async fn namespaces() -> Vec<Row> {
    let index = Index::standard();
    let server = ChartServer::start().await;
    server.serve(standard::PATH, Page::new(index.text.clone()));
    let mut process = BenchProcess::start(Database::Sqlite, &standard::source(&server), &[]).await;
    let received = Receiver::start().receive(&[server.url(standard::PATH)]).await;
    let mut samples = Vec::new();
    let mut declared = 0;
    for count in [1, NAMESPACES] {
        let written = process.writes() + count - declared;
        for number in declared..count {
            let spec = format!("  type: helm\n  url: {}\n{EVERY_TWENTY_SECONDS}", server.url("/big"));
            process.declare(&format!("team-{number}"), "measured", &spec);
        }
        declared = count;
        process.synced(written).await;
        if samples.is_empty() {
            process.count_rows().await;
        }
        // The sync after a declaration is over once the next scheduled one was requested.
        requested(&server, 1).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        process.rest();
        let (before, seen, written) = (process.readings().await, server.all_requests().len(), process.writes());
        server.serve(standard::PATH, Page::new(index.with_one_more(count)));
        process.synced(written + count).await;
        let sample = process.since(&before).await;
        samples.push(Sample {
            wall: 0.0,
            requests: Some(bodies(&server.all_requests()[seen..])),
            ..sample
        });
    }
    process.end().await;
    let (one, all) = (samples[0], samples[1]);
    let further = Sample {
        cpu: (all.cpu - one.cpu) / (NAMESPACES - 1) as f64,
        ..Sample::default()
    };
    let name = format!("{NAMESPACES} namespaces, same index, one new version");
    let row = Row::new(&name, &[all.against(received.cpu)])
        .database("SQLite")
        .against(RECEIVING);
    let further = Row::new("Each further namespace", &[further.against(received.cpu)]).database("SQLite");
    vec![
        row.limits(&[Requests(1), Rows(NAMESPACES), AboveIdle(MEMORY)]),
        further.against(RECEIVING).limits(&[Cpu(0.009), Times(1.0)]),
    ]
}
