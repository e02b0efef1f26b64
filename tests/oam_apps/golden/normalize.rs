//! Removes from a record what differs between two runs of the same controller, and what the README of the records
//! excludes.

use serde_json::{Map, Value, json};

use super::super::setup;

const HASH_LABELS: [&str; 2] = ["app.oam.dev/app-revision-hash", "oam.dev/render-hash"];
const LAST_APPLIED: &str = "app.oam.dev/last-applied-configuration";
/// Annotations of KubeVela's time, and of controllers of the cluster.
const FOREIGN_ANNOTATIONS: [&str; 4] = [
    "app.oam.dev/last-applied-time",
    "deployment.kubernetes.io/revision",
    "autoscaling.alpha.kubernetes.io/conditions",
    "autoscaling.alpha.kubernetes.io/current-metrics",
];
/// Metadata that the API server assigns.
const ASSIGNED: [&str; 7] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "selfLink",
];
/// Fields of statuses that hold times and random identifiers.
const TIMES_AND_IDS: [&str; 8] = [
    "id",
    "uid",
    "lastTransitionTime",
    "firstExecuteTime",
    "lastExecuteTime",
    "startTime",
    "endTime",
    "resourceVersion",
];
/// Fields of entries of trackers that the records lack.
const NOT_IN_ENTRY: [&str; 2] = ["raw", "uid"];
/// Stands for a value that is there, but not compared.
const ANY: &str = "*";

/// Normalizes a record in the form of the files of a case.
pub fn record(record: &Value) -> Value {
    json!({
        "application": mapped(&record["application"], application),
        "revisions": mapped(&record["revisions"], revisions),
        "trackers": keyed(&record["trackers"], tracker),
        "events": events(&record["events"]),
        "objects": keyed(&record["objects"], object),
        "missing": record["missing"].as_array().cloned().unwrap_or_default(),
    })
}

fn elements(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

fn mapped(map: &Value, normalize: impl Fn(&Value) -> Value) -> Value {
    let entries = map.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.clone(), normalize(value))).collect()
}

/// Returns the elements of a list by a key, so that differences are shown by element.
fn keyed(list: &Value, normalize: impl Fn(&Value) -> (String, Value)) -> Value {
    elements(list).iter().map(normalize).collect::<Map<_, _>>().into()
}

fn application(app: &Value) -> Value {
    if app.is_null() {
        return json!("gone");
    }
    let mut status = app["status"].clone();
    remove_all(&mut status, &TIMES_AND_IDS);
    hide(&mut status["latestRevision"], "revisionHash");
    // The records are sorted.
    sort(&mut status["appliedResources"]);
    for service in status["services"].as_array_mut().into_iter().flatten() {
        for one in service["traits"].as_array_mut().into_iter().flatten() {
            hide_address(&mut one["message"]);
        }
        sort(&mut service["traits"]);
    }
    sort(&mut status["services"]);
    let metadata =
        json!({ "labels": app["labels"], "annotations": app["annotations"], "finalizers": app["finalizers"] });
    // The status is compared with all that is empty in it.
    let mut app = pruned(metadata);
    app["status"] = status;
    app
}

/// Sorts a list by the texts of its elements, name and type first.
fn sort(list: &mut Value) {
    let key = |element: &Value| {
        let parts = ["name", "type", "kind"].map(|field| text(element, field));
        (parts, element.to_string())
    };
    if let Some(list) = list.as_array_mut() {
        list.sort_by_cached_key(key);
    }
}

/// Replaces an address that the API server has allocated, as the records do.
fn hide_address(message: &mut Value) {
    const PREFIX: &str = "ClusterIP: ";
    let is_address = |text: &str| {
        text.strip_prefix(PREFIX)
            .is_some_and(|address| address.starts_with(|c: char| c.is_ascii_digit()))
    };
    if message.as_str().is_some_and(is_address) {
        *message = json!(format!("{PREFIX}<clusterIP>"));
    }
}

fn revisions(list: &Value) -> Value {
    keyed(list, |revision| {
        let mut labels = revision["labels"].clone();
        hide_hashes(&mut labels);
        let normalized = json!({
            "labels": labels,
            "annotations": revision["annotations"],
            "succeeded": revision["status"]["succeeded"],
        });
        (text(revision, "name"), pruned(normalized))
    })
}

fn tracker(tracker: &Value) -> (String, Value) {
    let mut labels = tracker["labels"].clone();
    remove_all(&mut labels, &["app.oam.dev/uid"]);
    // A list for each key: an object that is recorded twice is a difference.
    let mut entries: Map<String, Value> = Map::new();
    for entry in elements(&tracker["managedResources"]) {
        let mut entry = entry.clone();
        remove(&mut entry, &NOT_IN_ENTRY);
        let of_key = entries.entry(key(&entry, &entry)).or_insert_with(|| json!([]));
        if let Some(of_key) = of_key.as_array_mut() {
            of_key.push(entry);
        }
    }
    let normalized = json!({
        "type": tracker["type"],
        "applicationGeneration": tracker["applicationGeneration"],
        "compression": tracker["compression"],
        "deleting": tracker["deleting"],
        "finalizers": tracker["finalizers"],
        "labels": labels,
        "managedResources": entries,
    });
    (text(tracker, "name"), pruned(normalized))
}

/// Returns the messages by type and reason.
fn events(list: &Value) -> Value {
    let mut events = Map::new();
    let mut sorted: Vec<_> = elements(list).iter().collect();
    sorted.sort_by_key(|event| event.to_string());
    for event in sorted {
        let part = |index: usize| event[index].as_str().unwrap_or_default();
        let messages = events
            .entry(format!("{} {}", part(0), part(1)))
            .or_insert_with(|| json!([]));
        if let Some(messages) = messages.as_array_mut() {
            messages.push(part(2).into());
        }
    }
    events.into()
}

fn object(object: &Value) -> (String, Value) {
    let mut object = object.clone();
    let key = key(&object, &object["metadata"]);
    remove(&mut object, &["status"]);
    remove(&mut object["metadata"], &ASSIGNED);
    remove(&mut object["spec"], &["clusterIP", "clusterIPs", "volumeName"]);
    for port in object["spec"]["ports"].as_array_mut().into_iter().flatten() {
        remove(port, &["nodePort"]);
    }
    for owner in object["metadata"]["ownerReferences"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        remove(owner, &["uid"]);
    }
    hide_hashes(&mut object["metadata"]["labels"]);
    let annotations = &mut object["metadata"]["annotations"];
    remove(annotations, &FOREIGN_ANNOTATIONS);
    // Compared exactly, apart from the annotations.
    let applied = annotations[LAST_APPLIED].as_str().map(last_applied);
    hide(annotations, LAST_APPLIED);
    object["lastApplied"] = applied.into();
    object["metadata"] = pruned(object["metadata"].take());
    (key, object)
}

fn last_applied(text: &str) -> Value {
    let Ok(mut manifest) = serde_json::from_str::<Value>(text) else {
        return text.into();
    };
    hide_hashes(&mut manifest["metadata"]["labels"]);
    manifest
}

/// Returns version, kind, namespace and name.
fn key(object: &Value, metadata: &Value) -> String {
    let namespace = text(metadata, "namespace");
    format!("{} {namespace}/{}", setup::kind(object), text(metadata, "name"))
}

fn text(object: &Value, key: &str) -> String {
    object[key].as_str().unwrap_or_default().to_owned()
}

fn hide_hashes(labels: &mut Value) {
    for label in HASH_LABELS {
        hide(labels, label);
    }
}

fn hide(fields: &mut Value, key: &str) {
    if let Some(value) = fields.get_mut(key) {
        *value = ANY.into();
    }
}

fn remove(fields: &mut Value, keys: &[&str]) {
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|key, _| !keys.contains(&key.as_str()));
    }
}

/// Removes fields at all levels.
fn remove_all(value: &mut Value, keys: &[&str]) {
    remove(value, keys);
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|value| remove_all(value, keys)),
        Value::Array(list) => list.iter_mut().for_each(|value| remove_all(value, keys)),
        _ => {}
    }
}

/// Removes nulls, empty objects and empty lists.
fn pruned(value: Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| (key, pruned(value)));
            Value::Object(fields.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(list) => list.into_iter().map(pruned).collect(),
        value => value,
    }
}
