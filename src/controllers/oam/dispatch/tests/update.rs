use serde_json::{Value, json};

use super::super::decide::{DispatchDecision, DispatchRequest, Occasion, decide};
use super::{LAST_APPLIED, after, annotation, created, live, manifest, merge, of_kind, over};

#[test]
fn an_object_with_the_same_hash_is_not_written_by_dispatch() {
    let manifest = manifest();
    let live = merge(live(), json!({"spec": {"replicas": 9}}));
    let dispatch = DispatchRequest {
        occasion: Occasion::Dispatch,
        ..over(&live, &manifest)
    };
    assert_eq!(decide(&dispatch), Ok(DispatchDecision::Nothing));
    assert_eq!(
        after(&over(&live, &manifest))["spec"]["replicas"],
        2,
        "state keep compares the object"
    );
    let changed = DispatchRequest {
        render_hash: "new",
        ..dispatch
    };
    assert_eq!(after(&changed)["spec"]["replicas"], 2);
}

#[test]
fn an_object_as_wanted_is_not_written_for_its_hash() {
    let manifest = manifest();
    let live = live();
    let request = DispatchRequest {
        render_hash: "other",
        occasion: Occasion::Dispatch,
        ..over(&live, &manifest)
    };
    assert_eq!(decide(&request), Ok(DispatchDecision::Nothing));
}

#[test]
fn a_field_that_is_no_longer_in_the_manifest_is_removed() {
    let live = live();
    let without = merge(manifest(), json!({"spec": {"paused": null}}));
    let object = after(&DispatchRequest {
        render_hash: "new",
        ..over(&live, &without)
    });
    assert_eq!(object["spec"], json!({"replicas": 2}));
    assert_eq!(object["metadata"]["labels"]["oam.dev/render-hash"], "new");
    assert!(!annotation(&object, LAST_APPLIED).unwrap().contains("paused"));
}

#[test]
fn a_key_of_a_config_map_is_removed_by_the_recorded_manifest() {
    let config_map = |data: Value| merge(of_kind("v1", "ConfigMap"), json!({"data": data}));
    let before = config_map(json!({"a": "1", "b": "2"}));
    let live = merge(created(&before), json!({"data": {"c": "theirs"}}));
    let new = config_map(json!({"a": "1"}));
    let object = after(&DispatchRequest {
        recorded: std::slice::from_ref(&before),
        ..over(&live, &new)
    });
    assert_eq!(object["data"], json!({"a": "1", "c": "theirs"}));
}

#[test]
fn a_field_that_was_adopted_without_a_write_is_removed() {
    let without = merge(manifest(), json!({"spec": {"paused": null}}));
    let live = merge(created(&without), json!({"spec": {"paused": true}}));
    let adopted = manifest();
    assert_eq!(decide(&over(&live, &adopted)), Ok(DispatchDecision::Nothing));
    let object = after(&DispatchRequest {
        recorded: std::slice::from_ref(&adopted),
        ..over(&live, &without)
    });
    assert_eq!(object["spec"], json!({"replicas": 2}));
}

#[test]
fn an_invalid_last_applied_configuration_is_ignored() {
    let manifest = manifest();
    for text in ["{", "[]", "null", "-", "skip"] {
        let live = merge(
            live(),
            json!({"metadata": {"annotations": {LAST_APPLIED: text}}, "spec": {"replicas": 9, "theirs": 1}}),
        );
        let object = after(&over(&live, &manifest));
        assert_eq!(
            object["spec"],
            json!({"replicas": 2, "paused": true, "theirs": 1}),
            "{text}"
        );
    }
}
