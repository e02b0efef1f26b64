//! Namespaces that together hold all sync workers.

use super::{INDEX, charts, declare};
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::eventually::eventually;
use crate::support::world::{SOON, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_without_a_sync_gets_the_worker_of_a_slow_one() {
    const WORKERS: usize = 2;
    let world = World::new().await;
    let mut servers = Vec::new();
    for number in 0..WORKERS {
        let server = ChartServer::start().await;
        server.serve("/charts/index.yaml", Page::new(INDEX));
        server.break_path("/charts/index.yaml", Fault::StallAfter(10));
        declare(&world, &format!("hostile-{number}"), "slow", &server.url("/charts"));
        servers.push(server);
    }
    let requests = || {
        let counts = servers.iter().map(|server| server.count("/charts/index.yaml"));
        counts.sum::<usize>()
    };
    let forever = ["--sync-workers=2", "--stall-timeout=1h", "--fetch-timeout=1h"];
    let portolan = world.run(&forever).await.with_probes();
    eventually(SOON, "all workers to wait", async || {
        (requests() == WORKERS).then_some(()).ok_or(requests())
    })
    .await;

    world.server.serve("/charts/index.yaml", Page::new(INDEX));
    declare(&world, "honest", "stable", &world.server.url("/charts"));
    eventually(SOON, "the honest repository", async || {
        (charts(&world, "honest").await == ["stable/web"]).then_some(())
    })
    .await;
    let slow = "SELECT namespace FROM portolan_repositories WHERE details LIKE '%\"DownloadAborted\"%\"slowSyncs\":3%'";
    assert_eq!(world.texts(slow).await.len(), 1, "one worker was enough");

    // The slow repository is retried by a worker of its own class, and takes no other one.
    eventually(SOON, "the retry", async || {
        (requests() == WORKERS + 1).then_some(()).ok_or(requests())
    })
    .await;
    let active = async |class| {
        let labels = [("controller", class)];
        let metrics = portolan.metrics().await;
        metrics.sum("controller_runtime_active_workers", &labels)
    };
    assert_eq!(active("apprepository/slow").await, Some(1.0));
    assert_eq!(active("apprepository").await, Some(1.0));
}
