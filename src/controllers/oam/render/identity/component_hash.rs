//! The hash of a component, `context.revision` of its templates, by the Go library hashstructure over KubeVela's type
//! ApplicationComponent.

use serde_json::Value;

use super::render_hash::{finish, hash_bytes, hash_pair};
use crate::api::oam::{Component, StepInput, StepOutput, Trait};
use crate::text::go_json;

/// Returns the hash of a component for a replica, as hexadecimal digits.
#[must_use]
pub fn component_hash(component: &Component, replica_key: &str) -> String {
    let inputs = component.inputs.iter().map(input);
    let outputs = component.outputs.iter().map(output);
    let hash = structure(
        "ApplicationComponent",
        &[
            ("Name", text(&component.name)),
            ("Type", text(&component.type_)),
            ("ExternalRevision", text(&component.external_revision)),
            ("Properties", raw(component.properties.as_ref())),
            ("DependsOn", list(component.depends_on.iter().map(|name| text(name)))),
            ("Inputs", list(inputs)),
            ("Outputs", list(outputs)),
            ("Traits", list(component.traits.iter().map(trait_))),
            ("Scopes", finish(0)),
            ("ReplicaKey", text(replica_key)),
        ],
    );
    format!("{hash:x}")
}

fn trait_(Trait { type_, properties, .. }: &Trait) -> u64 {
    let fields = [("Type", text(type_)), ("Properties", raw(properties.as_ref()))];
    structure("ApplicationTrait", &fields)
}

fn input(input: &StepInput) -> u64 {
    let fields = [
        ("ParameterKey", text(&input.parameter_key)),
        ("From", text(&input.from)),
    ];
    structure("InputItem", &fields)
}

fn output(output: &StepOutput) -> u64 {
    let fields = [("ValueFrom", text(&output.value_from)), ("Name", text(&output.name))];
    structure("OutputItem", &fields)
}

/// A pointer to JSON as text, which Go keeps as bytes.
fn raw(value: Option<&Value>) -> u64 {
    let Some(value) = value else { return nothing() };
    let bytes = go_json(value).into_bytes();
    let bytes = list(bytes.into_iter().map(|byte| hash_bytes(&[byte])));
    structure("RawExtension", &[("Raw", bytes), ("Object", nothing())])
}

fn text(text: &str) -> u64 {
    hash_bytes(text.as_bytes())
}

/// A nil pointer counts as an integer.
fn nothing() -> u64 {
    hash_bytes(&0_i64.to_le_bytes())
}

fn list(items: impl Iterator<Item = u64>) -> u64 {
    items.fold(0, hash_pair)
}

/// The library finishes a struct after each field.
fn structure(name: &str, fields: &[(&str, u64)]) -> u64 {
    let fields = fields.iter();
    fields.fold(text(name), |hash, (name, value)| {
        finish(hash ^ hash_pair(text(name), *value))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Computed by hashstructure 2.0.2.
    #[test]
    fn the_revision_of_a_component_is_the_hash_that_kubevela_computes() {
        let all = json!({
            "name": "web", "type": "webservice", "externalRevision": "v1", "properties": { "image": "nginx" },
            "traits": [{ "type": "scaler", "properties": { "replicas": 2 } }, { "type": "labels" }],
            "dependsOn": ["db"], "inputs": [{ "parameterKey": "properties.a", "from": "x" }],
            "outputs": [{ "valueFrom": "output.x", "name": "y" }],
        });
        for (component, replica_key, expected) in [
            (json!({}), "", "329ecc00da25593c"),
            (json!({ "name": "web", "type": "webservice" }), "", "a151d92c8ac003ec"),
            (
                json!({ "name": "web", "type": "webservice", "properties": { "port": 80, "image": "nginx" } }),
                "",
                "614f06553b9c25ea",
            ),
            (all, "k", "d9ccd0c5001dbe78"),
        ] {
            let component: Component = serde_json::from_value(component).unwrap();
            assert_eq!(component_hash(&component, replica_key), expected, "{component:?}");
        }
    }
}
