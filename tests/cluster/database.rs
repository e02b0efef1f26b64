//! Failures of the database: unreachable, emptied or lost, or its writer is killed during a sync.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use portolan::api;
use rstest::rstest;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::rows::{Postgres, Rows, reference};
use super::{SOON, World, condition, finalizers, index, message};
use crate::support::chart_server::Fault;
use crate::support::eventually::eventually;
use crate::support::index_generator::{Random, generate};
use crate::support::portolan::Portolan;
use crate::support::postgres;
use crate::support::process::ScratchDir;

/// Deadline for recovery, including the backoff.
const RECOVERY: Duration = Duration::from_secs(60);

/// Deadline for reporting an unreachable database: connections are retried first.
const NOTICED: Duration = Duration::from_secs(60);

/// Waits until the status reports the database error.
async fn until_database_error(world: &World, name: &str) {
    let object = world.until_within(NOTICED, name, "the database error to be reported", |object| {
        condition(object, "Ready").is_some_and(|(status, reason)| status == "False" && reason.starts_with("Database"))
            && condition(object, "Reconciling") == Some(("True", "Retrying"))
    });
    let message = message(&object.await);
    assert!(message.to_lowercase().contains("database"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_database_is_reported_and_all_work_is_done_afterwards() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let (gate, url_through_gate) = postgres.database.behind_gate().await;
    let portolan = world.portolan(&url_through_gate, &[]).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;

    gate.close().await;
    world.serve("stable", index(&[("web", &["2.0.0"])]));
    let fetched = world.server.requests("/stable/index.yaml").len();
    world.resync("stable", "now").await;
    until_database_error(&world, "stable").await;
    eventually(SOON, "readiness to fail", async || {
        match portolan.get("/readyz").await {
            Ok((503, body)) if body.contains("database") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(portolan.get("/livez").await.unwrap().0, 200);
    let downloads = world.server.requests("/stable/index.yaml").len() - fetched;
    assert!(
        downloads <= 2,
        "{downloads} downloads while the database is unreachable"
    );

    gate.open().await;
    postgres.rows.until_charts_within(RECOVERY, &["stable/web 2.0.0"]).await;
    world.until_ready("stable").await;
    portolan.ready(SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_is_retried_after_a_database_failure() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let (gate, url_through_gate) = postgres.database.behind_gate().await;
    let _portolan = world.portolan(&url_through_gate, &[]).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    let slowly = Fault::Drip(60, Duration::from_millis(300));
    world.server.break_times("/stable/index.yaml", slowly, 1);
    world.declare("stable", &url).await;
    world.until_fetched("stable", 1).await;
    gate.close().await;
    until_database_error(&world, "stable").await;
    gate.open().await;
    postgres.rows.until_charts_within(RECOVERY, &["stable/web 1.0.0"]).await;
    world.until_ready("stable").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_waits_for_the_database_unless_the_cleanup_is_skipped() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let (gate, url_through_gate) = postgres.database.behind_gate().await;
    let _portolan = world.portolan(&url_through_gate, &[]).await;
    for name in ["skips", "waits"] {
        let url = world.serve(name, index(&[("web", &["1.0.0"])]));
        world.declare(name, &url).await;
        world.until_ready(name).await;
    }

    gate.close().await;
    for name in ["skips", "waits"] {
        world.delete(name).await;
    }
    for name in ["skips", "waits"] {
        let note = world.event_within(NOTICED, name, "CleanupFailed").await;
        assert!(note.contains(api::SKIP_CLEANUP), "{note}");
        assert!(note.to_lowercase().contains("database"), "{note}");
        let object = world.repositories.get(name).await.unwrap();
        assert_eq!(finalizers(&object), [api::FINALIZER]);
    }
    world.annotate("skips", api::SKIP_CLEANUP, "true").await;
    world.gone("skips").await;
    assert!(world.repositories.get_opt("waits").await.unwrap().is_some());

    gate.open().await;
    eventually(RECOVERY, "the other object to be deleted", async || {
        match world.repositories.get_opt("waits").await.unwrap() {
            None => Ok(()),
            Some(object) => Err(format!("{:?}", object.metadata)),
        }
    })
    .await;
    // The released object leaves no rows either, once the database allows the removal.
    postgres.rows.until_charts_within(RECOVERY, &[]).await;
    postgres.rows.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_tables_are_recreated_with_all_charts() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let _portolan = world.portolan(postgres.url(), &[]).await;
    for name in ["one", "three", "two"] {
        let url = world.serve(name, index(&[("web", &["1.0.0"])]));
        world.declare(name, &url).await;
        world.until_ready(name).await;
    }
    let all = ["one/web 1.0.0", "three/web 1.0.0", "two/web 1.0.0"];
    postgres.rows.until_charts(&all).await;

    // Like Kubeapps' `invalidate-cache`. The servers would respond with 304.
    postgres.rows.execute("DROP TABLE files, charts, repos").await;
    world.resync("two", "now").await;
    postgres.rows.until_charts(&all).await;
    for name in ["one", "three", "two"] {
        world.until_ready(name).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_database_is_reported_as_rebuilding_until_it_is_complete() {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let mut portolan = world.portolan(postgres.url(), &[]).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"]), ("worker", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    portolan.signal("TERM");
    portolan.exit(SOON).await;

    let empty = Postgres::new().await;
    let slowly = Fault::Drip(10, Duration::from_millis(100));
    world.server.break_times("/stable/index.yaml", slowly, 1);
    let _portolan = world.portolan(empty.url(), &[]).await;
    let object = world.until("stable", "the rebuild to be reported", |object| {
        condition(object, "Ready") == Some(("Unknown", "RebuildingCatalog"))
    });
    assert!(condition(&object.await, "Reconciling").is_some());
    let object = world.until_ready("stable").await;
    assert_eq!(condition(&object, "Reconciling"), None);
    empty
        .rows
        .until_charts(&["stable/web 1.0.0", "stable/worker 1.0.0"])
        .await;
}

/// Waits until the server has rolled back the transaction of the killed process.
async fn until_no_writer(rows: &Rows) {
    if matches!(rows, Rows::Postgres(_)) {
        eventually(SOON, "the killed process' connections to end", async || {
            let query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND \
                         application_name = 'portolan'";
            (rows.count(query).await == 0).then_some(())
        })
        .await;
    }
}

#[rstest]
#[case::sqlite(false)]
#[case::postgres(true)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_killed_at_any_moment_leaves_no_partial_sync(#[case] on_postgres: bool) {
    const ROUNDS: usize = 8;
    let world = World::new().await;
    let directory = ScratchDir::new("killed");
    let database = if on_postgres {
        postgres::database().await.url
    } else {
        format!("sqlite://{}", directory.join("catalog.db").display())
    };
    // Expected rows without an index, with the first and with the second, each with the digest of its body.
    let mut states: Vec<(String, BTreeMap<String, Value>)> = vec![(String::new(), BTreeMap::new())];
    let indexes = [1, 2].map(|seed| generate(seed, 30, 40));
    let mut url = String::new();
    for index in &indexes {
        url = world.serve("stable", index);
        let digest: String = Sha256::digest(index).iter().map(|byte| format!("{byte:02x}")).collect();
        states.push((digest, reference(&world.namespace, "stable", &url).await));
    }
    let started = Instant::now();
    reference(&world.namespace, "stable", &url).await;
    let whole_sync = started.elapsed().as_millis() as usize;

    let mut random = Random(42);
    let mut portolan = world.portolan(&database, &[]).await;
    let rows = Rows::of(&database).await;
    let mut before = 0;
    for round in 0..ROUNDS {
        let next = 1 + round % 2;
        world.serve("stable", &indexes[next - 1]);
        if round == 0 {
            world.declare("stable", &url).await;
        } else {
            world.resync("stable", &round.to_string()).await;
        }
        // Kills at a random moment, so that there is no condition to wait for.
        let moment = Duration::from_millis(random.below(whole_sync + whole_sync / 4) as u64);
        tokio::time::sleep(moment).await;
        portolan.signal("KILL");
        portolan.exit(SOON).await;

        until_no_writer(&rows).await;
        let found = rows.infos().await.unwrap();
        let remembered = rows.pairs("SELECT name, index_digest FROM portolan_repositories").await;
        let digest = remembered.unwrap().pop().map_or_else(String::new, |(_, digest)| digest);
        let state = states.iter().position(|(_, rows)| *rows == found);
        let Some(state) = state else {
            panic!("killed after {moment:?}: {} charts of neither index", found.len());
        };
        assert!(
            state == before || state == next,
            "state {state} is neither {before} nor {next}"
        );
        assert_eq!(digest, states[state].0, "the stored digest does not match the rows");

        portolan = world.portolan(&database, &[]).await;
        eventually(RECOVERY, "the rows to match the index", async || {
            match rows.infos().await {
                Ok(found) if found == states[next].1 => Ok(()),
                Ok(found) => Err(format!("{} charts", found.len())),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
        world.until_ready("stable").await;
        before = next;
    }
    rows.close().await;
}

#[rstest]
#[case::of_the_secret(None)]
#[case::of_the_environment(Some("first"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_password_in_the_secret_is_used_without_a_restart(#[case] variable: Option<&str>) {
    let (world, postgres) = (World::new().await, Postgres::new().await);
    let name = &postgres.database.name;
    let role = format!("rotated_{name}");
    let create = format!("CREATE ROLE {role} LOGIN SUPERUSER PASSWORD 'first'");
    postgres.rows.execute(&create).await;
    let secret = async |password: &str| {
        let values = json!({ "password": password });
        world.write_secret(&world.namespace, "database", values).await;
    };
    secret("first").await;
    let server = url::Url::parse(postgres.url()).unwrap();
    let address = format!("{}:{}", server.host_str().unwrap(), server.port().unwrap());
    let flags = [
        &format!("--database-user={role}"),
        &format!("--database-name={name}"),
        &format!("--namespace={}", world.namespace),
        "--database-secret-name=database",
        "--database-secret-key=password",
    ];
    let mut command = world.command(&world.kubeconfig, &address, &flags);
    command.envs(variable.map(|password| ("DB_PASSWORD", password)));
    let portolan = Portolan::start(command);
    portolan.ready(SOON).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;

    let change = format!(
        "ALTER ROLE {role} PASSWORD 'second';
         SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
    );
    postgres.rows.execute(&change).await;
    secret("second").await;
    world.serve("stable", index(&[("web", &["2.0.0"])]));
    world.resync("stable", "now").await;
    postgres.rows.until_charts_within(RECOVERY, &["stable/web 2.0.0"]).await;
    world.until_ready("stable").await;
}
