mod encoding;
mod guard;
mod inventory;
mod names;
mod record;

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::api::NamespacedName;
use crate::api::oam::{ManagedResource, RawManifest};

fn entry(kind: &str, name: &str) -> ManagedResource {
    entry_of(&json!({ "apiVersion": "v1", "kind": kind, "namespace": "shop", "name": name }))
}

fn entry_of(fields: &Value) -> ManagedResource {
    serde_json::from_value(fields.clone()).unwrap()
}

fn with_manifest(name: &str, bytes: usize) -> ManagedResource {
    // Random-like text, so that compression doesn't hide the size.
    let mut state = name.bytes().fold(7_u64, |state, byte| state * 31 + u64::from(byte));
    let text: String = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'!' + ((state >> 33) % 90) as u8)
    })
    .filter(|character| !matches!(character, '"' | '\\'))
    .take(bytes)
    .collect();
    ManagedResource {
        raw: Some(RawManifest::of(&json!({ "data": { "text": text } })).unwrap()),
        ..entry("ConfigMap", name)
    }
}

fn identity(publish_version: Option<&str>) -> AppIdentity {
    AppIdentity {
        name: NamespacedName::new("team", "shop"),
        uid: "u1".to_owned(),
        generation: 3,
        publish_version: publish_version.map(str::to_owned),
    }
}

fn tracker(type_: &str, generation: i64, entries: &[ManagedResource]) -> Tracker {
    tracker_of(type_, generation, entries, &json!({}))
}

fn tracker_of(type_: &str, generation: i64, entries: &[ManagedResource], metadata: &Value) -> Tracker {
    let mut object = json!({
        "metadata": {
            "name": format!("shop-{type_}-{generation}"), "labels": { "app.oam.dev/uid": "u1" },
        },
        "spec": { "type": type_, "applicationGeneration": generation, "managedResources": entries },
    });
    for (name, value) in metadata.as_object().unwrap() {
        object["metadata"][name] = value.clone();
    }
    Tracker::decode(Arc::new(serde_json::from_value(object).unwrap())).unwrap()
}
