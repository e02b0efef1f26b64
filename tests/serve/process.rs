//! The catalog in the process of `portolan run`, and processes beside it.

use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::json;
use sqlx::{Connection, Executor, PgConnection};

use super::access::reader;
use super::{SOON, Serving, client, database, declare, fill};
use crate::catalog::On;
use crate::cluster::rows::Postgres;
use crate::cluster::{self, index};
use crate::support::archives::{self, Chart};
use crate::support::chart_server::Fault;
use crate::support::eventually::eventually;
use crate::support::portolan::{Portolan, command, run};
use crate::support::ports::free_port;
use crate::support::postgres;
use crate::support::process::ScratchDir;
use crate::support::world::World;

/// A snapshot is at most a second old; the rest is a margin for busy machines.
const VISIBLE: Duration = Duration::from_secs(10);
/// Linger and drain of the catalog, and the end of the process.
const DRAINED: Duration = Duration::from_secs(28);

impl Serving {
    /// Waits for the URL that `portolan run` logs.
    async fn of_run(portolan: Portolan) -> Self {
        let line = portolan.line_with("catalog: http://", SOON).await;
        let (_, url) = line.rsplit_once("catalog: ").unwrap();
        let url = url.strip_suffix('/').unwrap();
        Self {
            url: url.to_owned(),
            portolan,
            client: client(),
        }
    }

    async fn until_names(&self, deadline: Duration, expected: &[&str]) {
        eventually(deadline, &format!("the charts {expected:?}"), async || {
            let names = self.names("/charts").await;
            if names == expected {
                Ok(())
            } else {
                Err(format!("{names:?}"))
            }
        })
        .await;
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_of_manifests_is_served_on_loopback_without_login(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    declare(&world, "stable", index(&[("web", &["1.0.0"])]));
    let serving = Serving::of_run(world.run_on(&url, &[]).await).await;
    assert!(serving.url.starts_with("http://127.0.0.1:"), "{}", serving.url);
    serving.until_names(SOON, &["web"]).await;
    let metrics = serving.portolan.metrics().await;
    let requests = metrics.sum("portolan_catalog_request_duration_seconds_count", &[("code", "200")]);
    assert!(requests.is_some_and(|requests| requests >= 1.0), "{requests:?}");
    let connections = metrics.sum("portolan_budget_limit", &[("resource", "catalog_database_connections")]);
    assert_eq!(connections, Some(if on == On::Postgres { 4.0 } else { 1.0 }));
    let foreign = serving.request("/api/v1/charts", &[("host", "evil.example")]).await;
    assert_ne!(foreign.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_url_is_logged_while_a_repository_does_not_answer() {
    let world = World::new().await;
    declare(&world, "stable", index(&[("web", &["1.0.0"])]));
    world.server.break_path("/stable/index.yaml", Fault::StallAfter(10));
    let serving = Serving::of_run(world.run(&[]).await).await;
    assert_eq!(serving.names("/charts").await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archives_pass_through_the_process_of_the_controllers() {
    let world = World::new().await;
    let archive = Chart::new("web", "1.0.0").pack();
    let entry = archive.index_entry(&[&archive.file_name()]);
    world.server.serve_archives("stable", [&archive]);
    declare(&world, "stable", archives::index([entry]));
    let serving = Serving::of_run(world.run(&["--archives=proxy"]).await).await;
    serving.until_names(SOON, &["web"]).await;
    let path = "/helm/default/stable/archives/web/1.0.0/web-1.0.0.tgz";
    let answer = serving.request(path, &[]).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.body, archive.bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_on_one_machine_get_different_ports() {
    let (first, second) = (World::new().await, World::new().await);
    for (world, chart) in [(&first, "web"), (&second, "redis")] {
        declare(world, "stable", index(&[(chart, &["1.0.0"])]));
    }
    let first = Serving::of_run(first.run(&[]).await).await;
    let second = Serving::of_run(second.run(&[]).await).await;
    assert_ne!(first.url, second.url);
    first.until_names(SOON, &["web"]).await;
    second.until_names(SOON, &["redis"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_address_turns_the_catalog_off() {
    let world = World::new().await;
    declare(&world, "stable", index(&[("web", &["1.0.0"])]));
    let portolan = world.run(&["--serve="]).await;
    world
        .until_status("stable", "its sync", |status| status["ready"] == true)
        .await;
    let lines = portolan.lines();
    assert!(
        !lines.iter().any(|line| line.contains("serving the catalog")),
        "{lines:?}"
    );
}

#[rstest]
#[case::leader_election(&["--serve=:8090", "--enable-leader-election"], "--enable-leader-election")]
#[case::no_repositories(&["--serve=:8090", "--controllers=application"], "--controllers")]
#[case::other_hosts(&["--serve=:8090", "--manifests=."], "127.0.0.1")]
#[case::no_port(&["--serve=localhost", "--manifests=."], "--serve")]
#[tokio::test]
async fn what_can_not_be_served_is_refused_with_a_reason(#[case] flags: &[&str], #[case] reason: &str) {
    let output = run(command(["run", "--apiserver=http://127.0.0.1:1"].iter().chain(flags))).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains(reason), "{errors}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_in_use_is_an_error_that_names_the_flag() {
    let world = World::new().await;
    let serving = Serving::of_run(world.run(&[]).await).await;
    let used = format!("--serve={}", serving.url.trim_start_matches("http://"));
    let manifests = world.manifests();
    let other = ["run", "--manifests", &manifests, "--listen=127.0.0.1:0", &used];
    let output = run(world.command(&other)).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("--serve"), "{errors}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_an_index_is_visible_soon_after_its_sync() {
    let world = World::new().await;
    declare(&world, "stable", index(&[("web", &["1.0.0"])]));
    let serving = Serving::of_run(world.run(&["--min-interval=1s"]).await).await;
    serving.until_names(SOON, &["web"]).await;
    declare(&world, "stable", index(&[("redis", &["1.0.0"]), ("web", &["1.0.0"])]));
    world.resync("stable").await;
    eventually(SOON, "the rows of the sync", async || {
        let charts = world.texts("SELECT chart_id FROM charts ORDER BY chart_id").await;
        if charts == ["stable/redis", "stable/web"] {
            Ok(())
        } else {
            Err(format!("{charts:?}"))
        }
    })
    .await;
    serving.until_names(VISIBLE, &["redis", "web"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shutdown_ends_within_the_drain_and_completes_the_file() {
    let world = World::new().await;
    declare(&world, "stable", index(&[("web", &["1.0.0"])]));
    let mut serving = Serving::of_run(world.run(&[]).await).await;
    serving.until_names(SOON, &["web"]).await;
    let log = world.directory.join("portolan.db-wal");
    assert!(log.exists());
    let signaled = Instant::now();
    // The client keeps its connection.
    serving.portolan.signal("TERM");
    assert!(serving.portolan.exit(SOON).await.success());
    assert!(signaled.elapsed() < DRAINED, "{:?}", signaled.elapsed());
    assert!(
        !log.exists(),
        "the catalog was open after the controllers had closed the database"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_disturbs_nobody() {
    let world = World::new().await;
    declare(&world, "stable", index(&[("web", &["1.0.0"])]));
    let portolan = world.run(&["--serve=", "--min-interval=1s"]).await;
    let url = world.database_url();
    let mut killed = Serving::of(&world, &url).await;
    killed.until_names(SOON, &["web"]).await;
    killed.portolan.signal("KILL");
    killed.portolan.exit(SOON).await;
    declare(&world, "stable", index(&[("redis", &["1.0.0"]), ("web", &["1.0.0"])]));
    world.resync("stable").await;
    let next = Serving::of(&world, &url).await;
    next.until_names(SOON, &["redis", "web"]).await;
    assert_eq!(portolan.get("/readyz").await.unwrap().0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_of_the_controllers_serves_callers_of_a_cluster() {
    let (world, directory) = (cluster::World::new().await, ScratchDir::new("run-serve"));
    let database_url = format!("sqlite://{}", directory.join("portolan.db").display());
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    let token = reader(&world.namespace).await;
    let address = format!("127.0.0.1:{}", free_port());
    let portolan = world.portolan(&database_url, &["--serve", &address]).await;
    portolan.line_with("serving the catalog", SOON).await;
    let serving = Serving {
        url: format!("http://{address}"),
        portolan,
        client: client(),
    };
    serving.get("/charts").await.problem(401);
    eventually(SOON, "the charts of the caller", async || {
        let answer = serving.get_as(&token, "/charts").await;
        let has_chart = answer.status == 200 && super::names(&answer.json()) == ["web"];
        if has_chart { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
}

/// Both handles of the database must read the Secret again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_password_in_the_secret_is_used_by_the_catalog_too() {
    let (world, postgres) = (cluster::World::new().await, Postgres::new().await);
    let name = &postgres.database.name;
    let role = format!("serving_{name}");
    let create = format!("CREATE ROLE {role} LOGIN SUPERUSER PASSWORD 'first'");
    postgres.rows.execute(&create).await;
    let secret = async |password: &str| {
        let values = json!({ "password": password });
        world.write_secret(&world.namespace, "database", values).await;
    };
    secret("first").await;
    let server = url::Url::parse(postgres.url()).unwrap();
    let database = format!("{}:{}", server.host_str().unwrap(), server.port().unwrap());
    let address = format!("127.0.0.1:{}", free_port());
    let flags = [
        &format!("--serve={address}"),
        &format!("--anonymous={}", world.namespace),
        &format!("--database-user={role}"),
        &format!("--database-name={name}"),
        &format!("--namespace={}", world.namespace),
        "--database-secret-name=database",
        "--database-secret-key=password",
    ];
    let portolan = world.portolan(&database, &flags).await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    portolan.line_with("serving the catalog", SOON).await;
    let serving = Serving {
        url: format!("http://{address}"),
        portolan,
        client: client(),
    };
    serving.until_names(SOON, &["web"]).await;

    secret("second").await;
    let change = format!(
        "ALTER ROLE {role} PASSWORD 'second';
         SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
    );
    postgres.rows.execute(&change).await;
    eventually(SOON, "a chart that is read with the new password", async || {
        let list = serving.json("/charts").await;
        let chart = serving.get(&format!("/charts/{}/stable/web", world.namespace)).await;
        if list["stale"] == false && chart.status == 200 {
            Ok(())
        } else {
            Err(format!("{list} {chart:?}"))
        }
    })
    .await;
}

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serving_creates_no_table() {
    const TABLES: &str = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'";
    let (world, database) = (World::new().await, postgres::database().await);
    let serving = Serving::of(&world, &database.url).await;
    assert_eq!(serving.names("/charts").await, [""; 0]);
    let tables: i64 = sqlx::query_scalar(TABLES)
        .fetch_one(&mut connect(&database.url).await)
        .await
        .unwrap();
    assert_eq!(tables, 0);
}

/// As on a hot standby, which refuses each write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_the_database_that_refuses_writes_is_enough() {
    let (world, database) = (World::new().await, postgres::database().await);
    fill(&world, &database.url, "stable", &[("web", &["1.0.0"])]).await;
    let url = format!("{}?options[default_transaction_read_only]=on", database.url);
    let written = connect(&url).await.execute("DELETE FROM charts").await;
    assert!(written.is_err(), "{written:?}");
    let serving = Serving::of(&world, &url).await;
    assert_eq!(serving.names("/charts").await, ["web"]);
    assert_eq!(serving.json("/charts/default/stable/web").await["name"], "web");
    let lines = serving.portolan.lines();
    assert!(!lines.iter().any(|line| line.contains("refuses writes")), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_a_newer_release_is_not_served() {
    let world = World::new().await;
    let url = world.database_url();
    fill(&world, &url, "stable", &[("web", &["1.0.0"])]).await;
    let newest = "(SELECT max(version) FROM portolan_migrations)";
    let changed = world
        .execute(&format!(
            "UPDATE portolan_migrations SET version = version + 1000 WHERE version = {newest}"
        ))
        .await;
    assert_eq!(changed, 1);
    let serving = Serving::begin(&url, &["--manifests", &world.manifests()]);
    serving.portolan.line_with("failed to read the catalog", SOON).await;
    serving.get("/charts").await.problem(503);
    assert_eq!(serving.portolan.get("/readyz").await.unwrap().0, 503);
}
