use std::time::Duration;

use clap::Args;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams},
    runtime::{conditions::is_crd_established, wait::await_condition},
};

use crate::api;
use crate::cmd::flags::cluster::ClusterFlags;
use crate::cmd::{Error, failed_to, output};
use crate::controllers::FIELD_MANAGER;
use crate::runtime::kube_client::call;

/// The time for the API server to establish a definition; usually a second or two.
const ESTABLISHED_TIMEOUT: Duration = Duration::from_secs(60);
const VERSIONS: &str = "/f:spec/f:versions";

/// Print or install the custom resource definitions
#[derive(Args, Debug)]
pub struct Crds {
    /// Resources: apprepositories, applications (default: both), core.oam.dev for the group of KubeVela, or full names such as
    /// policies.core.oam.dev
    pub names: Vec<String>,
    /// Install or upgrade the definitions by server-side apply, and wait until they are established
    #[arg(long)]
    pub apply: bool,
    #[command(flatten)]
    pub cluster: ClusterFlags,
}

impl Crds {
    pub(in crate::cmd) async fn execute(self) -> Result<(), Error> {
        let definitions = select(&self.names)?;
        if !self.apply {
            return output::print(&api::crds_yaml(&definitions));
        }
        let client = self.cluster.client().await?;
        for definition in definitions {
            let name = definition.name_any();
            let result = install(&client, &definition)
                .await
                .map_err(failed_to(format!("install {name}")))?;
            output::print(&format!("{name} {result}\n"))?;
        }
        Ok(())
    }
}

/// Returns the definitions with these names, or those that the chart installs without names.
fn select(names: &[String]) -> Result<Vec<CustomResourceDefinition>, Error> {
    let mut definitions = api::crds();
    if names.is_empty() {
        return Ok(definitions);
    }
    let charted = definitions.len();
    definitions.extend(api::oam::crds());
    // Short names mean the definitions of the chart: both groups have a kind `applications`.
    let is_named = |index: usize, definition: &CustomResourceDefinition, name: &String| {
        *name == definition.name_any()
            || (index < charted && *name == definition.spec.names.plural)
            || (index >= charted && *name == definition.spec.group)
    };
    let is_known = |name: &&String| {
        let mut definitions = definitions.iter().enumerate();
        definitions.any(|(index, definition)| is_named(index, definition, name))
    };
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let available: Vec<_> = definitions.iter().map(ResourceExt::name_any).collect();
        return Err(Error::Usage(format!(
            "unknown resource {unknown}; available resources: apprepositories, applications, {}, {}",
            api::oam::GROUP,
            available.join(", ")
        )));
    }
    let selected = definitions.into_iter().enumerate();
    let selected = selected.filter(|(index, definition)| names.iter().any(|name| is_named(*index, definition, name)));
    Ok(selected.map(|(_, definition)| definition).collect())
}

/// Applies a definition, unless it is one of KubeVela's that another manager installed. Returns what was done.
async fn install(client: &Client, definition: &CustomResourceDefinition) -> Result<String, String> {
    if definition.spec.group == api::oam::GROUP {
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let existing = call(definitions.get_opt(&definition.name_any()))
            .await
            .map_err(|error| error.to_string())?;
        if let Some(manager) = existing
            .as_ref()
            .and_then(|crd| foreign_manager(&crd.metadata, VERSIONS))
        {
            return Ok(format!("left unchanged: managed by {manager}"));
        }
    }
    apply(client, definition).await.map(|()| "applied".to_owned())
}

/// Returns the manager of a field, unless Portolan manages it. `field` is a JSON pointer into the managed fields.
pub fn foreign_manager(metadata: &ObjectMeta, field: &str) -> Option<String> {
    let entries = metadata.managed_fields.iter().flatten();
    let managers: Vec<_> = entries
        .filter(|entry| {
            let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
            fields.is_some_and(|fields| fields.pointer(field).is_some())
        })
        .map(|entry| entry.manager.clone().unwrap_or_default())
        .collect();
    if managers.iter().any(|manager| manager == FIELD_MANAGER) {
        return None;
    }
    let manager = managers.into_iter().next();
    Some(manager.unwrap_or_else(|| "an unknown manager".to_owned()))
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

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn names(selected: &[&str]) -> Result<Vec<String>, String> {
        let selected: Vec<_> = selected.iter().map(|name| (*name).to_owned()).collect();
        let definitions = select(&selected).map_err(Error::into_message)?;
        Ok(definitions.iter().map(ResourceExt::name_any).collect())
    }

    #[test]
    fn definitions_of_kubevela_are_selected_by_group_or_full_name_only() {
        let charted = ["apprepositories.kubeapps.com", "applications.app.k8s.io"];
        assert_eq!(names(&[]).unwrap(), charted);
        assert_eq!(names(&["applications"]).unwrap(), ["applications.app.k8s.io"]);
        assert_eq!(
            names(&["applications.core.oam.dev"]).unwrap(),
            ["applications.core.oam.dev"]
        );
        let all = names(&["core.oam.dev", "apprepositories"]).unwrap();
        assert_eq!(all.len(), 1 + api::oam::crds().len());
        assert!(!all.contains(&charted[1].to_owned()), "{all:?}");
        let error = names(&["policies"]).unwrap_err();
        assert!(
            error.contains("unknown resource policies; available resources: apprepositories,"),
            "{error}"
        );
    }

    fn managed(managers: &[(&str, Value)]) -> CustomResourceDefinition {
        let fields: Vec<_> = managers
            .iter()
            .map(|(manager, fields)| json!({ "manager": manager, "operation": "Update", "fieldsV1": fields }))
            .collect();
        let mut definition = api::oam::crds().remove(0);
        definition.metadata.managed_fields = serde_json::from_value(json!(fields)).unwrap();
        definition
    }

    #[rstest]
    #[case::helm(&["helm"], Some("helm"))]
    #[case::ours(&["portolan"], None)]
    #[case::ours_and_another(&["kubectl", "portolan"], None)]
    #[case::without_managed_fields(&[], Some("an unknown manager"))]
    fn a_definition_belongs_to_the_manager_of_its_versions(#[case] managers: &[&str], #[case] foreign: Option<&str>) {
        let versions = json!({ "f:spec": { "f:versions": {} } });
        let status = ("kube-apiserver", json!({ "f:status": { "f:conditions": {} } }));
        let managers = managers.iter().map(|manager| (*manager, versions.clone()));
        let managers: Vec<_> = managers.chain([status]).collect();
        assert_eq!(
            foreign_manager(&managed(&managers).metadata, VERSIONS).as_deref(),
            foreign
        );
    }
}
