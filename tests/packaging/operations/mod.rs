//! The commands of docs/how-to, from the installation to the removal, run as a reader runs them, on a control plane of their
//! own.

pub mod kubelet;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::cluster::index;
use crate::cluster::rows::Rows;
use crate::support::chart_server::{ChartServer, Page};
use crate::support::control_plane::{ControlPlane, tool};
use crate::support::eventually::eventually;
use crate::support::portolan::BINARY;
use crate::support::postgres::{TestDatabase, database};
use crate::support::process::ScratchDir;
use crate::support::project;

/// The pages and sections whose commands are run, in this order.
const SECTIONS: [(&str, &str); 7] = [
    ("install", "Install"),
    ("high-availability", "Hand over"),
    ("backup", "Backup"),
    ("upgrade", "Upgrade"),
    ("upgrade", "Rollback"),
    ("backup", "Restore"),
    ("removal", "Remove the chart"),
];
/// The tag of the image.
const VERSION: &str = concat!(":", env!("CARGO_PKG_VERSION"));
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

/// Time that passes: it ages the last use of the catalog instead of waiting.
const SLEEP: &str = r#"#!/bin/sh
exec psql --quiet "$PORTOLAN_DATABASE_URL" --command "DO \$\$ BEGIN
    IF to_regclass('portolan_clusters') IS NOT NULL THEN
        UPDATE portolan_clusters SET renewed = renewed - 1000 * $1;
    END IF;
END \$\$"
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
pub fn write_programs(directory: &Path) {
    for (name, script) in [("kubectl", KUBECTL), ("sleep", SLEEP)] {
        let program = directory.join(name);
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    symlink(tool("helm"), directory.join("helm")).unwrap();
    symlink(BINARY, directory.join("portolan")).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guide_leads_from_the_installation_to_the_removal() {
    let control_plane = ControlPlane::start().await;
    tokio::select! {
        () = kubelet::serve(&control_plane, "portolan") => {}
        () = follow(&control_plane) => {}
    }
}

#[test]
fn the_image_has_one_tag_in_all_steps_of_an_installation() {
    let tag = VERSION.trim_start_matches(':');
    let named = regex::Regex::new(r#"(?:IMAGE=\S+:|\btag: "?|image\.tag=)([0-9][0-9.]*[0-9])"#).unwrap();
    for (page, count) in [("install", 2), ("kubeapps", 1)] {
        let text = read_page(page);
        let tags: Vec<&str> = named
            .captures_iter(&text)
            .map(|found| found.extract::<1>().1[0])
            .collect();
        assert_eq!(tags, vec![tag; count], "{page}");
    }
}

/// Returns the text of a how-to guide.
fn read_page(name: &str) -> String {
    std::fs::read_to_string(project(&format!("docs/how-to/{name}.md"))).unwrap()
}

/// Runs the commands of all sections.
async fn follow(control_plane: &ControlPlane) {
    let reader = Reader::new(control_plane).await;
    for (page, section) in SECTIONS {
        match section {
            "Rollback" => reader.simulate_newer_tables().await,
            "Restore" => reader.lose_database().await,
            _ => {}
        }
        for block in blocks(&read_page(page), section) {
            match block.language.as_str() {
                "yaml" => drop(reader.directory.write("portolan.yaml", &block.text)),
                language => {
                    assert_eq!(language, "sh", "{section}");
                    reader.run(section, &block.text).await;
                }
            }
        }
        match section {
            "Install" => reader.assert_image(VERSION).await,
            "Upgrade" => reader.assert_image(":0.2.0").await,
            "Rollback" => {
                reader.assert_image(VERSION).await;
                reader.assert_recovered(Syncs::New).await;
            }
            "Restore" => reader.assert_recovered(Syncs::Restored).await,
            _ => {}
        }
    }
}

/// The first sync in the history of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Syncs {
    /// The one of the backup.
    Restored,
    /// A later one.
    New,
}

/// A person with a shell, a cluster and a database.
struct Reader<'a> {
    control_plane: &'a ControlPlane,
    database: TestDatabase,
    rows: Rows,
    server: ChartServer,
    directory: ScratchDir,
}

impl<'a> Reader<'a> {
    async fn new(control_plane: &'a ControlPlane) -> Self {
        let database = database().await;
        let server = ChartServer::start().await;
        server.serve("/grafana/index.yaml", Page::new(index(&[("grafana", &["1.0.0"])])));
        let directory = ScratchDir::new("guide");
        write_programs(directory.path());
        symlink(project("charts"), directory.path().join("charts")).unwrap();
        // The file that the reader writes.
        directory.write("url", &database.url);
        Self {
            rows: Rows::of(&database.url).await,
            control_plane,
            database,
            server,
            directory,
        }
    }

    /// Runs a block, which must succeed.
    async fn run(&self, section: &str, text: &str) {
        let text = text.replace("https://grafana.github.io/helm-charts", &self.server.url("/grafana"));
        // The rollback fails, which need not take long.
        let text = text.replace("--timeout 2m", "--timeout 20s");
        let output = tokio::time::timeout(DEADLINE, self.shell(&text).output()).await;
        let Ok(output) = output else {
            let shown = ["get", "deployments,replicasets,pods,events", "--namespace=portolan"];
            panic!(
                "{section} does not end:\n{text}\n{}",
                self.control_plane.kubectl(&shown).await
            );
        };
        let output = output.unwrap();
        let [printed, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        // The schema of a newer release has changed: the first block is for others. Helm may report success while all
        // pods of the older release are standbys.
        if section == "Rollback" && text.starts_with("helm rollback") {
            return self.assert_refused().await;
        }
        assert!(output.status.success(), "{section}:\n{text}\n{printed}\n{errors}");
        if text.contains("portolan status") {
            assert!(printed.contains("grafana"), "{printed}");
        }
        if text.contains("> backup.jsonl") {
            let backup = std::fs::read_to_string(self.directory.path().join("backup.jsonl")).unwrap();
            assert!(backup.contains("grafana"), "{backup}");
        }
    }

    fn shell(&self, text: &str) -> Command {
        let directory = self.directory.path();
        let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell
            .args(["-euxc", text])
            .current_dir(directory)
            .stdin(Stdio::null())
            .env("PATH", path)
            .env("HELM_CACHE_HOME", directory.join("cache"))
            .env("HELM_CONFIG_HOME", directory.join("config"))
            .env("HELM_DATA_HOME", directory.join("data"))
            .env("KUBECONFIG", self.control_plane.kubeconfig())
            .env("REAL_KUBECTL", tool("kubectl"))
            .env("PORTOLAN", BINARY)
            .env("PORTOLAN_DATABASE_URL", &self.database.url)
            .kill_on_drop(true);
        shell
    }

    /// Asserts the image of all pods.
    async fn assert_image(&self, suffix: &str) {
        let query = "jsonpath={range .items[*]}{.spec.containers[0].image}{\"\\n\"}{end}";
        let images = ["get", "pods", "--namespace=portolan", "--output", query];
        let images = self.control_plane.kubectl(&images).await;
        assert!(
            images.lines().count() >= 2 && images.lines().all(|image| image.ends_with(suffix)),
            "{images}, not {suffix}"
        );
    }

    /// Records a migration that this release does not know, as a newer one does.
    async fn simulate_newer_tables(&self) {
        let newer = "INSERT INTO portolan_migrations SELECT (jsonb_populate_record(last, '{\"version\": 9999}')).*
            FROM portolan_migrations AS last ORDER BY version DESC LIMIT 1";
        self.rows.execute(newer).await;
    }

    /// Asserts that this release, as the older one, refuses the tables in words.
    async fn assert_refused(&self) {
        eventually(DEADLINE, "a pod of the older release that is not ready", async || {
            let query = "jsonpath={.status.unavailableReplicas}";
            let unavailable = ["get", "deployment/portolan", "--namespace=portolan", "--output", query];
            let unavailable = self.control_plane.kubectl(&unavailable).await;
            unavailable.trim().parse::<u32>().map_err(|_| "none")
        })
        .await;
        let refused = self.shell("portolan catalog export").output().await.unwrap();
        let error = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && error.contains("schema version 9999"),
            "{error}"
        );
    }

    async fn lose_database(&self) {
        self.rows
            .execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            .await;
    }

    /// Asserts that the repository is Ready with its charts.
    async fn assert_recovered(&self, syncs: Syncs) {
        let wait = "kubectl wait --for=condition=Ready apprepository/grafana --namespace portolan --timeout=5m";
        self.run("recovery", wait).await;
        self.rows.until_charts(&["grafana/grafana 1.0.0"]).await;
        let first = self
            .rows
            .pairs("SELECT name, min(started_at) FROM portolan_syncs GROUP BY name");
        let started = first
            .await
            .unwrap()
            .pop()
            .map(|(_, started)| started)
            .unwrap_or_default();
        let backup = std::fs::read_to_string(self.directory.path().join("backup.jsonl")).unwrap();
        let is_of_backup = !started.is_empty() && backup.contains(&started);
        assert_eq!(is_of_backup, syncs == Syncs::Restored, "the first sync: {started}");
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
