//! `portolan crds`: the definitions of the custom resources.

use std::time::Duration;

use clap::Args;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{conditions::is_crd_established, wait::await_condition},
};

use super::{
    Failure, cluster,
    flags::{ClusterFlags, LogFlags},
    output,
};
use crate::api;
use crate::controllers::FIELD_MANAGER;
use crate::runtime::kube_client::call;

/// How long an API server may take to serve a new definition; it takes a second or two.
const ESTABLISHED: Duration = Duration::from_secs(60);

/// Print the definitions of the custom resources, as for `portolan crds | kubectl apply -f -`, or install them.
#[derive(Args, Debug)]
pub struct Crds {
    /// Which definitions: `apprepositories` or `applications`; without a name all
    pub names: Vec<String>,
    /// Install the definitions, or upgrade those of Kubeapps and of kubernetes-sigs/application, by server-side apply; wait until the API server serves them
    #[arg(long, env = "PORTOLAN_APPLY")]
    pub apply: bool,
    #[command(flatten)]
    pub cluster: ClusterFlags,
    #[command(flatten)]
    pub logging: LogFlags,
}

impl Crds {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        let definitions = chosen(&self.names)?;
        if !self.apply {
            return output::print(&api::crds_yaml(&definitions));
        }
        let client = cluster::client(
            &self.cluster,
            &crate::runtime::kube_client::metrics::RequestMetrics::default(),
        )
        .await?;
        for definition in definitions {
            let name = definition.name_any();
            apply(&client, &definition)
                .await
                .map_err(|reason| Failure::failed(format!("can't install {name}: {reason}")))?;
            output::print(&format!("{name} applied\n"))?;
        }
        Ok(())
    }
}

/// The definitions of these resources, by the names that `kubectl get` knows them by; of none given all.
fn chosen(names: &[String]) -> Result<Vec<CustomResourceDefinition>, Failure> {
    let all = api::crds();
    let plurals: Vec<&str> = all.iter().map(|crd| crd.spec.names.plural.as_str()).collect();
    if let Some(unknown) = names.iter().find(|name| !plurals.contains(&name.as_str())) {
        let known = plurals.join(", ");
        return Err(Failure::usage(format!(
            "there is no definition of {unknown}; there are: {known}"
        )));
    }
    let is_chosen = |crd: &CustomResourceDefinition| names.is_empty() || names.contains(&crd.spec.names.plural);
    Ok(all.into_iter().filter(is_chosen).collect())
}

/// Applies one definition, whoever owned its fields before (for one Helm or kubectl, which installed the neighbours'), and waits until it is served.
async fn apply(client: &Client, definition: &CustomResourceDefinition) -> Result<(), String> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = definition.name_any();
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    call(definitions.patch(&name, &parameters, &Patch::Apply(definition)))
        .await
        .map_err(|error| error.to_string())?;
    let established = await_condition(definitions, &name, is_crd_established());
    match tokio::time::timeout(ESTABLISHED, established).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!(
            "it is not established after {} s; `kubectl describe crd {name}` tells why",
            ESTABLISHED.as_secs()
        )),
    }
}
