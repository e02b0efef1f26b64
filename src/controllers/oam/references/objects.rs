//! Existing objects as they are recorded and deployed. Annotations of recorded objects say where they come from.

use serde_json::{Map, Value, json};

use super::{ObjectRequest, ObjectSelector};
use crate::api::oam::labels::RESOURCE_URL;
use crate::controllers::oam::trackers::{LOCAL, is_local};

/// Annotation of a recorded object: the joined cluster that it was read in.
const RESOURCE_CLUSTER: &str = "portolan.dev/resource-cluster";

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
    annotate(&mut object, RESOURCE_URL, url)?;
    Some(object)
}

/// Adds the cluster of an object that was read in a joined one. Returns `None` if its metadata is invalid: without the
/// cluster, it would count as an object of the controller's own.
pub(super) fn add_cluster(mut object: Value, cluster: &str) -> Option<Value> {
    if !is_local(cluster) {
        annotate(&mut object, RESOURCE_CLUSTER, cluster)?;
    }
    Some(object)
}

fn annotate(object: &mut Value, name: &str, value: &str) -> Option<()> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = json!({});
    }
    annotations.as_object_mut()?.insert(name.to_owned(), value.into());
    Some(())
}

/// Returns the URL of a recorded object.
pub(super) fn source(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][RESOURCE_URL].as_str()
}

/// Returns the cluster of a recorded object.
pub(super) fn cluster(object: &Value) -> &str {
    object["metadata"]["annotations"][RESOURCE_CLUSTER]
        .as_str()
        .unwrap_or(LOCAL)
}

/// Removes the URL and the cluster of a recorded object.
pub(super) fn remove_source(object: &mut Map<String, Value>) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let Some(metadata) = metadata else { return };
    let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
    let Some(annotations) = annotations else { return };
    let removed = [RESOURCE_URL, RESOURCE_CLUSTER].map(|name| annotations.remove(name));
    if removed.iter().any(Option::is_some) && annotations.is_empty() {
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
    /// Returns true if a recorded object answers the request.
    pub(super) fn selects(&self, object: &Value) -> bool {
        self.is_answered_by(object) && cluster(object) == self.cluster
    }

    /// Returns true if an object of the cluster answers the request. Cluster-scoped objects have no namespace.
    pub(super) fn is_answered_by(&self, object: &Value) -> bool {
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
        let name = match &self.selector {
            ObjectSelector::Name(name) => format!("{kind} {}/{name}", self.namespace),
            ObjectSelector::Labels(_) => format!("{kind} with selector"),
        };
        if is_local(&self.cluster) {
            name
        } else {
            format!("{name} in cluster {}", self.cluster)
        }
    }
}
