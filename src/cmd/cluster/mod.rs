//! `portolan cluster`: the clusters that are joined for Applications of KubeVela.

mod check;
mod list;

use clap::{Args, Subcommand};
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::flags::{cluster::ClusterFlags, fetch::AddressFlags};
use super::vela::{DefinitionNamespace, objects};
use super::{Error, failed_to};
use crate::controllers::oam::clusters::CREDENTIAL_TYPE;
use crate::controllers::oam::clusters::connection::{connect, remote_options};
use crate::controllers::oam::clusters::credential::ClusterCredential;
use crate::http::{Fetcher, Settings};
use crate::runtime::kube_client::metrics::RequestMetrics;
use crate::runtime::kube_client::{RemoteOptions, api_server_endpoint, api_server_of_pod};

/// List and check the clusters that are joined for Applications of KubeVela
///
/// A joined cluster is a Secret of cluster-gateway in the namespace of the definitions. The controller does not deploy to
/// them yet.
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
    /// Accept clusters without ca.crt or https, whose credentials can be stolen on the way
    #[arg(long)]
    allow_insecure_clusters: bool,
    #[command(flatten)]
    addresses: AddressFlags,
    #[command(flatten)]
    definitions: DefinitionNamespace,
    #[command(flatten)]
    cluster: ClusterFlags,
}

impl JoinedFlags {
    /// Returns the Secrets of all joined clusters, sorted by name.
    async fn secrets(&self) -> Result<Vec<Secret>, Error> {
        let namespace = &self.definitions.system_definition_namespace;
        let api: Api<Secret> = Api::namespaced(self.cluster.client().await?, namespace);
        let parameters = ListParams::default().labels(CREDENTIAL_TYPE);
        let listed = objects::list_all(&api, &parameters).await;
        let mut secrets = listed.map_err(failed_to(format!("list Secrets of clusters in namespace {namespace}")))?;
        secrets.sort_by_key(ResourceExt::name_any);
        Ok(secrets)
    }

    async fn connector(&self) -> Result<Connector, Error> {
        let api_server = api_server_of_pod();
        let fetcher = Fetcher::new(Settings {
            allow_private_networks: self.addresses.allow_private_networks,
            allow_loopback: self.addresses.allow_loopback || api_server.is_none(),
            ..Settings::default()
        });
        let own = api_server_endpoint(&self.cluster.connect_options()?).await?;
        let fetcher = fetcher.map_err(failed_to("create the HTTP client"))?;
        Ok(Connector {
            fetcher: fetcher
                .without_api_server([own].into_iter().chain(api_server).collect())
                .await,
            allow_insecure: self.allow_insecure_clusters,
            options: remote_options(None),
        })
    }

    fn none_joined(&self) -> String {
        let namespace = &self.definitions.system_definition_namespace;
        format!("no cluster is joined in namespace {namespace}; see --system-definition-namespace\n")
    }
}

/// Makes clients of joined clusters.
struct Connector {
    fetcher: Fetcher,
    allow_insecure: bool,
    options: RemoteOptions,
}

impl Connector {
    /// Returns a client, or the reason why the cluster is refused. Sends nothing to it.
    async fn connect(&self, secret: &Secret) -> Result<Client, String> {
        let credential = ClusterCredential::parse(secret, self.allow_insecure).map_err(|error| error.to_string())?;
        connect(credential, &self.fetcher, &RequestMetrics::default(), &self.options).await
    }
}
