//! Applications over a real API server: how soon their statuses are there, how soon they follow, and what that costs.
//!
//! ```text
//!  benchmark ──creates, sets statuses──► API server ◄──── watches, writes statuses ──── portolan run ──► SQLite
//!      ▲                                     │
//!      └──────────── watches Applications ◄──┘
//! ```

mod fleet;
mod follower;
mod process;
pub mod tables;

use std::time::{Duration, Instant};

use crate::measure::median;
use crate::report::Report;
use crate::support::control_plane::{ADMIN_TOKEN, ControlPlane};
use crate::support::fault_proxy::FaultProxy;
use fleet::{CONTROLLERS, Fleet, Size, name};
use follower::Follower;
use process::{Running, Setting, by_sort};
use tables::{Apps, Freshness, Lost, Pass, Rest};

/// What kubernetes-sigs/application was measured with.
const SMALL: Size = Size {
    applications: 100,
    components: 5,
    namespaces: 1,
};
/// Namespaces enough that kinds are watched in the whole cluster.
const LARGE: Size = Size {
    applications: 1000,
    components: 10,
    namespaces: 50,
};
/// Changes of readiness whose way into a status is measured, and how far they are apart: none waits for the one before it.
const CHANGES: usize = 200;
const APART: Duration = Duration::from_millis(50);
/// How long nothing happens.
const AT_REST: Duration = Duration::from_secs(60);
/// Applications of a kind that is not there, and how often one more is declared beside as many new ones.
const LOST: usize = 10;
const ROUNDS: usize = 10;

/// Measures it all.
pub async fn run(report: &mut Report) {
    let mut apps = Apps::default();
    small(&mut apps).await;
    large(&mut apps).await;
    report.apps = Some(apps);
}

async fn control_plane() -> ControlPlane {
    let control_plane = ControlPlane::start_with(CONTROLLERS).await;
    for crd in portolan::api::crds() {
        control_plane.install_crd(&crd).await;
    }
    control_plane
}

async fn small(apps: &mut Apps) {
    let control_plane = control_plane().await;
    let fleet = Fleet::new(&control_plane, SMALL).await;
    let (setting, follower) = (
        Setting::new(&fleet, &control_plane.kubeconfig()),
        Follower::new(fleet.applications()),
    );
    let portolan = setting.start();
    apps.passes.push(live(&fleet, &follower, &portolan, false).await);
    apps.freshness.push(freshness(&fleet, &follower, &portolan).await);
    apps.lost = Some(lost(&fleet, &follower, &portolan).await);
    portolan.end().await;
    apps.passes.push(started(&fleet, &follower, &setting, false).await);
    apps.passes.push(started(&fleet, &follower, &setting, true).await);
    apps.rests.push(rest(&control_plane, &fleet).await);

    let fleet = Fleet::new(&control_plane, SMALL).await;
    let (setting, follower) = (
        Setting::new(&fleet, &control_plane.kubeconfig()),
        Follower::new(fleet.applications()),
    );
    let portolan = setting.start();
    apps.passes.push(live(&fleet, &follower, &portolan, true).await);
    portolan.end().await;
}

/// In a control plane of its own: what is watched in the whole cluster is then what the fleet has.
async fn large(apps: &mut Apps) {
    let control_plane = control_plane().await;
    let fleet = Fleet::new(&control_plane, LARGE).await;
    let (setting, follower) = (
        Setting::new(&fleet, &control_plane.kubeconfig()),
        Follower::new(fleet.applications()),
    );
    let portolan = setting.start();
    apps.passes.push(live(&fleet, &follower, &portolan, false).await);
    apps.freshness.push(freshness(&fleet, &follower, &portolan).await);
    portolan.end().await;
    apps.passes.push(started(&fleet, &follower, &setting, false).await);
    apps.passes.push(started(&fleet, &follower, &setting, true).await);
    apps.rests.push(rest(&control_plane, &fleet).await);
}

/// All is made while Portolan runs.
async fn live(fleet: &Fleet, follower: &Follower, portolan: &Running, adopts: bool) -> Pass {
    let before = portolan.idle(0).await;
    let first = Instant::now();
    let last = fleet.create(adopts).await;
    let all = follower.all(fleet.size.applications, &fleet.all_ready()).await;
    let used = portolan.settled().await.since(before);
    done(fleet, portolan, adopts).await;
    let lag = all.saturating_duration_since(last);
    Pass::new(fleet.size, adopts, Some(lag), all - first, used)
}

/// All is there, and nothing of it has a status; then Portolan is started.
async fn started(fleet: &Fleet, follower: &Follower, setting: &Setting, adopts: bool) -> Pass {
    fleet.forget(adopts).await;
    follower.only(0).await;
    let start = Instant::now();
    let portolan = setting.start();
    let all = follower.all(fleet.size.applications, &fleet.all_ready()).await;
    let used = portolan.settled().await;
    done(fleet, &portolan, adopts).await;
    portolan.end().await;
    Pass::new(fleet.size, adopts, None, all - start, used)
}

/// A status is written after the owners of what it counts, so with the last status all must have been adopted.
async fn done(fleet: &Fleet, portolan: &Running, adopts: bool) {
    let components = if adopts {
        fleet.size.applications * fleet.size.components
    } else {
        0
    };
    assert_eq!(portolan.adopted().await, components, "components that were adopted");
}

/// Components lose their readiness one after the other, and get it back.
async fn freshness(fleet: &Fleet, follower: &Follower, portolan: &Running) -> Freshness {
    let before = portolan.settled().await;
    let changes = (0..CHANGES).map(async |change| {
        tokio::time::sleep(APART * u32::try_from(change).expect("a small number")).await;
        let half = CHANGES / 2;
        let (number, is_ready) = (change % half, change >= half);
        let shown = if is_ready {
            fleet.all_ready()
        } else {
            fleet.one_not_ready()
        };
        // Before it is sent: the API server's own time is in it.
        let sent = Instant::now();
        fleet.set_ready(number, 0, is_ready).await;
        let written = follower.one(&name(number), &shown).await;
        written.saturating_duration_since(sent).as_secs_f64()
    });
    let mut lags = futures::future::join_all(changes).await;
    lags.sort_by(f64::total_cmp);
    let used = portolan.settled().await.since(before);
    Freshness::new(fleet.size, &lags, used)
}

/// One more Application: right behind ten others like it, and right behind ten of a kind that is not there.
async fn lost(fleet: &Fleet, follower: &Follower, portolan: &Running) -> Lost {
    let (mut usual, mut beside, mut told) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let others = (0..LOST).map(async |number| fleet.declare_extra(&format!("usual-{round}-{number}"), round).await);
        futures::future::join_all(others).await;
        usual.push(first_status(fleet, follower, round, "behind-usual").await);
        portolan.settled().await;
    }
    for round in 0..ROUNDS {
        // Another kind each time, for which the API server has to be asked again.
        let kind = format!("Missing{round}");
        let names: Vec<_> = (0..LOST).map(|number| format!("lost-{round}-{number}")).collect();
        let declared = Instant::now();
        futures::future::join_all(names.iter().map(|name| fleet.declare_lost(name, round, &kind))).await;
        beside.push(first_status(fleet, follower, round, "behind-lost").await);
        told.push((follower.errors(&names).await - declared).as_secs_f64());
        portolan.settled().await;
    }
    fleet.delete_extra().await;
    follower.only(fleet.size.applications).await;
    Lost {
        count: LOST,
        usual: median(usual),
        beside: median(beside),
        told: median(told),
    }
}

/// Seconds from the declaration of one more Application to its status.
async fn first_status(fleet: &Fleet, follower: &Follower, number: usize, name: &str) -> f64 {
    let name = format!("{name}-{number}");
    let declared = Instant::now();
    fleet.declare_extra(&name, number).await;
    (follower.one(&name, &fleet.all_ready()).await - declared).as_secs_f64()
}

/// Nothing happens. A proxy sees what is asked nevertheless.
async fn rest(control_plane: &ControlPlane, fleet: &Fleet) -> Rest {
    let proxy = FaultProxy::before(control_plane).await;
    let kubeconfig = control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
    let setting = Setting::new(fleet, &kubeconfig);
    let portolan = setting.start();
    let before = portolan.idle(fleet.size.applications).await;
    let seen_before = proxy.seen().len();
    tokio::time::sleep(AT_REST).await;
    let used = portolan.used().await.since(before);
    let (watches, reads, writes) = by_sort(&proxy.seen()[seen_before..]);
    portolan.end().await;
    Rest {
        size: fleet.size,
        seconds: AT_REST.as_secs(),
        watches,
        reads,
        writes,
        cpu: used.cpu,
        peak: used.peak,
    }
}
