//! Passwords of databases and secrets in URLs of repositories are never shown.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use serde_json::json;

use super::{CommandOutput, SOON, World, execute};
use crate::cluster::index;
use crate::support::chart_server::Fault;
use crate::support::portolan::{Portolan, command};
use crate::support::postgres;

/// User, password and token of a repository, and the password of the database.
const SECRETS: [&str; 4] = ["hushuser", "hushword", "hushtoken", postgres::PASSWORD];

fn add_secrets(url: &str) -> String {
    format!(
        "{}?token=hushtoken",
        url.replacen("http://", "http://hushuser:hushword@", 1)
    )
}

fn assert_no_secrets(subject: &str, text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{subject} shows {secret}:\n{text}");
    }
}

fn join_output(output: &CommandOutput) -> String {
    format!("{}{}", output.stdout, output.stderr)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_and_commands_show_no_secrets() {
    let world = World::new().await;
    let database = postgres::database().await;
    let good = add_secrets(&world.serve("good", index(&[("web", &["1.0.0"])])));
    let manifests = world.declare("good", &good, "");
    let bad = [
        ("missing", add_secrets(&world.server.url("/missing"))),
        ("refused", add_secrets("http://127.0.0.1:1/refused")),
        (
            "unknown",
            "ftp://hushuser:hushword@127.0.0.1/x?token=hushtoken".to_owned(),
        ),
        ("broken", "http://hushuser:hushword@:x/?token=hushtoken".to_owned()),
        ("loop", add_secrets(&world.server.url("/loop"))),
    ];
    let to_itself = add_secrets(&world.server.url("/loop/index.yaml"));
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
    crate::support::eventually::eventually(SOON, "all repositories to be attempted", async || {
        let status = execute(with_database(&["status", "-o", "json"])).await.json();
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
    assert_no_secrets("/metrics", &running.get("/metrics").await.unwrap().1);
    running.signal("TERM");
    running.exit(SOON).await;
    assert_no_secrets("the log of run", &running.lines().join("\n"));

    let mut shown = vec![
        execute(with_database(&["sync", "by-hand", &good, "helm"])).await,
        execute(with_database(&["delete", "by-hand"])).await,
    ];
    for (name, url) in &bad {
        let failed = execute(with_database(&["sync", name, url, "helm"])).await;
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
            let output = execute(with_database(&[reading, &["-o", form]].concat())).await;
            assert_eq!(output.code, Some(0), "{output:#?}");
            shown.push(output);
        }
    }
    // An unreachable database and invalid URLs.
    let unreachable = database
        .url
        .replacen("127.0.0.1", "127.0.0.1:1/x?host=127.0.0.1&port=1#", 1);
    for url in [
        unreachable.as_str(),
        "postgres://u:hushword@127.0.0.1:1/d",
        "postgres://u:hushword@[/d",
        "postgres://u@h/d?sslmode=hushword",
        "u:hushword@db:5432",
    ] {
        let failed = execute(command(["status", "--database-url", url, "--log-level=trace"])).await;
        assert_ne!(failed.code, Some(0), "{failed:#?}");
        shown.push(failed);
    }
    for output in &shown {
        assert_no_secrets("a command", &join_output(output));
    }
    // Help shows the names of variables, not their values.
    let mut help = command(["help", "run"]);
    help.env("PORTOLAN_DATABASE_URL", &database.url);
    assert_no_secrets("help", &join_output(&execute(help).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_events_and_logs_in_a_cluster_show_no_secrets() {
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

    let good = add_secrets(&world.serve("good", index(&[("web", &["1.0.0"])])));
    world.declare("good", &good).await;
    world
        .declare("missing", &add_secrets(&world.server.url("/missing")))
        .await;
    world
        .declare("unknown", "ftp://hushuser:hushword@127.0.0.1/x?token=hushtoken")
        .await;
    world.until_ready("good").await;
    for (name, reason) in [("missing", "NotFound"), ("unknown", "InvalidURL")] {
        let object = world.until_ready_is(name, "False", reason).await;
        assert_no_secrets("a status", &serde_json::to_string(&object.status).unwrap());
        assert!(world.event(name, "SyncStalled").await.starts_with(reason));
    }
    for name in ["good", "missing", "unknown"] {
        assert_no_secrets("an event", &format!("{:?}", world.events(name).await));
    }
    portolan.signal("TERM");
    portolan.exit(SOON).await;
    assert_no_secrets("the log", &portolan.lines().join("\n"));
}
