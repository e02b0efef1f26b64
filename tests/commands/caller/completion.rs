//! Completions of names, and the plugin of kubectl.

use std::path::Path;
use std::process::Command;

use kube::api::PostParams;
use rstest::rstest;
use serde_json::json;

use super::Site;
use crate::catalog::On;
use crate::cluster::SOON;
use crate::commands::{execute, link_binary};
use crate::support::control_plane::tool;
use crate::support::eventually::eventually;
use crate::support::portolan::{command, command_as};

impl Site {
    async fn declare(&self, name: &str) {
        let repository = json!({
            "apiVersion": "kubeapps.com/v1alpha1", "kind": "AppRepository", "metadata": { "name": name },
            "spec": { "url": "https://charts.example", "type": "helm" },
        });
        let repository = serde_json::from_value(repository).unwrap();
        let created = self
            .world
            .repositories
            .create(&PostParams::default(), &repository)
            .await;
        created.unwrap();
    }
}

/// Completes the last word, as the script of bash does.
async fn complete(kubeconfig: &Path, words: &[&str]) -> Vec<String> {
    let mut command = command(["--", "portolan"]);
    command.args(words).env("KUBECONFIG", kubeconfig);
    command
        .env("_PORTOLAN_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    let completed = execute(command).await;
    assert_eq!(completed.stderr, "");
    completed.ok().lines().map(str::to_owned).collect()
}

/// Completes again while the API server takes more than a second to respond.
async fn until_completed(kubeconfig: &Path, words: &[&str], expected: &[&str]) {
    eventually(SOON, &format!("the completion of {words:?}"), async || {
        let completed = complete(kubeconfig, words).await;
        if completed == expected {
            Ok(())
        } else {
            Err(format!("{completed:?}"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_objects_complete() {
    let site = Site::new(On::Sqlite).await;
    site.declare("harbour").await;
    site.declare("haven").await;
    let (namespace, kubeconfig) = (site.namespace(), &site.world.kubeconfig);
    for command in ["status", "history", "resync"] {
        until_completed(kubeconfig, &[command, "-n", namespace, "ha"], &["harbour", "haven"]).await;
    }
    until_completed(kubeconfig, &["show", "-n", namespace, "hav"], &["haven/"]).await;
    let nowhere = Path::new("/nowhere");
    let (flag, namespaced) = (
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--namespace={namespace}"),
    );
    until_completed(nowhere, &["status", &flag, &namespaced, "har"], &["harbour"]).await;
    until_completed(kubeconfig, &["search", "-n", namespace], &[namespace]).await;
    assert_eq!(complete(kubeconfig, &["outd"]).await, ["outdated"]);
    assert_eq!(complete(kubeconfig, &["outdated", "--fail-on", "mi"]).await, ["minor"]);
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charts_of_the_database_complete_behind_their_repository(#[values(On::Sqlite, On::Postgres)] on: On) {
    let site = Site::new(on).await;
    let versions: &[&str] = &["1.0.0"];
    // A shell would run the last one.
    let charts = [
        ("beacon", versions),
        ("buoy", versions),
        ("quay", versions),
        ("b$(id)", versions),
    ];
    site.fill("harbour", &charts).await;
    site.fill("haven", &[("beam", versions)]).await;
    let (nowhere, database) = (Path::new("/nowhere"), format!("--database-url={}", site.database_url));
    let expected = ["harbour/beacon", "harbour/buoy"];
    until_completed(nowhere, &["show", &database, "harbour/b"], &expected).await;
    until_completed(
        nowhere,
        &["show", &database, "-n", site.namespace(), "harbour/b"],
        &expected,
    )
    .await;
    for words in [
        &["show", &database, "-n", "other", "harbour/b"][..],
        &["show", &database, "other/"],
    ] {
        assert_eq!(complete(nowhere, words).await, [""; 0], "{words:?}");
    }
    let missing = site.directory.join("missing.db");
    let database = format!("--database-url=sqlite://{}", missing.display());
    assert_eq!(complete(nowhere, &["show", &database, "harbour/b"]).await, [""; 0]);
    assert!(!missing.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_does_not_answer_completes_nothing_and_prints_nothing() {
    let site = Site::new(On::Sqlite).await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let failing = json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", "echo oops >&2; exit 1"],
    }});
    let slow = site.kubeconfig_of("slow", json!({ "token": "x" }));
    let text = std::fs::read_to_string(&slow).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
    config["clusters"][0]["cluster"]["server"] = json!(format!("https://{address}"));
    let slow = site.directory.write("slow", config.to_string());
    let nowhere = site.directory.join("nowhere");
    for kubeconfig in [slow, site.kubeconfig_of("failing", failing), nowhere] {
        assert_eq!(
            complete(&kubeconfig, &["status", "ha"]).await,
            [""; 0],
            "{kubeconfig:?}"
        );
    }
}

/// Runs kubectl with the plugin in its path.
async fn kubectl(site: &Site, arguments: &[&str]) -> String {
    let links = ["kubectl-portolan", "kubectl_complete-portolan"];
    for link in links {
        link_binary(&site.directory, link);
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let mut kubectl = Command::new(tool("kubectl"));
    kubectl
        .args(arguments)
        .env("PATH", format!("{}:{path}", site.directory.path().display()))
        .env("KUBECONFIG", &site.world.kubeconfig);
    execute(kubectl).await.ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_runs_and_completes_the_plugin() {
    let site = Site::new(On::Sqlite).await;
    site.declare("harbour").await;
    let help = kubectl(&site, &["portolan", "status", "--help"]).await;
    assert!(help.contains("Usage: kubectl portolan status "), "{help}");
    let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let completed = lines(kubectl(&site, &["__complete", "portolan", "outd"]).await);
    assert_eq!(completed[..2], ["outdated", ":4"]);
    let status = ["__complete", "portolan", "status", "-n", site.namespace(), "ha"];
    eventually(SOON, "the name of the repository", async || {
        let completed = kubectl(&site, &status).await;
        if completed.starts_with("harbour\n:4\n") {
            Ok(())
        } else {
            Err(completed)
        }
    })
    .await;
}

#[tokio::test]
async fn a_plugin_that_is_called_directly_completes_the_last_word() {
    let directory = crate::support::process::ScratchDir::new("plugin");
    let program = link_binary(&directory, "kubectl_complete-portolan");
    let completed = execute(command_as(&program, ["sear"])).await.ok();
    assert_eq!(completed, "search\n:4\n");
    let all = execute(command_as(&program, [""; 0])).await.ok();
    assert!(all.lines().any(|line| line == "outdated"), "{all}");
}
