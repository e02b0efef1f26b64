//! Applications over a real API server: convergence, freshness, requests at rest and memory.

use std::path::Path;
use std::time::{Duration, Instant};

use kube::ResourceExt;
use serde_json::{Value, json};

use crate::report::{Limit, Peak, Requests, Row, Wall, milliseconds, with_median};
use crate::rig::{
    ControlPlane, DEPLOYMENT, Namespaces, Running, Sample, StatusWatch, each, patch, percentile, proxied, until,
};

/// Controllers that would overwrite the statuses that the benchmark writes, or compete for CPU, are disabled.
const CONTROLLERS: &str = "*,-deployment-controller,-replicaset-controller,-statefulset-controller,\
                           -endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller";
const STATEFUL_SET: &str = "apps/v1 StatefulSet";
/// Kinds of an Application's components, repeated as needed. The readiness of the first one changes.
const KINDS: [&str; 5] = [DEPLOYMENT, STATEFUL_SET, "v1 Service", "v1 ConfigMap", DEPLOYMENT];
const APPLICATION: &str = "app.k8s.io/v1beta1 Application";
const CHANGES: usize = 200;
const MEMORY: Limit = Peak(40.0);

/// Measures the size at which kubernetes-sigs/application was measured, and a large one, whose namespaces are enough that
/// kinds are watched cluster-wide.
pub async fn run() -> Vec<Row> {
    let mut rows = Bench::run("100×5", 100, 5, 1).await;
    rows.extend(Bench::run("1,000×10", 1000, 10, 50).await);
    rows
}

/// Applications in a separate control plane, so that cluster-wide watches see only them.
struct Bench {
    title: &'static str,
    applications: usize,
    /// Per Application; a multiple of five.
    components: usize,
    control_plane: ControlPlane,
    namespaces: Namespaces,
    watch: StatusWatch,
}

impl Bench {
    async fn run(title: &'static str, applications: usize, components: usize, namespaces: usize) -> Vec<Row> {
        let control_plane = ControlPlane::start_with(CONTROLLERS).await;
        for crd in portolan::api::crds() {
            control_plane.install_crd(&crd).await;
        }
        let (namespaces, watch) = in_new_namespaces(&control_plane, namespaces).await;
        let mut bench = Self {
            title,
            applications,
            components,
            control_plane,
            namespaces,
            watch,
        };
        let portolan = bench.start(&bench.control_plane.kubeconfig());
        let mut rows = vec![bench.created(&portolan, false).await, bench.fresh(&portolan).await];
        portolan.end().await;
        rows.push(bench.restarted(false).await);
        rows.push(bench.restarted(true).await);
        rows.push(bench.at_rest().await);
        if bench.namespaces.names.len() == 1 {
            (bench.namespaces, bench.watch) = in_new_namespaces(&bench.control_plane, 1).await;
            let portolan = bench.start(&bench.control_plane.kubeconfig());
            rows.push(bench.created(&portolan, true).await);
            portolan.end().await;
        }
        rows
    }

    fn start(&self, kubeconfig: &Path) -> Running {
        let flag = match self.namespaces.names.as_slice() {
            [namespace] => Some(format!("--watch-namespace={namespace}")),
            _ => None,
        };
        Running::start(kubeconfig, flag.as_slice())
    }

    /// Creates everything while Portolan runs.
    async fn created(&self, portolan: &Running, adopts: bool) -> Row {
        let before = idle(portolan, 0).await;
        let first = Instant::now();
        self.create(adopts).await;
        let last = Instant::now();
        let all = self.all_ready().await;
        let sample = portolan.settled().await.since(before);
        self.check_adopted(portolan, adopts).await;
        let lag = all.saturating_duration_since(last).as_secs_f64();
        let limit = format!("3 s after the last creation ({} ms)", milliseconds(lag));
        self.row("created", adopts, sample.wall((all - first).as_secs_f64()))
            .limit(&limit, lag <= 3.0)
    }

    /// Starts Portolan when all objects exist, but none of its own writes.
    async fn restarted(&self, adopts: bool) -> Row {
        self.forget(adopts).await;
        self.watch.none().await;
        let start = Instant::now();
        let portolan = self.start(&self.control_plane.kubeconfig());
        let wall = (self.all_ready().await - start).as_secs_f64();
        let sample = portolan.settled().await.wall(wall);
        self.check_adopted(&portolan, adopts).await;
        portolan.end().await;
        let row = self.row("there at the start", adopts, sample);
        // With a thousand Applications, the API server determines the time.
        match self.applications {
            100 => row.limits(&[Wall(3.0)]),
            _ => row,
        }
    }

    async fn all_ready(&self) -> Instant {
        self.watch.all(self.applications, &self.ready(self.components)).await
    }

    /// Owners are written before the status, so the last status means that all components are adopted.
    async fn check_adopted(&self, portolan: &Running, adopts: bool) {
        let adopted = portolan.sum("portolan_application_owner_changes_total", &[]).await;
        let expected = self.applications * self.components * usize::from(adopts);
        assert_eq!(adopted, expected, "components that were adopted");
    }

    fn row(&self, case: &str, adopts: bool, sample: Sample) -> Row {
        let adopts = if adopts { ", adopted" } else { "" };
        let case = format!("{} Applications, {case}{adopts}", self.title);
        Row::new(&case, &[sample]).limits(&[MEMORY])
    }

    /// Measures the time from a component's change of readiness to the status of its Application.
    async fn fresh(&self, portolan: &Running) -> Row {
        let before = portolan.settled().await;
        let changes = (0..CHANGES).map(async |change| {
            // Whether or not the previous one arrived.
            tokio::time::sleep(Duration::from_millis(50 * change as u64)).await;
            let (number, is_ready) = (change % (CHANGES / 2), change >= CHANGES / 2);
            let ready = self.components - usize::from(!is_ready);
            // Includes the API server's own time.
            let sent = Instant::now();
            self.set_ready(number, 0, is_ready).await;
            let shown = self.watch.one(&name(number), &self.ready(ready)).await;
            shown.saturating_duration_since(sent).as_secs_f64()
        });
        let lags = futures::future::join_all(changes).await;
        let sample = portolan.settled().await.since(before);
        let case = with_median(&format!("{CHANGES} changes, p99"), &lags);
        self.row(&case, false, sample.wall(percentile(&lags, 99)))
            .limits(&[Wall(1.0)])
    }

    async fn at_rest(&self) -> Row {
        let (proxy, kubeconfig) = proxied(&self.control_plane).await;
        let portolan = self.start(&kubeconfig);
        // A finalizer is removed some time after the last adoption.
        until(async || {
            let mut applications = self.namespaces.list(APPLICATION).await.into_iter();
            applications.all(|application| application.finalizers().is_empty())
        })
        .await;
        let before = idle(&portolan, self.applications).await;
        let sample = portolan.at_rest(&proxy, before).await;
        portolan.end().await;
        self.row("60 s at rest", true, sample).limits(&[Requests(0)])
    }

    /// Returns `componentsReady` when this many components are ready.
    fn ready(&self, components: usize) -> String {
        format!("{components}/{}", self.components)
    }

    /// Creates each Application, its components and their statuses.
    async fn create(&self, adopts: bool) {
        let kind = |group: &str, kind: &str| json!({ "group": group, "kind": kind });
        let [deployment, set] = ["Deployment", "StatefulSet"].map(|name| kind("apps", name));
        let kinds = json!([deployment, set, kind("", "Service"), kind("", "ConfigMap")]);
        each(0..self.applications, async |number| {
            let name = name(number);
            let spec = json!({
                "componentKinds": kinds, "selector": { "matchLabels": labels(&name) }, "addOwnerRef": adopts,
            });
            let application = json!({ "metadata": { "name": name }, "spec": spec });
            self.namespaces.create(number, APPLICATION, application).await;
            for ordinal in 0..self.components {
                let kind = KINDS[ordinal % KINDS.len()];
                let component = component(kind, &name, ordinal);
                self.namespaces.create(number, kind, component).await;
                if kind.starts_with("apps/") {
                    self.set_ready(number, ordinal, true).await;
                }
            }
        })
        .await;
    }

    /// Removes everything that Portolan has written, and sets `addOwnerRef`.
    async fn forget(&self, adopts: bool) {
        each(0..self.applications, async |number| {
            let (name, namespaces) = (name(number), &self.namespaces);
            for ordinal in 0..self.components {
                let (kind, component) = (KINDS[ordinal % KINDS.len()], format!("{name}-{ordinal}"));
                let owners = json!({ "metadata": { "ownerReferences": null } });
                patch(&namespaces.of(number, kind), &component, owners).await;
            }
            let application = namespaces.of(number, APPLICATION);
            patch(&application, &name, json!({ "spec": { "addOwnerRef": adopts } })).await;
            patch(&application, &name, json!({ "status": null })).await;
        })
        .await;
    }

    /// Writes the status of a component, as its controller would.
    async fn set_ready(&self, number: usize, ordinal: usize, is_ready: bool) {
        let (kind, ready) = (KINDS[ordinal % KINDS.len()], i32::from(is_ready));
        let mut status = json!({
            "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": ready, "availableReplicas": ready,
        });
        if kind == DEPLOYMENT {
            let is_available = if is_ready { "True" } else { "False" };
            let condition = json!({ "type": "Available", "status": is_available, "reason": "Measured", "message": "" });
            status["conditions"] = json!([condition]);
        } else {
            status["currentReplicas"] = 1.into();
        }
        let name = format!("{}-{ordinal}", name(number));
        let objects = self.namespaces.of(number, kind);
        patch(&objects, &name, json!({ "status": status })).await;
    }
}

async fn in_new_namespaces(control_plane: &ControlPlane, count: usize) -> (Namespaces, StatusWatch) {
    let namespaces = Namespaces::new(control_plane, count).await;
    let watch = StatusWatch::new(namespaces.all(APPLICATION), |application| {
        application.data["status"]["componentsReady"].as_str()
    });
    (namespaces, watch)
}

async fn idle(portolan: &Running, ready: usize) -> Sample {
    let labels = [("ready", "True")];
    portolan.idle("portolan_applications", &labels, ready).await
}

/// Returns the name of an Application, which is the prefix of its components' names.
fn name(number: usize) -> String {
    format!("application-{number}")
}

fn labels(application: &str) -> Value {
    json!({ "app.kubernetes.io/name": application })
}

fn component(kind: &str, application: &str, ordinal: usize) -> Value {
    let pod = json!({ "pod": application });
    let containers = json!([{ "name": "main", "image": "registry.example.com/main" }]);
    let mut object = match kind {
        DEPLOYMENT | STATEFUL_SET => json!({ "spec": {
            "selector": { "matchLabels": pod },
            "template": { "metadata": { "labels": pod }, "spec": { "containers": containers } },
        } }),
        // Headless: allocating addresses would take the API server's time.
        "v1 Service" => json!({ "spec": { "clusterIP": "None", "ports": [{ "port": 80 }] } }),
        _ => json!({ "data": { "setting": "value" } }),
    };
    if kind == STATEFUL_SET {
        object["spec"]["serviceName"] = application.into();
    }
    object["metadata"] = json!({ "name": format!("{application}-{ordinal}"), "labels": labels(application) });
    object
}
