mod admission;
mod create;
mod field_path;
mod fights;
mod order;
mod ownership;
mod policies;
mod update;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::decide::{DispatchDecision, DispatchRequest, DispatchSettings, ObjectPolicy, Occasion, decide};
use crate::runtime::three_way::merge_patch::apply_merge_patch;

pub(super) const LAST_APPLIED: &str = "app.oam.dev/last-applied-configuration";

pub(super) fn merge(mut object: Value, change: Value) -> Value {
    apply_merge_patch(&mut object, &change);
    object
}

pub(super) fn manifest() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "web", "namespace": "shop",
            "labels": {"app.oam.dev/name": "app", "app.oam.dev/namespace": "shop"},
        },
        "spec": {"replicas": 2, "paused": true},
    })
}

pub(super) fn of_kind(api_version: &str, kind: &str) -> Value {
    merge(
        manifest(),
        json!({"apiVersion": api_version, "kind": kind, "spec": null}),
    )
}

pub(super) fn request(manifest: &Value) -> DispatchRequest<'_> {
    DispatchRequest {
        application: ("shop", "app"),
        manifest,
        render_hash: "hash",
        live: None,
        recorded: &[],
        occasion: Occasion::StateKeep,
        policy: ObjectPolicy::default(),
        is_autoscaled: false,
        settings: DispatchSettings::default(),
        now: Timestamp::from_second(1_700_000_000).unwrap(),
    }
}

/// The object that the API server has after a manifest was created.
pub(super) fn created(manifest: &Value) -> Value {
    let Ok(DispatchDecision::Create(object)) = decide(&request(manifest)) else {
        panic!("the object is not created");
    };
    merge(object, json!({"metadata": {"uid": "uid-1", "resourceVersion": "7"}}))
}

pub(super) fn live() -> Value {
    created(&manifest())
}

pub(super) fn over<'a>(live: &'a Value, manifest: &'a Value) -> DispatchRequest<'a> {
    DispatchRequest {
        live: Some(live),
        ..request(manifest)
    }
}

/// Returns the live object after the decision.
pub(super) fn after(request: &DispatchRequest<'_>) -> Value {
    let live = request.live.unwrap().clone();
    match decide(request).unwrap() {
        DispatchDecision::Nothing => live,
        DispatchDecision::Patch(patch) | DispatchDecision::Share(patch) | DispatchDecision::Record(patch) => {
            merge(live, patch)
        }
        decision => panic!("unexpected {decision:?}"),
    }
}

pub(super) fn refusal(request: &DispatchRequest<'_>) -> String {
    decide(request).unwrap_err().to_string()
}

pub(super) fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][name].as_str()
}
