//! Existing objects as they are recorded and deployed.

use serde_json::{Map, Value, json};

use super::{ObjectRequest, ObjectSelector};
use crate::api::oam::labels::RESOURCE_URL;

/// Fields of the metadata that belong to the existing object alone.
const METADATA: [&str; 7] = [
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "uid",
];

/// Removes what belongs to the existing object alone. A Service gets an address of its own.
pub(super) fn clean(mut object: Map<String, Value>) -> Map<String, Value> {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        METADATA.iter().for_each(|field| drop(metadata.remove(*field)));
    }
    remove_source(&mut object);
    object.remove("status");
    if (text(&object, "apiVersion"), text(&object, "kind")) == ("v1", "Service")
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && spec.get("clusterIP").is_some_and(|address| address != "None")
    {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    object
}

/// Adds the URL of an object. Returns `None` if it is no object of an API.
pub(super) fn add_source(mut object: Value, url: &str) -> Option<Value> {
    let has = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .is_some_and(|text| !text.is_empty())
    };
    if !["/apiVersion", "/kind", "/metadata/name"].into_iter().all(has) {
        return None;
    }
    let annotations = &mut object["metadata"]["annotations"];
    if annotations.is_null() {
        *annotations = json!({});
    }
    annotations.as_object_mut()?.insert(RESOURCE_URL.to_owned(), url.into());
    Some(object)
}

pub(super) fn source(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][RESOURCE_URL].as_str()
}

pub(super) fn remove_source(object: &mut Map<String, Value>) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let Some(metadata) = metadata else { return };
    let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
    let Some(annotations) = annotations else { return };
    if annotations.remove(RESOURCE_URL).is_some() && annotations.is_empty() {
        metadata.remove("annotations");
    }
}

fn text<'a>(object: &'a Map<String, Value>, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the identity of an object. Objects are recorded in the order of these texts.
pub(super) fn identity(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let api_version = text("/apiVersion");
    let separator = if api_version.contains('/') { "" } else { "/" };
    format!(
        "{separator}{api_version}, Kind={}|{}/{}",
        text("/kind"),
        text("/metadata/namespace"),
        text("/metadata/name")
    )
}

impl ObjectRequest {
    /// Returns true if an object answers the request. Cluster-scoped objects have no namespace.
    pub(super) fn selects(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let is_selected = match &self.selector {
            ObjectSelector::Name(name) => metadata["name"] == name.as_str(),
            ObjectSelector::Labels(labels) => {
                let mut labels = labels.iter();
                labels.all(|(name, value)| metadata["labels"][name.as_str()] == value.as_str())
            }
        };
        is_selected
            && source(object).is_none()
            && object["apiVersion"] == self.kind.api_version.as_str()
            && object["kind"] == self.kind.kind.as_str()
            && (namespace.is_empty() || namespace == self.namespace)
    }

    pub(super) fn display_name(&self) -> String {
        let kind = &self.kind.kind;
        match &self.selector {
            ObjectSelector::Name(name) => format!("{kind} {}/{name}", self.namespace),
            ObjectSelector::Labels(_) => format!("{kind} with selector"),
        }
    }
}
