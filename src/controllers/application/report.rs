//! API requests about an Application: status, record of owned kinds, and events.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::spec::OWNED_KINDS;
use super::status::READY;
use crate::api::{Application, ApplicationCondition, ApplicationStatus, NamespacedName, Partial};
use crate::controllers::FIELD_MANAGER;
use crate::runtime::events::Event;
use crate::runtime::kube_client::{ApiError, call};
use crate::runtime::watch::GroupKind;

pub(super) async fn read(client: &Client, name: &NamespacedName) -> Result<Option<ObjectMeta>, ApiError> {
    let application = call(api(client, &name.namespace).get_opt(&name.name)).await?;
    Ok(application.map(|application| application.metadata))
}

/// Records the kinds of owned objects and sets the finalizers. Returns the new metadata.
pub(super) async fn write_record(
    client: &Client,
    name: &NamespacedName,
    meta: &ObjectMeta,
    kinds: &BTreeSet<GroupKind>,
    finalizers: &[String],
) -> Result<ObjectMeta, ApiError> {
    let record: Vec<_> = kinds.iter().map(ToString::to_string).collect();
    let record = (!record.is_empty()).then(|| record.join(","));
    let annotations = json!({ OWNED_KINDS: record });
    patch_metadata(
        client,
        name,
        meta,
        json!({ "annotations": annotations, "finalizers": finalizers }),
    )
    .await
}

pub(super) async fn write_finalizers(
    client: &Client,
    name: &NamespacedName,
    meta: &ObjectMeta,
    finalizers: &[String],
) -> Result<(), ApiError> {
    patch_metadata(client, name, meta, json!({ "finalizers": finalizers })).await?;
    Ok(())
}

/// Merges `change` into the metadata if the Application still has the version of `meta`.
async fn patch_metadata(
    client: &Client,
    name: &NamespacedName,
    meta: &ObjectMeta,
    mut change: Value,
) -> Result<ObjectMeta, ApiError> {
    change["uid"] = json!(meta.uid);
    change["resourceVersion"] = json!(meta.resource_version);
    let patch = Patch::Merge(json!({ "metadata": change }));
    let parameters = PatchParams::apply(FIELD_MANAGER);
    let written = call(api(client, &name.namespace).patch(&name.name, &parameters, &patch)).await?;
    Ok(written.metadata)
}

/// Fails if the version has changed. `status` contains the conditions of other writers. Returns the new version.
pub(super) async fn write_status(
    client: &Client,
    meta: &ObjectMeta,
    status: &ApplicationStatus,
) -> Result<Option<String>, ApiError> {
    let mut status = serde_json::to_value(status).map_err(kube::Error::SerdeError)?;
    if let Some(status) = status.as_object_mut() {
        // A merge patch keeps members that it omits.
        for member in ["components", "observedGeneration"] {
            status.entry(member).or_insert(serde_json::Value::Null);
        }
    }
    // The UID makes the patch of a recreated object fail.
    let patch = json!({
        "metadata": { "uid": meta.uid, "resourceVersion": meta.resource_version }, "status": status,
    });
    let patch = Patch::Merge(patch);
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let api = api(client, namespace);
    let name = meta.name.as_deref().unwrap_or_default();
    let parameters = PatchParams::apply(FIELD_MANAGER);
    let written = call(api.patch_status(name, &parameters, &patch)).await?;
    Ok(written.metadata.resource_version)
}

fn api(client: &Client, namespace: &str) -> Api<Partial<Application>> {
    Api::namespaced(client.clone(), namespace)
}

pub(super) fn readiness_event(was_ready: Option<&str>, conditions: &[ApplicationCondition]) -> Option<Event> {
    let ready = conditions.iter().find(|condition| condition.type_ == READY)?;
    let has_changed = was_ready != Some(ready.status.as_str());
    has_changed.then(|| Event {
        // A new application that is not ready yet does not need a warning.
        is_warning: ready.status != "True" && was_ready == Some("True"),
        reason: ready.reason.clone().unwrap_or_default(),
        note: ready.message.clone().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(ready: &str) -> [ApplicationCondition; 1] {
        [ApplicationCondition {
            type_: READY.to_owned(),
            status: ready.to_owned(),
            reason: Some("ComponentsNotReady".to_owned()),
            ..ApplicationCondition::default()
        }]
    }

    #[test]
    fn only_a_change_of_readiness_is_an_event_and_only_its_loss_a_warning() {
        let is_warning = |was, is| readiness_event(was, &conditions(is)).map(|event| event.is_warning);
        assert_eq!(is_warning(None, "False"), Some(false));
        assert_eq!(is_warning(Some("False"), "False"), None);
        assert_eq!(is_warning(Some("False"), "True"), Some(false));
        assert_eq!(is_warning(Some("True"), "True"), None);
        assert_eq!(is_warning(Some("True"), "False"), Some(true));
        assert_eq!(is_warning(Some("True"), "Unknown"), Some(true));
    }
}
