//! `--server` shows what the database shows, and sends the token of its caller nowhere else.

use std::path::PathBuf;

use rstest::rstest;
use serde_json::{Value, json};

use super::{Site, ask_with};
use crate::catalog::On;
use crate::commands::{CommandOutput, execute};
use crate::serve::access::reader;
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::portolan::command;

/// Searches with a token of the environment.
async fn search_with(token: &str, server: &str) -> CommandOutput {
    let mut command = command(["search", "--server", server]);
    command.env("PORTOLAN_TOKEN", token);
    execute(command).await
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_shows_what_the_database_shows(#[values(On::Sqlite, On::Postgres)] on: On) {
    let site = Site::new(on).await;
    site.fill("stable", &[("web", &["1.1.0", "1.0.0"]), ("webdav", &["2.0.0"])])
        .await;
    let serving = site.serve().await;
    for arguments in [
        &["search"][..],
        &["search", "web"],
        &["search", "wabdav"],
        &["search", "web", "--limit=1"],
        &["show", "stable/web"],
        &["show", "stable/web", "-n", site.namespace()],
    ] {
        for format in ["table", "json"] {
            let arguments = [arguments, &["-o", format]].concat();
            let (read, asked) = (site.read(&arguments).await, site.ask(&serving, &arguments).await);
            assert_eq!(asked.stderr, read.stderr, "{arguments:?}");
            assert_eq!(asked.ok(), read.ok(), "{arguments:?}");
        }
    }
    let status = ["status", "stable", "-o", "json"];
    let mut read = site.read(&status).await.json();
    // The API does not have them.
    for missing in ["files", "lastSync"] {
        read[0][missing] = Value::Null;
    }
    assert_eq!(site.ask(&serving, &status).await.json(), read);
    for missing in [&["show", "stable/redis"][..], &["status", "other"]] {
        let error = site.ask(&serving, missing).await.failed(1);
        assert_eq!(error, site.read(missing).await.failed(1), "{missing:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_continues_on_the_next_page() {
    let site = Site::new(On::Sqlite).await;
    let names: Vec<String> = (0..450).map(|number| format!("chart-{number:03}")).collect();
    let charts: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), &["1.0.0"][..])).collect();
    site.fill("stable", &charts).await;
    let serving = site.serve().await;
    let arguments = ["search", "-o", "json", "--limit=420"];
    let asked = site.ask(&serving, &arguments).await.json();
    assert_eq!(asked.as_array().unwrap().len(), 420);
    assert_eq!(asked, site.read(&arguments).await.json());
}

/// A credential plugin that prints this status.
fn plugin(status: &Value) -> Value {
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
    });
    json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "sh", "args": ["-c", format!("echo '{credential}'")],
    }})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_may_come_from_a_credential_plugin_a_file_or_the_environment() {
    let site = Site::new(On::Sqlite).await;
    site.fill("stable", &[("web", &["1.0.0"])]).await;
    let serving = site.serve().await;
    let token = reader(site.namespace()).await;
    let expected = site.read(&["search"]).await.ok();

    let lasting = plugin(&json!({ "token": token }));
    let expiring = plugin(&json!({ "token": token, "expirationTimestamp": "2999-01-01T00:00:00Z" }));
    for (name, user) in [("lasting", lasting), ("expiring", expiring)] {
        let kubeconfig = site.kubeconfig_of(name, user);
        let asked = ask_with(&serving.url, &kubeconfig, &["search"]).await;
        assert_eq!(asked.ok(), expected, "{name}");
    }
    let file = site.directory.write("token", format!("{token}\n"));
    let stranger = site.kubeconfig_of("stranger", json!({}));
    let from_file = ["search", "--token-file", file.to_str().unwrap()];
    assert_eq!(ask_with(&serving.url, &stranger, &from_file).await.ok(), expected);
    assert_eq!(search_with(&token, &serving.url).await.ok(), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_caller_gets_one_line_without_the_token() {
    let site = Site::new(On::Sqlite).await;
    site.fill("stable", &[("web", &["1.0.0"])]).await;
    let serving = site.serve().await;
    let error = search_with("hunter2", &serving.url).await.failed(1);
    assert!(
        error.contains("Authentication required: ") && !error.contains("hunter2"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1, "{error}");

    let stranger = site.kubeconfig_of("stranger", json!({}));
    let error = ask_with(&serving.url, &stranger, &["search"]).await.failed(1);
    assert!(error.contains("set --token-file"), "{error}");

    let failing = json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "sh", "args": ["-c", "echo hunter2; exit 3"],
    }});
    let failing: PathBuf = site.kubeconfig_of("failing", failing);
    let error = ask_with(&serving.url, &failing, &["search"]).await.failed(1);
    assert!(
        error.contains("credential plugin") && !error.contains("hunter2"),
        "{error}"
    );

    let token = reader(site.namespace()).await;
    let mut foreign = command(["search", "-n", "kube-system", "--server", &serving.url]);
    foreign.env("PORTOLAN_TOKEN", &token);
    let error = execute(foreign).await.failed(1);
    assert!(error.contains("Access denied: ") && !error.contains(&token), "{error}");
}

#[tokio::test]
async fn no_other_host_gets_the_token() {
    let (server, other) = (ChartServer::start().await, ChartServer::start().await);
    let charts = "/api/v1/charts";
    server.break_path(charts, Fault::redirect(&other.url(charts)));
    let error = search_with("hunter2", &server.url("")).await.failed(1);
    assert!(error.contains("redirects to") && !error.contains("hunter2"), "{error}");
    assert_eq!(server.requests(charts)[0].authorization(), Some("Bearer hunter2"));
    assert_eq!(other.request_count(), 0);

    for address in ["http://charts.example", "http://10.0.0.1:8090", "ftp://localhost"] {
        let error = search_with("hunter2", address).await.failed(2);
        assert!(error.contains("--server") && !error.contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn responses_of_other_servers_are_refused_and_limited() {
    let server = ChartServer::start().await;
    let charts = "/api/v1/charts";
    for (page, expected) in [
        (Page::new("<html>"), "is this the address of portolan serve?"),
        (Page::new(r#"{"items":[{"name":7}]}"#), "unexpected response"),
        (Page::new(vec![b' '; 17 << 20]), "larger than"),
    ] {
        server.serve(charts, page);
        let error = search_with("hunter2", &server.url("")).await.failed(1);
        assert!(error.contains(expected), "{error}");
    }
    // A list without an end.
    server.serve(charts, Page::new(r#"{"items":[],"next":"again"}"#));
    let asked = search_with("hunter2", &server.url("")).await;
    assert_eq!(asked.ok(), "no charts found\n");
    assert_eq!(server.requests(charts).len(), 1_003);
}
