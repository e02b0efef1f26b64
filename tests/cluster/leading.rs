//! Two replicas with one database, of which one is the leader.

use std::time::Duration;

use super::rows::Postgres;
use super::{SOON, World, index};
use crate::support::portolan::Portolan;

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

    // The second one waits, and is ready.
    let mut second = Portolan::start(world.command(&world.kubeconfig, postgres.url(), &flags));
    second.ready(SOON).await;
    second.line_with("waiting for the leader lease", SOON).await;
    assert!(
        second.metrics().await.sum("portolan_syncs_total", &[]).is_none(),
        "the standby has synced something"
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
