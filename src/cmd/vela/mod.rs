//! `portolan vela`: Applications of KubeVela and their definitions.

mod change;
mod collection;
mod definitions;
mod delete;
mod diff;
mod forget_cluster;
mod forget_release;
mod history;
pub(in crate::cmd) mod joined;
mod list;
mod manifests;
pub(in crate::cmd) mod objects;
mod records;
mod render;
mod status;
mod support;
mod takeover;
mod up;
mod wait;
mod workflow;

use clap::{Args, Subcommand};
use kube::Client;

use super::Error;
use super::flags::{cluster::ClusterFlags, non_empty};
use crate::api::NamespacedName;

/// Deploy, inspect and repair Applications of KubeVela (core.oam.dev)
///
/// `portolan run --controllers=oam` reconciles them.
#[derive(Args, Debug)]
pub struct Vela {
    #[command(subcommand)]
    command: VelaCommand,
}

#[derive(Subcommand, Debug)]
enum VelaCommand {
    Up(up::Up),
    List(list::VelaList),
    Status(status::VelaStatus),
    History(history::VelaHistory),
    Suspend(workflow::operations::Suspend),
    Resume(workflow::operations::Resume),
    Terminate(workflow::operations::Terminate),
    Restart(workflow::operations::Restart),
    Rollback(workflow::rollback::Rollback),
    Logs(workflow::logs::Logs),
    Render(render::Render),
    Diff(diff::Diff),
    Delete(delete::VelaDelete),
    Takeover(takeover::Takeover),
    Adopt(collection::Adopt),
    Gc(collection::VelaGc),
    ForgetRelease(forget_release::ForgetRelease),
    Definitions(definitions::VelaDefinitions),
}

impl Vela {
    pub(super) async fn execute(self) -> Result<(), Error> {
        match self.command {
            VelaCommand::Up(command) => command.execute().await,
            VelaCommand::List(command) => command.execute().await,
            VelaCommand::Status(command) => command.execute().await,
            VelaCommand::History(command) => command.execute().await,
            VelaCommand::Suspend(command) => command.execute().await,
            VelaCommand::Resume(command) => command.execute().await,
            VelaCommand::Terminate(command) => command.execute().await,
            VelaCommand::Restart(command) => command.execute().await,
            VelaCommand::Rollback(command) => command.execute().await,
            VelaCommand::Logs(command) => command.execute().await,
            VelaCommand::Render(command) => command.execute().await,
            VelaCommand::Diff(command) => command.execute().await,
            VelaCommand::Delete(command) => command.execute().await,
            VelaCommand::Takeover(command) => command.execute().await,
            VelaCommand::Adopt(command) => command.execute().await,
            VelaCommand::Gc(command) => command.execute().await,
            VelaCommand::ForgetRelease(command) => command.execute().await,
            VelaCommand::Definitions(command) => command.execute().await,
        }
    }
}

/// The flags of commands for one Application of a cluster.
#[derive(Args, Clone, Debug)]
struct ApplicationFlags {
    /// Namespace of the Application (default: the namespace of the kubeconfig context)
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    cluster: ClusterFlags,
}

impl ApplicationFlags {
    async fn connect(&self) -> Result<(Client, String), Error> {
        let client = self.cluster.client().await?;
        let namespace = non_empty(self.namespace.as_deref()).unwrap_or(client.default_namespace());
        let namespace = namespace.to_owned();
        Ok((client, namespace))
    }

    async fn connect_to(&self, name: &str) -> Result<(Client, NamespacedName), Error> {
        let (client, namespace) = self.connect().await?;
        Ok((client, NamespacedName::new(namespace, name)))
    }
}

/// The namespace in which definitions are looked up after that of the Application.
#[derive(Args, Clone, Debug)]
pub(in crate::cmd) struct DefinitionNamespace {
    /// Namespace of the definitions for all Applications
    #[arg(long, value_name = "NAMESPACE", default_value = DEFINITION_NAMESPACE)]
    pub(in crate::cmd) system_definition_namespace: String,
}

const DEFINITION_NAMESPACE: &str = "vela-system";
