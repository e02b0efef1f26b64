use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::flags::{cluster::ClusterFlags, non_empty};
use super::{Error, failed_to, output};
use crate::api::{AppRepository, NamespacedName, Partial, REQUESTED_AT};
use crate::controllers::FIELD_MANAGER;
use crate::runtime::kube_client::call;
use crate::runtime::manifests;

/// Request an immediate sync of a repository from the running controller
///
/// The sync compares all charts, also if the index is unchanged.
#[derive(Args, Debug)]
pub struct Resync {
    /// Name of the AppRepository
    pub name: String,
    /// Namespace of the AppRepository (default: the namespace of the kubeconfig context, or `default` with --manifests)
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Directory of manifests that declares the AppRepository, instead of a cluster
    #[arg(long, value_name = "DIR")]
    pub manifests: Option<PathBuf>,
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

impl Resync {
    pub(super) async fn execute(self) -> Result<(), Error> {
        // Any new value is a request; a time also shows when it was made.
        let token = Timestamp::now().to_string();
        let namespace = non_empty(self.namespace.as_deref());
        let name = match &self.manifests {
            Some(directory) => {
                let name = NamespacedName::new(namespace.unwrap_or("default"), &self.name);
                request_in_directory(directory, &name, &token)?;
                name
            }
            None => {
                let client = self.cluster.client().await?;
                let name = NamespacedName::new(namespace.unwrap_or(client.default_namespace()), &self.name);
                request_in_cluster(client, &name, &token).await?;
                name
            }
        };
        output::print(&format!("{name}: resync requested\n"))
    }
}

fn request_in_directory(directory: &Path, name: &NamespacedName, token: &str) -> Result<(), Error> {
    manifests::request_resync(directory, name, token).map_err(|error| {
        Error::Failed(format!(
            "failed to request a resync in {}: {error}; the directory must be writable",
            directory.display()
        ))
    })
}

async fn request_in_cluster(client: Client, name: &NamespacedName, token: &str) -> Result<(), Error> {
    // Decodes only metadata, because an AppRepository with an invalid spec can be resynced too.
    let repositories: Api<Partial<AppRepository>> = Api::namespaced(client, &name.namespace);
    let patch = json!({ "metadata": { "annotations": { REQUESTED_AT: token } } });
    let parameters = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    match call(repositories.patch(&name.name, &parameters, &Patch::Merge(patch))).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Err(Error::Failed(format!(
            "AppRepository {name} not found; set its namespace with -n, or list all with `kubectl get apprepositories -A`"
        ))),
        Err(error) => Err(failed_to(format!("request a resync of {name}"))(error)),
    }
}
