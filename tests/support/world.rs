//! A folder of manifests with a SQLite database beside it, and a server of charts: no cluster anywhere. What a group of tests
//! serves and looks for is in an `impl` of its own.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use sqlx::AssertSqlSafe;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use super::chart_server::ChartServer;
use super::eventually::eventually;
use super::portolan::{self, Portolan, command};
use super::process::ScratchFolder;

/// Within which all that is waited for has to come.
pub const SOON: Duration = Duration::from_secs(30);

/// The folder, and the server.
pub struct World {
    pub folder: ScratchFolder,
    pub server: ChartServer,
}

impl World {
    pub async fn new() -> Self {
        let folder = ScratchFolder::new("world");
        std::fs::create_dir(folder.join("manifests")).unwrap();
        Self {
            folder,
            server: ChartServer::start().await,
        }
    }

    /// The file of the database.
    pub fn database(&self) -> PathBuf {
        self.folder.join("portolan.db")
    }

    pub fn database_url(&self) -> String {
        format!("sqlite://{}", self.database().display())
    }

    /// The folder of manifests, as a flag has it.
    pub fn manifests(&self) -> String {
        self.folder.join("manifests").display().to_string()
    }

    /// The manifest that declares a repository.
    pub fn manifest(&self, name: &str) -> PathBuf {
        self.folder.join("manifests").join(format!("{name}.yaml"))
    }

    /// Declares a repository, with more lines for its spec.
    pub fn declare(&self, name: &str, url: &str, more: &str) {
        self.write(&format!("{name}.yaml"), manifest(name, url, more));
    }

    /// Writes a manifest as editors do: whole, in one step.
    pub fn write(&self, file: &str, text: impl AsRef<str>) {
        let path = self.folder.join("manifests").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let draft = self.folder.write("draft", text.as_ref());
        std::fs::rename(draft, path).unwrap();
    }

    /// A command on this world's database.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.args(["--database-url", &self.database_url()]);
        command
    }

    /// Starts `portolan run` over the folder. `more` are further flags.
    pub async fn run(&self, more: &[&str]) -> Portolan {
        self.run_on(&self.database_url(), more).await
    }

    /// The same on another database.
    pub async fn run_on(&self, database_url: &str, more: &[&str]) -> Portolan {
        let mut command = command(["run", "--manifests", &self.manifests(), "--database-url", database_url]);
        command.args(more);
        let portolan = Portolan::start(command);
        portolan.ready(SOON).await;
        portolan
    }

    /// The command that syncs and imports all that is declared, once.
    pub fn once_command(&self, more: &[&str]) -> Command {
        let mut command = self.command(&["run", "--once", "--manifests", &self.manifests()]);
        command.args(more);
        command
    }

    /// Syncs and imports all that is declared, once.
    pub async fn once(&self, more: &[&str]) {
        succeeded(self.once_command(more)).await;
    }

    /// Asks for a resync by hand.
    pub async fn resync(&self, name: &str) {
        succeeded(command(["resync", name, "--manifests", &self.manifests()])).await;
    }

    /// Connections to the database, behind Portolan's back.
    pub async fn pool(&self) -> SqlitePool {
        let options = SqliteConnectOptions::new().filename(self.database());
        SqlitePool::connect_with(options.busy_timeout(SOON)).await.unwrap()
    }

    /// Runs a statement on the database, behind Portolan's back.
    pub async fn execute(&self, statement: &str) -> u64 {
        let pool = self.pool().await;
        let done = sqlx::query(AssertSqlSafe(statement.to_owned())).execute(&pool).await;
        done.unwrap().rows_affected()
    }

    /// One column of texts.
    pub async fn texts(&self, statement: &str) -> Vec<String> {
        let pool = self.pool().await;
        let texts = sqlx::query_scalar(AssertSqlSafe(statement.to_owned())).fetch_all(&pool);
        texts.await.unwrap()
    }

    /// The entry of a repository in `portolan status -o json`.
    pub async fn status(&self, name: &str) -> Option<Value> {
        let output = succeeded(self.command(&["status", "-o", "json"])).await;
        let all: Vec<Value> = serde_json::from_str(&output).unwrap();
        all.into_iter().find(|repository| repository["name"] == name)
    }

    /// Waits until the status of a repository is as it should be, and gives it.
    pub async fn until_status(&self, name: &str, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        eventually(SOON, what, async || match self.status(name).await {
            Some(status) if fits(&status) => Ok(status),
            status => Err(format!("{status:?}")),
        })
        .await
    }
}

/// The manifest of a Helm repository, with more lines for its spec.
pub fn manifest(name: &str, url: &str, more: &str) -> String {
    format!(
        "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata:\n  name: {name}\nspec:\n  type: helm\n  url: \"{url}\"\n{more}"
    )
}

/// Runs a command that must succeed, and gives its standard output.
pub async fn succeeded(command: Command) -> String {
    let shown = format!("{command:?}");
    let output = portolan::run(command).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}
