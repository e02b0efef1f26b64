//! `sync`, `delete` and `invalidate-cache`, alone and while `portolan run` is running.

use rstest::rstest;
use serde_json::Value;
use sqlx::SqlitePool;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{CommandOutput, SOON, World, build_index, execute};
use crate::cluster::index;
use crate::support::chart_server::Fault;
use crate::support::eventually::eventually;
use crate::support::portolan::{Portolan, command};
use crate::support::postgres;

#[tokio::test]
async fn exit_codes_distinguish_success_failure_and_invalid_usage() {
    let world = World::new().await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.execute(&["status"]).await.failed(1); // there is no database yet
    for fine in [
        &["help"][..],
        &["--version"],
        &["help", "run"],
        &["sync", "--help"],
        &["crds"],
    ] {
        execute(command(fine)).await.ok();
    }
    world.execute(&["sync", "stable", &url, "helm"]).await.ok();
    for failing in [
        &["sync", "stable", &world.server.url("/nowhere"), "helm"][..],
        &["show", "stable/nothing"],
        &["status", "nothing"],
        &["run", "--once", "--manifests", "/no/such/directory"],
    ] {
        world.execute(failing).await.failed(1);
    }
    for wrong in [
        &["sail"][..],
        &["sync", "stable"],
        &["sync", "stable", &url, "helm", "--no-such-flag"],
        &["sync", "stable", &url, "helm", "--stall-timeout=soon"],
        &["sync", "stable", &url, "helm", "--spool-dir=/no/such/directory"],
        &["show", "web"],
        &["status", "--output=xml"],
        &["status", "--log-level=portolan=loud"],
        &["run", "--manifests", ".", "--crontab=never"],
        &["run", "--allow-file-root=."],
    ] {
        let error = world.execute(wrong).await.failed(2);
        assert!(!error.is_empty(), "{wrong:?}");
    }
    for wrong in ["mysql://db", "sqlite://", "", "postgres://u@h/d?sslmod=require"] {
        let error = execute(command(["status", "--database-url", wrong])).await.failed(2);
        assert!(error.contains("--database-url"), "{error}");
    }
    let output = execute(command([
        "status",
        "--database-url",
        "sqlite:///no/such/directory/portolan.db",
    ]))
    .await;
    assert!(output.failed(1).contains("/no/such/directory/portolan.db"));
}

#[tokio::test]
async fn a_repository_is_synced_not_modified_and_deleted() {
    let world = World::new().await;
    let url = world.serve("stable", index(&[("web", &["1.1.0", "1.0.0"])]));
    let sync = ["sync", "stable", url.as_str(), "helm", "-n", "team"];
    assert_eq!(
        world.execute(&sync).await.ok(),
        "stable: synced. 2 versions in 1 chart.\n"
    );
    assert!(world.execute(&sync).await.ok().starts_with("stable: not modified."));
    assert!(world.server.requests("/stable/index.yaml")[1].is_conditional());
    let status = world.execute(&["status", "stable", "-o", "json"]).await.json();
    assert_eq!(
        (&status[0]["namespace"], &status[0]["versions"]),
        (&"team".into(), &2.into())
    );

    assert_eq!(
        status[0]["nextSyncTime"],
        Value::Null,
        "a one-shot sync has no schedule"
    );

    // A failed sync leaves the charts unchanged.
    world.server.break_path("/stable/index.yaml", Fault::status(404));
    let error = world.execute(&sync).await.failed(1);
    assert!(error.contains("NotFound"), "{error}");
    world.server.clear_faults("/stable/index.yaml");
    world.execute(&["show", "stable/web", "-n", "team"]).await.ok();

    // An invalid URL is refused before anything is removed.
    for (url, kind) in [
        ("not a url", "helm"),
        ("file:///etc", "helm"),
        ("not a url", "oci"),
        ("ftp://host/x", "oci"),
    ] {
        let error = world
            .execute(&["sync", "stable", url, kind, "-n", "team"])
            .await
            .failed(1);
        assert!(error.contains("failed to sync stable: "), "{error}");
        world.execute(&["show", "stable/web", "-n", "team"]).await.ok();
    }

    // A different URL with the same name is a different repository.
    let other = world.serve("other", index(&[("db", &["1.0.0"])]));
    world
        .execute(&["sync", "stable", &other, "helm", "-n", "team"])
        .await
        .ok();
    world.execute(&["show", "stable/db"]).await.ok();
    world.execute(&["show", "stable/web"]).await.failed(1);

    let delete = ["delete", "stable", "-n", "team"];
    assert_eq!(world.execute(&delete).await.ok(), "team/stable: deleted\n");
    assert_eq!(world.execute(&delete).await.ok(), "team/stable: not found\n");
    assert_eq!(
        world.execute(&["status", "-o", "json"]).await.json(),
        Value::Array(vec![])
    );
}

#[tokio::test]
async fn a_shrunken_index_is_accepted_with_allow_shrink() {
    let world = World::new().await;
    let url = world.serve("stable", build_index(12));
    let sync = ["sync", "stable", url.as_str(), "helm"];
    world.execute(&sync).await.ok();
    world.serve("stable", build_index(2));
    let error = world.execute(&sync).await.failed(1);
    assert!(
        error.contains("ShrinkRefused") && error.contains("12 charts"),
        "{error}"
    );
    let (_, rest) = error.split_once("--allow-shrink=").expect("the flag is named");
    let digest: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();

    // The same index is refused again without being decoded.
    world.execute(&sync).await.failed(1);
    let wrong = [&sync[..], &["--allow-shrink=0123456789"]].concat();
    world.execute(&wrong).await.failed(1);
    assert_eq!(count_charts(&world).await, 12);

    let flag = format!("--allow-shrink={digest}");
    world.execute(&[&sync[..], &[&flag]].concat()).await.ok();
    assert_eq!(count_charts(&world).await, 2);
    // Other errors do not suggest --allow-shrink.
    world.server.break_path("/stable/index.yaml", Fault::status(500));
    let error = world.execute(&sync).await.failed(1);
    assert!(!error.contains("--allow-shrink"), "{error}");
}

async fn count_charts(world: &World) -> u64 {
    let status = world.execute(&["status", "-o", "json"]).await.json();
    status[0]["charts"].as_u64().unwrap()
}

#[tokio::test]
async fn invalid_arguments_are_refused_before_any_download() {
    let world = World::new().await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    let sync = ["sync", "stable", url.as_str(), "helm"];
    world.execute(&sync).await.ok();
    let before = world.execute(&["show", "stable/web", "-o", "json"]).await.ok();
    world.serve("stable", index(&[("web", &["2.0.0"])]));

    let mut refused = vec![
        (
            world.command(&[&sync[..], &["--filter-rules=.name"]].concat()),
            2,
            "--filter-rules",
        ),
        (
            world.command(&[&sync[..], &[r#"--filter-rules={"jq":".name =="}"#]].concat()),
            1,
            "InvalidFilter",
        ),
        (
            world.command(&[&sync[..], &["--ca-file=no-such-file"]].concat()),
            2,
            "--ca-file",
        ),
    ];
    for (secret, value) in [
        ("AUTHORIZATION_HEADER", "Bearer hush\nX-Evil: 1"),
        (
            "DOCKER_CONFIG_JSON",
            r#"{"auths":{"a":{"auth":"hush"},"b":{"auth":"hush"}}}"#,
        ),
    ] {
        let mut command = world.command(&sync);
        command.env(secret, value);
        refused.push((command, 2, secret));
    }
    for (command, code, named) in refused {
        let error = execute(command).await.failed(code);
        assert!(error.contains(named), "{error}");
        assert!(!error.contains("hush"), "{error}");
    }
    assert_eq!(world.execute(&["show", "stable/web", "-o", "json"]).await.ok(), before);
    assert_eq!(
        world.server.requests("/stable/index.yaml").len(),
        1,
        "none of them downloaded the index"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_sqlite_only_reading_commands_work_while_portolan_runs() {
    let world = World::new().await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    let manifests = world.declare("stable", &url, "");
    let mut running = Portolan::start(world.command(&["run", "--manifests", &manifests]));
    running.ready(SOON).await;
    wait_until_shown(&world, "stable/web").await;

    for writing in [
        &["sync", "other", &url, "helm"][..],
        &["delete", "stable"],
        &["invalidate-cache"],
        &["run", "--manifests", &manifests, "--listen=127.0.0.1:0"],
        &["run", "--once", "--manifests", &manifests],
    ] {
        let error = world.execute(writing).await.failed(1);
        assert!(error.contains(&format!("process {}", running.id())), "{error}");
        assert!(
            error.contains("portolan resync") && error.contains("portolan status"),
            "{error}"
        );
    }
    for reading in [&["status"][..], &["search", "web"], &["show", "stable/web"]] {
        assert!(world.execute(reading).await.ok().contains("web") || reading[0] == "status");
    }

    running.signal("TERM");
    assert_eq!(running.exit(SOON).await.code(), Some(0));
    world.execute(&["sync", "other", &url, "helm"]).await.ok();
}

async fn wait_until_shown(world: &World, chart: &str) {
    eventually(SOON, &format!("{chart} to be synced"), async || {
        let CommandOutput { code, stderr, .. } = world.execute(&["show", chart]).await;
        if code == Some(0) { Ok(()) } else { Err(stderr) }
    })
    .await;
}

#[tokio::test]
async fn a_sync_is_retried_if_another_process_writes_the_record_meanwhile() {
    let world = World::new().await;
    world.serve("stable", index(&[("web", &["1.0.0"])]));
    let gate = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/stable", gate.local_addr().unwrap());
    let sync = ["sync", "stable", url.as_str(), "helm"];
    let accept = async || {
        timeout(SOON, gate.accept())
            .await
            .expect("the index is requested")
            .unwrap()
            .0
    };
    let forward = async |mut client: TcpStream| {
        let mut server = TcpStream::connect(world.server.host()).await.unwrap();
        tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await });
    };
    let (output, ()) = tokio::join!(world.execute(&sync), async { forward(accept().await).await });
    output.ok();

    world.serve("stable", index(&[("web", &["2.0.0"])]));
    let (output, ()) = tokio::join!(world.execute(&sync), async {
        // The record is read before the index is requested.
        let client = accept().await;
        let tables = SqlitePool::connect(&world.database_url()).await.unwrap();
        let written = sqlx::query("UPDATE portolan_repositories SET revision = revision + 1").execute(&tables);
        assert_eq!(written.await.unwrap().rows_affected(), 1);
        // The retry reuses the connection.
        forward(client).await;
    });
    assert_eq!(output.ok(), "stable: synced. 1 version in 1 chart.\n");
    assert_eq!(world.server.requests("/stable/index.yaml").len(), 3);
    assert!(world.execute(&["show", "stable/web"]).await.ok().contains("2.0.0"));
}

#[rstest]
#[case::as_a_url(false)]
#[case::as_in_kubeapps(true)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_portolan_and_one_shot_commands_share_a_postgres(#[case] host_and_port: bool) {
    let world = World::new().await;
    let database = postgres::database().await;
    let with_database = |arguments: &[&str]| {
        let mut command = command(arguments);
        if host_and_port {
            command
                .args(super::kubeapps::database_flags(&database.url))
                .env("DB_PASSWORD", postgres::PASSWORD);
        } else {
            command.args(["--database-url", &database.url]);
        }
        command
    };
    let declared = world.serve("declared", index(&[("web", &["1.0.0"])]));
    let manifests = world.declare("declared", &declared, "  interval: \"* * * * * *\"\n");
    let running = Portolan::start(with_database(&["run", "--manifests", &manifests, "--min-interval=1s"]));
    running.ready(SOON).await;
    let until = async |chart: &str| {
        eventually(SOON, &format!("{chart} to be there"), async || {
            let shown = execute(with_database(&["show", chart])).await;
            if shown.code == Some(0) {
                Ok(())
            } else {
                Err(shown.stderr)
            }
        })
        .await;
    };
    until("declared/web").await;

    // Syncs another repository, and the declared one, whose charts keep their owner.
    let by_hand = world.serve("by-hand", index(&[("db", &["1.0.0"])]));
    execute(with_database(&["sync", "by-hand", &by_hand, "helm"]))
        .await
        .ok();
    execute(with_database(&["sync", "declared", &declared, "helm"]))
        .await
        .ok();
    until("by-hand/db").await;
    until("declared/web").await;

    // Declared repositories return after they were deleted.
    execute(with_database(&["delete", "declared"])).await.ok();
    until("declared/web").await;
    execute(with_database(&["invalidate-cache"])).await.ok();
    until("declared/web").await;
    let left = execute(with_database(&["status", "-o", "json"])).await.json();
    let by_hand = left.as_array().unwrap().iter().find(|one| one["name"] == "by-hand");
    assert!(by_hand.is_none_or(|one| one["charts"] == 0), "{left}");
}

/// A running Portolan may hold the rows for longer than the wait for a lock.
#[tokio::test]
async fn a_sync_that_meets_a_long_write_of_another_process_tries_again() {
    const WAITING: &str = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
        WHERE NOT granted AND application_name = 'portolan' AND datname = current_database()";
    let world = World::new().await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    let database = postgres::database().await;
    let sync = || {
        let mut sync = command(["sync", "stable", &url, "helm"]);
        sync.args(["--database-url", &database.url]);
        execute(sync)
    };
    sync().await.ok();
    let pool = sqlx::PgPool::connect(&database.url).await.unwrap();
    let mut writer = pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE charts IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *writer)
        .await
        .unwrap();
    world.serve("stable", index(&[("web", &["2.0.0"])]));
    let until_waiting = async |count: i64| {
        eventually(SOON, "the number of waiting sessions", async || {
            let waiting: i64 = sqlx::query_scalar(WAITING).fetch_one(&pool).await.unwrap();
            (waiting == count).then_some(())
        })
        .await;
    };
    let unlock = async {
        until_waiting(1).await;
        until_waiting(0).await;
        writer.rollback().await.unwrap();
    };
    let (synced, ()) = tokio::join!(sync(), unlock);
    synced.ok();
    let versions: String = sqlx::query_scalar("SELECT info -> 'chartVersions' -> 0 ->> 'version' FROM charts")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(versions, "2.0.0");
}

#[tokio::test]
async fn loopback_is_refused_in_a_pod_and_the_api_server_always() {
    let world = World::new().await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    let manifests = world.declare("stable", &url, "");
    let address = url::Url::parse(&url).unwrap();
    let (host, port) = (address.host_str().unwrap(), address.port().unwrap().to_string());
    let sync = ["sync", "stable", &url, "helm"];
    let in_pod = |more: &[&str], service_port: &str| {
        let mut command = world.command(&[&sync[..], more].concat());
        command
            .env_remove("PORTOLAN_ALLOW_LOOPBACK")
            .env("KUBERNETES_SERVICE_HOST", host)
            .env("KUBERNETES_SERVICE_PORT", service_port);
        command
    };
    let error = execute(in_pod(&[], "1")).await.failed(1);
    assert!(
        error.contains("AddressRefused") && error.contains("--allow-loopback"),
        "{error}"
    );
    let error = execute(in_pod(&["--allow-loopback"], &port)).await.failed(1);
    assert!(error.contains("it is the API server"), "{error}");
    assert!(world.server.requests("/stable/index.yaml").is_empty());

    execute(in_pod(&["--allow-loopback"], "1")).await.ok();
    for outside in [&sync[..], &["run", "--once", "--manifests", &manifests]] {
        let mut command = world.command(outside);
        command
            .env_remove("PORTOLAN_ALLOW_LOOPBACK")
            .env_remove("KUBERNETES_SERVICE_HOST");
        execute(command).await.ok();
    }
}
