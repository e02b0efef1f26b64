use rstest::rstest;
use serde_json::{Value, json};

use super::super::merge_patch::apply_merge_patch;
use super::super::{MAX_DEPTH, ThreeWayError, patch};
use super::{apply, custom, deployment, merged_pod_spec, service};

#[test]
fn fields_that_the_manifest_sets_are_restored() {
    let manifest = deployment(json!({"replicas": 3}));
    assert_eq!(apply(&[], &manifest, &deployment(json!({"replicas": 1}))), manifest);
}

#[test]
fn fields_of_others_stay() {
    let live = deployment(json!({"replicas": 3, "paused": true}));
    assert_eq!(patch(&[], &deployment(json!({"replicas": 3})), &live), Ok(None));
}

#[test]
fn fields_that_an_earlier_manifest_had_are_removed() {
    let live = custom(json!({"a": 1, "b": {"c": 1, "d": 2}, "e": 3}));
    let applied = custom(json!({"a": 1, "b": {"c": 1, "d": 2}}));
    let merged = apply(&[&applied], &custom(json!({"b": {"d": 2}})), &live);
    assert_eq!(merged, custom(json!({"b": {"d": 2}, "e": 3})));
}

#[test]
fn fields_of_all_earlier_manifests_are_removed() {
    let live = custom(json!({"a": 1, "b": 2, "c": 3}));
    let applied = [&custom(json!({"a": 1})), &custom(json!({"b": 2}))];
    assert_eq!(apply(&applied, &custom(json!({})), &live), custom(json!({"c": 3})));
}

#[test]
fn a_null_in_the_manifest_removes_a_field() {
    let live = deployment(json!({"replicas": 3}));
    assert_eq!(
        apply(&[], &deployment(json!({"replicas": null})), &live),
        deployment(json!({}))
    );
    assert_eq!(
        patch(&[], &deployment(json!({"paused": null})), &live),
        Ok(None),
        "absent already"
    );
}

#[test]
fn fields_that_the_api_server_sets_are_ignored() {
    let mut live = deployment(json!({"replicas": 1}));
    let metadata = json!({"uid": "u", "resourceVersion": "1", "generation": 2, "creationTimestamp": "t"});
    apply_merge_patch(&mut live, &json!({"metadata": metadata, "status": {"replicas": 1}}));
    let mut manifest = deployment(json!({"replicas": 1}));
    let metadata = json!({"creationTimestamp": "x", "generation": 1, "uid": "other"});
    apply_merge_patch(&mut manifest, &json!({"metadata": metadata, "status": {"replicas": 5}}));
    assert_eq!(patch(&[&manifest], &manifest, &live), Ok(None));
}

#[test]
fn the_status_of_a_custom_resource_is_applied() {
    let mut manifest = custom(json!({}));
    manifest["status"] = json!({"phase": "new"});
    assert_eq!(
        apply(&[], &manifest, &custom(json!({})))["status"],
        json!({"phase": "new"})
    );
}

#[test]
fn labels_and_finalizers_of_others_stay() {
    let object = |labels, finalizers| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {"name": "w", "labels": labels, "finalizers": finalizers},
        })
    };
    let merged = apply(
        &[&object(json!({"a": "1", "b": "1"}), json!(["ours/old", "ours/kept"]))],
        &object(json!({"a": "2"}), json!(["ours/kept", "ours/new"])),
        &object(
            json!({"a": "1", "b": "1", "c": "x"}),
            json!(["ours/old", "theirs", "ours/kept"]),
        ),
    );
    assert_eq!(
        merged,
        object(json!({"a": "2", "c": "x"}), json!(["theirs", "ours/kept", "ours/new"]))
    );
}

#[test]
fn containers_are_merged_by_name() {
    let merged = merged_pod_spec(
        json!({"containers": [{"name": "web", "image": "a:1", "command": ["x"]}, {"name": "old"}]}),
        json!({"containers": [{"name": "web", "image": "a:2"}, {"name": "new"}]}),
        json!({"containers": [
            {"name": "istio", "image": "proxy"},
            {"name": "web", "image": "a:1", "command": ["x"], "imagePullPolicy": "Always"},
            {"name": "agent"},
            {"name": "old"},
        ]}),
    );
    assert_eq!(
        merged,
        json!({"containers": [
            {"name": "istio", "image": "proxy"},
            {"name": "web", "image": "a:2", "imagePullPolicy": "Always"},
            {"name": "agent"},
            {"name": "new"},
        ]})
    );
}

#[test]
fn environment_variables_of_others_stay_when_ours_are_removed() {
    let container = |env: Value| json!({"containers": [{"name": "web", "env": env}]});
    let live = container(json!([{"name": "A", "value": "1"}, {"name": "INJECTED", "value": "x"}]));
    let applied = container(json!([{"name": "A", "value": "1"}]));
    let without = json!({"containers": [{"name": "web"}]});
    assert_eq!(
        merged_pod_spec(applied.clone(), without.clone(), live),
        container(json!([{"name": "INJECTED", "value": "x"}]))
    );
    assert_eq!(merged_pod_spec(applied.clone(), without.clone(), applied), without);
}

#[test]
fn the_order_of_the_manifest_is_restored() {
    let containers = |names: &[&str]| {
        let list: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"initContainers": list})
    };
    let merged = merged_pod_spec(
        json!({}),
        containers(&["a", "b", "c"]),
        containers(&["x", "c", "y", "a", "z"]),
    );
    assert_eq!(merged, containers(&["x", "a", "z", "b", "c", "y"]));
}

#[test]
fn ports_are_merged_by_number_and_protocol() {
    let live = service(json!([
        {"port": 53, "protocol": "TCP", "name": "tcp", "nodePort": 30001},
        {"port": 53, "protocol": "UDP", "name": "udp", "nodePort": 30002},
    ]));
    let manifest = service(json!([{"port": 53, "name": "tcp"}, {"port": 53, "protocol": "UDP", "name": "dns"}]));
    let merged = apply(&[], &manifest, &live);
    assert_eq!(
        merged,
        service(json!([
            {"port": 53, "protocol": "TCP", "name": "tcp", "nodePort": 30001},
            {"port": 53, "protocol": "UDP", "name": "dns", "nodePort": 30002},
        ]))
    );
}

#[rstest]
#[case::not_unique(json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]))]
#[case::missing(json!([{"value": "2"}]))]
#[case::not_an_object(json!(["A"]))]
#[case::not_a_scalar(json!([{"name": {}}]))]
fn a_list_whose_elements_cannot_be_matched_is_replaced(#[case] env: Value) {
    let container = |env: &Value| json!({"containers": [{"name": "web", "env": env}]});
    let live = json!([{"name": "B", "value": "1"}]);
    assert_eq!(
        merged_pod_spec(json!({}), container(&env), container(&live)),
        container(&env)
    );
    assert_eq!(
        merged_pod_spec(json!({}), container(&live), container(&env)),
        container(&live)
    );
}

#[test]
fn other_lists_are_replaced() {
    let merged = merged_pod_spec(
        json!({}),
        json!({"tolerations": [{"key": "a"}]}),
        json!({"tolerations": [{"key": "b"}, {"key": "a"}]}),
    );
    assert_eq!(merged, json!({"tolerations": [{"key": "a"}]}));
    let live = custom(json!({"containers": [{"name": "b"}, {"name": "a"}]}));
    let manifest = custom(json!({"containers": [{"name": "a"}]}));
    assert_eq!(apply(&[], &manifest, &live), manifest, "custom resource");
}

#[test]
fn the_members_of_another_variant_are_removed() {
    let strategy = |strategy: Value| deployment(json!({"strategy": strategy}));
    let live = strategy(json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}}));
    let recreate = strategy(json!({"type": "Recreate"}));
    assert_eq!(apply(&[], &recreate, &live), recreate);
    let merged = merged_pod_spec(
        json!({}),
        json!({"volumes": [{"name": "data", "emptyDir": {}}]}),
        json!({"volumes": [{"name": "data", "configMap": {"name": "c", "defaultMode": 420}}]}),
    );
    assert_eq!(merged, json!({"volumes": [{"name": "data", "emptyDir": {}}]}));
}

#[test]
fn members_of_the_same_variant_stay() {
    let live = deployment(json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}}}));
    let manifest = deployment(json!({"strategy": {"type": "RollingUpdate"}}));
    assert_eq!(patch(&[], &manifest, &live), Ok(None));
}

#[test]
fn only_a_patch_of_lists_names_the_resource_version() {
    let with_version = |mut object: Value| {
        object["metadata"]["resourceVersion"] = "7".into();
        object
    };
    let body = |manifest: Value, live: Value| {
        let live = with_version(live);
        patch(&[], &manifest, &live).unwrap().unwrap().into_body(&live)
    };
    assert_eq!(
        body(deployment(json!({"replicas": 2})), deployment(json!({"replicas": 1}))),
        json!({"spec": {"replicas": 2}})
    );
    assert_eq!(
        body(service(json!([{"port": 80}])), service(json!([{"port": 81}]))),
        json!({
            "metadata": {"resourceVersion": "7"},
            "spec": {"ports": [{"port": 81}, {"port": 80}]},
        })
    );
}

#[test]
fn a_deep_object_is_refused() {
    let mut deep = json!(1);
    for _ in 0..=MAX_DEPTH {
        deep = json!({"a": deep});
    }
    assert_eq!(
        patch(&[], &custom(deep.clone()), &custom(deep)),
        Err(ThreeWayError::TooDeep)
    );
}

#[test]
fn a_manifest_that_is_no_object_is_refused() {
    assert_eq!(
        patch(&[], &json!([]), &json!({})),
        Err(ThreeWayError::NotAnObject("manifest"))
    );
}

#[test]
fn sets_are_merged_in_linear_time() {
    const COUNT: usize = 100_000;
    let object = |from: usize| {
        let finalizers: Vec<_> = (from..from + COUNT).map(|number| format!("a.io/{number}")).collect();
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "w", "finalizers": finalizers}})
    };
    let started = std::time::Instant::now();
    let merged = apply(&[&object(0)], &object(COUNT / 2), &object(0));
    // A comparison of each element with each other one would take minutes.
    assert!(started.elapsed() < std::time::Duration::from_secs(20));
    assert_eq!(
        merged["metadata"]["finalizers"],
        object(COUNT / 2)["metadata"]["finalizers"]
    );
}
