//! The commands of docs/operations.md, run as a reader runs them, on a control plane of their own.

mod kubelet;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::cluster::index;
use crate::support::chart_server::{ChartServer, Page};
use crate::support::control_plane::{ControlPlane, tool};
use crate::support::portolan::BINARY;
use crate::support::postgres::database;
use crate::support::process::ScratchDir;
use crate::support::project;

/// The sections whose commands are run, in this order.
const SECTIONS: [&str; 5] = [
    "Installation",
    "High availability",
    "Backup",
    "Custom resource definitions",
    "Removal of the chart",
];
/// For one block of commands, on a machine that also runs the other tests.
const DEADLINE: Duration = Duration::from_secs(300);

/// kubectl, except that `kubectl exec … -- portolan` runs the binary with the environment of the pods.
const KUBECTL: &str = r#"#!/bin/sh
if [ "$1" = exec ]; then
    while [ "$1" != -- ]; do shift; done
    [ "$2" = portolan ] || exit 1
    shift 2
    exec "$PORTOLAN" "$@"
fi
exec "$REAL_KUBECTL" "$@"
"#;

/// A fenced block of a section, with its language.
struct Block {
    language: String,
    text: String,
}

/// Returns the fenced blocks of a section, without the indentation of lists.
fn blocks(page: &str, section: &str) -> Vec<Block> {
    let start = format!("\n## {section}\n");
    let text = page
        .split(&start)
        .nth(1)
        .unwrap_or_else(|| panic!("no section {section}"));
    let text = text.split("\n## ").next().unwrap();
    let mut blocks = Vec::new();
    let mut open: Option<(usize, Block)> = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => {
                let (language, text) = (language.to_owned(), String::new());
                open = Some((indent, Block { language, text }));
            }
            (Some(_), Some(_)) => blocks.extend(open.take().map(|(_, block)| block)),
            (Some((indent, block)), None) => {
                block.text.push_str(line.get(*indent..).unwrap_or_default());
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

/// Writes the programs that the commands call into a directory.
fn write_programs(directory: &Path) {
    let kubectl = directory.join("kubectl");
    std::fs::write(&kubectl, KUBECTL).unwrap();
    std::fs::set_permissions(&kubectl, std::fs::Permissions::from_mode(0o755)).unwrap();
    symlink(tool("helm"), directory.join("helm")).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guide_leads_from_the_installation_to_the_removal() {
    let control_plane = ControlPlane::start().await;
    tokio::select! {
        () = kubelet::serve(&control_plane, "portolan") => {}
        () = follow(&control_plane) => {}
    }
}

/// Runs the commands of all sections.
async fn follow(control_plane: &ControlPlane) {
    let page = std::fs::read_to_string(project("docs/operations.md")).unwrap();
    let database = database().await;
    let server = ChartServer::start().await;
    server.serve("/grafana/index.yaml", Page::new(index(&[("grafana", &["1.0.0"])])));
    let directory = ScratchDir::new("guide");
    write_programs(directory.path());
    symlink(project("charts"), directory.path().join("charts")).unwrap();
    // The file that the reader writes.
    directory.write("url", &database.url);
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());

    for section in SECTIONS {
        for block in blocks(&page, section) {
            let text = block
                .text
                .replace("https://grafana.github.io/helm-charts", &server.url("/grafana"));
            if block.language == "yaml" {
                directory.write("portolan.yaml", text);
                continue;
            }
            assert_eq!(block.language, "sh");
            let mut shell = Command::new("sh");
            shell
                .args(["-euxc", &text])
                .current_dir(directory.path())
                .stdin(Stdio::null())
                .env("PATH", &path)
                .env("HELM_CACHE_HOME", directory.path().join("cache"))
                .env("HELM_CONFIG_HOME", directory.path().join("config"))
                .env("HELM_DATA_HOME", directory.path().join("data"))
                .env("KUBECONFIG", control_plane.kubeconfig())
                .env("REAL_KUBECTL", tool("kubectl"))
                .env("PORTOLAN", BINARY)
                .env("PORTOLAN_DATABASE_URL", &database.url)
                .kill_on_drop(true);
            let output = tokio::time::timeout(DEADLINE, shell.output()).await;
            let Ok(output) = output else {
                let shown = ["get", "deployments,replicasets,pods,events", "--namespace=portolan"];
                panic!(
                    "{section} does not end:\n{text}\n{}",
                    control_plane.kubectl(&shown).await
                );
            };
            let output = output.unwrap();
            let [printed, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
            assert!(output.status.success(), "{section}:\n{text}\n{printed}\n{errors}");
            if text.contains("portolan status") {
                assert!(printed.contains("grafana"), "{printed}");
            }
            if text.contains("catalog export") {
                let backup = std::fs::read_to_string(directory.path().join("backup.jsonl")).unwrap();
                assert!(backup.contains("grafana"), "{backup}");
            }
        }
    }
}

#[test]
fn blocks_of_a_section_are_read_without_indentation() {
    let page =
        "# A\n\n## One\n\n1. x\n\n   ```sh\n   echo <<'E'\n     a\n   E\n   ```\n\n## Two\n\n```yaml\nb: 1\n```\n";
    let read = |section: &str| -> Vec<(String, String)> {
        let blocks = blocks(page, section).into_iter();
        blocks.map(|block| (block.language, block.text)).collect()
    };
    assert_eq!(read("One"), [("sh".to_owned(), "echo <<'E'\n  a\nE\n".to_owned())]);
    assert_eq!(read("Two"), [("yaml".to_owned(), "b: 1\n".to_owned())]);
}
