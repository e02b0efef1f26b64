//! Applications over a real API server: convergence, freshness, requests at rest and memory.

mod fleet;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use portolan::api::Application;

use crate::report::Limit::{self, Peak, Requests, Wall};
use crate::report::{Row, milliseconds};
use crate::rig::cluster::Running;
use crate::rig::measure::Sample;
use crate::rig::status_watch::StatusWatch;
use crate::support::control_plane::{ADMIN_TOKEN, ControlPlane};
use crate::support::fault_proxy::FaultProxy;
use fleet::{CONTROLLERS, Fleet, Size, name};

/// The size at which kubernetes-sigs/application was measured.
const SMALL: Size = Size {
    applications: 100,
    components: 5,
    namespaces: 1,
};
/// Uses enough namespaces that kinds are watched cluster-wide.
const LARGE: Size = Size {
    applications: 1000,
    components: 10,
    namespaces: 50,
};
/// Changes of readiness, started at this interval whether or not the previous one arrived.
const CHANGES: usize = 200;
const INTERVAL: Duration = Duration::from_millis(50);
/// Time without changes.
const AT_REST: Duration = Duration::from_secs(60);
/// Limits, in seconds and MiB.
const CONVERGED: f64 = 3.0;
const FRESH: f64 = 1.0;
const MEMORY: Limit = Peak(40.0);

/// Measures both sizes.
pub async fn run() -> Vec<Row> {
    let mut rows = Bench::run(SMALL).await;
    rows.extend(Bench::run(LARGE).await);
    rows
}

/// A separate control plane, so that cluster-wide watches see only this fleet.
struct Bench {
    control_plane: ControlPlane,
    fleet: Fleet,
    watch: StatusWatch,
}

impl Bench {
    async fn run(size: Size) -> Vec<Row> {
        let control_plane = ControlPlane::start_with(CONTROLLERS).await;
        for crd in portolan::api::crds() {
            control_plane.install_crd(&crd).await;
        }
        let fleet = Fleet::new(&control_plane, size).await;
        let mut bench = Self {
            watch: StatusWatch::new(fleet.applications(), components_ready),
            control_plane,
            fleet,
        };
        let portolan = bench.start();
        let mut rows = vec![bench.created(&portolan, false).await, bench.fresh(&portolan).await];
        portolan.end().await;
        rows.push(bench.restarted(false).await);
        rows.push(bench.restarted(true).await);
        rows.push(bench.at_rest().await);
        if size.applications == SMALL.applications {
            bench.fleet = Fleet::new(&bench.control_plane, size).await;
            bench.watch = StatusWatch::new(bench.fleet.applications(), components_ready);
            let portolan = bench.start();
            rows.push(bench.created(&portolan, true).await);
            portolan.end().await;
        }
        rows
    }

    fn start(&self) -> Running {
        self.start_over(self.control_plane.kubeconfig())
    }

    fn start_over(&self, kubeconfig: PathBuf) -> Running {
        let namespace = match self.fleet.namespaces.as_slice() {
            [namespace] => Some(namespace.as_str()),
            _ => None,
        };
        Running::start(&kubeconfig, namespace)
    }

    /// Creates everything while Portolan runs.
    async fn created(&self, portolan: &Running, adopts: bool) -> Row {
        let before = portolan.idle(0).await;
        let first = Instant::now();
        let last = self.fleet.create(adopts).await;
        let all = self.all_ready().await;
        let sample = portolan.settled().await.since(before);
        self.check_adopted(portolan, adopts).await;
        let lag = all.saturating_duration_since(last).as_secs_f64();
        let row = self.row("created", adopts, (all - first).as_secs_f64(), sample);
        let limit = format!("3 s after the last creation ({} ms)", milliseconds(lag));
        let row = row.limit(&limit, lag <= CONVERGED);
        let cost = if adopts {
            "25 s, 1.37 s of CPU, 1,564 requests, 29 MiB"
        } else {
            "19 s, 0.76 s of CPU, 950 requests, 29 MiB"
        };
        self.compared(row, cost)
    }

    async fn all_ready(&self) -> Instant {
        let count = self.fleet.size.applications;
        self.watch.all(count, &self.fleet.all_ready()).await
    }

    /// Starts Portolan when all objects exist, but none of its own writes.
    async fn restarted(&self, adopts: bool) -> Row {
        self.fleet.forget(adopts).await;
        self.watch.none().await;
        let start = Instant::now();
        let portolan = self.start();
        let all = self.all_ready().await;
        let sample = portolan.settled().await;
        self.check_adopted(&portolan, adopts).await;
        portolan.end().await;
        let row = self.row("there at the start", adopts, (all - start).as_secs_f64(), sample);
        // With a thousand Applications, the API server determines the time.
        match self.fleet.size.applications {
            100 => row.limits(&[Wall(CONVERGED)]),
            _ => row,
        }
    }

    /// Owners are written before the status, so the last status means that all components are adopted.
    async fn check_adopted(&self, portolan: &Running, adopts: bool) {
        let components = self.fleet.size.applications * self.fleet.size.components;
        let expected = if adopts { components } else { 0 };
        assert_eq!(portolan.adopted().await, expected, "components that were adopted");
    }

    fn row(&self, case: &str, adopts: bool, wall: f64, sample: Sample) -> Row {
        let adopts = if adopts { ", adopted" } else { "" };
        let case = format!("{} Applications, {case}{adopts}", self.fleet.size.title());
        Row::new(&case, &[Sample { wall, ..sample }]).limits(&[MEMORY])
    }

    /// Adds the cost of kubernetes-sigs/application at the small size.
    fn compared(&self, row: Row, cost: &str) -> Row {
        match self.fleet.size.applications {
            100 => row.neighbor(&format!("kubernetes-sigs/application: {cost}")),
            _ => row,
        }
    }

    /// Measures the time from a component's change of readiness to the status of its Application.
    async fn fresh(&self, portolan: &Running) -> Row {
        let before = portolan.settled().await;
        let changes = (0..CHANGES).map(async |change| {
            tokio::time::sleep(INTERVAL * u32::try_from(change).expect("a small number")).await;
            let half = CHANGES / 2;
            let (number, is_ready) = (change % half, change >= half);
            let expected = if is_ready {
                self.fleet.all_ready()
            } else {
                self.fleet.one_not_ready()
            };
            // Includes the API server's own time.
            let sent = Instant::now();
            self.fleet.set_ready(number, 0, is_ready).await;
            let shown = self.watch.one(&name(number), &expected).await;
            shown.saturating_duration_since(sent).as_secs_f64()
        });
        let mut lags = futures::future::join_all(changes).await;
        lags.sort_by(f64::total_cmp);
        let sample = portolan.settled().await.since(before);
        let percentile = |percent: usize| lags[(lags.len() * percent).div_ceil(100) - 1];
        let case = format!("{CHANGES} changes, p99 (median {} ms)", milliseconds(percentile(50)));
        let row = self.row(&case, false, percentile(99), sample);
        self.compared(row.limits(&[Wall(FRESH)]), "median 70 s, at most 238 s")
    }

    /// Measures an idle process through a proxy that counts its requests.
    async fn at_rest(&self) -> Row {
        let proxy = FaultProxy::in_front_of(&self.control_plane).await;
        let kubeconfig = self.control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
        let portolan = self.start_over(kubeconfig);
        self.fleet.released().await;
        let before = portolan.idle(self.fleet.size.applications).await;
        let seen = proxy.requests().len();
        tokio::time::sleep(AT_REST).await;
        let sample = portolan.used().await.since(before);
        let seen = proxy.requests().split_off(seen);
        portolan.end().await;
        let requests = seen.iter().filter(|request| !request.is_watch()).count();
        let sample = Sample {
            requests: Some(requests),
            ..sample
        };
        let row = self.row("60 s at rest", true, 0.0, sample);
        self.compared(row.limits(&[Requests(0)]), "in 120 s: 0.78 s of CPU, 800 requests")
    }
}

/// Returns for example `5/5`.
fn components_ready(application: &Application) -> Option<String> {
    application.status.as_ref()?.components_ready.clone()
}
