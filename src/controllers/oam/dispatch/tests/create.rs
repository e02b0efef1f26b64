use rstest::rstest;
use serde_json::{Value, json};

use super::super::decide::{DispatchDecision, DispatchRequest, DispatchSettings, decide};
use super::ownership::shared;
use super::policies::{apply_once, recreate, replace};
use super::{LAST_APPLIED, after, annotation, created, live, manifest, merge, of_kind, over, refusal, request};

#[test]
fn a_missing_object_is_created_with_its_bookkeeping() {
    let live = live();
    assert_eq!(live["metadata"]["labels"]["oam.dev/render-hash"], "hash");
    assert_eq!(
        annotation(&live, "app.oam.dev/last-applied-time"),
        Some("2023-11-14T22:13:20Z")
    );
    let applied: Value = serde_json::from_str(annotation(&live, LAST_APPLIED).unwrap()).unwrap();
    let labels = json!({"metadata": {"labels": {"oam.dev/render-hash": "hash"}}});
    assert_eq!(applied, merge(manifest(), labels), "the object without the annotation");
}

#[rstest]
#[case("v1", "Secret")]
#[case("v1", "ConfigMap")]
fn data_is_not_stored_twice(#[case] version: &str, #[case] kind: &str) {
    let object = created(&of_kind(version, kind));
    assert_eq!(object["metadata"].get("annotations"), None);
    assert_eq!(object["metadata"]["labels"]["oam.dev/render-hash"], "hash");
}

#[test]
fn other_kinds_named_secret_have_the_annotation() {
    let object = created(&of_kind("example.com/v1", "Secret"));
    assert!(annotation(&object, LAST_APPLIED).is_some());
}

#[rstest]
#[case("-")]
#[case("skip")]
fn the_annotation_can_be_switched_off(#[case] value: &str) {
    let manifest = merge(manifest(), json!({"metadata": {"annotations": {LAST_APPLIED: value}}}));
    let object = created(&manifest);
    assert_eq!(object["metadata"]["annotations"], json!({LAST_APPLIED: value}));
    assert_eq!(decide(&over(&object, &manifest)), Ok(DispatchDecision::Nothing));
}

#[test]
fn a_large_object_is_not_stored_in_the_annotation() {
    let manifest = merge(manifest(), json!({"spec": {"text": "x".repeat(300_000)}}));
    let live = created(&manifest);
    assert_eq!(annotation(&live, LAST_APPLIED), Some("skip"));
    let without = merge(manifest.clone(), json!({"spec": {"text": null}}));
    let request = DispatchRequest {
        recorded: std::slice::from_ref(&manifest),
        ..over(&live, &without)
    };
    assert_eq!(
        after(&request)["spec"].get("text"),
        None,
        "the tracker has the manifest"
    );
}

#[test]
fn an_object_without_a_name_is_refused() {
    let manifest = merge(manifest(), json!({"metadata": {"name": null, "generateName": "web-"}}));
    assert_eq!(
        refusal(&request(&manifest)),
        "Deployment has no name (generateName \"web-\"); set metadata.name, so that it can be found again"
    );
}

#[test]
fn an_autoscaled_object_is_created_with_its_replicas() {
    let manifest = manifest();
    let decision = decide(&DispatchRequest {
        is_autoscaled: true,
        ..request(&manifest)
    });
    assert!(matches!(decision, Ok(DispatchDecision::Create(object)) if object["spec"]["replicas"] == 2));
}

#[test]
fn objects_of_any_shape_are_decided() {
    let odd = [
        json!({"metadata": {"name": "x", "labels": [], "annotations": "a"}, "spec": 1}),
        json!({"metadata": {"name": "x"}, "spec": [], "kind": 3}),
        json!({"metadata": {"name": "x", "labels": {"app.oam.dev/name": 1}}}),
        json!({"metadata": []}),
        json!([]),
    ];
    let fields = ["spec.a[0].b".to_owned()];
    for manifest in &odd {
        for live in &odd {
            for policy in [shared(), replace(), apply_once(&fields), recreate(&fields)] {
                let settings = DispatchSettings {
                    can_take_over: true,
                    ..DispatchSettings::default()
                };
                let request = DispatchRequest {
                    policy,
                    settings,
                    is_autoscaled: true,
                    ..over(live, manifest)
                };
                // Must not panic.
                let _ = decide(&request);
                let _ = decide(&DispatchRequest { live: None, ..request });
            }
        }
    }
}

#[test]
fn a_manifest_with_too_many_finalizers_is_refused() {
    let with_finalizers = |count: usize| {
        let finalizers: Vec<_> = (0..count).map(|number| format!("a.io/{number}")).collect();
        merge(manifest(), json!({"metadata": {"finalizers": finalizers}}))
    };
    assert!(decide(&request(&with_finalizers(100))).is_ok());
    let too_many = with_finalizers(101);
    let message = "Deployment web has 101 finalizers, more than 100";
    assert_eq!(refusal(&request(&too_many)), message);
    assert_eq!(refusal(&over(&live(), &too_many)), message);
}
