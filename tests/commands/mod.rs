//! The commands as a user runs them: the real binary, its arguments and environment, its exit code and what it prints.

mod apps;
mod cluster;
mod documented;
mod goldens;
mod goldens_files;
mod kubeapps;
mod one_shot;
mod reader;
mod reading;
mod run;
mod secrets;
mod shutdown;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use crate::support::chart_server::{ChartServer, Page};
use crate::support::portolan::{self, BINARY, command};
use crate::support::process::ScratchDir;

/// How soon what is waited for has to be there.
const SOON: Duration = Duration::from_secs(30);

/// How a command ended, and what it printed.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    /// The standard output of a command that must have succeeded.
    fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self.out
    }

    /// The error output of a command that must have ended with this code.
    fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self.err
    }

    /// The standard output of a command that must have succeeded, as JSON.
    fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.ok()).expect("JSON")
    }
}

async fn ran(command: Command) -> Ran {
    let output = portolan::run(command).await;
    Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// A chart server, and a SQLite database in a folder of its own.
struct World {
    directory: ScratchDir,
    server: ChartServer,
}

impl World {
    async fn new() -> Self {
        Self {
            directory: ScratchDir::new("commands"),
            server: ChartServer::start().await,
        }
    }

    fn database_url(&self) -> String {
        format!("sqlite://{}", self.directory.join("portolan.db").display())
    }

    /// Runs a command with the database.
    async fn ran(&self, arguments: &[&str]) -> Ran {
        ran(self.command(arguments)).await
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.args(["--database-url", &self.database_url()]);
        command
    }

    /// Serves an index for the repository `name`, and gives the repository's URL.
    fn serve(&self, name: &str, index: impl Into<String>) -> String {
        self.server
            .serve(&format!("/{name}/index.yaml"), Page::new(index.into()));
        self.server.url(&format!("/{name}"))
    }

    /// Declares a repository in the folder of manifests, and gives that folder.
    fn declare(&self, name: &str, url: &str, more: &str) -> String {
        let directory = self.directory.join("manifests");
        std::fs::create_dir_all(&directory).unwrap();
        let manifest = format!(
            "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata:\n  name: {name}\nspec:\n  type: helm\n  url: \"{url}\"\n{more}"
        );
        std::fs::write(directory.join(format!("{name}.yaml")), manifest).unwrap();
        directory.display().to_string()
    }
}

/// An index of so many charts with one version each.
fn index_of(charts: usize) -> String {
    let names: Vec<String> = (0..charts).map(|number| format!("chart-{number}")).collect();
    let charts: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), &["1.0.0"][..])).collect();
    crate::cluster::index(&charts)
}

/// The binary under the name of a program that it replaces: a link in `directory`.
fn named(directory: &ScratchDir, name: &str) -> PathBuf {
    let link = directory.join(name);
    if !link.exists() {
        std::os::unix::fs::symlink(BINARY, &link).unwrap();
    }
    link
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[track_caller]
fn assert_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", text(output));
}
