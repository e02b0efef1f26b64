//! The hash in the label `oam.dev/render-hash`, by the Go library hashstructure: format 2, with FNV-1 of 64 bits.
//!
//! By this hash, an object that KubeVela applied is known to be unchanged, so it must be the same as KubeVela's.

use serde_json::Value;

use crate::api::oam::labels::RENDER_HASH;

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// Returns the hash of an object without its label for the hash, as hexadecimal digits.
#[must_use]
pub fn render_hash(object: &Value) -> String {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let hash = match labels {
        Some(labels) if labels.contains_key(RENDER_HASH) => {
            let mut object = object.clone();
            if let Some(labels) = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
                labels.remove(RENDER_HASH);
            }
            hash_unstructured(&object)
        }
        _ => hash_unstructured(object),
    };
    format!("{hash:x}")
}

/// Hashes a Go struct `Unstructured` with the object in its only field.
fn hash_unstructured(object: &Value) -> u64 {
    let field = hash_pair(hash_bytes(b"Object"), hash_value(object));
    finish(hash_bytes(b"Unstructured") ^ field)
}

fn hash_value(value: &Value) -> u64 {
    match value {
        Value::Null => hash_bytes(&0_i64.to_le_bytes()),
        Value::Bool(flag) => hash_bytes(&[u8::from(*flag)]),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => hash_bytes(&integer.to_le_bytes()),
            None => hash_bytes(&number.as_f64().unwrap_or_default().to_le_bytes()),
        },
        Value::String(text) => hash_bytes(text.as_bytes()),
        Value::Array(items) => items.iter().fold(0, |hash, item| hash_pair(hash, hash_value(item))),
        Value::Object(fields) => finish(fields.iter().fold(0, |hash, (label, value)| {
            hash ^ hash_pair(hash_bytes(label.as_bytes()), hash_value(value))
        })),
    }
}

/// FNV-1, not the more usual FNV-1a.
pub(super) fn hash_bytes(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(OFFSET, |hash, byte| hash.wrapping_mul(PRIME) ^ u64::from(*byte))
}

pub(super) fn hash_pair(first: u64, second: u64) -> u64 {
    hash_bytes(&[first.to_le_bytes(), second.to_le_bytes()].concat())
}

/// Distinguishes an empty or repeated unordered collection from its parts.
pub(super) fn finish(hash: u64) -> u64 {
    hash_bytes(&hash.to_le_bytes())
}
