//! Definitions that have changed since a revision recorded them.

use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::api::NamespacedName;
use crate::api::oam::{Application, ApplicationRevision, ApplicationRevisionSpec, Definition};
use crate::cmd::{Error, failed_to};
use crate::controllers::oam::revisions::expand;
use crate::runtime::kube_client::call;

/// Compares the definitions that the current revision records with those of the cluster.
pub async fn newer_definitions(
    client: &Client,
    name: &NamespacedName,
    application: &Application,
    shared: &str,
) -> Result<Vec<String>, Error> {
    let latest = application
        .status
        .as_ref()
        .and_then(|status| status.latest_revision.as_ref());
    let Some(latest) = latest.filter(|latest| !latest.name.is_empty()) else {
        return Ok(Vec::new());
    };
    let revisions: Api<ApplicationRevision> = Api::namespaced(client.clone(), &name.namespace);
    let revision = call(revisions.get_opt(&latest.name))
        .await
        .map_err(failed_to(format!("read revision {}", latest.name)))?;
    let Some(revision) = revision else {
        return Ok(Vec::new());
    };
    let contents = expand(&revision.spec).map_err(failed_to(format!("read revision {}", latest.name)))?;
    let comparison = DefinitionComparison {
        client,
        namespaces: [&name.namespace, shared],
        pinned: pinned_types(&contents),
    };
    let mut newer = Vec::new();
    for definition in contents.component_definitions.values() {
        newer.extend(comparison.newer(definition).await?);
    }
    for definition in contents.trait_definitions.values() {
        newer.extend(comparison.newer(definition).await?);
    }
    for definition in contents.policy_definitions.values() {
        newer.extend(comparison.newer(definition).await?);
    }
    for definition in contents.workflow_step_definitions.values() {
        newer.extend(comparison.newer(definition).await?);
    }
    Ok(newer)
}

/// Returns the names of definitions of which the Application names a version.
fn pinned_types(contents: &ApplicationRevisionSpec) -> Vec<String> {
    let components = contents.application.spec.components.iter();
    let types = components.flat_map(|component| {
        let traits = component.traits.iter().map(|declared| &declared.type_);
        traits.chain([&component.type_])
    });
    types
        .filter_map(|type_| Some(type_.split_once('@')?.0.to_owned()))
        .collect()
}

struct DefinitionComparison<'a> {
    client: &'a Client,
    namespaces: [&'a str; 2],
    pinned: Vec<String>,
}

impl DefinitionComparison<'_> {
    async fn newer<D>(&self, recorded: &D) -> Result<Option<String>, Error>
    where
        D: Definition + Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + std::fmt::Debug,
    {
        let name = recorded.name_any();
        if self.pinned.contains(&name) {
            return Ok(None);
        }
        for namespace in self.namespaces {
            let definitions: Api<D> = Api::namespaced(self.client.clone(), namespace);
            let live = call(definitions.get_opt(&name))
                .await
                .map_err(failed_to(format!("read {} {name}", D::KIND)))?;
            if let Some(live) = live {
                let is_newer = live.spec() != recorded.spec();
                return Ok(is_newer.then(|| format!("{} {name} in namespace {namespace}", D::KIND)));
            }
        }
        Ok(None)
    }
}
