//! Several replicas with one database, of which one is the leader.

use std::time::Duration;

use axum::http::Method;
use portolan::api::FINALIZER;

use super::rows::Postgres;
use super::{SOON, World, finalizers, index};
use crate::support::control_plane::{ADMIN_TOKEN, control_plane};
use crate::support::eventually::eventually;
use crate::support::fault_proxy::{ApiFault, ApiRequest, FaultProxy};
use crate::support::portolan::Portolan;
use crate::support::process::ScratchDir;

const TAKEN_OVER: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_ready_and_takes_over_when_the_leader_exits_or_is_killed() {
    let world = World::new().await;
    let postgres = Postgres::new().await;
    let flags = [
        "--enable-leader-election",
        "--namespace",
        &world.namespace,
        "--min-interval=1s",
    ];
    let mut first = world.portolan(postgres.url(), &flags).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;

    // The second waits, and is ready.
    let mut second = Portolan::start(world.command(&world.kubeconfig, postgres.url(), &flags));
    second.ready(SOON).await;
    second.line_with("waiting for the leader lease", SOON).await;
    let (_, checks) = second.get("/readyz?verbose").await.unwrap();
    let expected = ["caches", "lease", "database", "shutdown"].map(|check| format!("[+]{check} ok\n"));
    assert_eq!(checks, format!("{}readyz check passed\n", expected.concat()));
    assert!(
        second.metrics().await.sum("portolan_syncs_total", &[]).is_none(),
        "the standby sent requests"
    );

    // A graceful shutdown releases the Lease immediately.
    first.signal("TERM");
    assert!(first.exit(SOON).await.success());
    world.serve("stable", index(&[("web", &["2.0.0"])]));
    world.resync("stable", "one").await;
    postgres.rows.until_charts(&["stable/web 2.0.0"]).await;

    // After a crash, the Lease expires first.
    let third = Portolan::start(world.command(&world.kubeconfig, postgres.url(), &flags));
    third.ready(SOON).await;
    second.signal("KILL");
    assert!(!second.exit(SOON).await.success());
    world.serve("stable", index(&[("web", &["3.0.0"])]));
    world.resync("stable", "two").await;
    third.line_with("opening catalog", TAKEN_OVER).await;
    postgres.rows.until_charts(&["stable/web 3.0.0"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_fills_its_caches_and_writes_nothing() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let flags = ["--enable-leader-election", "--namespace", &world.namespace];
    let mut leader = world.portolan(postgres.url(), &flags).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;

    let control_plane = control_plane().await;
    let proxy = FaultProxy::in_front_of(control_plane).await;
    let kubeconfig = control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
    let url = format!("{}?application_name=standby", postgres.url());
    let standby = Portolan::start(world.command(&kubeconfig, &url, &flags));
    standby.ready(SOON).await;
    let lists = |plural: &'static str| {
        let is_list = move |request: &ApiRequest| request.is_of(plural) && !request.is_watch();
        proxy.requests().iter().filter(|request| is_list(request)).count()
    };
    eventually(SOON, "a list of both kinds", async || {
        let found = (lists("apprepositories"), lists("applications"));
        if found == (1, 1) {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
    // The leader syncs a change that the standby watches.
    let url = world.serve("other", index(&[("job", &["1.0.0"])]));
    world.declare("other", &url).await;
    world.until_ready("other").await;
    let is_write = |request: &&ApiRequest| request.method != Method::GET && !request.path.contains("/leases");
    let seen = proxy.requests();
    assert_eq!(seen.iter().find(is_write), None);
    let metrics = standby.metrics().await;
    assert_eq!(
        metrics
            .sum("controller_runtime_reconcile_total", &[])
            .unwrap_or_default(),
        0.0
    );
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'standby'";
    assert_eq!(postgres.rows.count(connections).await, 0);

    leader.signal("TERM");
    assert!(leader.exit(SOON).await.success());
    world.serve("other", index(&[("job", &["2.0.0"])]));
    world.resync("other", "now").await;
    postgres
        .rows
        .until_charts(&["other/job 2.0.0", "stable/web 1.0.0"])
        .await;
    assert_eq!((lists("apprepositories"), lists("applications")), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_leaves_a_sqlite_file_to_the_leader() {
    let (world, directory) = (World::new().await, ScratchDir::new("leading"));
    let database = format!("sqlite://{}", directory.path().join("catalog.db").display());
    let flags = ["--enable-leader-election", "--namespace", &world.namespace];
    let mut leader = world.portolan(&database, &flags).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    let standby = Portolan::start(world.command(&world.kubeconfig, &database, &flags));
    standby.ready(SOON).await;
    standby.line_with("waiting for the leader lease", SOON).await;
    leader.signal("TERM");
    assert!(leader.exit(SOON).await.success());
    standby.line_with("opening catalog", TAKEN_OVER).await;
    let url = world.serve("other", index(&[("job", &["1.0.0"])]));
    world.declare("other", &url).await;
    world.until_ready("other").await;
}

/// Returns a standby whose cache no longer follows the AppRepositories, and its proxy.
async fn stale_standby(world: &World, postgres: &Postgres, flags: &[&str]) -> (Portolan, FaultProxy) {
    let control_plane = control_plane().await;
    let proxy = FaultProxy::in_front_of(control_plane).await;
    let kubeconfig = control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
    let standby = Portolan::start(world.command(&kubeconfig, postgres.url(), flags));
    standby.ready(SOON).await;
    let is_watch = |request: &ApiRequest| request.is_watch() && request.is_of("apprepositories");
    proxy.inject(usize::MAX, ApiFault::Stalled, is_watch);
    proxy.gate.disconnect();
    (standby, proxy)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leader_with_a_stale_cache_keeps_the_charts_of_repositories_it_has_not_seen() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let flags = ["--enable-leader-election", "--namespace", &world.namespace];
    let mut leader = world.portolan(postgres.url(), &flags).await;
    let (standby, proxy) = stale_standby(&world, &postgres, &flags).await;

    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    leader.signal("TERM");
    assert!(leader.exit(SOON).await.success());
    standby.line_with("the cache is stale", TAKEN_OVER).await;
    postgres.rows.until_charts(&["stable/web 1.0.0"]).await;

    proxy.clear_faults();
    world.serve("stable", index(&[("web", &["2.0.0"])]));
    world.resync("stable", "now").await;
    postgres
        .rows
        .until_charts_within(TAKEN_OVER, &["stable/web 2.0.0"])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leader_that_saw_a_deletion_keeps_the_charts_of_the_recreated_repository() {
    const OTHERS: &str = "example.com/hold";
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let flags = ["--enable-leader-election", "--namespace", &world.namespace];
    let mut leader = world.portolan(postgres.url(), &flags).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    world.set_finalizers("stable", &[FINALIZER, OTHERS]).await;
    world.delete("stable").await;
    world
        .until("stable", "the charts are removed", |object| {
            finalizers(object) == [OTHERS]
        })
        .await;

    let (standby, _proxy) = stale_standby(&world, &postgres, &flags).await;

    world.set_finalizers("stable", &[]).await;
    world.gone("stable").await;
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    leader.signal("TERM");
    assert!(leader.exit(SOON).await.success());
    standby.line_with("the cache is stale", TAKEN_OVER).await;
    postgres.rows.until_charts(&["stable/web 1.0.0"]).await;
}
