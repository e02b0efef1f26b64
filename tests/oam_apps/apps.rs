//! Specs of Applications.

use serde_json::{Value, json};

pub fn spec(components: &[Value]) -> Value {
    json!({ "components": components })
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
