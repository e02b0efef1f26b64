//! Servers that never finish a response hold sync workers for longer than any deadline of these tests.

use std::path::Path;

use rstest::rstest;

use super::{INDEX, charts, declare};
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::eventually::eventually;
use crate::support::world::{SOON, World};

const HOSTILE: usize = 64;
#[rstest]
#[case::in_one_namespace(1, 32)]
#[case::in_four_namespaces(4, HOSTILE)]
#[case::each_in_its_own_namespace(HOSTILE, HOSTILE)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_servers_delay_no_other_namespace(#[case] namespaces: usize, #[case] in_flight: usize) {
    let world = World::new().await;
    // Limits per host do not apply between servers.
    let mut servers = Vec::new();
    for number in 0..HOSTILE {
        let server = ChartServer::start().await;
        server.serve("/charts/index.yaml", Page::new(INDEX));
        server.break_path("/charts/index.yaml", Fault::StallAfter(10));
        let namespace = format!("hostile-{}", number % namespaces);
        declare(&world, &namespace, &format!("r{number}"), &server.url("/charts"));
        servers.push(server);
    }
    let forever = [
        "--sync-workers",
        "256",
        "--stall-timeout",
        "1h",
        "--fetch-timeout",
        "1h",
    ];
    let _portolan = world.run(&forever).await.with_probes();
    eventually(SOON, "the syncs of hostile repositories to hang", async || {
        let asked = servers
            .iter()
            .filter(|server| server.count("/charts/index.yaml") > 0)
            .count();
        (asked == in_flight).then_some(()).ok_or(format!("{asked} in flight"))
    })
    .await;

    world.server.serve("/charts/index.yaml", Page::new(INDEX));
    declare(&world, "honest", "stable", &world.server.url("/charts"));
    eventually(SOON, "the honest repository", async || {
        (charts(&world, "honest").await == ["stable/web"]).then_some(())
    })
    .await;

    // A deletion ends the sync of the repository itself, and waits for none of the others.
    let directory = world.manifests();
    std::fs::remove_file(Path::new(&directory).join("honest-stable.yaml")).unwrap();
    std::fs::remove_file(Path::new(&directory).join("hostile-0-r0.yaml")).unwrap();
    eventually(SOON, "the deletion", async || {
        charts(&world, "honest").await.is_empty().then_some(())
    })
    .await;
    let statement = "SELECT name FROM portolan_repositories WHERE name = 'r0' OR namespace = 'honest'";
    eventually(SOON, "the deletion during a sync", async || {
        world.texts(statement).await.is_empty().then_some(())
    })
    .await;
    let asked = servers.iter().map(|server| server.count("/charts/index.yaml")).max();
    assert_eq!(asked, Some(1), "no sync has ended");
}
