use std::time::Duration;

use clap::Args;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{conditions::is_crd_established, wait::await_condition},
};

use super::flags::cluster::ClusterFlags;
use super::{Error, failed_to, output};
use crate::api;
use crate::controllers::FIELD_MANAGER;
use crate::runtime::kube_client::call;

/// The time for the API server to establish a definition; usually a second or two.
const ESTABLISHED_TIMEOUT: Duration = Duration::from_secs(60);

/// Print or install the custom resource definitions
#[derive(Args, Debug)]
pub struct Crds {
    /// Resources: apprepositories, applications (default: all)
    pub names: Vec<String>,
    /// Install or upgrade the definitions by server-side apply, and wait until they are established
    #[arg(long)]
    pub apply: bool,
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

impl Crds {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let definitions = select(&self.names)?;
        if !self.apply {
            return output::print(&api::crds_yaml(&definitions));
        }
        let client = self.cluster.client().await?;
        for definition in definitions {
            let name = definition.name_any();
            let applied = apply(&client, &definition).await;
            applied.map_err(failed_to(format!("install {name}")))?;
            output::print(&format!("{name} applied\n"))?;
        }
        Ok(())
    }
}

/// Returns the definitions with these plural names, or all without names.
fn select(names: &[String]) -> Result<Vec<CustomResourceDefinition>, Error> {
    let mut definitions = api::crds();
    let plurals: Vec<&str> = definitions.iter().map(|crd| crd.spec.names.plural.as_str()).collect();
    if let Some(unknown) = names.iter().find(|name| !plurals.contains(&name.as_str())) {
        return Err(Error::Usage(format!(
            "unknown resource {unknown}; available resources: {}",
            plurals.join(", ")
        )));
    }
    definitions.retain(|crd| names.is_empty() || names.contains(&crd.spec.names.plural));
    Ok(definitions)
}

/// Applies a definition and waits until it is established. Takes over fields that Helm or kubectl own, because the
/// projects that Portolan replaces were installed with them.
async fn apply(client: &Client, definition: &CustomResourceDefinition) -> Result<(), String> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = definition.name_any();
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    call(definitions.patch(&name, &parameters, &Patch::Apply(definition)))
        .await
        .map_err(|error| error.to_string())?;
    let established = await_condition(definitions, &name, is_crd_established());
    match tokio::time::timeout(ESTABLISHED_TIMEOUT, established).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!(
            "not established after {}s; see `kubectl describe crd {name}`",
            ESTABLISHED_TIMEOUT.as_secs()
        )),
    }
}
