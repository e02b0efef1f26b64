use rstest::rstest;
use serde_json::{Value, json};

use super::super::patch;
use super::{apply, custom, merged_pod_spec, pod_spec, secret};

#[rstest]
#[case::empty_list(json!({"tolerations": []}), json!({}))]
#[case::empty_list_of_an_element(
    json!({"containers": [{"name": "a", "args": []}]}), json!({"containers": [{"name": "a"}]})
)]
#[case::dropped_zero(
    json!({"hostNetwork": false, "containers": [{"name": "a", "env": [{"name": "A", "value": ""}]}]}),
    json!({"containers": [{"name": "a", "env": [{"name": "A"}]}]})
)]
#[case::dropped_map(json!({"nodeSelector": {}}), json!({}))]
#[case::number(json!({"terminationGracePeriodSeconds": 30.0}), json!({"terminationGracePeriodSeconds": 30}))]
#[case::null_in_a_list(json!({"tolerations": [{"key": "a", "value": null}]}), json!({"tolerations": [{"key": "a"}]}))]
#[case::null_in_a_new_element(
    json!({"containers": [{"name": "a", "image": null}]}), json!({"containers": [{"name": "a"}]})
)]
#[case::quantity(
    json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}}]}),
    json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}}]})
)]
#[case::default_in_an_element(
    json!({"volumes": [{"name": "a", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "x"}}]}}]}),
    json!({"volumes": [{"name": "a", "downwardAPI": {"items": [
        {"path": "p", "fieldRef": {"fieldPath": "x", "apiVersion": "v1"}},
    ], "defaultMode": 420}}]})
)]
fn an_equivalent_object_needs_no_patch(#[case] new: Value, #[case] live: Value) {
    assert_eq!(patch(&[], &pod_spec(new), &pod_spec(live)), Ok(None));
}

#[rstest]
#[case::zero_with_a_meaning(json!({"automountServiceAccountToken": false}), json!({}))]
#[case::empty_object_with_a_meaning(
    json!({"volumes": [{"name": "a", "emptyDir": {}}]}), json!({"volumes": [{"name": "a"}]})
)]
#[case::other_quantity(
    json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "5"}}}]}),
    json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "5m"}}}]})
)]
#[case::text_like_a_quantity(
    json!({"containers": [{"name": "a", "image": "1.0"}]}), json!({"containers": [{"name": "a", "image": "1"}]})
)]
#[case::other_length(json!({"tolerations": [{"key": "a"}]}), json!({"tolerations": [{"key": "a"}, {"key": "b"}]}))]
#[case::other_order(
    json!({"tolerations": [{"key": "a"}, {"key": "b"}]}), json!({"tolerations": [{"key": "b"}, {"key": "a"}]})
)]
#[case::present_zero(json!({"hostNetwork": false}), json!({"hostNetwork": true}))]
fn another_object_is_patched(#[case] new: Value, #[case] live: Value) {
    assert_eq!(merged_pod_spec(json!({}), new.clone(), live), new);
}

#[test]
fn a_field_that_was_removed_from_an_element_is_removed_with_the_list() {
    let merged = merged_pod_spec(
        json!({"tolerations": [{"key": "a", "effect": "NoSchedule"}]}),
        json!({"tolerations": [{"key": "a"}]}),
        json!({"tolerations": [{"key": "a", "effect": "NoSchedule"}]}),
    );
    assert_eq!(merged, json!({"tolerations": [{"key": "a"}]}));
}

#[rstest]
#[case("0.5", "500m", true)]
#[case("1500m", "1.5", true)]
#[case("1024Mi", "1Gi", true)]
#[case("0.5Gi", "512Mi", true)]
#[case("1e3", "1k", true)]
#[case("1E3", "1000", true)]
#[case("+1", "1", true)]
#[case("-0", "0m", true)]
#[case("100n", "0.1u", true)]
#[case("1", "1m", false)]
#[case("-1", "1", false)]
#[case("1G", "1Gi", false)]
#[case("1K", "1k", false)]
#[case("", "", true)]
#[case("x", "y", false)]
#[case("1e99", "1e98", false)]
#[case("99999999999999999999999999999999999999999", "1", false)]
fn quantities_are_compared_by_value(#[case] new: &str, #[case] live: &str, #[case] equal: bool) {
    let claim = |size: &str| {
        let spec = json!({"resources": {"requests": {"storage": size}}});
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": spec})
    };
    assert_eq!(patch(&[], &claim(new), &claim(live)) == Ok(None), equal);
}

#[test]
fn custom_resources_have_no_such_forms() {
    for (new, live) in [(json!({"list": []}), json!({})), (json!({"value": ""}), json!({}))] {
        assert_eq!(apply(&[], &custom(new.clone()), &custom(live)), custom(new));
    }
}

#[test]
fn large_numbers_that_differ_are_not_equivalent() {
    let manifest = custom(json!({"id": 9_007_199_254_740_993_i64}));
    let live = custom(json!({"id": 9_007_199_254_740_992_i64}));
    assert_eq!(apply(&[], &manifest, &live), manifest);
}

#[test]
fn texts_of_a_secret_are_compared_with_its_data() {
    let manifest = secret(json!({"stringData": {"password": "new"}, "data": {"user": "YQ=="}}));
    let live = secret(json!({"data": {"user": "YQ==", "password": "bmV3"}}));
    assert_eq!(patch(&[], &manifest, &live), Ok(None));
    let changed = secret(json!({"data": {"user": "YQ==", "password": "b2xk"}}));
    assert_eq!(apply(&[], &manifest, &changed), live);
    let without = secret(json!({"data": {"user": "YQ=="}}));
    assert_eq!(apply(&[&manifest], &without, &live), without);
}
