//! Workflows that wait for Deployments: time until the next step, and requests while they wait.

use std::future::ready;
use std::time::Instant;

use futures::StreamExt;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use tokio::task::JoinSet;

use super::{APPLICATION, Bench, RUNNING, deployment, start};
use crate::report::{Requests, Row, Wall, with_median};
use crate::rig::{DEPLOYMENT, Namespaces, Sample, StatusWatch, each, patch, percentile, proxied};

/// The benchmark itself reports the status of Deployments.
const CONTROLLERS: &str = "*,-deployment-controller,-node-lifecycle-controller,-pod-garbage-collector-controller";
const HEALTHY: &str = "healthy";
const RESTING: usize = 500;
const WORKFLOWS: usize = 100;
const STEPS: usize = 10;
/// Begins the names of Deployments of workflows. Those of the resting Applications have another one.
const HELD: &str = "flow-";
const ROLLOUTS: usize = 8;

/// Measures workflows in one namespace beside Applications that rest, with a proxy that counts the requests.
pub async fn run() -> Vec<Row> {
    let bench = Bench::new(RESTING, CONTROLLERS).await;
    let deployments = StatusWatch::new(bench.namespaces.all(DEPLOYMENT), healthy);
    let mut rollouts = JoinSet::new();
    rollouts.spawn(roll_out(bench.namespaces.clone(), |name| !name.starts_with(HELD)));
    let (proxy, kubeconfig) = proxied(&bench.control_plane).await;
    let portolan = start(&kubeconfig, &[]);
    bench.create().await;
    bench.watch.all(RESTING, RUNNING).await;
    let namespaces = Namespaces::new(&bench.control_plane, 1).await;
    let (case, sample) = pauses(
        "Deployments created by the benchmark",
        &namespaces,
        &deployments,
        "alone",
    )
    .await;
    let mut rows = vec![Row::baseline(&case, &[sample])];
    create(&namespaces, 0).await;
    let case = format!("A workflow of {STEPS} Deployments beside {RESTING} resting KubeVela Applications");
    let (case, sample) = pauses(&case, &namespaces, &deployments, &format!("{HELD}0")).await;
    rows.push(Row::new(&case, &[sample]).limits(&[Wall(0.2)]));
    bench.watch.all(RESTING + 1, RUNNING).await;

    let before = portolan.settled().await;
    each(1..1 + WORKFLOWS, async |number| create(&namespaces, number).await).await;
    deployments.named(HELD, STEPS + WORKFLOWS).await;
    let waiting = portolan.settled().await;
    let sample = portolan.at_rest(&proxy, waiting).await;
    let case = format!("{WORKFLOWS} workflows that wait for 60 s beside {RESTING} resting KubeVela Applications");
    rows.push(Row::new(&case, &[sample]).limits(&[Requests(0)]));

    let started = Instant::now();
    rollouts.spawn(roll_out(bench.namespaces.clone(), |_| true));
    let done = bench.watch.all(RESTING + 1 + WORKFLOWS, RUNNING).await;
    let wall = done.saturating_duration_since(started).as_secs_f64();
    let sample = portolan.settled().await.since(before).wall(wall);
    let case = format!("{WORKFLOWS} workflows of {STEPS} Deployments that become healthy at once");
    rows.push(Row::new(&case, &[sample]));
    portolan.end().await;
    rows
}

/// Measures the time from the health of each Deployment to the creation of the next one. Without a workflow, the benchmark
/// creates them; otherwise it reports their health.
async fn pauses(case: &str, namespaces: &Namespaces, deployments: &StatusWatch, prefix: &str) -> (String, Sample) {
    let (mut lost, mut last_health) = (Vec::new(), None);
    for step in 0..STEPS {
        let name = format!("{prefix}-{step}");
        if !prefix.starts_with(HELD) {
            namespaces.create(0, DEPLOYMENT, deployment(&name, 1)).await;
        }
        let created = deployments.created(&name).await;
        lost.extend(last_health.map(|health| created.saturating_duration_since(health).as_secs_f64()));
        if prefix.starts_with(HELD) {
            let deployment = namespaces.of(0, DEPLOYMENT).get(&name).await;
            report_health(namespaces.clone(), deployment.expect("the Deployment exists")).await;
        }
        last_health = Some(deployments.one(&name, HEALTHY).await);
    }
    let case = format!("{case}, from the health of one to the next one, the slowest");
    let slowest = Sample::of_wall(percentile(&lost, 100));
    (with_median(&case, &lost), slowest)
}

/// Reports Deployments whose names fit as rolled out, in place of their controller.
async fn roll_out(namespaces: Namespaces, fits: fn(&str) -> bool) {
    let deployments = watcher(namespaces.all(DEPLOYMENT), watcher::Config::default());
    let waiting = deployments
        .default_backoff()
        .applied_objects()
        .filter_map(|deployment| {
            let waits = |one: &DynamicObject| fits(&one.name_any()) && healthy(one).is_none();
            ready(deployment.ok().filter(waits))
        });
    waiting
        .for_each_concurrent(ROLLOUTS, |deployment| report_health(namespaces.clone(), deployment))
        .await;
}

async fn report_health(namespaces: Namespaces, deployment: DynamicObject) {
    let replicas = deployment.data["spec"]["replicas"].as_i64().unwrap_or(1);
    let status = json!({ "status": {
        "observedGeneration": deployment.metadata.generation, "replicas": replicas, "updatedReplicas": replicas,
        "readyReplicas": replicas, "availableReplicas": replicas,
    } });
    let namespace = deployment.namespace().unwrap_or_default();
    let objects = namespaces.within(&namespace, DEPLOYMENT);
    patch(&objects, &deployment.name_any(), status).await;
}

fn healthy(deployment: &DynamicObject) -> Option<&str> {
    let observed = deployment.data["status"]["observedGeneration"].as_i64();
    (observed == deployment.metadata.generation).then_some(HEALTHY)
}

/// Creates an Application whose steps deploy one component each.
async fn create(namespaces: &Namespaces, number: usize) {
    let names = (0..STEPS).map(|step| format!("{HELD}{number}-{step}"));
    let names: Vec<String> = names.collect();
    let properties = json!({ "image": "registry.example.com/web:1" });
    let component = |name: &String| json!({ "name": name, "type": "webservice", "properties": properties });
    let step = |name: &String| json!({ "name": name, "type": "apply-component", "properties": { "component": name } });
    let application = json!({
        "metadata": { "name": format!("workflow-{number}") },
        "spec": {
            "components": names.iter().map(component).collect::<Vec<_>>(),
            "workflow": { "steps": names.iter().map(step).collect::<Vec<_>>() },
        },
    });
    namespaces.create(0, APPLICATION, application).await;
}
