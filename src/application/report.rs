//! What the cluster is told of an Application: its status, and events.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams};
use kube::core::ApiResource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::error::Elapsed;

use super::assess::READY;
use super::declared::{Declared, OWNED_KINDS};
use crate::api::{Application, ApplicationCondition, ApplicationStatus, Partial};
use crate::informer::ObjectName;
use crate::objects::{GroupKind, sentence};
use crate::text::{printable, truncate};

/// How long a call of the API server may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// The API server lets no longer note of an event in.
const MAX_NOTE: usize = 1024;

/// Why a status was not written.
#[derive(Debug)]
pub(super) enum WriteError {
    /// The Application is gone.
    Gone,
    /// It is another by now, or was written at the same time.
    Conflict(String),
    /// All else.
    Failed(String),
}

/// An event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct News {
    pub(super) is_warning: bool,
    pub(super) reason: String,
    pub(super) note: String,
}

/// Reads what there is of an Application now, without its spec and status; nothing, if it is gone.
pub(super) async fn read(client: &Client, name: &ObjectName) -> Result<Option<ObjectMeta>, String> {
    let api = api(client, &name.namespace);
    match tokio::time::timeout(DEADLINE, api.get_opt(&name.name)).await {
        Ok(Ok(found)) => Ok(found.map(|found| found.metadata)),
        Ok(Err(error)) => Err(format!("can't read the Application again: {}", sentence(&error))),
        Err(_) => Err(format!(
            "can't read the Application again: no answer within {} s",
            DEADLINE.as_secs()
        )),
    }
}

/// Writes the kinds of which the Application owns something. Gives its new version.
pub(super) async fn write_record(
    client: &Client,
    manager: &str,
    declared: &Declared,
    kinds: &BTreeSet<GroupKind>,
) -> Result<Option<String>, WriteError> {
    let record: Vec<_> = kinds.iter().map(ToString::to_string).collect();
    let record = (!record.is_empty()).then(|| record.join(","));
    let patch = Patch::Merge(json!({ "metadata": { "uid": declared.uid, "annotations": { OWNED_KINDS: record } } }));
    let api = api(client, &declared.name.namespace);
    let (name, parameters) = (&declared.name.name, parameters(manager));
    let written = tokio::time::timeout(DEADLINE, api.patch(name, &parameters, &patch)).await;
    outcome(written, "can't note what is owned").map(|written| written.metadata.resource_version)
}

/// Puts `status` in the place of the one that is there, if the Application is still in `version`. Conditions of others are in it
/// already. Gives its new version.
pub(super) async fn write_status(
    client: &Client,
    manager: &str,
    meta: &ObjectMeta,
    version: Option<&str>,
    status: &ApplicationStatus,
) -> Result<Option<String>, WriteError> {
    let mut status = serde_json::to_value(status).map_err(|error| WriteError::Failed(error.to_string()))?;
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
    let written = tokio::time::timeout(DEADLINE, api.patch_status(name, &parameters, &patch)).await;
    outcome(written, "can't write the status").map(|written| written.metadata.resource_version)
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

/// What came of a write.
fn outcome<T>(written: Result<Result<T, kube::Error>, Elapsed>, what: &str) -> Result<T, WriteError> {
    match written {
        Ok(Ok(written)) => Ok(written),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(WriteError::Gone),
        Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(WriteError::Conflict(status.message)),
        Ok(Err(error)) => Err(WriteError::Failed(format!("{what}: {}", sentence(&error)))),
        Err(_) => Err(WriteError::Failed(format!(
            "{what}: no answer within {} s",
            DEADLINE.as_secs()
        ))),
    }
}

/// The event that a change of readiness is worth.
pub(super) fn news(was_ready: Option<&str>, conditions: &[ApplicationCondition]) -> Option<News> {
    let ready = conditions.iter().find(|condition| condition.type_ == READY)?;
    let is_news = was_ready != Some(ready.status.as_str());
    is_news.then(|| News {
        // That a new application is not ready yet is nothing to be warned of.
        is_warning: ready.status != "True" && was_ready == Some("True"),
        reason: ready.reason.clone().unwrap_or_default(),
        note: ready.message.clone().unwrap_or_default(),
    })
}

/// Publishes an event. One that can't be published is lost, which harms nobody: the status says the same.
pub(super) async fn publish(client: &Client, manager: &str, meta: &ObjectMeta, news: News) {
    let resource = ApiResource::erase::<Application>(&());
    let reference = ObjectReference {
        api_version: Some(resource.api_version),
        kind: Some(resource.kind),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        ..ObjectReference::default()
    };
    let reporter = Reporter {
        controller: manager.to_owned(),
        instance: std::env::var("POD_NAME").ok(),
    };
    let event = Event {
        type_: if news.is_warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: news.reason,
        note: Some(truncate(&printable(&news.note), MAX_NOTE)),
        action: "Aggregate".to_owned(),
        secondary: None,
    };
    // A recorder that is kept counts a second event of one reason as the first again, and its note is lost.
    let recorder = Recorder::new(client.clone(), reporter);
    let published = tokio::time::timeout(DEADLINE, recorder.publish(&event, &reference)).await;
    let error = match published {
        Ok(Ok(())) => return,
        Ok(Err(error)) => sentence(&error),
        Err(_) => format!("no answer within {} s", DEADLINE.as_secs()),
    };
    let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
    tracing::warn!(
        namespace,
        name,
        reason = event.reason,
        error,
        "could not publish an event"
    );
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
