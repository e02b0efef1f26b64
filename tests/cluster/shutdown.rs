//! Start and end of the process in a cluster: readiness and graceful shutdown.

use std::time::{Duration, Instant};

use super::rows::Postgres;
use super::{SOON, World, condition, index};
use crate::support::chart_server::Fault;
use crate::support::control_plane::{ADMIN_TOKEN, control_plane};
use crate::support::eventually::eventually;
use crate::support::fault_proxy::{ApiFault, FaultProxy};
use crate::support::portolan::Portolan;

const OLD: [&str; 2] = ["stable/web 1.0.0", "stable/worker 1.0.0"];
const NEW: [&str; 2] = ["stable/job 2.0.0", "stable/web 2.0.0"];

/// Waits until `/readyz` reports only this check as failed.
async fn until_not_ready(portolan: &Portolan, failed: &str, passed: Option<&str>) {
    eventually(SOON, &format!("the check {failed} to fail"), async || {
        let (status, body) = portolan.get("/readyz").await.map_err(|error| error.to_string())?;
        let fails = |check: &str| body.contains(&format!("[-]{check} failed"));
        if status == 503 && fails(failed) && !passed.is_some_and(fails) {
            Ok(())
        } else {
            Err(format!("{status} {body}"))
        }
    })
    .await;
    assert_eq!(portolan.get("/livez").await.unwrap().0, 200);
}

/// A synced repository with a second sync running, from a faulty server.
async fn syncing(fault: Fault, more: &[&str]) -> (World, Postgres, Portolan) {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let portolan = world.portolan(postgres.url(), more).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"]), ("worker", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    postgres.rows.until_charts(&OLD).await;
    world.serve("stable", index(&[("job", &["2.0.0"]), ("web", &["2.0.0"])]));
    let fetched = world.server.requests("/stable/index.yaml").len();
    world.server.break_path("/stable/index.yaml", fault);
    world.resync("stable", "now").await;
    world.until_fetched("stable", fetched + 1).await;
    (world, postgres, portolan)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_signal_drains_running_syncs_and_starts_no_others() {
    let slowly = Fault::Drip(20, Duration::from_millis(100));
    let (world, postgres, mut portolan) = syncing(slowly, &[]).await;
    portolan.signal("TERM");
    until_not_ready(&portolan, "shutdown", Some("database")).await;
    let url = world.serve("late", index(&[("web", &["1.0.0"])]));
    world.declare("late", &url).await;
    let status = portolan.exit(SOON).await;
    assert_eq!(status.code(), Some(0), "{:?}", portolan.lines());
    assert_eq!(postgres.rows.charts().await.unwrap(), NEW);
    let object = world.repositories.get("stable").await.unwrap();
    assert_eq!(condition(&object, "Ready"), Some(("True", "Synced")));
    assert!(
        object
            .status
            .unwrap()
            .last_sync
            .is_some_and(|last_sync| last_sync.added == 1),
        "the end of the sync was reported"
    );
    assert!(world.server.requests("/late/index.yaml").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_longer_than_the_drain_timeout_is_canceled_and_done_by_the_next_process() {
    let (world, postgres, mut portolan) = syncing(Fault::StallAfter(60), &["--drain-timeout=1s"]).await;
    let signaled = Instant::now();
    portolan.signal("TERM");
    let status = portolan.exit(SOON).await;
    assert_eq!(status.code(), Some(1), "{:?}", portolan.lines());
    assert!(signaled.elapsed() < Duration::from_secs(15), "{:?}", signaled.elapsed());
    assert_eq!(postgres.rows.charts().await.unwrap(), OLD);

    world.server.clear_faults("/stable/index.yaml");
    let _portolan = world.portolan(postgres.url(), &[]).await;
    postgres.rows.until_charts(&NEW).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_signal_exits_immediately_and_leaves_the_rows_unchanged() {
    let (world, postgres, mut portolan) = syncing(Fault::StallAfter(60), &[]).await;
    portolan.signal("TERM");
    portolan.line_with("a second signal exits immediately", SOON).await;
    let signaled = Instant::now();
    portolan.signal("TERM");
    let status = portolan.exit(SOON).await;
    assert_eq!(status.code(), Some(143), "{:?}", portolan.lines());
    assert!(signaled.elapsed() < Duration::from_secs(10), "{:?}", signaled.elapsed());
    assert_eq!(postgres.rows.charts().await.unwrap(), OLD);

    world.server.clear_faults("/stable/index.yaml");
    let _portolan = world.portolan(postgres.url(), &[]).await;
    postgres.rows.until_charts(&NEW).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_not_ready_before_the_database_responds() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let (gate, url_through_gate) = postgres.database.behind_gate().await;
    gate.close().await;
    let mut portolan = Portolan::start(world.command(&world.kubeconfig, &url_through_gate, &[]));
    until_not_ready(&portolan, "database", None).await;
    gate.open().await;
    portolan.ready(Duration::from_secs(60)).await;
    portolan.signal("TERM");
    assert_eq!(portolan.exit(SOON).await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_ends_a_process_that_waits_for_the_database() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let (gate, url_through_gate) = postgres.database.behind_gate().await;
    gate.close().await;
    let mut portolan = Portolan::start(world.command(&world.kubeconfig, &url_through_gate, &[]));
    until_not_ready(&portolan, "database", None).await;
    let signaled = Instant::now();
    portolan.signal("TERM");
    assert_eq!(portolan.exit(SOON).await.code(), Some(0), "{:?}", portolan.lines());
    assert!(signaled.elapsed() < Duration::from_secs(10), "{:?}", signaled.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_not_ready_before_the_initial_list() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let control_plane = control_plane().await;
    let proxy = FaultProxy::in_front_of(control_plane).await;
    proxy.inject(usize::MAX, ApiFault::Status(500), |request| {
        request.path.ends_with("/apprepositories")
    });
    let kubeconfig = control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
    let portolan = Portolan::start(world.command(&kubeconfig, postgres.url(), &[]));
    until_not_ready(&portolan, "caches", Some("database")).await;
    proxy.clear_faults();
    portolan.ready(Duration::from_secs(60)).await;
}
