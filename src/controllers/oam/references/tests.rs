mod parsing;

use std::sync::Mutex;

use rstest::rstest;
use serde_json::json;

use super::*;
use crate::api::oam::Component;

fn component(name: &str, properties: &Value) -> Component {
    let component = json!({ "name": name, "type": REF_OBJECTS, "properties": properties });
    serde_json::from_value(component).unwrap()
}

fn kind_of(group: &str, resource: &str) -> Option<ObjectKind> {
    let api_version = match (group, resource) {
        ("", "configmap" | "secret" | "service") => "v1",
        ("" | "apps", "deployment") => "apps/v1",
        _ => return None,
    };
    let kind = match resource {
        "configmap" => "ConfigMap",
        "secret" => "Secret",
        "service" => "Service",
        _ => "Deployment",
    };
    Some(ObjectKind {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
    })
}

fn parse(components: &[Component], scope: ReferenceScope) -> Result<References, String> {
    References::parse(components, "team", scope, kind_of).map_err(|error| error.to_string())
}

fn object(kind: &str, namespace: &str, name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": kind, "metadata": { "namespace": namespace, "name": name } })
}

/// A cluster with some objects, which records the requests.
#[derive(Default)]
struct Cluster {
    objects: Vec<Value>,
    requests: Mutex<usize>,
}

impl FetchObjects for Cluster {
    async fn fetch(&self, request: &ObjectRequest) -> Result<Vec<Value>, String> {
        *self.requests.lock().unwrap() += 1;
        match request.kind.kind.as_str() {
            "Secret" => Err("secrets is forbidden\u{7}".to_owned()),
            kind => Ok(self.objects.iter().filter(|one| one["kind"] == kind).cloned().collect()),
        }
    }

    async fn load(&self, url: &str) -> Result<Vec<Value>, String> {
        *self.requests.lock().unwrap() += 1;
        if url.contains("missing") {
            Err("the server returned 404\u{7}".to_owned())
        } else {
            Ok(self.objects.clone())
        }
    }
}

fn names(objects: &[Value]) -> Vec<&str> {
    objects
        .iter()
        .map(|object| object["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn objects_are_recorded_once_in_order_and_without_what_is_their_own() {
    let mut map = object("ConfigMap", "team", "b");
    map["metadata"]["uid"] = json!("u1");
    map["metadata"]["resourceVersion"] = json!("7");
    map["metadata"]["generation"] = json!(2);
    map["metadata"]["managedFields"] = json!([{}]);
    map["metadata"]["ownerReferences"] = json!([{}]);
    map["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    map["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    map["metadata"]["labels"] = json!({ "app": "x" });
    map["data"] = json!({ "k": "v" });
    map["status"] = json!({ "ready": true });
    let mut other = object("ConfigMap", "team", "a");
    other["metadata"]["labels"] = json!({ "app": "x" });
    let cluster = Cluster {
        objects: vec![map, other, object("ConfigMap", "prod", "b")],
        ..Cluster::default()
    };
    let references = parse(
        &[
            component("one", &json!({ "objects": [{ "resource": "configmap", "name": "b" }] })),
            component(
                "two",
                &json!({ "objects": [{ "resource": "configmap", "labelSelector": { "app": "x" } }] }),
            ),
        ],
        ReferenceScope::Global,
    )
    .unwrap();
    let recorded = references.fetch(&cluster).await.unwrap();
    assert_eq!(names(&recorded), ["a", "b"]);
    assert_eq!(
        recorded[1],
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "k": "v" },
            "metadata": { "namespace": "team", "name": "b", "labels": { "app": "x" } } })
    );
}

#[rstest]
#[case::address(json!({ "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [] }), json!({ "ports": [] }))]
#[case::headless(json!({ "clusterIP": "None", "clusterIPs": ["None"] }), json!({ "clusterIP": "None", "clusterIPs": ["None"] }))]
#[tokio::test]
async fn a_service_gets_an_address_of_its_own(#[case] spec: Value, #[case] expected: Value) {
    let mut service = object("Service", "team", "copy");
    service["spec"] = spec;
    let cluster = Cluster {
        objects: vec![service],
        ..Cluster::default()
    };
    let references = parse(
        &[component("copy", &json!({ "objects": [{ "resource": "service" }] }))],
        ReferenceScope::Global,
    );
    let recorded = references.unwrap().fetch(&cluster).await.unwrap();
    assert_eq!(recorded[0]["spec"], expected);
}

#[rstest]
#[case::missing("configmap", "failed to load ref object ConfigMap team/copy: not found")]
#[case::forbidden("secret", "failed to load ref object Secret team/copy: secrets is forbidden")]
#[tokio::test]
async fn an_object_that_cannot_be_read_is_an_error(#[case] resource: &str, #[case] expected: &str) {
    let properties = json!({ "objects": [{ "resource": resource }] });
    let references = parse(&[component("copy", &properties)], ReferenceScope::Global).unwrap();
    let error = references.fetch(&Cluster::default()).await.unwrap_err();
    assert_eq!(error.to_string().trim_end(), expected);
}

#[tokio::test]
async fn objects_of_joined_clusters_are_recorded_with_their_cluster_and_deployed_without() {
    let mut live = object("ConfigMap", "team", "a");
    live["metadata"]["annotations"] = json!({ "portolan.dev/resource-cluster": "forged" });
    let cluster = Cluster {
        objects: vec![live],
        ..Cluster::default()
    };
    let of_cluster = |name: &str, cluster: &str| {
        let reference = json!({ "resource": "configmap", "name": "a", "cluster": cluster });
        component(name, &json!({ "objects": [reference] }))
    };
    let components = [of_cluster("far", "east"), of_cluster("near", "")];
    let references = parse(&components, ReferenceScope::Global).unwrap();
    let clusters: Vec<_> = references.requests().map(|request| request.cluster.as_str()).collect();
    assert_eq!(clusters, ["east", "local"]);
    let recorded = references.fetch(&cluster).await.unwrap();
    let annotations: Vec<_> = recorded.iter().map(|one| &one["metadata"]["annotations"]).collect();
    assert_eq!(
        json!(annotations),
        json!([{ "portolan.dev/resource-cluster": "east" }, null])
    );
    let deployed = Some(json!({ "objects": [object("ConfigMap", "team", "a")] }));
    for component in references.resolve(&components, &recorded).unwrap() {
        assert_eq!(component.properties, deployed);
    }
    let error = references.resolve(&components, &recorded[1..]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to load ref object ConfigMap team/a in cluster east: not found in the revision"
    );
}

#[test]
fn objects_of_joined_clusters_that_kubevela_has_recorded_without_their_cluster_are_found() {
    let reference = |name: &str, cluster: &str| json!({ "resource": "configmap", "name": name, "cluster": cluster });
    let components = [
        component("far", &json!({ "objects": [reference("a", "east")] })),
        component("near", &json!({ "objects": [reference("b", "")] })),
    ];
    let references = parse(&components, ReferenceScope::Global).unwrap();
    let recorded = ["a", "b"].map(|name| object("ConfigMap", "team", name));
    let resolved = references.resolve(&components, &recorded).unwrap();
    for (component, object) in resolved.iter().zip(recorded) {
        assert_eq!(component.properties, Some(json!({ "objects": [object] })));
    }
}

#[tokio::test]
async fn an_object_of_a_joined_cluster_with_invalid_metadata_does_not_count_as_a_local_one() {
    let mut listed = object("ConfigMap", "team", "a");
    listed["metadata"]["annotations"] = json!([]);
    let cluster = Cluster {
        objects: vec![
            listed,
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": "text" }),
        ],
        ..Cluster::default()
    };
    let reference = json!({ "resource": "configmap", "labelSelector": {}, "cluster": "east" });
    let components = [component("copy", &json!({ "objects": [reference] }))];
    let references = parse(&components, ReferenceScope::Global).unwrap();
    assert_eq!(references.fetch(&cluster).await, Ok(Vec::new()));
}

#[tokio::test]
async fn an_answer_with_another_object_is_ignored() {
    let cluster = Cluster {
        objects: vec![
            object("ConfigMap", "team", "other"),
            object("ConfigMap", "prod", "copy"),
            json!("text"),
        ],
        ..Cluster::default()
    };
    let references = parse(
        &[component("copy", &json!({ "objects": [{ "resource": "configmap" }] }))],
        ReferenceScope::Global,
    );
    assert!(references.unwrap().fetch(&cluster).await.is_err());
}

#[test]
fn components_get_their_recorded_objects_in_the_order_of_their_references() {
    let components = [
        component(
            "copy",
            &json!({ "objects": [
                { "resource": "configmap", "name": "b" }, { "resource": "configmap", "labelSelector": {} },
            ] }),
        ),
        serde_json::from_value(json!({ "name": "web", "type": "webservice" })).unwrap(),
    ];
    let recorded = ["a", "b"].map(|name| object("ConfigMap", "team", name));
    let references = parse(&components, ReferenceScope::Global).unwrap();
    let resolved = references.resolve(&components, &recorded).unwrap();
    let expected = json!({ "objects": [recorded[1], recorded[0]] });
    assert_eq!(resolved[0].properties, Some(expected));
    assert_eq!(resolved[1], components[1]);
    let named = References::parse(&components[1..], "team", ReferenceScope::Global, kind_of).unwrap();
    assert!(named.is_empty() && !references.is_empty());
}

#[test]
fn a_cluster_scoped_object_answers_in_any_namespace() {
    let properties = json!({ "objects": [{ "apiVersion": "v1", "kind": "Namespace", "name": "prod" }] });
    let components = [component("copy", &properties)];
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "prod" } });
    let resolved = parse(&components, ReferenceScope::Global)
        .unwrap()
        .resolve(&components, std::slice::from_ref(&namespace));
    assert_eq!(resolved.unwrap()[0].properties, Some(json!({ "objects": [namespace] })));
}

#[rstest]
#[case::named(json!({ "name": "a" }), "failed to load ref object ConfigMap team/a: not found in the revision")]
#[case::labeled(json!({ "labelSelector": { "a": "b" } }), "component copy refers to no existing object")]
fn objects_that_the_revision_lacks_are_errors(#[case] mut reference: Value, #[case] expected: &str) {
    reference["resource"] = json!("configmap");
    let components = [component("copy", &json!({ "objects": [reference] }))];
    let references = parse(&components, ReferenceScope::Global).unwrap();
    let error = references
        .resolve(&components, &[object("ConfigMap", "team", "other")])
        .unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_component_without_references_has_no_objects() {
    for properties in [json!(null), json!({}), json!({ "objects": null })] {
        let components = [component("copy", &properties)];
        let error = parse(&components, ReferenceScope::Global)
            .unwrap()
            .resolve(&components, &[])
            .unwrap_err();
        assert_eq!(error.to_string(), "component copy refers to no existing object");
    }
}

#[tokio::test]
async fn many_or_large_objects_are_refused() {
    let labeled = json!({ "objects": [{ "resource": "configmap", "labelSelector": {} }] });
    let references = parse(&[component("copy", &labeled)], ReferenceScope::Global).unwrap();
    let many: Vec<_> = (0..1_001)
        .map(|index| object("ConfigMap", "team", &format!("m{index}")))
        .collect();
    let mut large = object("ConfigMap", "team", "large");
    large["data"] = json!({ "text": "x".repeat(1 << 20) });
    for objects in [many, vec![large]] {
        let cluster = Cluster {
            objects,
            ..Cluster::default()
        };
        assert_eq!(references.fetch(&cluster).await, Err(ReferenceError::TooManyObjects));
        assert_eq!(*cluster.requests.lock().unwrap(), 1);
    }
}

#[test]
fn components_that_repeat_large_objects_are_refused() {
    let mut large = object("ConfigMap", "team", "large");
    large["data"] = json!({ "text": "x".repeat(1 << 19) });
    let properties = json!({ "objects": [{ "resource": "configmap", "name": "large" }] });
    let components: Vec<_> = (0..40)
        .map(|index| component(&format!("c{index}"), &properties))
        .collect();
    let references = parse(&components, ReferenceScope::Global).unwrap();
    assert_eq!(references.resolve(&components, &[large]), Err(ReferenceError::TooLarge));
}

#[tokio::test]
async fn objects_of_a_url_are_recorded_with_it_and_deployed_without() {
    let mut labeled = object("ConfigMap", "team", "a");
    labeled["metadata"]["annotations"] = json!({ "kept": "yes" });
    let cluster = Cluster {
        objects: vec![object("ConfigMap", "prod", "b"), labeled],
        ..Cluster::default()
    };
    let (first, second) = ("https://example.com/a.yaml", "https://example.com/b.yaml?token=x");
    let components = [
        component("one", &json!({ "urls": [first] })),
        component(
            "both",
            &json!({ "urls": [second, first], "objects": [{ "resource": "configmap", "name": "a" }] }),
        ),
    ];
    let references = parse(&components, ReferenceScope::Global).unwrap();
    let recorded = references.fetch(&cluster).await.unwrap();
    assert_eq!(*cluster.requests.lock().unwrap(), 3);
    assert_eq!(names(&recorded), ["b", "b", "a", "a", "a"]);
    let sources: Vec<_> = recorded
        .iter()
        .map(|one| &one["metadata"]["annotations"]["app.oam.dev/resource-url"])
        .collect();
    assert_eq!(json!(sources), json!([first, second, null, first, second]));
    let resolved = references.resolve(&components, &recorded).unwrap();
    assert_eq!(resolved[0].properties, Some(json!({ "objects": cluster.objects })));
    let both = resolved[1].properties.as_ref().unwrap()["objects"].as_array().unwrap();
    assert_eq!(both.len(), 5);
}

#[rstest]
#[case::missing(json!({ "urls": ["https://user:secret@example.com/missing?token=x"] }), "https://example.com/missing: the server returned 404")]
#[case::not_an_object(
    json!({ "urls": ["https://example.com/a"] }),
    "https://example.com/a: an object has no apiVersion, kind or name, or its annotations are no map"
)]
#[tokio::test]
async fn a_url_without_objects_is_an_error_that_hides_secrets(#[case] properties: Value, #[case] expected: &str) {
    let cluster = Cluster {
        objects: vec![json!({ "apiVersion": "v1", "kind": "ConfigMap" })],
        ..Cluster::default()
    };
    let references = parse(&[component("copy", &properties)], ReferenceScope::Global).unwrap();
    let error = references.fetch(&cluster).await.unwrap_err().to_string();
    assert_eq!(
        error.trim_end(),
        format!("failed to load Kubernetes objects from url {expected}")
    );
}
