//! Commands with the rights of their caller: releases of a cluster, a catalog behind `--server`, and names for completions.

mod completion;
mod outdated;
mod server;

use std::path::PathBuf;

use serde_json::Value;

use super::{CommandOutput, execute};
use crate::catalog::On;
use crate::cluster::{World, index, rows::one_shot};
use crate::serve::Serving;
use crate::support::portolan::command;
use crate::support::postgres;
use crate::support::process::ScratchDir;

/// A namespace of the shared control plane, with a database of its repositories.
struct Site {
    world: World,
    directory: ScratchDir,
    database_url: String,
}

impl Site {
    async fn new(on: On) -> Self {
        let directory = ScratchDir::new("caller");
        Self {
            world: World::new().await,
            database_url: match on {
                On::Sqlite => format!("sqlite://{}", directory.join("portolan.db").display()),
                On::Postgres => postgres::database().await.url,
            },
            directory,
        }
    }

    fn namespace(&self) -> &str {
        &self.world.namespace
    }

    /// Syncs a repository of these charts to the database.
    async fn fill(&self, repository: &str, charts: &[(&str, &[&str])]) {
        let url = self.world.serve(repository, index(charts));
        one_shot(self.namespace(), repository, &url, &self.database_url).await;
    }

    async fn serve(&self) -> Serving {
        let kubeconfig = self.world.kubeconfig.display().to_string();
        Serving::start(&self.database_url, &["--kubeconfig", &kubeconfig]).await
    }

    /// Runs a command with the database.
    async fn read(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = command(arguments);
        command.args(["--database-url", &self.database_url]);
        command.arg("--kubeconfig").arg(&self.world.kubeconfig);
        execute(command).await
    }

    /// Runs a command with a server, as administrator.
    async fn ask(&self, serving: &Serving, arguments: &[&str]) -> CommandOutput {
        ask_with(&serving.url, &self.world.kubeconfig, arguments).await
    }

    /// Writes the kubeconfig of another user of the API server.
    fn kubeconfig_of(&self, name: &str, user: Value) -> PathBuf {
        let kubeconfig = std::fs::read_to_string(&self.world.kubeconfig).unwrap();
        let mut kubeconfig: Value = serde_json::from_str(&kubeconfig).unwrap();
        kubeconfig["users"][0]["user"] = user;
        self.directory.write(name, kubeconfig.to_string())
    }
}

async fn ask_with(url: &str, kubeconfig: &std::path::Path, arguments: &[&str]) -> CommandOutput {
    let mut command = command(arguments);
    command.args(["--server", url]).arg("--kubeconfig").arg(kubeconfig);
    execute(command).await
}
