use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};

use super::compare::have_same_specs;
use crate::api::oam::{Application, ApplicationRevision, ApplicationRevisionSpec, labels};
use crate::controllers::oam::references::has_redacted;

/// Copies labels and annotations of the application, its owner. A revision without data of Secrets is marked.
#[must_use]
pub fn metadata(application: &Application, name: &str, hash: &str, is_redacted: bool) -> ObjectMeta {
    let mut revision_labels = application.labels().clone();
    revision_labels.insert(labels::APP_NAME.to_owned(), application.name_any());
    revision_labels.insert(labels::APP_REVISION_HASH.to_owned(), hash.to_owned());
    let mut annotations = application.annotations().clone();
    annotations.remove(labels::LAST_APPLIED);
    annotations.remove(labels::REDACTED);
    if is_redacted {
        annotations.insert(labels::REDACTED.to_owned(), "true".to_owned());
    }
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: application.namespace(),
        labels: Some(revision_labels),
        annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
        owner_references: Some(vec![OwnerReference {
            api_version: Application::api_version(&()).into_owned(),
            kind: Application::kind(&()).into_owned(),
            name: application.name_any(),
            uid: application.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: None,
        }]),
        ..ObjectMeta::default()
    }
}

/// Updates the spec of the application, definitions of traits and steps, referred objects, labels and annotations.
/// Returns `None` if nothing changes. Other definitions change with the next revision. `contents` are expanded.
#[must_use]
pub fn refreshed(
    recorded: &ApplicationRevision,
    contents: &ApplicationRevisionSpec,
    application: &Application,
    new: &ApplicationRevisionSpec,
) -> Option<ApplicationRevision> {
    let hash = recorded.labels().get(labels::APP_REVISION_HASH);
    let hash = hash.map_or("", String::as_str);
    let is_redacted = has_redacted(&new.referred_objects);
    let wanted = metadata(application, &recorded.name_any(), hash, is_redacted);
    let is_same_metadata = Some(recorded.labels()) == wanted.labels.as_ref()
        && *recorded.annotations() == wanted.annotations.clone().unwrap_or_default();
    let are_same_traits = have_same_specs(&contents.trait_definitions, &new.trait_definitions);
    let are_same_steps = have_same_specs(&contents.workflow_step_definitions, &new.workflow_step_definitions);
    let are_same_objects = contents.referred_objects == new.referred_objects;
    let is_same_spec = contents.application.spec == new.application.spec;
    if is_same_metadata && are_same_traits && are_same_steps && are_same_objects && is_same_spec {
        return None;
    }
    let mut revision = recorded.clone();
    revision.metadata.labels = wanted.labels;
    revision.metadata.annotations = wanted.annotations;
    revision.spec = contents.clone();
    revision.spec.application.spec = new.application.spec.clone();
    if !are_same_objects {
        revision.spec.referred_objects.clone_from(&new.referred_objects);
    }
    if !are_same_traits {
        revision.spec.trait_definitions.clone_from(&new.trait_definitions);
    }
    if !are_same_steps {
        revision
            .spec
            .workflow_step_definitions
            .clone_from(&new.workflow_step_definitions);
    }
    Some(revision)
}
