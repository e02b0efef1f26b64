//! KubeVela's Applications over a real API server: deployment, requests at rest, drift and memory.

pub mod joined;
mod render;
pub mod webhooks;
pub mod workflows;

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::report::{Cpu, Limit, Peak, Requests, Row, Wall, with_median};
use crate::rig::{
    ControlPlane, DEPLOYMENT, Namespaces, Running, Sample, StatusWatch, each, patch, percentile, proxied, until,
};
use crate::support::{cue, project};

const APPLICATION: &str = "core.oam.dev/v1beta1 Application";
const RUNNING: &str = "running";
const PASSES: &str = "portolan_oam_passes_total";
const EVALUATIONS: &str = "portolan_cue_evaluations_total";
/// Excludes the controllers that need nodes.
const CONTROLLERS: &str = "*,-node-lifecycle-controller,-pod-garbage-collector-controller";
const MEMORY: Limit = Peak(80.0);
const DRIFT: &str = "20 scaled by others until restored, the slowest";

/// Measures renders, the size at which vela-core was measured, and a larger one.
pub async fn run() -> Vec<Row> {
    let mut rows = render::run().await;
    rows.extend(small().await);
    rows.push(one_evaluator().await);
    rows.extend(large().await);
    rows
}

async fn small() -> [Row; 4] {
    let bench = Bench::new(200, CONTROLLERS).await;
    let alone = bench.objects_alone().await;
    let portolan = start(&bench.control_plane.kubeconfig(), &[]);
    let created = bench.created("created", &portolan).await;
    let drift = bench.drift(&portolan, &bench.namespaces, DRIFT).await;
    portolan.end().await;
    [alone, created, drift, bench.at_rest(MEMORY).await]
}

/// Measures memory with one evaluator; by default, a second one starts under load.
async fn one_evaluator() -> Row {
    let bench = Bench::new(200, CONTROLLERS).await;
    let portolan = start(&bench.control_plane.kubeconfig(), &["--cue-workers=1"]);
    let row = bench.created("created, with one evaluator", &portolan).await;
    portolan.end().await;
    row.limits(&[MEMORY])
}

async fn large() -> [Row; 2] {
    let bench = Bench::new(500, CONTROLLERS).await;
    let alone = bench.objects_alone().await;
    let portolan = start(&bench.control_plane.kubeconfig(), &[]);
    let created = bench.created("created", &portolan).await;
    portolan.end().await;
    [alone, created]
}

/// Measures 3,000 Applications, which are 15,000 objects.
pub async fn scale() -> Vec<Row> {
    let bench = Bench::new(3_000, CONTROLLERS).await;
    let portolan = start(&bench.control_plane.kubeconfig(), &[]);
    let created = bench.created("created", &portolan).await;
    let mut rows = vec![created, bench.drift(&portolan, &bench.namespaces, DRIFT).await];
    portolan.end().await;
    rows.extend([bench.restarted().await, bench.at_rest(Peak(250.0)).await]);
    rows
}

/// Applications of one webservice, whose Deployment has no pods, with a ConfigMap. A separate control plane, so that watches
/// see only them.
struct Bench {
    size: usize,
    control_plane: ControlPlane,
    namespaces: Namespaces,
    watch: StatusWatch,
}

impl Bench {
    /// Installs CRDs and definitions, and creates empty namespaces.
    async fn new(size: usize, controllers: &str) -> Self {
        let control_plane = ControlPlane::start_with(controllers).await;
        for crd in portolan::api::oam::crds() {
            control_plane.install_crd(&crd).await;
        }
        control_plane.kubectl(&["create", "namespace", "vela-system"]).await;
        for directory in [
            "definitions/components",
            "definitions/traits",
            "definitions/workflowsteps",
        ] {
            let directory = project(directory).display().to_string();
            let arguments = ["create", "--namespace=vela-system", "--filename", &directory];
            control_plane.kubectl(&arguments).await;
        }
        let namespaces = Namespaces::new(&control_plane, 10).await;
        Self {
            size,
            watch: StatusWatch::new(namespaces.all(APPLICATION), |application| {
                application.data["status"]["status"].as_str()
            }),
            control_plane,
            namespaces,
        }
    }

    async fn create(&self) {
        each(0..self.size, async |number| {
            self.namespaces.create(number, APPLICATION, application(number)).await;
        })
        .await;
    }

    /// Creates the same objects without Applications: the time that the control plane needs for them.
    async fn objects_alone(&self) -> Row {
        let watch = StatusWatch::new(self.namespaces.all(DEPLOYMENT), |deployment| {
            deployment.data["status"].get("observedGeneration").map(|_| "observed")
        });
        let started = Instant::now();
        each(0..self.size, async |number| {
            let name = format!("alone-{number}");
            let settings = json!({ "metadata": { "name": name }, "data": { "setting": "value" } });
            self.namespaces.create(number, "v1 ConfigMap", settings).await;
            self.namespaces.create(number, DEPLOYMENT, deployment(&name, 0)).await;
        })
        .await;
        let observed = watch.all(self.size, "observed").await;
        let wall = observed.saturating_duration_since(started).as_secs_f64();
        let size = self.size;
        let case = format!("Deployments and ConfigMaps of {size} Applications, created without them");
        Row::baseline(&case, &[Sample::of_wall(wall)])
    }

    /// Creates all Applications at once while Portolan runs.
    async fn created(&self, case: &str, portolan: &Running) -> Row {
        let before = portolan.idle(PASSES, &[], 0).await;
        let started = Instant::now();
        self.create().await;
        let running = self.watch.all(self.size, RUNNING).await;
        let sample = portolan.settled().await.since(before);
        let wall = running.saturating_duration_since(started).as_secs_f64();
        let events = self.namespaces.list("events.k8s.io/v1 Event").await.into_iter();
        let events = events.filter(|event| event.data["regarding"]["kind"] == "Application");
        let events = events.count();
        let requests = sample.requests.unwrap_or_default().saturating_sub(events);
        let size = self.size as f64;
        // 30 s for the size at which vela-core was measured, and a quarter of its CPU.
        let limits = [Wall(0.15 * size), Cpu(0.045 * size)];
        let mut row = self.row(case, sample.wall(wall)).limits(&limits);
        for (name, count, limit) in [("requests besides events", requests, 16), ("events", events, 6)] {
            let text = format!("{limit} {name} per Application ({:.1})", count as f64 / size);
            row = row.limit(&text, count <= limit * self.size);
        }
        row
    }

    /// Measures the time from a change of a Deployment by somebody else to its restoration.
    async fn drift(&self, portolan: &Running, there: &Namespaces, case: &str) -> Row {
        let before = portolan.settled().await;
        let mut times = Vec::new();
        for number in 0..20 {
            let (deployments, name) = (there.of(number, DEPLOYMENT), component(number));
            let scale = json!({ "spec": { "replicas": 1 } });
            let changed = Instant::now();
            patch(&deployments, &name, scale).await;
            until(async || {
                let deployment = deployments.get(&name).await.expect("the Deployment exists");
                deployment.data["spec"]["replicas"] == 0
            })
            .await;
            times.push(changed.elapsed().as_secs_f64());
        }
        let sample = portolan.settled().await.since(before);
        let case = with_median(case, &times);
        let row = self.row(&case, sample.wall(percentile(&times, 100)));
        row.limits(&[Wall(1.0)])
    }

    /// Measures the time from the start of a process to the first pass of each Application.
    async fn restarted(&self) -> Row {
        let started = Instant::now();
        let portolan = start(&self.control_plane.kubeconfig(), &[]);
        let sample = portolan.idle(PASSES, &[], self.size).await;
        let wall = started.elapsed().as_secs_f64();
        portolan.end().await;
        self.row("there at the start", sample.wall(wall))
    }

    async fn at_rest(&self, memory: Limit) -> Row {
        let (proxy, kubeconfig) = proxied(&self.control_plane).await;
        let portolan = start(&kubeconfig, &["--application-re-sync-period=50s"]);
        let before = portolan.idle(PASSES, &[], self.size).await;
        let (passes, evaluations) = (portolan.sum(PASSES, &[]).await, portolan.sum(EVALUATIONS, &[]).await);
        let sample = portolan.at_rest(&proxy, before).await;
        let passes = portolan.sum(PASSES, &[]).await - passes;
        let evaluations = portolan.sum(EVALUATIONS, &[]).await - evaluations;
        assert!(passes >= self.size, "all are reconciled again, not {passes}");
        portolan.end().await;
        let row = self.row("60 s at rest with a re-sync of each", sample);
        let row = row.limits(&[memory, Requests(0)]);
        row.limit(&format!("0 evaluations ({evaluations})"), evaluations == 0)
    }

    fn row(&self, case: &str, sample: Sample) -> Row {
        let case = format!("{} KubeVela Applications, {case}", self.size);
        Row::new(&case, &[sample])
    }
}

fn start(kubeconfig: &Path, flags: &[&str]) -> Running {
    let evaluator = format!("--cue-evaluator={}", cue::executable().display());
    let mut all = vec!["--controllers=oam".to_owned(), evaluator];
    all.extend(flags.iter().map(|flag| (*flag).to_owned()));
    Running::start(kubeconfig, &all)
}

/// Returns a Deployment like those of the Applications.
fn deployment(name: &str, replicas: usize) -> Value {
    let labels = json!({ "app": name });
    let ports = json!([{ "containerPort": 8080 }]);
    let container = json!({ "name": name, "image": "registry.example.com/web:1", "ports": ports });
    let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
    json!({
        "metadata": { "name": name },
        "spec": { "replicas": replicas, "selector": { "matchLabels": labels }, "template": template },
    })
}

/// Returns the name of a component, and of its Deployment.
fn component(number: usize) -> String {
    format!("web-{number}")
}

fn application(number: usize) -> Value {
    let volume = json!({
        "name": format!("settings-{number}"), "mountPath": "/etc/settings", "data": { "setting": "value" },
    });
    let component = json!({
        "name": component(number),
        "type": "webservice",
        "properties": { "image": "registry.example.com/web:1", "ports": [{ "port": 8080 }] },
        "traits": [
            { "type": "scaler", "properties": { "replicas": 0 } },
            { "type": "storage", "properties": { "configMap": [volume] } },
        ],
    });
    json!({ "metadata": { "name": format!("application-{number}") }, "spec": { "components": [component] } })
}
