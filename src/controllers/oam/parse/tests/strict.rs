use rstest::rstest;

use super::*;

/// Parses a component of a workload of this kind, with two traits whose definitions have these specs.
fn violations(workload: &Value, first: &Value, second: &Value) -> Vec<String> {
    let mut cluster = Cluster::default();
    cluster.add(
        "ComponentDefinition",
        "team",
        "web",
        &json!({ "spec": { "workload": workload } }),
    );
    cluster.add("TraitDefinition", "team", "first", &json!({ "spec": first }));
    let labels = json!({ "labels": { "type": "network" } });
    cluster.add(
        "TraitDefinition",
        "team",
        "second",
        &json!({ "metadata": labels, "spec": second }),
    );
    let traits = json!([{ "type": "first" }, { "type": "second" }]);
    let spec = json!({ "components": [{ "name": "c", "type": "web", "traits": traits }] });
    strict_violations(&parse_in(&cluster, &spec).unwrap())
}

fn deployment() -> Value {
    json!({ "definition": { "apiVersion": "apps/v1", "kind": "Deployment" } })
}

#[rstest]
#[case::anything(json!([]), true)]
#[case::all(json!(["*"]), true)]
#[case::kind(json!(["statefulsets.apps", "deployments.apps"]), true)]
#[case::kind_with_version(json!(["deployments.apps/v1"]), true)]
#[case::group(json!(["*.apps"]), true)]
#[case::definition(json!(["web"]), true)]
#[case::another_kind(json!(["statefulsets.apps", "*.batch", "worker", "deployments"]), false)]
fn traits_must_apply_to_the_workload(#[case] rules: Value, #[case] applies: bool) {
    let found = violations(&deployment(), &json!({ "appliesToWorkloads": rules }), &json!({}));
    let expected = "component c: trait first does not apply to its workload";
    assert_eq!(found, if applies { vec![] } else { vec![expected] });
}

#[rstest]
#[case::by_type(json!({ "type": "deployments.apps" }), true)]
#[case::unknown(json!({ "type": "autodetects.core.oam.dev" }), true)]
#[case::core(json!({ "definition": { "apiVersion": "v1", "kind": "Pod" } }), false)]
#[case::another(json!({ "type": "ingresses.networking.k8s.io" }), false)]
fn the_kind_of_a_workload_comes_from_its_definition(#[case] workload: Value, #[case] applies: bool) {
    let found = violations(
        &workload,
        &json!({ "appliesToWorkloads": ["deployments.apps"] }),
        &json!({}),
    );
    assert_eq!(found.is_empty(), applies, "{found:?}");
}

#[rstest]
#[case("Ingress", "ingresses.networking.k8s.io")]
#[case("NetworkPolicy", "networkpolicies.networking.k8s.io")]
#[case("Gateway", "gateways.networking.k8s.io")]
fn plurals_follow_the_names_of_the_api(#[case] kind: &str, #[case] rule: &str) {
    let workload = json!({ "definition": { "apiVersion": "networking.k8s.io/v1", "kind": kind } });
    let found = violations(&workload, &json!({ "appliesToWorkloads": [rule] }), &json!({}));
    assert!(found.is_empty(), "{found:?}");
}

#[rstest]
#[case::definition("second", true)]
#[case::crd("ingresses.networking.k8s.io", true)]
#[case::group("*.networking.k8s.io", true)]
#[case::labels("labelSelector:type=network", true)]
#[case::other_labels("labelSelector:type=network,tier==web", false)]
#[case::invalid_labels("labelSelector:type in (network)", false)]
#[case::itself("first", false)]
#[case::another("*.apps", false)]
fn traits_must_not_conflict(#[case] rule: &str, #[case] conflicts: bool) {
    let second = json!({ "definitionRef": { "name": "ingresses.networking.k8s.io" } });
    let found = violations(&deployment(), &json!({ "conflictsWith": [rule] }), &second);
    let expected = "component c: trait first conflicts with trait second";
    assert_eq!(found, if conflicts { vec![expected] } else { vec![] });
}

#[test]
fn unknown_keys_of_policies_are_violations() {
    let spec = json!({ "components": [], "policies": [
        { "name": "once", "type": "apply-once", "properties": { "enabled": true } },
        { "name": "q", "type": "quota", "properties": { "anything": 1 } },
    ] });
    let parsed = parse_in(&Cluster::with_definitions(), &spec).unwrap();
    assert_eq!(strict_violations(&parsed), ["policy once: unknown key enabled"]);
}
