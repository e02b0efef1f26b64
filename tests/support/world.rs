//! A directory of manifests, a SQLite database next to it, and a chart server; no cluster. Groups of tests extend it by
//! `impl` blocks.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use sqlx::AssertSqlSafe;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use super::chart_server::ChartServer;
use super::eventually::eventually;
use super::portolan::{self, Portolan, command};
use super::process::ScratchDir;

pub use super::eventually::SOON;

/// A manifests directory and a chart server.
pub struct World {
    pub directory: ScratchDir,
    pub server: ChartServer,
}

impl World {
    pub async fn new() -> Self {
        let directory = ScratchDir::new("world");
        std::fs::create_dir(directory.join("manifests")).unwrap();
        Self {
            directory,
            server: ChartServer::start().await,
        }
    }

    /// Returns the path of the database.
    pub fn database(&self) -> PathBuf {
        self.directory.join("portolan.db")
    }

    pub fn database_url(&self) -> String {
        format!("sqlite://{}", self.database().display())
    }

    /// Returns the manifests directory as a flag value.
    pub fn manifests(&self) -> String {
        self.directory.join("manifests").display().to_string()
    }

    /// Returns the path of a repository's manifest.
    pub fn manifest(&self, name: &str) -> PathBuf {
        self.directory.join("manifests").join(format!("{name}.yaml"))
    }

    /// Declares a repository; `more` is appended to its spec.
    pub fn declare(&self, name: &str, url: &str, more: &str) {
        self.write(&format!("{name}.yaml"), manifest(name, url, more));
    }

    /// Writes a manifest atomically, like editors do.
    pub fn write(&self, file: &str, text: impl AsRef<str>) {
        let path = self.directory.join("manifests").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let draft = self.directory.write("draft", text.as_ref());
        std::fs::rename(draft, path).unwrap();
    }

    /// Returns a command with this database.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.args(["--database-url", &self.database_url()]);
        command
    }

    /// Starts `portolan run` with the directory and additional flags.
    pub async fn run(&self, more: &[&str]) -> Portolan {
        self.run_on(&self.database_url(), more).await
    }

    /// Same with another database.
    pub async fn run_on(&self, database_url: &str, more: &[&str]) -> Portolan {
        let mut command = command(["run", "--manifests", &self.manifests(), "--database-url", database_url]);
        command.args(more);
        let portolan = Portolan::start(command);
        portolan.ready(SOON).await;
        portolan
    }

    /// Returns the command that syncs and imports everything once.
    pub fn once_command(&self, more: &[&str]) -> Command {
        let mut command = self.command(&["run", "--once", "--manifests", &self.manifests()]);
        command.args(more);
        command
    }

    /// Syncs and imports everything once.
    pub async fn once(&self, more: &[&str]) {
        succeeded(self.once_command(more)).await;
    }

    /// Requests a sync by `portolan resync`.
    pub async fn resync(&self, name: &str) {
        succeeded(command(["resync", name, "--manifests", &self.manifests()])).await;
    }

    /// Opens the database, in addition to Portolan.
    pub async fn pool(&self) -> SqlitePool {
        let options = SqliteConnectOptions::new().filename(self.database());
        SqlitePool::connect_with(options.busy_timeout(SOON)).await.unwrap()
    }

    /// Runs a statement on the database and returns the number of affected rows.
    pub async fn execute(&self, statement: &str) -> u64 {
        let pool = self.pool().await;
        let done = sqlx::query(AssertSqlSafe(statement.to_owned())).execute(&pool).await;
        done.unwrap().rows_affected()
    }

    /// Returns the rows of a statement with one text column.
    pub async fn texts(&self, statement: &str) -> Vec<String> {
        let pool = self.pool().await;
        let texts = sqlx::query_scalar(AssertSqlSafe(statement.to_owned())).fetch_all(&pool);
        texts.await.unwrap()
    }

    /// Returns the entry of a repository in `portolan status -o json`.
    pub async fn status(&self, name: &str) -> Option<Value> {
        let output = succeeded(self.command(&["status", "-o", "json"])).await;
        let all: Vec<Value> = serde_json::from_str(&output).unwrap();
        all.into_iter().find(|repository| repository["name"] == name)
    }

    /// Waits until the status of a repository matches, and returns it.
    pub async fn until_status(&self, name: &str, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        eventually(SOON, what, async || match self.status(name).await {
            Some(status) if fits(&status) => Ok(status),
            status => Err(format!("{status:?}")),
        })
        .await
    }
}

/// Returns the manifest of a Helm repository; `more` is appended to its spec.
pub fn manifest(name: &str, url: &str, more: &str) -> String {
    format!(
        "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata:\n  name: {name}\nspec:\n  type: helm\n  url: \"{url}\"\n{more}"
    )
}

/// Runs a command that must succeed, and returns its standard output.
pub async fn succeeded(command: Command) -> String {
    let shown = format!("{command:?}");
    let output = portolan::run(command).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}
