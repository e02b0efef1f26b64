//! KubeVela's Applications over a real API server: deployment, requests at rest, drift and memory; and renders alone.

mod fleet;
mod render;
mod rollout;
pub mod webhooks;
pub mod workflows;

use std::path::Path;
use std::time::{Duration, Instant};

use crate::report::Limit::{self, Cpu, Peak, Requests, Wall};
use crate::report::{Row, milliseconds};
use crate::rig;
use crate::rig::cluster::Running;
use crate::rig::measure::{Sample, median};
use crate::rig::status_watch::StatusWatch;
use crate::support::control_plane::{ADMIN_TOKEN, ControlPlane};
use crate::support::cue;
use crate::support::fault_proxy::{ApiRequest, FaultProxy};
use fleet::Fleet;

/// The size at which vela-core was measured, and a larger one.
const SMALL: usize = 200;
const LARGE: usize = 500;
/// Time without changes, in which each Application is reconciled again.
const AT_REST: Duration = Duration::from_secs(60);
const RE_SYNC: &str = "--application-re-sync-period=50s";
/// Deployments that are scaled by somebody else, one after the other.
const DRIFTS: usize = 20;
/// Limits for each Application. Times are in seconds: a quarter of vela-core's CPU, and 30 s for the small size.
const CPU: f64 = 0.045;
const WALL: f64 = 0.15;
const REQUESTS: usize = 16;
const EVENTS: usize = 6;
/// Limits in seconds and MiB, including the evaluators.
const RESTORED: f64 = 1.0;
const MEMORY: Limit = Peak(80.0);

/// Measures renders, then both sizes.
pub async fn run() -> Vec<Row> {
    let mut rows = render::run().await;
    rows.extend(Bench::run(SMALL).await);
    rows.extend(Bench::one_evaluator(SMALL).await);
    rows.extend(Bench::run(LARGE).await);
    rows
}

/// A separate control plane, so that watches see only this fleet.
struct Bench {
    control_plane: ControlPlane,
    fleet: Fleet,
    watch: StatusWatch,
}

impl Bench {
    async fn new(applications: usize) -> Self {
        let control_plane = ControlPlane::start_with(fleet::CONTROLLERS).await;
        let fleet = Fleet::new(&control_plane, applications).await;
        Self {
            watch: StatusWatch::new(fleet.applications(), fleet::phase),
            control_plane,
            fleet,
        }
    }

    async fn run(applications: usize) -> Vec<Row> {
        let bench = Self::new(applications).await;
        let mut rows = vec![bench.objects_alone().await];
        let portolan = start(&bench.control_plane.kubeconfig(), &[]);
        rows.push(bench.created("created", &portolan).await);
        if applications == SMALL {
            rows.push(bench.drift(&portolan).await);
        }
        portolan.end().await;
        if applications == SMALL {
            rows.push(bench.at_rest().await);
        }
        rows
    }

    /// Measures memory with one evaluator; by default, a second one starts under load.
    async fn one_evaluator(applications: usize) -> Vec<Row> {
        let bench = Self::new(applications).await;
        let portolan = start(&bench.control_plane.kubeconfig(), &["--cue-workers=1"]);
        let row = bench.created("created, with one evaluator", &portolan).await;
        portolan.end().await;
        vec![row.limits(&[MEMORY])]
    }

    /// Creates the same objects without Applications: the time that the control plane needs for them.
    async fn objects_alone(&self) -> Row {
        let watch = StatusWatch::new(self.fleet.all_deployments(), fleet::observed);
        let started = Instant::now();
        self.fleet.create_objects().await;
        let observed = watch.all(self.fleet.size, fleet::OBSERVED).await;
        let wall = observed.saturating_duration_since(started).as_secs_f64();
        let case = format!(
            "Deployments and ConfigMaps of {} Applications, created without them",
            self.fleet.size
        );
        Row::baseline(
            &case,
            &[Sample {
                wall,
                ..Sample::default()
            }],
        )
    }

    /// Creates all Applications at once while Portolan runs.
    async fn created(&self, case: &str, portolan: &Running) -> Row {
        let before = portolan.reconciled(0).await;
        let started = Instant::now();
        self.fleet.create().await;
        let running = self.watch.all(self.fleet.size, fleet::RUNNING).await;
        let sample = portolan.settled().await.since(before);
        let wall = running.saturating_duration_since(started).as_secs_f64();
        let size = self.fleet.size as f64;
        let row = self.row(case, Sample { wall, ..sample });
        let row = row.limits(&[Wall(WALL * size), Cpu(CPU * size)]);
        let events = self.fleet.events().await;
        let requests = sample.requests.unwrap_or_default().saturating_sub(events);
        let row = self.limit_of_each(row, "requests besides events", requests, REQUESTS);
        let row = self.limit_of_each(row, "events", events, EVENTS);
        match self.fleet.size {
            SMALL => {
                row.neighbor("vela-core: 75 to 93 s, 33 to 38 s of CPU, 64 to 75 requests an Application, 166 MiB")
            }
            _ => row,
        }
    }

    /// Measures the time from a change of a Deployment by somebody else to its restoration.
    async fn drift(&self, portolan: &Running) -> Row {
        let before = portolan.settled().await;
        let mut times = Vec::new();
        for number in 0..DRIFTS.min(self.fleet.size) {
            let changed = Instant::now();
            self.fleet.scale(number, 1).await;
            rig::until(async || self.fleet.replicas(number).await == Some(0)).await;
            times.push(changed.elapsed().as_secs_f64());
        }
        let sample = portolan.settled().await.since(before);
        let wall = times.iter().copied().fold(0.0, f64::max);
        let case = format!("{} scaled by others until restored", times.len());
        let case = format!("{case}, the slowest (median {} ms)", milliseconds(median(times)));
        let row = self.row(&case, Sample { wall, ..sample });
        row.limits(&[Wall(RESTORED)])
            .neighbor("vela-core: at the next re-sync, up to 5 minutes")
    }

    /// Measures an idle process through a proxy that counts its requests.
    async fn at_rest(&self) -> Row {
        let proxy = FaultProxy::in_front_of(&self.control_plane).await;
        let kubeconfig = self.control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
        let portolan = start(&kubeconfig, &[RE_SYNC]);
        let before = portolan.reconciled(self.fleet.size).await;
        let (passes, evaluations) = (portolan.passes().await, portolan.evaluations().await);
        let seen = proxy.requests().len();
        tokio::time::sleep(AT_REST).await;
        let sample = portolan.used().await.since(before);
        let seen = proxy.requests().split_off(seen);
        let passes = portolan.passes().await - passes;
        assert!(passes >= self.fleet.size, "all are reconciled again, not {passes}");
        let evaluations = portolan.evaluations().await - evaluations;
        portolan.end().await;
        let requests = seen.iter().filter(|request| is_counted(request)).count();
        let sample = Sample {
            requests: Some(requests),
            ..sample
        };
        let row = self.row("60 s at rest with a re-sync of each", sample);
        let row = row.limits(&[MEMORY, Requests(0)]);
        let row = row.limit(&format!("0 evaluations ({evaluations})"), evaluations == 0);
        row.neighbor("vela-core, each re-sync: 59 ms of CPU and 16 to 23 requests an Application")
    }

    fn row(&self, case: &str, sample: Sample) -> Row {
        let case = format!("{} KubeVela Applications, {case}", self.fleet.size);
        Row::new(&case, &[sample])
    }

    /// Checks a number of requests or events, which each Application may need.
    fn limit_of_each(&self, row: Row, what: &str, count: usize, limit: usize) -> Row {
        let of_each = count as f64 / self.fleet.size as f64;
        let text = format!("{limit} {what} per Application ({of_each:.1})");
        row.limit(&text, count <= limit * self.fleet.size)
    }
}

fn start(kubeconfig: &Path, flags: &[&str]) -> Running {
    let mut all = vec![
        "--controllers=oam".to_owned(),
        format!("--cue-evaluator={}", cue::executable().display()),
    ];
    all.extend(flags.iter().map(|flag| (*flag).to_owned()));
    Running::start_with(kubeconfig, &all)
}

/// Excludes watches and the Lease.
fn is_counted(request: &ApiRequest) -> bool {
    !request.is_watch() && !request.path.contains("/leases")
}
