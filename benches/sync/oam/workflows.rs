//! Workflows that wait for Deployments: time until the next step, and requests while they wait.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::PostParams;
use kube::{Api, Client};
use portolan::api::oam::Application;
use serde_json::{Value, json};

use super::fleet::{self, Fleet};
use super::rollout::Rollout;
use super::{is_counted, start};
use crate::report::Limit::{Requests, Wall};
use crate::report::{Row, milliseconds};
use crate::rig::cluster::Running;
use crate::rig::measure::{Sample, median};
use crate::rig::status_watch::StatusWatch;
use crate::support::control_plane::{ADMIN_TOKEN, ControlPlane};
use crate::support::fault_proxy::FaultProxy;

/// The benchmark itself reports the status of Deployments.
const CONTROLLERS: &str = "*,-deployment-controller,-node-lifecycle-controller,-pod-garbage-collector-controller";
const RESTING: usize = 500;
const WORKFLOWS: usize = 100;
const STEPS: usize = 10;
/// Time in which waiting workflows are observed.
const AT_REST: Duration = Duration::from_secs(60);
/// Begins the names of Deployments of workflows. Those of the resting Applications have another one.
const HELD: &str = "flow-";
/// Limit in seconds from an object's health to the creation of the next step's object.
const LOST: f64 = 0.2;
/// Concurrent requests to the API server.
const CONCURRENCY: usize = 16;

/// Workflows beside Applications that rest, with a proxy that counts the requests.
struct Bench {
    control_plane: ControlPlane,
    rollout: Rollout,
    proxy: FaultProxy,
    portolan: Running,
    watch: StatusWatch,
    workflows: Workflows,
}

pub async fn run() -> Vec<Row> {
    let bench = Bench::new().await;
    let mut rows = vec![bench.deployments_alone().await, bench.one().await];
    rows.extend(bench.many().await);
    bench.portolan.end().await;
    rows
}

impl Bench {
    async fn new() -> Self {
        let control_plane = ControlPlane::start_with(CONTROLLERS).await;
        let resting = Fleet::new(&control_plane, RESTING).await;
        let client = control_plane.client().await;
        let rollout = Rollout::start(client.clone(), HELD);
        let proxy = FaultProxy::in_front_of(&control_plane).await;
        let portolan = start(&control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN), &[]);
        let watch = StatusWatch::new(resting.applications(), fleet::phase);
        resting.create().await;
        watch.all(RESTING, fleet::RUNNING).await;
        let namespace = control_plane.namespace().await;
        let workflows = Workflows { client, namespace };
        Self {
            control_plane,
            rollout,
            proxy,
            portolan,
            watch,
            workflows,
        }
    }

    /// Creates each Deployment after the one before is healthy, without Applications.
    async fn deployments_alone(&self) -> Row {
        let namespace = self.control_plane.namespace().await;
        let names: Vec<String> = (0..STEPS).map(|step| format!("alone-{step}")).collect();
        let mut lost = Vec::new();
        let mut before = Instant::now();
        for name in &names {
            self.workflows.create_deployment(&namespace, name).await;
            lost.push(
                self.rollout
                    .created(name)
                    .await
                    .saturating_duration_since(before)
                    .as_secs_f64(),
            );
            before = self.rollout.healthy(name).await;
        }
        lost.remove(0);
        Self::row(
            "Deployments created by the benchmark, from the health of one to the next one",
            lost,
            Row::baseline,
        )
    }

    /// Measures the time that a single workflow loses between its steps.
    async fn one(&self) -> Row {
        self.workflows.create(0).await;
        let mut lost = Vec::new();
        for step in 0..STEPS {
            let name = deployment(0, step);
            let created = self.rollout.created(&name).await;
            if let Some(before) = step.checked_sub(1) {
                let healthy = self.rollout.healthy(&deployment(0, before)).await;
                lost.push(created.saturating_duration_since(healthy).as_secs_f64());
            }
            self.rollout.roll_out(&self.workflows.namespace, &name).await;
        }
        self.watch.all(RESTING + 1, fleet::RUNNING).await;
        let case = format!(
            "A workflow of {STEPS} Deployments beside {RESTING} resting KubeVela Applications, from the health of \
             one to the next one"
        );
        Self::row(&case, lost, Row::new)
            .limits(&[Wall(LOST)])
            .neighbor("vela-core: looks again after 1 to 60 s")
    }

    fn row(case: &str, lost: Vec<f64>, row: fn(&str, &[Sample]) -> Row) -> Row {
        let wall = lost.iter().copied().fold(0.0, f64::max);
        let case = format!("{case}, the slowest (median {} ms)", milliseconds(median(lost)));
        row(
            &case,
            &[Sample {
                wall,
                ..Sample::default()
            }],
        )
    }

    /// Measures workflows that wait, and their run once their objects are healthy.
    async fn many(&self) -> [Row; 2] {
        let before = self.portolan.settled().await;
        let all = stream::iter(1..=WORKFLOWS);
        all.for_each_concurrent(CONCURRENCY, |number| self.workflows.create(number))
            .await;
        self.rollout.all(HELD, STEPS + WORKFLOWS).await;
        let waiting = self.portolan.settled().await;
        let seen = self.proxy.requests().len();
        tokio::time::sleep(AT_REST).await;
        let sample = self.portolan.used().await.since(waiting);
        let seen = self.proxy.requests().split_off(seen);
        let sample = Sample {
            requests: Some(seen.iter().filter(|request| is_counted(request)).count()),
            ..sample
        };
        let case = format!("{WORKFLOWS} workflows that wait for 60 s beside {RESTING} resting KubeVela Applications");
        let waiting = Row::new(&case, &[sample]).limits(&[Requests(0)]);
        let started = Instant::now();
        self.rollout.release(HELD).await;
        let done = self.watch.all(RESTING + 1 + WORKFLOWS, fleet::RUNNING).await;
        let sample = Sample {
            wall: done.saturating_duration_since(started).as_secs_f64(),
            ..self.portolan.settled().await.since(before)
        };
        let case = format!("{WORKFLOWS} workflows of {STEPS} Deployments that become healthy at once");
        [
            waiting.neighbor("vela-core: a pass of each every 1 to 60 s"),
            Row::new(&case, &[sample]),
        ]
    }
}

/// The namespace of the workflows.
struct Workflows {
    client: Client,
    namespace: String,
}

impl Workflows {
    async fn create(&self, number: usize) {
        let applications: Api<Application> = Api::namespaced(self.client.clone(), &self.namespace);
        let application: Application = serde_json::from_value(application(number)).expect("an Application");
        let created = applications.create(&PostParams::default(), &application).await;
        created.expect("the API server accepts an Application");
    }

    async fn create_deployment(&self, namespace: &str, name: &str) {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let labels = json!({ "app": name });
        let container = json!({ "name": name, "image": "registry.example.com/web:1" });
        let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
        let object = json!({
            "metadata": { "name": name },
            "spec": { "selector": { "matchLabels": labels }, "template": template },
        });
        let object = serde_json::from_value(object).expect("a Deployment");
        let created = deployments.create(&PostParams::default(), &object).await;
        created.expect("the API server accepts a Deployment");
    }
}

fn deployment(workflow: usize, step: usize) -> String {
    format!("{HELD}{workflow}-{step}")
}

/// Returns an Application whose steps deploy one component each.
fn application(number: usize) -> Value {
    let component = |step: usize| {
        json!({
            "name": deployment(number, step), "type": "webservice",
            "properties": { "image": "registry.example.com/web:1" },
        })
    };
    let step = |step: usize| {
        let name = deployment(number, step);
        json!({ "name": name, "type": "apply-component", "properties": { "component": name } })
    };
    json!({
        "metadata": { "name": format!("workflow-{number}") },
        "spec": {
            "components": (0..STEPS).map(component).collect::<Vec<_>>(),
            "workflow": { "steps": (0..STEPS).map(step).collect::<Vec<_>>() },
        },
    })
}
