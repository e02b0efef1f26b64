//! The password of the database, and what the URL of a repository may hold besides an address, are shown nowhere.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use serde_json::json;

use super::{Ran, SOON, World, ran};
use crate::cluster::index;
use crate::support::chart_server::Fault;
use crate::support::portolan::{Portolan, command};
use crate::support::postgres;

/// In place of a user, a password and a token of a repository; each is part of any form in which it could be shown.
const SECRETS: [&str; 4] = ["hushuser", "hushword", "hushtoken", postgres::PASSWORD];

fn with_secrets(url: &str) -> String {
    format!(
        "{}?token=hushtoken",
        url.replacen("http://", "http://hushuser:hushword@", 1)
    )
}

fn assert_quiet(what: &str, text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{what} shows {secret}:\n{text}");
    }
}

fn all(ran: &Ran) -> String {
    format!("{}{}", ran.out, ran.err)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_logs_nor_commands_show_a_secret() {
    let world = World::new().await;
    let database = postgres::database().await;
    let good = with_secrets(&world.serve("good", index(&[("web", &["1.0.0"])])));
    let manifests = world.declare("good", &good, "");
    let bad = [
        ("missing", with_secrets(&world.server.url("/missing"))),
        ("refused", with_secrets("http://127.0.0.1:1/refused")),
        (
            "unknown",
            "ftp://hushuser:hushword@127.0.0.1/x?token=hushtoken".to_owned(),
        ),
        ("broken", "http://hushuser:hushword@:x/?token=hushtoken".to_owned()),
        ("loop", with_secrets(&world.server.url("/loop"))),
    ];
    let to_itself = with_secrets(&world.server.url("/loop/index.yaml"));
    world.server.break_path("/loop/index.yaml", Fault::redirect(&to_itself));
    for (name, url) in &bad {
        world.declare(name, url, "");
    }
    let with_database = |arguments: &[&str]| {
        let mut command = command(arguments);
        command.args(["--database-url", &database.url, "--log-level=trace"]);
        command
    };
    let mut running = Portolan::start(with_database(&["run", "--manifests", &manifests]));
    running.ready(SOON).await;
    crate::support::eventually::eventually(SOON, "all to be tried", async || {
        let status = ran(with_database(&["status", "-o", "json"])).await.json();
        let tried = status
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| !one["ready"].is_null())
            .count();
        if tried == bad.len() + 1 {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })
    .await;
    assert_quiet("/metrics", &running.get("/metrics").await.unwrap().1);
    running.signal("TERM");
    running.exit(SOON).await;
    assert_quiet("the log of run", &running.lines().join("\n"));

    let mut shown = vec![
        ran(with_database(&["sync", "by-hand", &good, "helm"])).await,
        ran(with_database(&["delete", "by-hand"])).await,
    ];
    for (name, url) in &bad {
        let failed = ran(with_database(&["sync", name, url, "helm"])).await;
        assert_eq!(failed.code, Some(1), "{failed:#?}");
        shown.push(failed);
    }
    for form in ["table", "json"] {
        for reading in [
            &["status"][..],
            &["status", "missing"],
            &["search"],
            &["show", "good/web"],
        ] {
            let ran = ran(with_database(&[reading, &["-o", form]].concat())).await;
            assert_eq!(ran.code, Some(0), "{ran:#?}");
            shown.push(ran);
        }
    }
    // A database that is away, and a URL that can't be read.
    let away = database
        .url
        .replacen("127.0.0.1", "127.0.0.1:1/x?host=127.0.0.1&port=1#", 1);
    for url in [
        away.as_str(),
        "postgres://u:hushword@127.0.0.1:1/d",
        "postgres://u:hushword@[/d",
        "postgres://u@h/d?sslmode=hushword",
        "u:hushword@db:5432",
    ] {
        let failed = ran(command(["status", "--database-url", url, "--log-level=trace"])).await;
        assert_ne!(failed.code, Some(0), "{failed:#?}");
        shown.push(failed);
    }
    for ran in &shown {
        assert_quiet("a command", &all(ran));
    }
    // The help names the variables, and not what is in them.
    let mut help = command(["help", "run"]);
    help.env("PORTOLAN_DATABASE_URL", &database.url);
    assert_quiet("help", &all(&ran(help).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_status_nor_events_nor_the_log_show_a_secret_in_a_cluster() {
    let world = crate::cluster::World::new().await;
    let database = postgres::database().await;
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    let secret = json!({ "metadata": { "name": "db" }, "stringData": { "password": postgres::PASSWORD } });
    secrets
        .create(&PostParams::default(), &serde_json::from_value(secret).unwrap())
        .await
        .unwrap();
    let own = format!("--namespace={}", world.namespace);
    let url = database.url.replace(&format!(":{}@", postgres::PASSWORD), "@");
    let more = [
        &own,
        "--database-secret-name=db",
        "--database-secret-key=password",
        "--log-level=debug",
    ];
    let mut portolan = world.portolan(&url, &more).await;

    let good = with_secrets(&world.serve("good", index(&[("web", &["1.0.0"])])));
    world.declare("good", &good).await;
    world
        .declare("missing", &with_secrets(&world.server.url("/missing")))
        .await;
    world
        .declare("unknown", "ftp://hushuser:hushword@127.0.0.1/x?token=hushtoken")
        .await;
    world.until_ready("good").await;
    for (name, reason) in [("missing", "NotFound"), ("unknown", "InvalidURL")] {
        let object = world.until_ready_is(name, "False", reason).await;
        assert_quiet("a status", &serde_json::to_string(&object.status).unwrap());
        assert!(world.event(name, "SyncStalled").await.starts_with(reason));
    }
    for name in ["good", "missing", "unknown"] {
        assert_quiet("an event", &format!("{:?}", world.events(name).await));
    }
    portolan.signal("TERM");
    portolan.exit(SOON).await;
    assert_quiet("the log", &portolan.lines().join("\n"));
}
