//! A server that asks for a pause.

use super::INDEX;
use crate::support::chart_server::{Fault, Page};
use crate::support::eventually::eventually;
use crate::support::world::{SOON, World};

const HELD: &str = "/held/index.yaml";
const OTHER: &str = "/other/index.yaml";
const EVERY_SECOND: &str = "  interval: \"* * * * * *\"\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_a_tick_nor_a_restart_comes_before_the_end_of_the_pause() {
    let world = World::new().await;
    let server = &world.server;
    server.serve(OTHER, Page::new(INDEX));
    server.break_path(HELD, Fault::retry_after(429, "600"));
    world.declare("held", &server.url("/held"), EVERY_SECOND);
    world.declare("other", &server.url("/other"), EVERY_SECOND);
    let flags = ["--min-interval=1s"];
    let portolan = world.run(&flags).await.with_probes();
    world
        .until_status("held", "the pause", |status| status["reason"] == "TooManyRequests")
        .await;
    // Each sync of the other repository is a tick of both.
    let ticks = async || {
        let wanted = server.count(OTHER) + 8;
        eventually(SOON, "more ticks", async || {
            let count = server.count(OTHER);
            (count >= wanted).then_some(()).ok_or(count)
        })
        .await;
    };
    ticks().await;
    assert_eq!(server.count(HELD), 1);
    drop(portolan);
    let _portolan = world.run(&flags).await.with_probes();
    ticks().await;
    assert_eq!(server.count(HELD), 1);

    // A requested sync starts at once.
    world.resync("held").await;
    eventually(SOON, "the requested sync", async || {
        (server.count(HELD) == 2).then_some(())
    })
    .await;
}
