//! Labels and annotations of applied objects that record the state of applying, in KubeVela's format.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::decide::ObjectIdentity;
use crate::api::oam::labels::{LAST_APPLIED, RENDER_HASH, SHARED_BY};

const LAST_APPLIED_TIME: &str = "app.oam.dev/last-applied-time";
/// Values of [`LAST_APPLIED`] that switch it off for an object.
const OFF: [&str; 2] = ["-", "skip"];
/// Longest manifest in an annotation. The API server limits all annotations of an object to 256 KiB.
const MAX_LAST_APPLIED: usize = 200 << 10;

pub fn label<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(name)?.as_str()
}

pub fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(name)?.as_str()
}

pub(super) fn set_annotation(object: &mut Value, name: &str, value: String) {
    set(object, "annotations", name, value);
}

fn set(object: &mut Value, field: &str, name: &str, value: String) {
    let metadata = child(object, "metadata");
    child(metadata, field)[name] = value.into();
}

/// Returns a member that is an object, in place of any other value.
fn child<'a>(object: &'a mut Value, name: &str) -> &'a mut Value {
    let child = &mut object[name];
    if !child.is_object() {
        *child = Map::new().into();
    }
    child
}

/// Returns the manifest with its hash and with itself as the last-applied configuration.
pub(super) fn with_bookkeeping(manifest: &Value, hash: &str, now: Timestamp) -> Value {
    let mut object = manifest.clone();
    set(&mut object, "labels", RENDER_HASH, hash.to_owned());
    if !is_last_applied_kept(&object) {
        return object;
    }
    remove(&mut object, "annotations", &[LAST_APPLIED, LAST_APPLIED_TIME]);
    let configuration = object.to_string();
    if configuration.len() > MAX_LAST_APPLIED {
        // The tracker has the manifest.
        set_annotation(&mut object, LAST_APPLIED, OFF[1].to_owned());
    } else {
        set_annotation(&mut object, LAST_APPLIED, configuration);
        set_annotation(
            &mut object,
            LAST_APPLIED_TIME,
            now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        );
    }
    object
}

/// Secrets and ConfigMaps would be stored twice, and Secrets in the open.
fn is_last_applied_kept(manifest: &Value) -> bool {
    let ObjectIdentity { api_version, kind, .. } = ObjectIdentity::of(manifest);
    let has_data = api_version == "v1" && ["Secret", "ConfigMap"].contains(&kind);
    !has_data && record_opt_out(manifest).is_none()
}

pub fn record_opt_out(object: &Value) -> Option<&str> {
    annotation(object, LAST_APPLIED).filter(|value| OFF.contains(value))
}

pub(super) fn last_applied(live: &Value) -> Option<Value> {
    let text = annotation(live, LAST_APPLIED).filter(|text| !OFF.contains(text))?;
    let mut manifest = serde_json::from_str(text).ok().filter(Value::is_object)?;
    remove_bookkeeping(&mut manifest);
    Some(manifest)
}

/// Removes what [`with_bookkeeping`] adds. Sharers are never removed with a manifest: others may be among them.
pub(super) fn remove_bookkeeping(manifest: &mut Value) {
    remove_record(manifest);
    remove(manifest, "annotations", &[SHARED_BY]);
}

pub fn remove_record(object: &mut Value) {
    remove(object, "labels", &[RENDER_HASH]);
    remove(object, "annotations", &[LAST_APPLIED, LAST_APPLIED_TIME]);
}

fn remove(object: &mut Value, field: &str, names: &[&str]) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
        return;
    };
    if let Some(Value::Object(entries)) = metadata.get_mut(field) {
        entries.retain(|name, _| !names.contains(&name.as_str()));
        if entries.is_empty() {
            metadata.remove(field);
        }
    }
}
