//! `portolan receiver`: the addresses of receivers of webhooks.

use clap::{Args, Subcommand};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use url::Url;

use super::flags::cluster::ClusterFlags;
use super::{Error, failed_to, output};
use crate::api::{AppRepository, NamespacedName, Partial, RECEIVER, is_object_name};
use crate::runtime::kube_client::call;
use crate::serve::hooks;

/// Show the addresses of receivers of webhooks
#[derive(Args, Debug)]
pub struct Receiver {
    #[command(subcommand)]
    command: ReceiverCommand,
}

#[derive(Subcommand, Debug)]
enum ReceiverCommand {
    Address(Address),
}

/// Print the secret address to which a registry or a forge sends its webhooks for a repository
///
/// The annotation portolan.dev/receiver of the AppRepository names a Secret with `type` and `token`, which is read with the
/// rights of the user. `portolan serve --only=hooks` receives the webhooks.
#[derive(Args, Debug)]
pub struct Address {
    /// Namespace and name of the AppRepository
    #[arg(value_name = "NAMESPACE/NAME")]
    pub repository: String,
    /// URL at which senders reach the receivers
    #[arg(long, value_name = "URL")]
    pub url: Url,
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

impl Receiver {
    pub(super) async fn execute(self) -> Result<(), Error> {
        match self.command {
            ReceiverCommand::Address(command) => command.execute().await,
        }
    }
}

impl Address {
    async fn execute(self) -> Result<(), Error> {
        let names = self.repository.split_once('/');
        let names = names.filter(|(namespace, name)| is_object_name(namespace) && is_object_name(name));
        let name = names.map(|(namespace, name)| NamespacedName::new(namespace, name));
        let name =
            name.ok_or_else(|| Error::Usage(format!("invalid repository `{}`; use NAMESPACE/NAME", self.repository)))?;
        let client = self.cluster.client().await?;
        let repositories: Api<Partial<AppRepository>> = Api::namespaced(client.clone(), &name.namespace);
        let object = call(repositories.get(&name.name)).await;
        let object = object.map_err(failed_to(format!("read AppRepository {name}")))?;
        let annotation = object.metadata.annotations.as_ref().and_then(|all| all.get(RECEIVER));
        let secret_name = annotation.map(|secret| secret.trim());
        let secret_name = secret_name.filter(|secret| is_object_name(secret)).ok_or_else(|| {
            Error::Failed(format!(
                "AppRepository {name} has no valid receiver; create a Secret with `type` and `token`, and annotate the repository with \
                 {RECEIVER}=SECRET"
            ))
        })?;
        let secrets: Api<Secret> = Api::namespaced(client, &name.namespace);
        let read = format!("read Secret {}/{secret_name} of the receiver", name.namespace);
        let secret = call(secrets.get(secret_name)).await.map_err(failed_to(read))?;
        let receiver = hooks::Receiver::of(&name, &secret)?;
        let url = self.url.as_str().trim_end_matches('/');
        output::print(&format!("{url}{}\n", receiver.path(&name)))
    }
}
