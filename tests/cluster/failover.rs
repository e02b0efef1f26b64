//! Two and three replicas of which the leader is killed, suspended, cut off or stopped. The times without a leader are
//! printed for docs/explanation/reliability.md.

use std::time::Duration;

use axum::http::Method;
use tokio::time::Instant;

use super::rows::Postgres;
use super::{NEVER, SOON, World, index};
use crate::support::control_plane::{ADMIN_TOKEN, control_plane};
use crate::support::eventually::eventually;
use crate::support::fault_proxy::{ApiRequest, FaultProxy};
use crate::support::portolan::Portolan;

/// The lease duration of 15 s, a check, and a margin for busy machines.
const TAKEN_OVER: Duration = Duration::from_secs(40);

/// Counts committed writes by the process, which the name of its connections identifies.
const LOG_WRITES: &str = "
    CREATE TABLE write_log (application TEXT NOT NULL);
    CREATE FUNCTION log_write() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO write_log VALUES (current_setting('application_name'));
        RETURN NULL;
    END $$;
    CREATE TRIGGER log_write AFTER INSERT OR UPDATE OR DELETE ON charts
        FOR EACH STATEMENT EXECUTE FUNCTION log_write();
    CREATE TRIGGER log_write AFTER INSERT OR UPDATE OR DELETE ON portolan_repositories
        FOR EACH STATEMENT EXECUTE FUNCTION log_write();";

/// Makes each insert of a chart by this process take four seconds.
const SLOW_INSERTS: &str = "
    CREATE FUNCTION wait_in_first() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF current_setting('application_name') = 'first' THEN PERFORM pg_sleep(4); END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER wait_in_first BEFORE INSERT ON charts FOR EACH ROW EXECUTE FUNCTION wait_in_first();";

/// A process with its own way to the API server.
struct Replica {
    name: &'static str,
    portolan: Portolan,
    proxy: FaultProxy,
}

impl Replica {
    async fn start(world: &World, postgres: &Postgres, name: &'static str) -> Self {
        let control_plane = control_plane().await;
        let proxy = FaultProxy::in_front_of(control_plane).await;
        let kubeconfig = control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
        let url = format!("{}?application_name={name}", postgres.url());
        let flags = ["--enable-leader-election", "--namespace", &world.namespace, NEVER];
        let mut command = world.command(&kubeconfig, &url, &flags);
        command.env("POD_NAME", name);
        let portolan = Portolan::start(command);
        portolan.ready(SOON).await;
        Self { name, portolan, proxy }
    }

    /// Number of committed writes to the database.
    async fn commits(&self, postgres: &Postgres) -> i64 {
        let count = format!("SELECT count(*) FROM write_log WHERE application = '{}'", self.name);
        postgres.rows.count(&count).await
    }

    /// Number of writes to the API server besides those of the Lease.
    fn writes(&self) -> usize {
        let is_write = |request: &&ApiRequest| request.method != Method::GET && !request.path.contains("/leases");
        self.proxy.requests().iter().filter(is_write).count()
    }
}

/// A leader that has synced a repository, and standbys.
async fn replicas<const N: usize>(names: [&'static str; N]) -> (World, Postgres, Vec<Replica>) {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let mut replicas = Vec::new();
    for name in names {
        let replica = Replica::start(&world, &postgres, name).await;
        if replicas.is_empty() {
            replica.portolan.line_with("started leading", SOON).await;
        }
        replicas.push(replica);
    }
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    postgres.rows.execute(LOG_WRITES).await;
    (world, postgres, replicas)
}

/// Requests a sync of a new version, and returns the time until it is committed.
async fn next_sync(world: &World, postgres: &Postgres, version: &str) -> Duration {
    let started = Instant::now();
    world.serve("stable", index(&[("web", &[version])]));
    world.resync("stable", version).await;
    let expected = format!("stable/web {version}");
    postgres.rows.until_charts_within(TAKEN_OVER, &[&expected]).await;
    started.elapsed()
}

fn report(what: &str, elapsed: Duration, double_writes: i64) {
    println!(
        "failover: {what}: {:.1} s without a leader, {double_writes} double writes",
        elapsed.as_secs_f64()
    );
    assert_eq!(double_writes, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_standby_of_a_killed_leader_takes_over_after_the_lease_expires() {
    let (world, postgres, mut replicas) = replicas(["first", "second"]).await;
    let mut first = replicas.remove(0);
    first.portolan.signal("KILL");
    first.portolan.exit(SOON).await;
    let before = first.commits(&postgres).await;
    let elapsed = next_sync(&world, &postgres, "2.0.0").await;
    report("kill -9", elapsed, first.commits(&postgres).await - before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_one_of_two_standbys_takes_over() {
    let (world, postgres, mut replicas) = replicas(["first", "second", "third"]).await;
    for version in ["2.0.0", "3.0.0"] {
        let is_leader = |replica: &Replica| {
            replica
                .portolan
                .lines()
                .iter()
                .any(|line| line.contains("started leading"))
        };
        let leaders: Vec<usize> = (0..replicas.len()).filter(|at| is_leader(&replicas[*at])).collect();
        let [leader] = leaders[..] else {
            panic!("{} leaders", leaders.len());
        };
        let mut leader = replicas.remove(leader);
        leader.portolan.signal("KILL");
        leader.portolan.exit(SOON).await;
        let before = leader.commits(&postgres).await;
        let fetches = world.server.requests("/stable/index.yaml").len();
        let elapsed = next_sync(&world, &postgres, version).await;
        let what = format!("kill -9 with {} standbys", replicas.len());
        report(&what, elapsed, leader.commits(&postgres).await - before);
        world.until_ready("stable").await;
        assert_eq!(
            world.server.requests("/stable/index.yaml").len(),
            fetches + 1,
            "synced twice"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_suspended_past_its_lease_amid_a_transaction_writes_nothing() {
    let (world, postgres, mut replicas) = replicas(["first", "second"]).await;
    let mut first = replicas.remove(0);
    postgres.rows.execute(SLOW_INSERTS).await;
    world.serve("stable", index(&[("web", &["1.0.0"]), ("new", &["1.0.0"])]));
    world.resync("stable", "slow").await;
    eventually(SOON, "a transaction in progress", async || {
        let sleeping =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'first' AND wait_event = 'PgSleep'";
        (postgres.rows.count(sleeping).await > 0).then_some(())
    })
    .await;
    first.portolan.signal("STOP");
    let suspended = Instant::now();
    let (commits, writes) = (first.commits(&postgres).await, first.writes());
    let second = &replicas[0];
    let takeover = second.portolan.line_with("started leading", TAKEN_OVER).await;
    assert!(takeover.contains("former_holder=\"first"), "{takeover}");
    // The claim does not wait for the transaction.
    let claimed = "SELECT count(*) FROM portolan_fences WHERE holder LIKE 'second%'";
    eventually(SOON, "the claim of the second", async || {
        (postgres.rows.count(claimed).await == 1).then_some(())
    })
    .await;
    let elapsed = suspended.elapsed();

    first.portolan.signal("CONT");
    let status = first.portolan.exit(SOON).await;
    assert!(!status.success(), "{status}");
    let expected = ["stable/new 1.0.0", "stable/web 1.0.0"];
    postgres.rows.until_charts_within(SOON, &expected).await;
    report(
        "SIGSTOP amid a transaction",
        elapsed,
        first.commits(&postgres).await - commits,
    );
    assert_eq!(
        first.writes(),
        writes,
        "writes to the API server: {:?}",
        first.proxy.requests().last()
    );
    let lost = first.portolan.lines();
    assert!(lost.iter().any(|line| line.contains("lease")), "{lost:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_the_api_server_stops_before_another_one_writes() {
    let (world, postgres, mut replicas) = replicas(["first", "second"]).await;
    let mut first = replicas.remove(0);
    first.proxy.gate.close().await;
    let cut = Instant::now();
    let before = first.commits(&postgres).await;
    let (elapsed, (stopped, commits)) = tokio::join!(next_sync(&world, &postgres, "2.0.0"), async {
        let status = first.portolan.exit(TAKEN_OVER).await;
        assert_eq!(status.code(), Some(1));
        (cut.elapsed(), first.commits(&postgres).await)
    });
    println!(
        "failover: the leader without the API server stopped after {:.1} s",
        stopped.as_secs_f64()
    );
    assert!(stopped < elapsed, "{stopped:?} {elapsed:?}");
    assert_eq!(commits, before);
    report("partition", elapsed, first.commits(&postgres).await - before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_stopped_hands_over_within_two_seconds() {
    let (world, postgres, mut replicas) = replicas(["first", "second"]).await;
    let mut first = replicas.remove(0);
    let before = first.commits(&postgres).await;
    first.portolan.signal("TERM");
    let stopped = Instant::now();
    let second = &replicas[0];
    second.portolan.line_with("started leading", SOON).await;
    let leads = stopped.elapsed();
    assert!(first.portolan.exit(SOON).await.success());
    next_sync(&world, &postgres, "2.0.0").await;
    report("SIGTERM", leads, first.commits(&postgres).await - before);
    // With a margin for busy machines: the lease would expire after 15 s.
    assert!(leads < Duration::from_secs(4), "{leads:?}");
}
