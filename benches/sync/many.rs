//! A thousand repositories of one small index each, declared in a real API server before Portolan starts.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use kube::api::PostParams;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use portolan::api::{AppRepository, crds};

use crate::measure::{cpu, peak_memory};
use crate::report::{Many, Report};
use crate::support::chart_server::{ChartServer, Page};
use crate::support::control_plane::ControlPlane;
use crate::support::index_generator;
use crate::support::portolan::{Portolan, command};
use crate::support::process::ScratchFolder;

const REPOSITORIES: usize = 1000;
/// Servers among which they are spread, as real ones are: what one host may be asked for is limited.
const SERVERS: usize = 20;
const PATIENCE: Duration = Duration::from_secs(120);

/// Measures it.
pub async fn run(report: &mut Report) {
    let control_plane = ControlPlane::start().await;
    for crd in crds() {
        control_plane.install_crd(&crd).await;
    }
    let client = control_plane.client().await;
    let namespace = control_plane.namespace().await;
    let repositories: Api<AppRepository> = Api::namespaced(client.clone(), &namespace);
    let servers: Vec<ChartServer> = stream::iter(0..SERVERS).then(|_| ChartServer::start()).collect().await;
    println!("declaring {REPOSITORIES} repositories");
    declare(&repositories, &servers).await;

    let folder = ScratchFolder::new("bench");
    let database = format!("sqlite://{}", folder.join("portolan.db").display());
    let mut run = command(["run", "--watch-namespace", &namespace, "--database-url", &database]);
    run.env("PORTOLAN_VERIFY_DELTA", "false")
        .arg("--chart-files=none")
        .arg("--kubeconfig")
        .arg(control_plane.kubeconfig());
    let before = api_requests(&client).await;
    let started = Instant::now();
    let portolan = Portolan::start(run);
    let all = tokio::time::timeout(PATIENCE, all_ready(repositories)).await;
    assert!(all.is_ok(), "all are ready within {PATIENCE:?}");
    let wall = started.elapsed().as_secs_f64();
    let many = Many {
        repositories: REPOSITORIES,
        wall,
        cpu: cpu(portolan.id()).expect("it runs").as_secs_f64(),
        peak: peak_memory(portolan.id()).expect("it runs"),
        chart_requests: (0..REPOSITORIES)
            .map(|number| servers[number % SERVERS].seen(&path(number)).len())
            .sum(),
        api_requests: difference(&before, &api_requests(&client).await),
    };
    println!(
        "{REPOSITORIES} repositories: {:.1} s, {} MiB",
        many.wall,
        many.peak >> 20
    );
    report.many = Some(many);
}

fn path(number: usize) -> String {
    format!("/{number}/index.yaml")
}

async fn declare(repositories: &Api<AppRepository>, servers: &[ChartServer]) {
    stream::iter(0..REPOSITORIES)
        .for_each_concurrent(16, async |number| {
            let server = &servers[number % SERVERS];
            server.serve(&path(number), Page::new(index_generator::generate(number as u64, 3, 5)));
            let object = serde_json::from_value(serde_json::json!({
                "apiVersion": "kubeapps.com/v1alpha1",
                "kind": "AppRepository",
                "metadata": { "name": format!("repository-{number}") },
                "spec": { "type": "helm", "url": server.url(&format!("/{number}")) },
            }));
            let created = repositories
                .create(&PostParams::default(), &object.expect("an object"))
                .await;
            created.expect("the API server takes it");
        })
        .await;
}

async fn all_ready(repositories: Api<AppRepository>) {
    let mut ready = HashSet::new();
    let mut events = watcher::watcher(repositories, watcher::Config::default()).boxed();
    while ready.len() < REPOSITORIES {
        let event = events.try_next().await.expect("the watch goes on");
        if let Some(Event::Apply(object) | Event::InitApply(object)) = event
            && is_ready(&object)
        {
            ready.insert(object.name_any());
        }
    }
}

fn is_ready(object: &AppRepository) -> bool {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Requests that the API server has answered about repositories and events, by verb and resource.
async fn api_requests(client: &Client) -> BTreeMap<String, f64> {
    let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
    let text = client
        .request_text(request)
        .await
        .expect("the API server tells its figures");
    let mut counts = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
        let label = |name: &str| {
            let (_, rest) = line.split_once(&format!("{name}=\""))?;
            rest.split_once('"').map(|(value, _)| value)
        };
        let count = line.rsplit_once(' ').and_then(|(_, count)| count.parse::<f64>().ok());
        if let (Some(verb), Some(resource), Some(count)) = (label(",verb"), label(",resource"), count)
            && ["apprepositories", "events"].contains(&resource)
        {
            let subresource = label(",subresource").filter(|name| !name.is_empty());
            let name = subresource.map_or_else(|| resource.to_owned(), |sub| format!("{resource}/{sub}"));
            *counts.entry(format!("{verb} {name}")).or_default() += count;
        }
    }
    counts
}

fn difference(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> String {
    let more = |(name, count): (&String, &f64)| {
        let more = count - before.get(name).copied().unwrap_or_default();
        (more > 0.0).then(|| format!("{more:.0} {name}"))
    };
    after.iter().filter_map(more).collect::<Vec<_>>().join(", ")
}
