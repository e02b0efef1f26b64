//! Runs the binary as users do, and checks exit codes and output.

mod apps;
mod caller;
mod cluster;
mod doctor;
mod documented;
mod generated;
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

/// The deadline for conditions.
const SOON: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct CommandOutput {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl CommandOutput {
    /// Asserts success and returns the standard output.
    fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self.stdout
    }

    /// Asserts the exit code and returns the error output.
    fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self.stderr
    }

    /// Asserts success and returns the standard output as JSON.
    fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.ok()).expect("JSON")
    }
}

async fn execute(command: Command) -> CommandOutput {
    let output = portolan::run(command).await;
    CommandOutput {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// A chart server and a SQLite database.
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
    async fn execute(&self, arguments: &[&str]) -> CommandOutput {
        execute(self.command(arguments)).await
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.args(["--database-url", &self.database_url()]);
        command
    }

    /// Serves the index of a repository and returns the repository's URL.
    fn serve(&self, name: &str, index: impl Into<String>) -> String {
        self.server
            .serve(&format!("/{name}/index.yaml"), Page::new(index.into()));
        self.server.url(&format!("/{name}"))
    }

    /// Declares a repository and returns the directory of manifests.
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

/// Builds an index of charts with one version each.
fn build_index(charts: usize) -> String {
    let names: Vec<String> = (0..charts).map(|number| format!("chart-{number}")).collect();
    let charts: Vec<(&str, &[&str])> = names.iter().map(|name| (name.as_str(), &["1.0.0"][..])).collect();
    crate::cluster::index(&charts)
}

/// Links the binary under the name of a program that it replaces.
fn link_binary(directory: &ScratchDir, name: &str) -> PathBuf {
    let link = directory.join(name);
    if !link.exists() {
        std::os::unix::fs::symlink(BINARY, &link).unwrap();
    }
    link
}

fn join_output(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[track_caller]
fn assert_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}", join_output(output));
}
