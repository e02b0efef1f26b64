//! `portolan resync`: ask for a sync by hand.

use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    Failure,
    cluster::{self, given},
    flags::{ClusterFlags, LogFlags},
    output,
};
use crate::api::NamespacedName;
use crate::api::{AppRepository, Partial, REQUESTED_AT};
use crate::controllers::FIELD_MANAGER;
use crate::runtime::kube_client::call;
use crate::runtime::manifests;

/// Ask for a repository to be synced now, everything compared anew; the running `portolan run` does it.
#[derive(Args, Debug)]
pub struct Resync {
    /// The name of the AppRepository
    pub name: String,
    /// Its namespace; without it that of the kubeconfig's context, and `default` for a folder
    #[arg(long, short, env = "PORTOLAN_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// The folder of manifests that declares it, instead of a cluster
    #[arg(long, env = "PORTOLAN_MANIFESTS", value_name = "DIR")]
    pub manifests: Option<PathBuf>,
    #[command(flatten)]
    pub cluster: ClusterFlags,
    #[command(flatten)]
    pub logging: LogFlags,
}

impl Resync {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        // Any value that was not there before is a request; a time also tells people when it was made.
        let token = Timestamp::now().to_string();
        let namespace = given(self.namespace.as_deref()).map(str::to_owned);
        let asked = match &self.manifests {
            Some(folder) => {
                let namespace = namespace.unwrap_or_else(|| "default".to_owned());
                in_folder(
                    folder,
                    NamespacedName {
                        namespace,
                        name: self.name,
                    },
                    &token,
                )?
            }
            None => {
                let client = cluster::client(
                    &self.cluster,
                    &crate::runtime::kube_client::metrics::RequestMetrics::default(),
                )
                .await?;
                let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
                in_cluster(
                    client,
                    NamespacedName {
                        namespace,
                        name: self.name,
                    },
                    &token,
                )
                .await?
            }
        };
        output::print(&format!("{asked}: resync requested\n"))
    }
}

fn in_folder(folder: &Path, name: NamespacedName, token: &str) -> Result<NamespacedName, Failure> {
    manifests::request_resync(folder, &name, token).map_err(|error| {
        Failure::failed(format!(
            "can't leave the request in {}: {error}; the folder must be writable for this",
            folder.display()
        ))
    })?;
    Ok(name)
}

async fn in_cluster(client: Client, name: NamespacedName, token: &str) -> Result<NamespacedName, Failure> {
    let repositories: Api<Partial<AppRepository>> = Api::namespaced(client, &name.namespace);
    let patch = json!({ "metadata": { "annotations": { REQUESTED_AT: token } } });
    let parameters = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    // Of the metadata only: whatever stands in the object's spec is no business of this command, not even whether it can be read.
    match call(repositories.patch(&name.name, &parameters, &Patch::Merge(patch))).await {
        Ok(_) => Ok(name),
        Err(error) if error.is_not_found() => Err(Failure::failed(format!(
            "there is no AppRepository {name}; `kubectl get apprepositories -A` lists them, -n names another namespace"
        ))),
        Err(error) => Err(Failure::failed(format!("can't ask for a resync of {name}: {error}"))),
    }
}
