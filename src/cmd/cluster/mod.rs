//! `portolan cluster`: the clusters that are joined for Applications of KubeVela.

mod check;
mod list;

use clap::{Args, Subcommand};
use k8s_openapi::api::core::v1::Secret;

use super::flags::cluster::ClusterFlags;
use super::flags::joined::{Connector, ConnectorFlags};
use super::vela::{DefinitionNamespace, joined};
use super::{Error, failed_to};

/// List and check the clusters that are joined for Applications of KubeVela
///
/// A joined cluster is a Secret of cluster-gateway in the namespace of the definitions, or a ManagedCluster of Open Cluster
/// Management. The controller connects to the clusters that Applications use.
#[derive(Args, Debug)]
pub struct Cluster {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Subcommand, Debug)]
enum ClusterCommand {
    List(list::List),
    Check(check::Check),
}

impl Cluster {
    pub(super) async fn execute(self) -> Result<(), Error> {
        match self.command {
            ClusterCommand::List(command) => command.execute().await,
            ClusterCommand::Check(command) => command.execute().await,
        }
    }
}

#[derive(Args, Clone, Debug)]
struct JoinedFlags {
    #[command(flatten)]
    connector: ConnectorFlags,
    #[command(flatten)]
    definitions: DefinitionNamespace,
    #[command(flatten)]
    cluster: ClusterFlags,
}

impl JoinedFlags {
    /// Returns the Secrets of all joined clusters, sorted by name.
    async fn secrets(&self) -> Result<Vec<Secret>, Error> {
        let namespace = &self.definitions.system_definition_namespace;
        let listed = joined::secrets(&self.cluster.client().await?, namespace).await;
        listed.map_err(failed_to(format!("list Secrets of clusters in namespace {namespace}")))
    }

    async fn connector(&self) -> Result<Connector, Error> {
        self.connector.connector(&self.cluster).await
    }

    fn none_joined(&self) -> String {
        let namespace = &self.definitions.system_definition_namespace;
        format!("no cluster is joined in namespace {namespace}; see --system-definition-namespace\n")
    }
}
