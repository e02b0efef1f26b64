mod equivalence;
mod properties;
mod rules;

use serde_json::{Value, json};

use super::merge_patch::apply_merge_patch;
use super::patch;

/// Applies the patch for `live`, as the API server does.
pub(super) fn apply(applied: &[&Value], manifest: &Value, live: &Value) -> Value {
    let mut object = live.clone();
    if let Some(patch) = patch(applied, manifest, live).unwrap() {
        apply_merge_patch(&mut object, &patch.into_body(live));
    }
    object
}

pub(super) fn deployment(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
}

pub(super) fn pod_spec(spec: Value) -> Value {
    deployment(json!({"template": {"spec": spec}}))
}

/// Returns the pod spec after applying `new` over `live`, where `applied` was applied before.
pub(super) fn merged_pod_spec(applied: Value, new: Value, live: Value) -> Value {
    let merged = apply(&[&pod_spec(applied)], &pod_spec(new), &pod_spec(live));
    merged.pointer("/spec/template/spec").unwrap().clone()
}

pub(super) fn service(ports: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": ports}})
}

pub(super) fn custom(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
}

pub(super) fn secret(fields: Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    apply_merge_patch(&mut object, &fields);
    object
}
