//! Specs of Applications.

use serde_json::{Value, json};

pub fn spec(components: &[Value]) -> Value {
    json!({ "components": components })
}

/// A spec with policies; each is named like its type.
pub fn with_policies(components: &[Value], policies: &[(&str, Value)]) -> Value {
    let policies = policies.iter();
    let policies: Vec<_> = policies
        .map(|(type_, properties)| json!({ "name": type_, "type": type_, "properties": properties }))
        .collect();
    json!({ "components": components, "policies": policies })
}

/// Properties of a policy that selects objects by kind.
pub fn selecting(kind: &str) -> Value {
    json!({ "rules": [{ "selector": { "resourceTypes": [kind] } }] })
}

/// A webservice that becomes healthy once its pods are ready.
pub fn web(name: &str, replicas: usize) -> Value {
    json!({
        "name": name,
        "type": "webservice",
        "properties": { "image": "example.com/web:1", "ports": [{ "port": 8080, "expose": true }] },
        "traits": [{ "type": "scaler", "properties": { "replicas": replicas } }],
    })
}

/// A ConfigMap, which is healthy as soon as it exists.
pub fn config(name: &str, value: &str) -> Value {
    let object =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "key": value } });
    objects(name, &[object])
}

/// Objects as they are.
pub fn objects(name: &str, objects: &[Value]) -> Value {
    json!({ "name": name, "type": "k8s-objects", "properties": { "objects": objects } })
}
