//! `portolan app` and `portolan definitions`: Applications of KubeVela and their definitions.

mod change;
mod collection;
mod definitions;
mod delete;
mod diff;
mod forget_cluster;
mod history;
mod list;
mod manifests;
pub(in crate::cmd) mod objects;
mod render;
mod status;
mod up;
mod wait;
mod workflow;

use clap::{Args, Subcommand};
use kube::Client;

use super::Error;
use super::flags::{cluster::ClusterFlags, non_empty};
use crate::api::NamespacedName;
pub use definitions::Definitions;

/// Deploy, inspect and repair Applications of KubeVela (core.oam.dev)
///
/// `portolan run --controllers=oam` reconciles them.
#[derive(Args, Debug)]
pub struct App {
    #[command(subcommand)]
    command: AppCommand,
}

#[derive(Subcommand, Debug)]
enum AppCommand {
    Up(up::Up),
    List(list::List),
    Status(status::Status),
    History(history::History),
    Suspend(workflow::operations::Suspend),
    Resume(workflow::operations::Resume),
    Terminate(workflow::operations::Terminate),
    Restart(workflow::operations::Restart),
    Rollback(workflow::rollback::Rollback),
    Logs(workflow::logs::Logs),
    Render(render::Render),
    Diff(diff::Diff),
    Delete(delete::Delete),
    Adopt(collection::Adopt),
    Gc(collection::Gc),
}

impl App {
    pub(super) async fn execute(self) -> Result<(), Error> {
        match self.command {
            AppCommand::Up(command) => command.execute().await,
            AppCommand::List(command) => command.execute().await,
            AppCommand::Status(command) => command.execute().await,
            AppCommand::History(command) => command.execute().await,
            AppCommand::Suspend(command) => command.execute().await,
            AppCommand::Resume(command) => command.execute().await,
            AppCommand::Terminate(command) => command.execute().await,
            AppCommand::Restart(command) => command.execute().await,
            AppCommand::Rollback(command) => command.execute().await,
            AppCommand::Logs(command) => command.execute().await,
            AppCommand::Render(command) => command.execute().await,
            AppCommand::Diff(command) => command.execute().await,
            AppCommand::Delete(command) => command.execute().await,
            AppCommand::Adopt(command) => command.execute().await,
            AppCommand::Gc(command) => command.execute().await,
        }
    }
}

/// The flags of commands for one Application of a cluster.
#[derive(Args, Clone, Debug)]
struct Place {
    /// Namespace of the Application (default: the namespace of the kubeconfig context)
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

impl Place {
    /// Connects to the cluster. Returns the client and the namespace.
    async fn connect(&self) -> Result<(Client, String), Error> {
        let client = self.cluster.client().await?;
        let namespace = non_empty(self.namespace.as_deref()).unwrap_or(client.default_namespace());
        let namespace = namespace.to_owned();
        Ok((client, namespace))
    }

    /// Connects to the cluster. Returns the client and the full name of an Application.
    async fn connect_to(&self, name: &str) -> Result<(Client, NamespacedName), Error> {
        let (client, namespace) = self.connect().await?;
        Ok((client, NamespacedName::new(namespace, name)))
    }
}

/// The namespace in which definitions are looked up after that of the Application.
#[derive(Args, Clone, Debug)]
struct DefinitionNamespace {
    /// Namespace of the definitions for all Applications
    #[arg(long, value_name = "NAMESPACE", default_value = DEFINITION_NAMESPACE)]
    system_definition_namespace: String,
}

const DEFINITION_NAMESPACE: &str = "vela-system";
