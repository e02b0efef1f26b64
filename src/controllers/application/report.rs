//! What the cluster is told of an Application: its status, and events.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use super::spec::{AppSpec, OWNED_KINDS};
use super::status::READY;
use crate::api::NamespacedName;
use crate::api::{Application, ApplicationCondition, ApplicationStatus, Partial};
use crate::runtime::events::Event;
use crate::runtime::kube_client::{ApiError, call};
use crate::runtime::watch::GroupKind;

/// Reads what there is of an Application now, without its spec and status; nothing, if it is gone.
pub(super) async fn read(client: &Client, name: &NamespacedName) -> Result<Option<ObjectMeta>, ApiError> {
    let found = call(api(client, &name.namespace).get_opt(&name.name)).await?;
    Ok(found.map(|found| found.metadata))
}

/// Writes the kinds of which the Application owns something. Gives its new version.
pub(super) async fn write_record(
    client: &Client,
    manager: &str,
    declared: &AppSpec,
    kinds: &BTreeSet<GroupKind>,
) -> Result<Option<String>, ApiError> {
    let record: Vec<_> = kinds.iter().map(ToString::to_string).collect();
    let record = (!record.is_empty()).then(|| record.join(","));
    let patch = Patch::Merge(json!({ "metadata": { "uid": declared.uid, "annotations": { OWNED_KINDS: record } } }));
    let api = api(client, &declared.name.namespace);
    let (name, parameters) = (&declared.name.name, parameters(manager));
    let written = call(api.patch(name, &parameters, &patch)).await?;
    Ok(written.metadata.resource_version)
}

/// Puts `status` in the place of the one that is there, if the Application is still in `version`. Conditions of others are in it
/// already. Gives its new version.
pub(super) async fn write_status(
    client: &Client,
    manager: &str,
    meta: &ObjectMeta,
    version: Option<&str>,
    status: &ApplicationStatus,
) -> Result<Option<String>, ApiError> {
    let mut status = serde_json::to_value(status).map_err(kube::Error::SerdeError)?;
    if let Some(status) = status.as_object_mut() {
        // What is left out of a merge stays as it is.
        for member in ["components", "observedGeneration"] {
            status.entry(member).or_insert(serde_json::Value::Null);
        }
    }
    // An object of the same name that was made meanwhile has another UID, and the patch is refused.
    let patch = json!({ "metadata": { "uid": meta.uid, "resourceVersion": version }, "status": status });
    let patch = Patch::Merge(patch);
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    // Of the answer nothing else is of interest.
    let api = api(client, namespace);
    let (name, parameters) = (meta.name.as_deref().unwrap_or_default(), parameters(manager));
    let written = call(api.patch_status(name, &parameters, &patch)).await?;
    Ok(written.metadata.resource_version)
}

fn api(client: &Client, namespace: &str) -> Api<Partial<Application>> {
    Api::namespaced(client.clone(), namespace)
}

fn parameters(manager: &str) -> PatchParams {
    PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    }
}

/// The event that a change of readiness is worth.
pub(super) fn news(was_ready: Option<&str>, conditions: &[ApplicationCondition]) -> Option<Event> {
    let ready = conditions.iter().find(|condition| condition.type_ == READY)?;
    let is_news = was_ready != Some(ready.status.as_str());
    is_news.then(|| Event {
        // That a new application is not ready yet is nothing to be warned of.
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
    fn only_a_change_of_readiness_is_news_and_only_its_loss_a_warning() {
        let told = |was, is| news(was, &conditions(is)).map(|news| news.is_warning);
        assert_eq!(told(None, "False"), Some(false));
        assert_eq!(told(Some("False"), "False"), None);
        assert_eq!(told(Some("False"), "True"), Some(false));
        assert_eq!(told(Some("True"), "True"), None);
        assert_eq!(told(Some("True"), "False"), Some(true));
        assert_eq!(told(Some("True"), "Unknown"), Some(true));
    }
}
