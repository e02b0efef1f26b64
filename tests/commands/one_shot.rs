//! `sync`, `delete` and `invalidate-cache`, alone and beside a running `portolan run`.

use rstest::rstest;
use serde_json::Value;
use sqlx::SqlitePool;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{Ran, SOON, World, index_of, ran};
use crate::cluster::index;
use crate::support::chart_server::Fault;
use crate::support::eventually::eventually;
use crate::support::portolan::{Portolan, command};
use crate::support::postgres;

#[tokio::test]
async fn exit_codes_tell_success_failure_and_wrong_usage() {
    let world = World::new().await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.ran(&["status"]).await.failed(1); // there is no database yet
    for fine in [
        &["help"][..],
        &["--version"],
        &["help", "run"],
        &["sync", "--help"],
        &["crds"],
    ] {
        ran(command(fine)).await.ok();
    }
    world.ran(&["sync", "stable", &url, "helm"]).await.ok();
    for failing in [
        &["sync", "stable", &world.server.url("/nowhere"), "helm"][..],
        &["show", "stable/nothing"],
        &["status", "nothing"],
        &["run", "--once", "--manifests", "/no/such/folder"],
    ] {
        world.ran(failing).await.failed(1);
    }
    for wrong in [
        &["sail"][..],
        &["sync", "stable"],
        &["sync", "stable", &url, "helm", "--no-such-flag"],
        &["sync", "stable", &url, "helm", "--stall-timeout=soon"],
        &["sync", "stable", &url, "helm", "--spool-dir=/no/such/folder"],
        &["show", "web"],
        &["status", "--output=xml"],
        &["status", "--log-level=portolan=loud"],
        &["run", "--manifests", ".", "--crontab=never"],
        &["run", "--allow-file-root=."],
    ] {
        let said = world.ran(wrong).await.failed(2);
        assert!(!said.is_empty(), "{wrong:?}");
    }
    for wrong in ["mysql://db", "sqlite://", "", "postgres://u@h/d?sslmod=require"] {
        let said = ran(command(["status", "--database-url", wrong])).await.failed(2);
        assert!(said.contains("--database-url"), "{said}");
    }
    let said = ran(command([
        "status",
        "--database-url",
        "sqlite:///no/such/folder/portolan.db",
    ]))
    .await;
    assert!(said.failed(1).contains("/no/such/folder/portolan.db"));
}

#[tokio::test]
async fn a_repository_is_synced_found_unchanged_and_deleted() {
    let world = World::new().await;
    let url = world.serve("stable", index(&[("web", &["1.1.0", "1.0.0"])]));
    let sync = ["sync", "stable", url.as_str(), "helm", "-n", "team"];
    assert_eq!(world.ran(&sync).await.ok(), "stable: synced. 2 versions in 1 chart.\n");
    assert!(world.ran(&sync).await.ok().starts_with("stable: not modified."));
    assert!(world.server.requests("/stable/index.yaml")[1].is_conditional());
    let status = world.ran(&["status", "stable", "-o", "json"]).await.json();
    assert_eq!(
        (&status[0]["namespace"], &status[0]["versions"]),
        (&"team".into(), &2.into())
    );

    assert_eq!(status[0]["nextSyncTime"], Value::Null, "nobody repeats it");

    // What fails leaves the charts as they are.
    world.server.break_path("/stable/index.yaml", Fault::status(404));
    let said = world.ran(&sync).await.failed(1);
    assert!(said.contains("NotFound"), "{said}");
    world.server.clear_faults("/stable/index.yaml");
    world.ran(&["show", "stable/web", "-n", "team"]).await.ok();

    // Another URL under the same name is another repository.
    let other = world.serve("other", index(&[("db", &["1.0.0"])]));
    world.ran(&["sync", "stable", &other, "helm", "-n", "team"]).await.ok();
    world.ran(&["show", "stable/db"]).await.ok();
    world.ran(&["show", "stable/web"]).await.failed(1);

    let delete = ["delete", "stable", "-n", "team"];
    assert_eq!(world.ran(&delete).await.ok(), "team/stable: removed\n");
    assert_eq!(world.ran(&delete).await.ok(), "team/stable: nothing to remove\n");
    assert_eq!(world.ran(&["status", "-o", "json"]).await.json(), Value::Array(vec![]));
}

#[tokio::test]
async fn an_index_that_has_shrunk_is_taken_over_when_the_command_says_so() {
    let world = World::new().await;
    let url = world.serve("stable", index_of(12));
    let sync = ["sync", "stable", url.as_str(), "helm"];
    world.ran(&sync).await.ok();
    world.serve("stable", index_of(2));
    let said = world.ran(&sync).await.failed(1);
    assert!(said.contains("ShrinkRefused") && said.contains("12 charts"), "{said}");
    let (_, rest) = said.split_once("--allow-shrink=").expect("the flag is named");
    let digest: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();

    // What was refused is refused again, now without being read.
    world.ran(&sync).await.failed(1);
    let wrong = [&sync[..], &["--allow-shrink=0123456789"]].concat();
    world.ran(&wrong).await.failed(1);
    assert_eq!(charts(&world).await, 12);

    let flag = format!("--allow-shrink={digest}");
    world.ran(&[&sync[..], &[&flag]].concat()).await.ok();
    assert_eq!(charts(&world).await, 2);
    // Another failure does not offer to confirm anything.
    world.server.break_path("/stable/index.yaml", Fault::status(500));
    let said = world.ran(&sync).await.failed(1);
    assert!(!said.contains("--allow-shrink"), "{said}");
}

async fn charts(world: &World) -> u64 {
    let status = world.ran(&["status", "-o", "json"]).await.json();
    status[0]["charts"].as_u64().unwrap()
}

#[tokio::test]
async fn what_can_not_be_honoured_is_refused_before_anything_is_fetched() {
    let world = World::new().await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    let sync = ["sync", "stable", url.as_str(), "helm"];
    world.ran(&sync).await.ok();
    let before = world.ran(&["show", "stable/web", "-o", "json"]).await.ok();
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
        let said = ran(command).await.failed(code);
        assert!(said.contains(named), "{said}");
        assert!(!said.contains("hush"), "{said}");
    }
    assert_eq!(world.ran(&["show", "stable/web", "-o", "json"]).await.ok(), before);
    assert_eq!(
        world.server.requests("/stable/index.yaml").len(),
        1,
        "none of them was fetched"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_a_running_portolan_on_sqlite_others_read_but_do_not_write() {
    let world = World::new().await;
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    let manifests = world.declare("stable", &url, "");
    let mut running = Portolan::start(world.command(&["run", "--manifests", &manifests]));
    running.ready(SOON).await;
    until_shown(&world, "stable/web").await;

    for writing in [
        &["sync", "other", &url, "helm"][..],
        &["delete", "stable"],
        &["invalidate-cache"],
        &["run", "--manifests", &manifests, "--listen=127.0.0.1:0"],
        &["run", "--once", "--manifests", &manifests],
    ] {
        let said = world.ran(writing).await.failed(1);
        assert!(said.contains(&format!("process {}", running.id())), "{said}");
        assert!(
            said.contains("portolan resync") && said.contains("portolan status"),
            "{said}"
        );
    }
    for reading in [&["status"][..], &["search", "web"], &["show", "stable/web"]] {
        assert!(world.ran(reading).await.ok().contains("web") || reading[0] == "status");
    }

    running.signal("TERM");
    assert_eq!(running.exit(SOON).await.code(), Some(0));
    world.ran(&["sync", "other", &url, "helm"]).await.ok();
}

async fn until_shown(world: &World, chart: &str) {
    eventually(SOON, &format!("{chart} to be synced"), async || {
        let Ran { code, err, .. } = world.ran(&["show", chart]).await;
        if code == Some(0) { Ok(()) } else { Err(err) }
    })
    .await;
}

#[tokio::test]
async fn a_sync_begins_again_when_another_process_writes_the_record_meanwhile() {
    let world = World::new().await;
    world.serve("stable", index(&[("web", &["1.0.0"])]));
    let gate = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/stable", gate.local_addr().unwrap());
    let sync = ["sync", "stable", url.as_str(), "helm"];
    let connected = async || {
        timeout(SOON, gate.accept())
            .await
            .expect("the index is asked for")
            .unwrap()
            .0
    };
    let pass_on = async |mut client: TcpStream| {
        let mut server = TcpStream::connect(world.server.host()).await.unwrap();
        tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await });
    };
    let (said, ()) = tokio::join!(world.ran(&sync), async { pass_on(connected().await).await });
    said.ok();

    world.serve("stable", index(&[("web", &["2.0.0"])]));
    let (said, ()) = tokio::join!(world.ran(&sync), async {
        // The record is read before the index is asked for.
        let client = connected().await;
        let tables = SqlitePool::connect(&world.database_url()).await.unwrap();
        let written = sqlx::query("UPDATE portolan_repositories SET revision = revision + 1").execute(&tables);
        assert_eq!(written.await.unwrap().rows_affected(), 1);
        pass_on(client).await;
        pass_on(connected().await).await;
    });
    assert_eq!(said.ok(), "stable: synced. 1 version in 1 chart.\n");
    assert_eq!(world.server.requests("/stable/index.yaml").len(), 3);
    assert!(world.ran(&["show", "stable/web"]).await.ok().contains("2.0.0"));
}

#[rstest]
#[case::as_a_url(false)]
#[case::as_kubeapps_writes_it(true)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_is_shared_by_a_running_portolan_and_one_shot_commands(#[case] host_and_port: bool) {
    let world = World::new().await;
    let database = postgres::database().await;
    let with_database = |arguments: &[&str]| {
        let mut command = command(arguments);
        if host_and_port {
            command
                .args(super::kubeapps::login(&database.url))
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
            let shown = ran(with_database(&["show", chart])).await;
            if shown.code == Some(0) { Ok(()) } else { Err(shown.err) }
        })
        .await;
    };
    until("declared/web").await;

    // Another repository, by hand; and the declared one, whose charts stay whose they are.
    let by_hand = world.serve("by-hand", index(&[("db", &["1.0.0"])]));
    ran(with_database(&["sync", "by-hand", &by_hand, "helm"])).await.ok();
    ran(with_database(&["sync", "declared", &declared, "helm"])).await.ok();
    until("by-hand/db").await;
    until("declared/web").await;

    // What is declared comes back after it was deleted, or everything was.
    ran(with_database(&["delete", "declared"])).await.ok();
    until("declared/web").await;
    ran(with_database(&["invalidate-cache"])).await.ok();
    until("declared/web").await;
    let left = ran(with_database(&["status", "-o", "json"])).await.json();
    let by_hand = left.as_array().unwrap().iter().find(|one| one["name"] == "by-hand");
    assert!(by_hand.is_none_or(|one| one["charts"] == 0), "{left}");
}
