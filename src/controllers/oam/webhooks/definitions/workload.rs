//! The kind of the workload of a ComponentDefinition, which stands there by type, by definition, or not at all.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation};
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use super::super::review::{AdmissionRequest, Verdict};
use super::served_kinds::ServedResources;
use crate::api::is_object_name;
use crate::api::oam::{
    ComponentDefinition, DefinitionReference, WorkloadDefinition, WorkloadDefinitionSpec, WorkloadKind,
};
use crate::controllers::FIELD_MANAGER;
use crate::runtime::kube_client::call;

/// The type of components whose templates decide the kind.
const AUTODETECT: &str = "autodetects.core.oam.dev";

/// Checks that type and definition name the same workload.
pub(super) async fn check_workload(
    definition: &ComponentDefinition,
    served: &mut ServedResources,
) -> Result<(), Verdict> {
    let (type_, kind) = (&definition.spec.workload.type_, kind_of(definition));
    match (type_.as_str(), kind) {
        ("", None) => Err(Verdict::Denied(format!(
            "neither the type nor the definition of the workload field in the ComponentDefinition {} can be empty",
            definition.name_any()
        ))),
        ("", Some(_)) | (_, None) => Ok(()),
        (type_, Some(kind)) => {
            if resource_of(kind, served).await? == type_ {
                return Ok(());
            }
            Err(Verdict::Denied(format!(
                "the type and the definition of the workload field in ComponentDefinition {} should represent the same \
                 workload",
                definition.name_any()
            )))
        }
    }
}

fn kind_of(definition: &ComponentDefinition) -> Option<&WorkloadKind> {
    let kind = &definition.spec.workload.definition;
    (*kind != WorkloadKind::default()).then_some(kind)
}

async fn resource_of(kind: &WorkloadKind, served: &mut ServedResources) -> Result<String, Verdict> {
    served.resource(&kind.api_version, &kind.kind, |error| error).await
}

/// Sets the default type of the workload.
pub(super) struct WorkloadDefaults<'a> {
    pub(super) client: &'a Client,
    pub(super) request: &'a AdmissionRequest,
    pub(super) creates_definitions: bool,
}

impl WorkloadDefaults<'_> {
    /// Returns the patch of a ComponentDefinition. Its WorkloadDefinition exists then, but for dry runs.
    pub(super) async fn apply(&self, definition: &ComponentDefinition) -> Result<Patch, Verdict> {
        match (definition.spec.workload.type_.as_str(), kind_of(definition)) {
            ("", None) => self.patch(AUTODETECT),
            (AUTODETECT, None) => Ok(Patch::default()),
            (type_, None) => {
                self.require(type_).await?;
                Ok(Patch::default())
            }
            (type_, Some(kind)) => {
                let resource = resource_of(kind, &mut ServedResources::new(self.client)).await?;
                if type_.is_empty() {
                    self.create(&resource, kind).await?;
                    return self.patch(&resource);
                }
                // The validation refuses another type. Nothing is created for it.
                if type_ == resource {
                    self.create(&resource, kind).await?;
                }
                Ok(Patch::default())
            }
        }
    }

    async fn exists(&self, name: &str) -> Result<bool, Verdict> {
        let definition = call(self.api().get_metadata_opt(name)).await;
        let definition = definition
            .map_err(|error| Verdict::Failed(format!("failed to read WorkloadDefinition {name}: {error}")))?;
        Ok(definition.is_some())
    }

    async fn require(&self, name: &str) -> Result<(), Verdict> {
        if is_object_name(name) && self.exists(name).await? {
            Ok(())
        } else {
            Err(not_found(name))
        }
    }

    async fn create(&self, name: &str, kind: &WorkloadKind) -> Result<(), Verdict> {
        if self.exists(name).await? {
            return Ok(());
        }
        if !self.creates_definitions {
            return Err(not_found(name));
        }
        if self.request.dry_run {
            return Ok(());
        }
        let version = kind.api_version.rsplit('/').next().unwrap_or_default();
        let definition = WorkloadDefinition {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(self.request.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: WorkloadDefinitionSpec {
                definition_ref: DefinitionReference {
                    name: name.to_owned(),
                    version: version.to_owned(),
                },
                ..WorkloadDefinitionSpec::default()
            },
        };
        let parameters = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        match call(self.api().create(&parameters, &definition)).await {
            Ok(_) => {
                tracing::info!(namespace = self.request.namespace, name, "created WorkloadDefinition");
                Ok(())
            }
            // By another request.
            Err(error) if error.is_already_exists() => Ok(()),
            Err(error) => Err(Verdict::Failed(format!(
                "failed to create WorkloadDefinition {name}: {error}"
            ))),
        }
    }

    fn api(&self) -> Api<WorkloadDefinition> {
        Api::namespaced(self.client.clone(), &self.request.namespace)
    }

    fn patch(&self, type_: &str) -> Result<Patch, Verdict> {
        let outline: Outline = self
            .request
            .object()
            .map_err(|error| Verdict::Invalid(format!("invalid ComponentDefinition: {error}")))?;
        // A field can be added to an object that exists only.
        let (path, value): (&[_], _) = match outline.spec {
            Some(Spec { workload: Some(_) }) => (&["spec", "workload", "type"], json!(type_)),
            Some(Spec { workload: None }) => (&["spec", "workload"], json!({ "type": type_ })),
            None => (&["spec"], json!({ "workload": { "type": type_ } })),
        };
        let path = PointerBuf::from_tokens(path.iter().copied());
        Ok(Patch(vec![PatchOperation::Add(AddOperation { path, value })]))
    }
}

fn not_found(name: &str) -> Verdict {
    Verdict::Denied(format!(
        "workloadDefinition {name} referenced by componentDefinition is not found, please create the workloadDefinition \
         first"
    ))
}

#[derive(Deserialize)]
struct Outline {
    spec: Option<Spec>,
}

#[derive(Deserialize)]
struct Spec {
    workload: Option<IgnoredAny>,
}
