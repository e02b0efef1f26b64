use std::cell::Cell;

use rstest::rstest;
use serde_json::json;

use super::*;

/// Parses one component.
fn parse_one(properties: &Value, scope: ReferenceScope) -> Result<Vec<ObjectRequest>, String> {
    let references = parse(&[component("copy", properties)], scope)?;
    Ok(references.requests().cloned().collect())
}

#[rstest]
#[case::by_name(json!({ "resource": "configmap", "name": "a" }), "v1", "team", ObjectSelector::Name("a".to_owned()))]
#[case::by_component(json!({ "resource": "configmap" }), "v1", "team", ObjectSelector::Name("copy".to_owned()))]
#[case::by_group(
    json!({ "resource": "deployment", "group": "apps", "name": "a", "namespace": "prod", "cluster": "local" }),
    "apps/v1", "prod", ObjectSelector::Name("a".to_owned())
)]
#[case::by_labels(
    json!({ "resource": "configmap", "labelSelector": { "app": "x" } }),
    "v1", "team", ObjectSelector::Labels([("app".to_owned(), "x".to_owned())].into())
)]
#[case::by_kind(
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "a" }),
    "apps/v1", "team", ObjectSelector::Name("a".to_owned())
)]
#[case::old_selector(
    json!({ "resource": "configmap", "selector": { "app": "x" }, "namespace": null }),
    "v1", "team", ObjectSelector::Name("copy".to_owned())
)]
fn a_reference_becomes_a_request(
    #[case] reference: Value,
    #[case] api_version: &str,
    #[case] namespace: &str,
    #[case] selector: ObjectSelector,
) {
    let requests = parse_one(&json!({ "objects": [reference] }), ReferenceScope::Global).unwrap();
    let [request] = &requests[..] else {
        panic!("one request")
    };
    assert_eq!(request.kind.api_version, api_version);
    assert_eq!((request.namespace.as_str(), &request.selector), (namespace, &selector));
}

#[rstest]
#[case::unknown_key(
    json!({ "objects": [{ "resource": "configmap", "creator": "x" }] }),
    "invalid properties for ref-objects in component copy: objects[0].creator: unknown field `creator`, "
)]
#[case::unknown_field(
    json!({ "object": [] }),
    "invalid properties for ref-objects in component copy: object: unknown field `object`, "
)]
#[case::text(
    json!({ "objects": "configmap" }),
    "invalid properties for ref-objects in component copy: objects: invalid type: string \"configmap\", "
)]
#[case::number(
    json!({ "objects": [{ "name": 7 }] }),
    "invalid properties for ref-objects in component copy: objects[0].name: invalid type: integer `7`, "
)]
#[case::labels(
    json!({ "objects": [{ "labelSelector": ["a"] }] }),
    "invalid properties for ref-objects in component copy: objects[0].labelSelector: invalid type: sequence, "
)]
#[case::urls(
    json!({ "urls": vec!["https://x"; 11] }),
    "11 URLs of objects exceed the limit of 10; put several objects into one document"
)]
#[case::name_and_labels(
    json!({ "objects": [{ "resource": "configmap", "name": "a", "labelSelector": {} }] }),
    "invalid object selector for ref-objects, name and labelSelector cannot be both set"
)]
#[case::no_kind(
    json!({ "objects": [{ "name": "a", "kind": "ConfigMap" }] }),
    "neither resource or apiVersion/kind is set for referring objects"
)]
#[case::unknown_resource(
    json!({ "objects": [{ "resource": "widget", "group": "x.io" }] }),
    "no kind found for resource widget in group \"x.io\""
)]
#[case::cluster(
    json!({ "objects": [{ "resource": "configmap", "cluster": "../prod" }] }),
    "the cluster of a reference in component copy is not a valid name"
)]
fn invalid_references_fail(#[case] properties: Value, #[case] expected: &str) {
    let error = parse_one(&properties, ReferenceScope::Global).unwrap_err();
    assert!(error.starts_with(expected), "{error}");
}

#[rstest]
#[case::other_namespace(ReferenceScope::Namespace, json!({ "namespace": "prod" }), Some("cannot refer to objects outside the application's namespace"))]
#[case::own_namespace(ReferenceScope::Namespace, json!({ "namespace": "team" }), None)]
#[case::other_namespace_in_cluster(ReferenceScope::Cluster, json!({ "namespace": "prod" }), None)]
#[case::other_cluster(ReferenceScope::Cluster, json!({ "cluster": "prod" }), Some("cannot refer to objects outside control plane"))]
fn the_scope_limits_references(
    #[case] scope: ReferenceScope,
    #[case] mut reference: Value,
    #[case] expected: Option<&str>,
) {
    reference["resource"] = json!("configmap");
    let result = parse_one(&json!({ "objects": [reference] }), scope);
    assert_eq!(result.err().as_deref(), expected);
}

#[rstest]
#[case("global", Some(ReferenceScope::Global))]
#[case("cluster", Some(ReferenceScope::Cluster))]
#[case("namespace", Some(ReferenceScope::Namespace))]
#[case("", None)]
fn the_flag_names_a_scope(#[case] text: &str, #[case] expected: Option<ReferenceScope>) {
    assert_eq!(ReferenceScope::parse(text), expected);
}

#[test]
fn many_references_are_refused() {
    let calls = Cell::new(0);
    let references = vec![json!({ "resource": "configmap", "name": "a" }); 101];
    let properties = json!({ "objects": references });
    let components = ["one", "two"].map(|name| component(name, &properties));
    let error = References::parse(&components, "team", ReferenceScope::Global, |group, resource| {
        calls.set(calls.get() + 1);
        kind_of(group, resource)
    });
    assert_eq!(
        error.unwrap_err().to_string(),
        "202 references to objects exceed the limit of 200; split the application"
    );
    assert_eq!(calls.get(), 202);
}

#[test]
fn resources_are_found_by_their_names_also_beside_invalid_components() {
    let properties = json!({ "objects": [
        { "resource": "configmap", "name": "a" }, { "resource": "deployment", "group": "apps", "cluster": "edge" },
        { "resource": "configmap", "name": "b" }, { "apiVersion": "v1", "kind": "Secret", "name": "c" },
    ] });
    let other: Component = serde_json::from_value(json!({
        "name": "web", "type": "webservice", "properties": { "objects": [{ "resource": "secret" }] },
    }))
    .unwrap();
    let components = [
        component("copy", &properties),
        component("invalid", &json!({ "objects": 7 })),
        other,
    ];
    let resource = |group: &str, name: &str| (group.to_owned(), name.to_owned());
    let expected = [resource("", "configmap"), resource("apps", "deployment")];
    assert_eq!(References::resources(&components), expected.into());
}
