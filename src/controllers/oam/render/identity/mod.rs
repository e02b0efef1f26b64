//! Names, labels and annotations of rendered objects. Facts: `pkg/oam/labels.go` of KubeVela.

mod component_hash;
mod name_hash;
pub mod render_hash;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use super::limits::MAX_OBJECT_DEPTH;
use crate::api::oam::labels;
pub use component_hash::component_hash;
use name_hash::name_hash;

/// The revision of a component, which is always empty.
const COMPONENT_REVISION: &str = "app.oam.dev/revision";
const REPLICA_KEY: &str = "app.oam.dev/replicaKey";
/// The trait type of objects that a component renders besides its workload.
pub const AUXILIARY_WORKLOAD: &str = "AuxiliaryWorkload";

const FILTER_LABELS: &str = "filter.oam.dev/label-keys";
const FILTER_ANNOTATIONS: &str = "filter.oam.dev/annotation-keys";
/// Annotations of an Application that its objects never get.
const OWN_ANNOTATIONS: [&str; 5] = [
    FILTER_LABELS,
    FILTER_ANNOTATIONS,
    "app.oam.dev/inplace-upgrade",
    labels::LAST_APPLIED,
    labels::KUBECTL_LAST_APPLIED,
];

/// The Application and component that an object belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    pub app: &'a str,
    pub namespace: &'a str,
    pub labels: &'a Map<String, Value>,
    pub annotations: &'a Map<String, Value>,
    pub component: &'a str,
    /// The name of the ApplicationRevision, and its hash.
    pub revision: &'a str,
    pub revision_hash: &'a str,
    pub replica_key: Option<&'a str>,
    /// Empty for the local cluster.
    pub cluster: &'a str,
}

/// The place of an object in its component.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    Workload { component_type: &'a str },
    Trait { trait_type: &'a str, resource: &'a str },
}

/// Sets name, namespace, labels and annotations of a rendered object.
pub fn identify(object: &mut Map<String, Value>, owner: &Owner<'_>, part: Part<'_>) {
    match part {
        Part::Workload { component_type } => {
            set_strings(object, "labels", &[(labels::WORKLOAD_TYPE, component_type)]);
            set_default(object, "name", owner.component);
        }
        Part::Trait { trait_type, resource } => {
            // The hash of the name covers these labels, and none of the following.
            let labels = [
                (labels::APP_NAME, owner.app),
                (labels::COMPONENT, owner.component),
                (labels::TRAIT_TYPE, trait_type),
                (labels::TRAIT_RESOURCE, resource),
            ];
            set_strings(object, "labels", &labels);
            let name = object.get("metadata").and_then(|metadata| metadata.get("name"));
            if name.and_then(Value::as_str).is_none_or(str::is_empty) {
                let hash = name_hash(object);
                let name = format!("{}-{}-{hash}", owner.component, trait_type.to_lowercase());
                set_default(object, "name", &name);
            }
        }
    }
    if (text(object, "apiVersion"), text(object, "kind")) != ("v1", "Namespace") {
        set_default(object, "namespace", owner.namespace);
    }
    set_app_labels(object, owner, part);
    set_annotations(object, owner);
}

fn set_app_labels(object: &mut Map<String, Value>, owner: &Owner<'_>, part: Part<'_>) {
    let filtered = filtered_keys(owner, FILTER_LABELS);
    let passed: Vec<_> = strings(owner.labels)
        .filter(|(key, _)| !filtered.contains(key))
        .collect();
    set_strings(object, "labels", &passed);
    let resource_type = match part {
        Part::Workload { .. } => "WORKLOAD",
        Part::Trait { .. } => "TRAIT",
    };
    let labels = [
        (labels::APP_NAME, owner.app),
        (labels::APP_NAMESPACE, owner.namespace),
        (labels::APP_REVISION, owner.revision),
        (labels::COMPONENT, owner.component),
        (labels::APP_REVISION_HASH, owner.revision_hash),
        (COMPONENT_REVISION, ""),
        (labels::CLUSTER, owner.cluster),
        (labels::RESOURCE_TYPE, resource_type),
    ];
    set_strings(object, "labels", &labels);
    if let Some(key) = owner.replica_key {
        set_strings(object, "labels", &[(REPLICA_KEY, key)]);
    }
}

/// Adds the annotations of the Application, and removes annotations that no object gets.
///
/// The object has annotations afterwards, even if empty: the original writes an empty object, which counts in its hash.
fn set_annotations(object: &mut Map<String, Value>, owner: &Owner<'_>) {
    let passed: Vec<_> = strings(owner.annotations).collect();
    set_strings(object, "annotations", &passed);
    let filtered = filtered_keys(owner, FILTER_ANNOTATIONS);
    with_child(object, "metadata", |metadata| {
        with_child(metadata, "annotations", |annotations| {
            annotations.retain(|key, _| !filtered.contains(&key.as_str()) && !OWN_ANNOTATIONS.contains(&key.as_str()));
        });
    });
}

/// Removes the type of resource, and annotations if there are none.
pub fn remove_resource_type(manifest: &mut Value) {
    let Some(Value::Object(metadata)) = manifest.get_mut("metadata") else {
        return;
    };
    if let Some(Value::Object(entries)) = metadata.get_mut("labels") {
        entries.remove(labels::RESOURCE_TYPE);
    }
    if metadata
        .get("annotations")
        .is_some_and(|annotations| *annotations == json!({}))
    {
        metadata.remove("annotations");
    }
}

/// Writes the reference to the workload into a trait's object at `path`, a dotted `workloadRefPath`.
pub fn set_workload_reference(object: &mut Map<String, Value>, path: &str, workload: &Map<String, Value>) {
    let name = workload.get("metadata").and_then(|metadata| metadata.get("name"));
    let reference = json!({
        "apiVersion": text(workload, "apiVersion"),
        "kind": text(workload, "kind"),
        "name": name.and_then(Value::as_str).unwrap_or_default(),
    });
    let mut labels = path.split('.').filter(|label| !label.is_empty());
    if let Some(first) = labels.next() {
        let rest: Vec<&str> = labels.take(MAX_OBJECT_DEPTH).collect();
        insert_at(object, first, &rest, reference);
    }
}

fn insert_at(fields: &mut Map<String, Value>, label: &str, rest: &[&str], value: Value) {
    match rest.split_first() {
        Some((next, rest)) => with_child(fields, label, |child| insert_at(child, next, rest, value)),
        None => {
            fields.insert(label.to_owned(), value);
        }
    }
}

fn filtered_keys<'a>(owner: &Owner<'a>, annotation: &str) -> Vec<&'a str> {
    text(owner.annotations, annotation).split(',').map(str::trim).collect()
}

fn strings(fields: &Map<String, Value>) -> impl Iterator<Item = (&str, &str)> {
    fields
        .iter()
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

fn text<'a>(fields: &'a Map<String, Value>, label: &str) -> &'a str {
    fields.get(label).and_then(Value::as_str).unwrap_or_default()
}

/// Changes an object below another. Replaces it before, if it is missing or no object.
fn with_child(fields: &mut Map<String, Value>, label: &str, change: impl FnOnce(&mut Map<String, Value>)) {
    let mut child = match fields.remove(label) {
        Some(Value::Object(child)) => child,
        _ => Map::new(),
    };
    change(&mut child);
    fields.insert(label.to_owned(), Value::Object(child));
}

/// Sets a field of the metadata that is missing or empty.
fn set_default(object: &mut Map<String, Value>, field: &str, value: &str) {
    with_child(object, "metadata", |metadata| {
        if text(metadata, field).is_empty() {
            metadata.insert(field.to_owned(), value.into());
        }
    });
}

fn set_strings(object: &mut Map<String, Value>, field: &str, values: &[(&str, &str)]) {
    with_child(object, "metadata", |metadata| {
        with_child(metadata, field, |fields| {
            for (key, value) in values {
                fields.insert((*key).to_owned(), (*value).into());
            }
        });
    });
}
