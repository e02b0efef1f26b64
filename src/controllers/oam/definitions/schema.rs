//! ConfigMaps with the OpenAPI schemas of parameters, for user interfaces. They are applied before the status names them. At
//! rest they are not read: the status tells that they exist.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::core::ObjectMeta;
use kube::{Api, Client, Resource, ResourceExt};
use tokio::time::timeout;

use super::decide::is_object_name;
use super::kinds::ReconciledKind;
use crate::api::Partial;
use crate::api::oam::{DefinitionKind, DefinitionRevision, LatestRevision, Schematic};
use crate::budget::leave_runtime_if_large;
use crate::controllers::FIELD_MANAGER;
use crate::cue::turn::TURN;
use crate::cue::{Error, Evaluator};
use crate::runtime::kube_client::{ApiError, call};
use crate::text::printable;

/// Key of the schema in the ConfigMap.
const SCHEMA_KEY: &str = "openapi-v3-json-schema";
/// Label of these ConfigMaps.
const SCHEMA_LABEL: &str = "definition.oam.dev";
const SCHEMA: &str = "schema";
/// Label: the name of the definition or revision that the schema describes.
const NAME_LABEL: &str = "definition.oam.dev/name";
/// Annotation: the kinds of workloads that a trait fits.
const WORKLOADS: &str = "definition.oam.dev/appliedWorkloads";

/// The revision that records the current contents of a definition.
#[derive(Clone, Debug)]
pub(super) struct CurrentRevision {
    pub(super) latest: LatestRevision,
    pub(super) uid: String,
}

impl CurrentRevision {
    pub(super) fn new(latest: LatestRevision, revision: &impl ResourceExt) -> Self {
        Self {
            latest,
            uid: revision.uid().unwrap_or_default(),
        }
    }
}

/// The reason why a schema is not stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotStored {
    /// The status says so.
    Reported {
        message: String,
        /// A later attempt may succeed without an event.
        may_pass: bool,
    },
    Transient(String),
}

impl NotStored {
    pub(super) fn of_template(error: &Error) -> Self {
        let message = printable(&error.to_string());
        match error {
            Error::Crashed(_) | Error::Deferred => Self::Transient(format!("failed to make a schema: {message}")),
            Error::Missing | Error::Timeout(_) | Error::Memory(_) => Self::Reported {
                message,
                may_pass: true,
            },
            Error::Failed { .. } => Self::Reported {
                message,
                may_pass: false,
            },
        }
    }

    fn of_request(verb: &str, config_map: &str, error: &ApiError) -> Self {
        if error.is_retryable() {
            return Self::Transient(format!("failed to {verb} ConfigMap {config_map}: {error}"));
        }
        Self::Reported {
            message: error.to_string(),
            // Only rights and quotas change without an event.
            may_pass: error.is_forbidden(),
        }
    }
}

/// Returns the name of the ConfigMap of a definition, or of a revision.
pub(super) fn config_map_name(kind: DefinitionKind, described: &str) -> String {
    let kind = match kind {
        DefinitionKind::Component => "component",
        DefinitionKind::Trait => "trait",
        DefinitionKind::Policy => "policy",
        DefinitionKind::WorkflowStep => "workflowstep",
    };
    format!("{kind}-schema-{described}")
}

/// Makes the schema of a definition, and stores it for the definition and its revision.
pub(super) async fn store<D: ReconciledKind>(
    client: &Client,
    evaluator: &Evaluator,
    definition: &D,
    revision: &CurrentRevision,
) -> Result<(), NotStored> {
    if definition.schematic().is_some_and(is_foreign) {
        return Err(NotStored::Reported {
            message: "only CUE templates have schemas".to_owned(),
            may_pass: false,
        });
    }
    let namespace = definition.namespace().unwrap_or_default();
    let template = definition.template().unwrap_or_default();
    // Definitions of the same kind wait for this one.
    let schema = timeout(TURN, evaluator.schema(&namespace, template)).await;
    let schema = schema.unwrap_or(Err(Error::Deferred));
    let schema = schema.map_err(|error| NotStored::of_template(&error))?;
    leave_runtime_if_large(schema.len()).await;
    for config_map in config_maps(definition, revision, &schema) {
        apply(client, &namespace, &config_map).await?;
    }
    Ok(())
}

/// Returns true if objects are not rendered from CUE, but by Terraform or what KubeVela had before.
fn is_foreign(schematic: &Schematic) -> bool {
    schematic.cue.is_none() && (schematic.terraform.is_some() || !schematic.unknown.is_empty())
}

pub(super) fn config_maps<D: ReconciledKind>(
    definition: &D,
    revision: &CurrentRevision,
    schema: &str,
) -> [ConfigMap; 2] {
    let config_map = |described: &str, owner: OwnerReference| {
        let mut labels = definition.labels().clone();
        labels.insert(SCHEMA_LABEL.to_owned(), SCHEMA.to_owned());
        labels.insert(NAME_LABEL.to_owned(), described.to_owned());
        let workloads = definition.applied_workloads();
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(config_map_name(D::DEFINITION, described)),
                namespace: definition.namespace(),
                labels: Some(labels),
                annotations: (!workloads.is_empty()).then(|| [(WORKLOADS.to_owned(), workloads.join(","))].into()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            data: Some([(SCHEMA_KEY.to_owned(), schema.to_owned())].into()),
            ..ConfigMap::default()
        }
    };
    let (name, uid) = (definition.name_any(), definition.uid().unwrap_or_default());
    let revision_name = &revision.latest.name;
    [
        config_map(&name, owner::<D>(&name, uid)),
        config_map(
            revision_name,
            owner::<DefinitionRevision>(revision_name, revision.uid.clone()),
        ),
    ]
}

/// Is no controller, of which an object has one: the ConfigMap of a deleted definition may not be collected yet.
fn owner<O: Resource<DynamicType = ()>>(name: &str, uid: String) -> OwnerReference {
    OwnerReference {
        api_version: O::api_version(&()).into_owned(),
        kind: O::kind(&()).into_owned(),
        name: name.to_owned(),
        uid,
        ..OwnerReference::default()
    }
}

async fn apply(client: &Client, namespace: &str, config_map: &ConfigMap) -> Result<(), NotStored> {
    let name = config_map.name_any();
    if !is_object_name(&name) {
        return Err(NotStored::Reported {
            message: format!("{name:?} is no name of a ConfigMap"),
            may_pass: false,
        });
    }
    let api: Api<Partial<ConfigMap>> = Api::namespaced(client.clone(), namespace);
    let existing = call(api.get_metadata_opt(&name))
        .await
        .map_err(|error| NotStored::of_request("get", &name, &error))?;
    if let Some(message) = existing.and_then(|existing| reason_to_keep(&existing, config_map)) {
        return Err(NotStored::Reported {
            message,
            may_pass: true,
        });
    }
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    call(api.patch_metadata(&name, &parameters, &Patch::Apply(config_map)))
        .await
        .map_err(|error| NotStored::of_request("apply", &name, &error))?;
    Ok(())
}

/// Returns the reason why an existing ConfigMap of this name must stay as it is.
pub(super) fn reason_to_keep(existing: &impl ResourceExt, config_map: &ConfigMap) -> Option<String> {
    let name = config_map.name_any();
    if existing.labels().get(SCHEMA_LABEL).map(String::as_str) != Some(SCHEMA) {
        return Some(format!("ConfigMap {name} exists and holds no schema"));
    }
    let (owners, ours) = (existing.owner_references(), config_map.owner_references());
    let is_of_our_kind = |owner: &OwnerReference| ours.iter().any(|our| our.kind == owner.kind);
    // A definition may have the name of another one's revision. An owner of our kind is this object, or an earlier one.
    let is_foreign = !owners.is_empty() && !owners.iter().any(is_of_our_kind);
    is_foreign.then(|| format!("ConfigMap {name} belongs to another object"))
}
