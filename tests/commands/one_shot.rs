//! `sync`, `delete`, `invalidate-cache`, and the commands that read.

use std::time::Duration;

use serde_json::Value;

use super::{assert_code, called_as, text};
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::portolan::{Portolan, command, run};
use crate::support::postgres::{PASSWORD, USER, database};
use crate::support::process::ScratchFolder;

const SOON: Duration = Duration::from_secs(30);

struct World {
    folder: ScratchFolder,
    server: ChartServer,
    database: String,
}

impl World {
    async fn new() -> Self {
        let folder = ScratchFolder::new("commands");
        let database = format!("sqlite://{}", folder.join("portolan.db").display());
        Self {
            folder,
            server: ChartServer::start().await,
            database,
        }
    }

    fn serve(&self, versions: &[&str]) -> String {
        let index = crate::cluster::index(&[("web", versions)]);
        self.server.serve("/charts/index.yaml", Page::new(index));
        self.server.url("/charts")
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = command(arguments);
        command.args(["--database-url", &self.database]);
        command
    }

    async fn status(&self) -> Vec<Value> {
        let output = run(self.command(&["status", "-o", "json"])).await;
        assert_code(&output, 0);
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_is_synced_shown_and_deleted_by_hand() {
    let world = World::new().await;
    let url = world.serve(&["1.0.0"]);
    let sync = ["sync", "stable", &url, "helm"];
    let output = run(world.command(&sync)).await;
    assert_code(&output, 0);
    assert!(
        text(&output).contains("stable: synced. 1 version in 1 chart."),
        "{}",
        text(&output)
    );
    let output = run(world.command(&sync)).await;
    assert!(text(&output).contains("stable: not modified"), "{}", text(&output));
    assert!(world.server.seen("/charts/index.yaml")[1].is_conditional());

    let status = world.status().await;
    assert_eq!(
        (&status[0]["namespace"], &status[0]["ready"]),
        (&"default".into(), &true.into())
    );
    assert_eq!(status[0]["nextSyncTime"], Value::Null, "nobody repeats it");
    let output = run(world.command(&["show", "stable/web"])).await;
    assert_code(&output, 0);
    assert!(text(&output).contains("1.0.0"), "{}", text(&output));

    assert_code(&run(world.command(&["delete", "stable"])).await, 0);
    assert!(world.status().await.is_empty());
    let output = run(world.command(&["delete", "stable"])).await;
    assert_code(&output, 0);
    assert!(text(&output).contains("nothing to remove"), "{}", text(&output));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_ends_with_1_and_wrong_usage_with_2() {
    let world = World::new().await;
    let url = world.serve(&["1.0.0"]);
    assert_code(&run(world.command(&["status"])).await, 1);
    assert_code(&run(world.command(&["sync", "stable", &url, "helm"])).await, 0);
    for (arguments, said) in [
        (&["sync", "stable", &url, "oci"][..], "type oci"),
        (
            &["sync", "stable", &url, "helm", r#"--filter-rules={"jq":".name"}"#],
            "--filter-rules",
        ),
        (&["show", "stable/nothing"], "no chart stable/nothing"),
        (&["status", "nothing"], "no repository nothing"),
    ] {
        let output = run(world.command(arguments)).await;
        assert_code(&output, 1);
        assert!(text(&output).contains(said), "{}", text(&output));
    }
    for arguments in [
        &["show", "stable"][..],
        &["sync", "stable"],
        &["run", "--manifests", ".", "--crontab=never"],
        &["status", "--log-level=portolan=loud"],
    ] {
        assert_code(&run(world.command(arguments)).await, 2);
    }
    let mut with_secret = world.command(&["sync", "stable", &url, "helm"]);
    with_secret.env("AUTHORIZATION_HEADER", "Bearer very-secret");
    let output = run(with_secret).await;
    assert_code(&output, 1);
    assert!(text(&output).contains("AUTHORIZATION_HEADER") && !text(&output).contains("very-secret"));

    world.server.break_path("/charts/index.yaml", Fault::status(404));
    let output = run(world.command(&["sync", "stable", &url, "helm"])).await;
    assert_code(&output, 1);
    assert!(text(&output).contains("NotFound"), "{}", text(&output));
    assert_eq!(world.status().await[0]["charts"], 1, "the charts stay");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn called_as_kubeapps_syncer_it_takes_its_arguments_and_environment() {
    let world = World::new().await;
    let url = world.serve(&["1.0.0"]);
    let database = database().await;
    let host_and_port = database.url.split(['@', '/']).nth(3).unwrap();
    let syncer = |arguments: &[&str]| {
        let mut command = called_as(&world.folder, "asset-syncer");
        command
            .env("DB_PASSWORD", PASSWORD)
            .arg(format!("--database-url={host_and_port}"));
        command.args([
            format!("--database-name={}", database.name),
            format!("--database-user={USER}"),
        ]);
        command
            .args(["--debug", "--namespace=kubeapps", "-v=4"])
            .args(arguments);
        command
    };
    let output = run(syncer(&[
        "sync",
        "--user-agent-comment=kubeapps/2.12.1",
        "bitnami",
        &url,
        "helm",
    ]))
    .await;
    assert_code(&output, 0);
    let agent = world.server.seen("/charts/index.yaml")[0].headers["user-agent"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(agent.ends_with("(kubeapps/2.12.1)"), "{agent}");
    let read = |arguments: &[&str]| {
        let mut command = command(arguments);
        command.args(["--database-url", &database.url]);
        command
    };
    let output = run(read(&["search", "-n", "kubeapps", "web"])).await;
    assert!(text(&output).contains("bitnami/web"), "{}", text(&output));

    assert_code(&run(syncer(&["invalidate-cache"])).await, 0);
    let output = run(read(&["search"])).await;
    assert!(text(&output).contains("no charts found"), "{}", text(&output));
    assert_code(&run(syncer(&["sync", "bitnami", &url, "helm"])).await, 0);
    let output = run(read(&["search"])).await;
    assert!(
        text(&output).contains("bitnami/web"),
        "what was dropped is written again: {}",
        text(&output)
    );
    assert_code(&run(syncer(&["delete", "bitnami"])).await, 0);
    assert!(text(&run(read(&["status"])).await).contains("no repositories"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_a_running_portolan_one_reads_sqlite_but_does_not_write_it() {
    let world = World::new().await;
    let url = world.serve(&["1.0.0"]);
    let manifests = world.folder.join("manifests");
    std::fs::create_dir(&manifests).unwrap();
    let portolan = Portolan::start(world.command(&["run", "--manifests", manifests.to_str().unwrap()]));
    portolan.ready(SOON).await;
    for arguments in [
        &["sync", "stable", &url, "helm"][..],
        &["delete", "stable"],
        &["invalidate-cache"],
        &["run", "--once", "--manifests", manifests.to_str().unwrap()],
    ] {
        let output = run(world.command(arguments)).await;
        assert_code(&output, 1);
        assert!(text(&output).contains("portolan resync"), "{}", text(&output));
    }
    assert!(world.status().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_hostile_reaches_the_terminal() {
    let world = World::new().await;
    let index = "apiVersion: v1\nentries:\n  web:\n  - name: web\n    version: 1.0.0\n    description: \"a\\e[2Jb\\u009b31m\"\n";
    world.server.serve("/charts/index.yaml", Page::new(index));
    assert_code(
        &run(world.command(&["sync", "stable", &world.server.url("/charts"), "helm"])).await,
        0,
    );
    for arguments in [
        &["search"][..],
        &["show", "stable/web"],
        &["search", "-o", "json"],
        &["show", "stable/web", "-o", "json"],
    ] {
        let output = run(world.command(arguments)).await;
        assert_code(&output, 0);
        let text = text(&output);
        assert!(
            text.contains("2J") && !text.contains(|c: char| c.is_control() && c != '\n'),
            "{text:?}"
        );
    }
}
