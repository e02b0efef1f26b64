use rstest::rstest;
use serde_json::{Value, json};

use super::*;

#[rstest]
#[case(json!({ "kind": "Pod", "name": "p" }), "Pod p")]
#[case(json!({ "kind": "Pod", "name": "p", "namespace": "n" }), "Pod p (Namespace: n)")]
#[case(json!({ "kind": "Pod", "name": "p", "namespace": "n", "cluster": "c" }), "Pod p (Cluster: c, Namespace: n)")]
fn display_names_tell_where_an_object_is(#[case] fields: Value, #[case] expected: &str) {
    assert_eq!(display_name(&entry_of(&fields)), expected);
}

#[test]
fn new_trackers_have_the_metadata_of_kubevela() {
    let app = identity(Some("beta"));
    let objects = || encode(vec![entry("Pod", "p")], None).unwrap();
    let versioned = create(&app, TrackerType::Versioned, Some("shop-v2"), Some("s1"), objects());
    assert_eq!(
        serde_json::to_value(versioned).unwrap(),
        json!({
            "apiVersion": "core.oam.dev/v1beta1", "kind": "ResourceTracker",
            "metadata": {
                "name": "shop-beta-team", "finalizers": ["resourcetracker.core.oam.dev/finalizer"],
                "annotations": { "app.oam.dev/publishVersion": "beta" },
                "labels": {
                    "app.oam.dev/name": "shop", "app.oam.dev/namespace": "team", "app.oam.dev/uid": "u1",
                    "app.oam.dev/appRevision": "shop-v2", "controller.core.oam.dev/scheduled-shard-id": "s1",
                },
            },
            "spec": { "type": "versioned", "applicationGeneration": 3, "managedResources": [
                { "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "p" },
            ] },
        })
    );
    let root = create(&app, TrackerType::Root, None, None, objects());
    assert_eq!(
        (root.metadata.name.as_deref(), root.spec.application_generation),
        (Some("shop-team"), 0)
    );
    assert_eq!(root.metadata.annotations, None);
}
