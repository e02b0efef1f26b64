use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::render::starter_set::STARTER_SET;
use super::{DEFINITION_NAMESPACE, manifests, objects};
use crate::api::Guarded;
use crate::api::oam::{
    ComponentDefinition, Definition, DefinitionStatus, PolicyDefinition, TraitDefinition, WorkflowStepDefinition,
};
use crate::cmd::flags::{OutputFormat, QueryFlags, cluster::ClusterFlags};
use crate::cmd::install::crds::foreign_manager;
use crate::cmd::output::cell;
use crate::cmd::{Error, failed_to, output};
use crate::controllers::FIELD_MANAGER;
use crate::runtime::kube_client::{ApiError, call};

const DESCRIPTION: &str = "definition.oam.dev/description";
const SPEC: &str = "/f:spec";

/// Install and list the definitions that Applications of KubeVela are rendered from
#[derive(Args, Debug)]
pub struct VelaDefinitions {
    #[command(subcommand)]
    command: DefinitionsCommand,
}

#[derive(Subcommand, Debug)]
enum DefinitionsCommand {
    Apply(Apply),
    List(ListDefinitions),
}

/// Install or upgrade definitions by server-side apply
///
/// A definition that another manager has written is left unchanged.
#[derive(Args, Debug)]
struct Apply {
    /// Directory with definitions (default: the starter set, which is part of this program)
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Namespace of the definitions
    #[arg(long, short, value_name = "NAMESPACE", default_value = DEFINITION_NAMESPACE)]
    namespace: String,
    /// Take over definitions that another manager has written
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    cluster: ClusterFlags,
}

/// List definitions
#[derive(Args, Debug)]
struct ListDefinitions {
    #[command(flatten)]
    query: QueryFlags,
    #[command(flatten)]
    cluster: ClusterFlags,
}

impl VelaDefinitions {
    pub(super) async fn execute(self) -> Result<(), Error> {
        match self.command {
            DefinitionsCommand::Apply(command) => command.execute().await,
            DefinitionsCommand::List(command) => command.execute().await,
        }
    }
}

impl Apply {
    async fn execute(self) -> Result<(), Error> {
        let mut documents = Vec::new();
        match &self.directory {
            Some(directory) => {
                for file in manifests::files(directory)? {
                    documents.extend(manifests::read(&file)?);
                }
            }
            None => {
                for (path, text) in STARTER_SET {
                    documents.extend(manifests::parse(Path::new(path), text.as_bytes())?);
                }
            }
        }
        let definitions: Vec<_> = documents
            .into_iter()
            .filter_map(|document| Some((resource(&document)?, document)))
            .collect();
        if definitions.is_empty() {
            return Err(Error::Failed(
                "the directory contains no definitions of core.oam.dev".to_owned(),
            ));
        }
        let client = self.cluster.client().await?;
        for (resource, definition) in definitions {
            let result = self.apply(&client, &resource, definition).await?;
            output::print(&output::section("", [result]))?;
        }
        Ok(())
    }

    /// Applies a definition unless another manager has written it. Returns what was done.
    async fn apply(&self, client: &Client, resource: &ApiResource, mut definition: Value) -> Result<String, Error> {
        definition["metadata"]["namespace"] = self.namespace.clone().into();
        let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let display = format!("{} {}/{name}", resource.kind, self.namespace);
        let definitions: Api<DynamicObject> = Api::namespaced_with(client.clone(), &self.namespace, resource);
        let failed = |error| self.error(&display, error);
        let existing = call(definitions.get_opt(&name)).await.map_err(failed)?;
        let manager = existing
            .as_ref()
            .and_then(|object| foreign_manager(&object.metadata, SPEC));
        if let Some(manager) = manager.filter(|_| !self.force) {
            return Ok(format!("{display}: left unchanged: managed by {manager}"));
        }
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let applied = call(definitions.patch(&name, &parameters, &Patch::Apply(&definition)))
            .await
            .map_err(failed)?;
        let version = existing.and_then(|existing| existing.metadata.resource_version);
        Ok(match version {
            None => format!("{display}: created"),
            Some(version) if Some(&version) == applied.metadata.resource_version.as_ref() => {
                format!("{display}: unchanged")
            }
            Some(_) => format!("{display}: changed"),
        })
    }

    fn error(&self, display: &str, error: ApiError) -> Error {
        let is_namespace = error.message.contains("namespaces ");
        if !error.is_not_found() {
            return failed_to(format!("apply {display}"))(error);
        }
        if is_namespace {
            return Error::Failed(format!(
                "namespace {namespace} not found; create it with `kubectl create namespace {namespace}`",
                namespace = self.namespace
            ));
        }
        objects::not_installed()
    }
}

/// Returns the resource of a definition, or `None` for other kinds.
fn resource(document: &Value) -> Option<ApiResource> {
    match manifests::oam_kind(document)? {
        "ComponentDefinition" => Some(ApiResource::erase::<ComponentDefinition>(&())),
        "TraitDefinition" => Some(ApiResource::erase::<TraitDefinition>(&())),
        "PolicyDefinition" => Some(ApiResource::erase::<PolicyDefinition>(&())),
        "WorkflowStepDefinition" => Some(ApiResource::erase::<WorkflowStepDefinition>(&())),
        _ => None,
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    namespace: String,
    kind: &'static str,
    name: String,
    revision: String,
    description: String,
}

impl ListDefinitions {
    async fn execute(self) -> Result<(), Error> {
        let client = self.cluster.client().await?;
        let namespace = self.query.namespace();
        let mut views = Vec::new();
        list::<ComponentDefinition>(&client, namespace, &mut views, |definition| definition.status.as_ref()).await?;
        list::<TraitDefinition>(&client, namespace, &mut views, |definition| definition.status.as_ref()).await?;
        list::<PolicyDefinition>(&client, namespace, &mut views, |definition| definition.status.as_ref()).await?;
        list::<WorkflowStepDefinition>(&client, namespace, &mut views, |definition| definition.status.as_ref()).await?;
        match self.query.output {
            OutputFormat::Json => output::print_json(&views),
            OutputFormat::Table if views.is_empty() => {
                output::print("no definitions found; `portolan vela definitions apply` installs the starter set\n")
            }
            OutputFormat::Table => output::print(&text(&views)),
        }
    }
}

async fn list<D>(
    client: &Client,
    namespace: Option<&str>,
    views: &mut Vec<View>,
    status: impl Fn(&D) -> Option<&DefinitionStatus>,
) -> Result<(), Error>
where
    D: Definition + Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<Guarded<D>> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let definitions = objects::list_all(&api, &ListParams::default()).await.map_err(|error| {
        if error.is_not_found() {
            objects::not_installed()
        } else {
            failed_to(format!("list {}", D::plural(&())))(error)
        }
    })?;
    for definition in definitions.into_iter().filter_map(objects::decoded) {
        let latest = status(&definition).and_then(|status| status.latest_revision.clone());
        views.push(View {
            namespace: definition.namespace().unwrap_or_default(),
            kind: D::KIND,
            name: definition.name_any(),
            revision: latest.unwrap_or_default().name,
            description: definition.annotations().get(DESCRIPTION).cloned().unwrap_or_default(),
        });
    }
    Ok(())
}

fn text(views: &[View]) -> String {
    const HEADER: [&str; 5] = ["NAMESPACE", "KIND", "NAME", "REVISION", "DESCRIPTION"];
    let row = |view: &View| {
        vec![
            view.namespace.clone(),
            view.kind.to_owned(),
            view.name.clone(),
            cell(&view.revision),
            cell(&view.description),
        ]
    };
    output::table(&HEADER, views.iter().map(row))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::kubectl(&["kubectl-client-side-apply"], Some("kubectl-client-side-apply"))]
    #[case::ours(&["portolan"], None)]
    #[case::ours_and_another(&["helm", "portolan"], None)]
    #[case::without_managed_fields(&[], Some("an unknown manager"))]
    fn a_definition_belongs_to_the_manager_of_its_spec(#[case] managers: &[&str], #[case] foreign: Option<&str>) {
        let spec = json!({ "f:spec": {} });
        let managers = managers.iter().map(|manager| (*manager, spec.clone()));
        let fields = managers.chain([("controller", json!({ "f:status": {} }))]);
        let fields: Vec<Value> = fields
            .map(|(manager, fields)| json!({ "manager": manager, "operation": "Update", "fieldsV1": fields }))
            .collect();
        let definition = json!({ "metadata": { "managedFields": fields } });
        let definition: DynamicObject = serde_json::from_value(definition).unwrap();
        assert_eq!(foreign_manager(&definition.metadata, SPEC).as_deref(), foreign);
    }
}
