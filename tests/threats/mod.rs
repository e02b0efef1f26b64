//! Known attacks on chart repository tools, run against the real binary. Each attack fails with an error in the status of
//! its repository, while an honest repository in the same process stays available.

mod addresses;
mod archives;
pub mod budgets;
mod credentials;
mod filters;
pub mod icons;
mod indexes;
mod leaks;
mod sql;
mod tenants;
mod terminal;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection, SqliteConnection};

use crate::support::archives::{Archive, Chart, index};
use crate::support::chart_server::{ChartServer, Page};
use crate::support::eventually::eventually;
use crate::support::portolan::{self, Portolan, command, peak_memory};
use crate::support::process::ScratchDir;

/// Long enough for any test, also on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// The repository that is not attacked.
const HONEST: &str = "honest";
const README: &str = "Berths for everybody.\n";

/// A malicious and an honest server, with repositories declared in one manifests directory.
struct World {
    directory: ScratchDir,
    attacker: ChartServer,
    honest: ChartServer,
}

impl World {
    async fn new() -> Self {
        let world = Self {
            directory: ScratchDir::new("threats"),
            attacker: ChartServer::start().await,
            honest: ChartServer::start().await,
        };
        for directory in ["manifests", "temporary"] {
            std::fs::create_dir(world.directory.join(directory)).unwrap();
        }
        let harbour = harbour();
        let entry = harbour.index_entry(&[&harbour.file_name()]);
        world.honest.serve("/charts/index.yaml", Page::new(index([entry])));
        let path = format!("/charts/{}", harbour.file_name());
        world.honest.serve(&path, Page::archive(&harbour));
        world.declare(HONEST, &world.honest.url("/charts"), "");
        world
    }

    /// Declares a Helm repository; `more` is appended to its spec.
    fn declare(&self, name: &str, url: &str, more: &str) {
        self.manifest(name, &repository("default", name, "helm", url, more));
    }

    fn manifest(&self, file: &str, text: &str) {
        self.directory.write(&format!("manifests/{file}.yaml"), text);
    }

    /// Declares a repository with this index.
    fn attack(&self, name: &str, index: impl Into<axum::body::Bytes>) {
        self.attacker.serve(&format!("/{name}/index.yaml"), Page::new(index));
        self.declare(name, &self.attacker.url(&format!("/{name}")), "");
    }

    /// Declares a repository with one archive.
    fn attack_with_archive(&self, name: &str, archive: &Archive) {
        let path = format!("/{name}/attack.tgz");
        self.attacker.serve(&path, Page::archive(archive));
        self.attack(name, index([archive.index_entry(&["attack.tgz"])]));
    }

    fn temporary(&self) -> PathBuf {
        self.directory.join("temporary")
    }

    fn database_url(&self) -> String {
        format!("sqlite://{}", self.directory.join("portolan.db").display())
    }

    /// Returns a command with this database and its own directory for temporary files.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command
            .args(["--database-url", &self.database_url()])
            .env("TMPDIR", self.temporary());
        command
    }

    /// Starts Portolan with additional flags.
    async fn run(&self, more: &[&str]) -> Portolan {
        let manifests = self.directory.join("manifests").display().to_string();
        let mut command = self.command(&["run", "--manifests", &manifests]);
        command.args(more);
        let portolan = Portolan::start(command);
        portolan.ready(SOON).await;
        portolan.with_probes()
    }

    /// Runs a command and returns its output.
    async fn output(&self, arguments: &[&str]) -> String {
        let output = portolan::run(self.command(arguments)).await;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).expect("commands print UTF-8")
    }

    /// Returns the output of `portolan status` for a repository.
    async fn status(&self, name: &str) -> Option<Value> {
        let all: Vec<Value> = serde_json::from_str(&self.output(&["status", "-o", "json"]).await).unwrap();
        all.into_iter().find(|repository| repository["name"] == name)
    }

    async fn until_status(&self, name: &str, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        eventually(SOON, &format!("{name} {what}"), async || {
            match self.status(name).await {
                Some(status) if fits(&status) => Ok(status),
                status => Err(format!("{status:?}")),
            }
        })
        .await
    }

    async fn until_ready(&self, name: &str) -> Value {
        self.until_status(name, "to be ready", |status| status["ready"] == true)
            .await
    }

    /// Waits until a repository has failed for this reason and returns its status.
    async fn until_failed(&self, name: &str, reason: &str) -> Value {
        let failed = self
            .until_status(name, "to fail", |status| status["ready"] == false)
            .await;
        assert_eq!(failed["reason"], reason, "{name}: {failed}");
        assert!(!failed["message"].as_str().unwrap().is_empty(), "{name}: {failed}");
        failed
    }

    /// Waits until the honest repository is ready and its chart can be shown.
    async fn until_honest_is_served(&self) {
        self.until_ready(HONEST).await;
        let shown = self.output(&["show", "honest/harbour", "-o", "json"]).await;
        assert!(shown.contains("A harbour"), "{shown}");
    }

    /// Also waits for the files of the honest chart.
    async fn until_honest_files_are_served(&self) {
        self.until_honest_is_served().await;
        let readme = self.until_files(HONEST, "harbour").await["Readme"].clone();
        assert_eq!(readme, README);
    }

    /// Returns the rows of a statement with one text column.
    async fn select(&self, statement: &'static str) -> Vec<String> {
        let options = SqliteConnectOptions::new()
            .filename(self.directory.join("portolan.db"))
            .read_only(true);
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        let rows = sqlx::query_scalar(statement).fetch_all(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        rows
    }

    /// Returns the stored files of a chart's only version. Placeholder rows have no digest.
    async fn files(&self, repository: &str, chart: &str) -> Option<Value> {
        let rows = self
            .select("SELECT info FROM files WHERE info ->> 'Digest' <> ''")
            .await;
        let mut rows = rows.iter().map(|row| serde_json::from_str::<Value>(row).unwrap());
        let id = format!("{repository}/{chart}-");
        rows.find(|row| row["ID"].as_str().is_some_and(|have| have.starts_with(&id)))
    }

    async fn until_files(&self, repository: &str, chart: &str) -> Value {
        let what = format!("the files of {repository}/{chart}");
        eventually(SOON, &what, async || self.files(repository, chart).await).await
    }

    /// Waits for a failed icon of a repository and returns the error.
    async fn until_icon_failed(&self, repository: &str) -> String {
        let statement = "SELECT name || ': ' || message FROM portolan_icons WHERE tries > 0";
        self.until_row(statement, &format!("{repository}: ")).await
    }

    /// Waits for a failed icon of a chart and returns the error.
    async fn until_icon_of_chart_failed(&self, chart: &str) -> String {
        let statement = "SELECT chart_id || ': ' || message FROM portolan_icons WHERE tries > 0";
        self.until_row(statement, &format!("{chart}: ")).await
    }

    /// Waits until a chart has an icon.
    async fn until_icon(&self, chart: &str) {
        let statement = "SELECT chart_id || ' ' FROM charts WHERE coalesce(info ->> 'raw_icon', '') <> ''";
        self.until_row(statement, &format!("{chart} ")).await;
    }

    /// Waits until a chart has an SVG icon.
    async fn until_svg_icon(&self, chart: &str) {
        let statement = "SELECT chart_id || ' ' FROM portolan_svg_icons";
        self.until_row(statement, &format!("{chart} ")).await;
    }

    /// Waits for a row with this prefix and returns the remainder.
    async fn until_row(&self, statement: &'static str, start: &str) -> String {
        eventually(SOON, &format!("a row {start:?}"), async || {
            let rows = self.select(statement).await;
            rows.iter()
                .find_map(|row| row.strip_prefix(start).map(str::to_owned))
                .ok_or_else(|| format!("{rows:?}"))
        })
        .await
    }

    /// Waits for failed files of a repository and returns the error.
    async fn until_files_failed(&self, repository: &str) -> String {
        let statement = "SELECT name || ': ' || message FROM portolan_files WHERE tries > 0";
        self.until_row(statement, &format!("{repository}: ")).await
    }
}

/// The honest chart.
fn harbour() -> Archive {
    Chart::new("harbour", "1.0.0")
        .file("README.md", README)
        .file("values.yaml", "berths: 3\n")
        .pack()
}

/// Returns a manifest; `more` is appended to its spec.
fn repository(namespace: &str, name: &str, kind: &str, url: &str, more: &str) -> String {
    let url = serde_json::to_string(url).unwrap();
    format!(
        "---\napiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata:\n  namespace: {namespace}\n  name: {name}\nspec:\n  \
         type: {kind}\n  url: {url}\n{more}"
    )
}

/// Returns the manifest of a Secret.
fn secret(namespace: &str, name: &str, values: &[(&str, &str)]) -> String {
    let values: serde_json::Map<String, Value> = values
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).into()))
        .collect();
    let values = Value::Object(values);
    format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata: {{namespace: {namespace}, name: {name}}}\nstringData: {values}\n"
    )
}

/// Serves the tag 1.0.0 of a repository without its blobs. Returns the path of the blobs.
fn chart_in_registry(server: &ChartServer, repository: &str) -> String {
    const DIGEST: &str = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    let descriptor =
        |kind: &str| json!({"mediaType": format!("application/vnd.cncf.helm.{kind}"), "size": 2, "digest": DIGEST});
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": descriptor("config.v1+json"),
        "layers": [descriptor("chart.content.v1.tar+gzip")]});
    let tags = json!({"name": repository, "tags": ["1.0.0"]});
    server.serve(&format!("/v2/{repository}/tags/list"), Page::new(tags.to_string()));
    let page = Page::new(manifest.to_string()).content_type(MANIFEST);
    server.serve(&format!("/v2/{repository}/manifests/1.0.0"), page);
    format!("/v2/{repository}/blobs/{DIGEST}")
}
