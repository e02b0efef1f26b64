//! Values that the functions return.

use serde_json::{Map, Value, json};

use super::ObjectSelection;
use crate::api::oam::labels::LAST_APPLIED;
use crate::controllers::oam::dispatch::bookkeeping::{record_opt_out, remove_record};
use crate::controllers::oam::objects::{ObjectError, ObjectId};
use crate::controllers::oam::steps::Answer;

/// Answers `#Read`. An object that does not exist, or that must not be read, is described in `err`: templates test it. Other
/// errors fail the step, which is tried again: KubeVela puts them into `err`, too, so that a template takes an API server
/// without a response for a missing object.
#[must_use]
pub fn read_result(id: &ObjectId, result: Result<Option<Value>, ObjectError>) -> Answer {
    match result {
        Ok(Some(object)) => Answer::Returned(json!({ "value": without_managed_fields(object) })),
        Ok(None) => absent(id, format!("{} {:?} not found", id.kind, id.name)),
        Err(error) if is_final(&error) => absent(id, error.to_string()),
        Err(error) => Answer::failed(format!("failed to read {} {}: {error}", id.kind, id.name)),
    }
}

/// Answers `#List` of a step.
#[must_use]
pub fn listed(selection: &ObjectSelection, result: Result<Vec<Value>, ObjectError>) -> Answer {
    match result {
        Ok(items) => Answer::Returned(json!({ "values": list(selection, items) })),
        Err(error) if is_final(&error) => {
            Answer::Returned(json!({ "values": list(selection, Vec::new()), "err": error.to_string() }))
        }
        Err(error) => list_failure(selection, &error),
    }
}

/// Answers `#List` of a component.
#[must_use]
pub fn list_result(selection: &ObjectSelection, result: Result<Vec<Value>, ObjectError>) -> Answer {
    match result {
        Ok(items) => Answer::Returned(list(selection, items)),
        Err(error) => list_failure(selection, &error),
    }
}

/// Answers `#Get` of a component, which fails without the object.
#[must_use]
pub fn object_result(id: &ObjectId, result: Result<Option<Value>, ObjectError>) -> Answer {
    match result {
        Ok(Some(object)) => Answer::Returned(without_managed_fields(object)),
        Ok(None) => Answer::failed(format!("{} {:?} not found", id.kind, id.name)),
        Err(error) => Answer::failed(format!("failed to read {} {}: {error}", id.kind, id.name)),
    }
}

fn list(selection: &ObjectSelection, items: Vec<Value>) -> Value {
    let items: Vec<Value> = items.into_iter().map(without_managed_fields).collect();
    let kind = format!("{}List", selection.kind);
    json!({"apiVersion": selection.api_version, "kind": kind, "items": items})
}

fn list_failure(selection: &ObjectSelection, error: &ObjectError) -> Answer {
    Answer::failed(format!("failed to list {}: {error}", selection.kind))
}

/// Answers `#Delete`. An object that is gone is no error.
#[must_use]
pub fn deleted(value: &Value, result: Result<(), ObjectError>) -> Answer {
    match result {
        Ok(()) => Answer::Returned(json!({})),
        Err(ObjectError::Api(error)) if error.is_not_found() => Answer::Returned(json!({})),
        Err(error) if is_final(&error) => Answer::Returned(json!({ "value": value, "err": error.to_string() })),
        Err(error) => Answer::failed(format!("failed to delete: {error}")),
    }
}

/// Answers `#Patch` with the object as it is now.
#[must_use]
pub fn patched(live: Option<Value>) -> Answer {
    Answer::Returned(json!({ "result": live.map(without_managed_fields) }))
}

/// Returns a live object as a manifest: without what the API server sets, and without the record of the last write, unless
/// it is switched off.
#[must_use]
pub fn desired(mut live: Value) -> Value {
    const SERVER_FIELDS: [&str; 6] = [
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "resourceVersion",
        "uid",
    ];
    let opt_out = record_opt_out(&live).map(str::to_owned);
    remove_record(&mut live);
    if let Some(opt_out) = opt_out {
        live["metadata"]["annotations"][LAST_APPLIED] = opt_out.into();
    }
    let mut manifest = without_managed_fields(live);
    if let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| !SERVER_FIELDS.contains(&name.as_str()));
    }
    if let Some(object) = manifest.as_object_mut() {
        Map::remove(object, "status");
    }
    manifest
}

/// Returns the identity of the object as its value, so that templates find no other field.
fn absent(id: &ObjectId, error: String) -> Answer {
    let value = json!({
        "apiVersion": id.api_version,
        "kind": id.kind,
        "metadata": {"name": id.name, "namespace": id.namespace},
    });
    Answer::Returned(json!({"value": value, "err": error}))
}

/// Returns true if another attempt gets the same error until rights or objects change.
fn is_final(error: &ObjectError) -> bool {
    match error {
        ObjectError::NotInstalled { .. } => true,
        ObjectError::Api(error) => error.is_not_found() || error.is_forbidden(),
        ObjectError::Cluster(_) => false,
    }
}

/// They are large, and nothing for templates.
fn without_managed_fields(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        Map::remove(metadata, "managedFields");
    }
    object
}
