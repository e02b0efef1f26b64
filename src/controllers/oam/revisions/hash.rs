use std::collections::BTreeMap;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::api::oam::{ApplicationRevisionSpec, Definition};

/// First character of our hashes. KubeVela's hashes depend on Go types and consist of hexadecimal digits alone.
const PREFIX: char = 'p';

/// Covers application, definitions, policies, workflow and referred objects.
pub fn hash(spec: &ApplicationRevisionSpec) -> Result<String, serde_json::Error> {
    let workloads = spec.workload_definitions.iter();
    let workloads: BTreeMap<_, _> = workloads.map(|(name, definition)| (name, &definition.spec)).collect();
    let policies = spec.policies.iter();
    let policies: BTreeMap<_, _> = policies.map(|(name, policy)| (name, &policy.spec)).collect();
    let contents = json!({
        "application": serde_json::to_value(&spec.application.spec)?,
        "componentDefinitions": specs(&spec.component_definitions)?,
        "workloadDefinitions": serde_json::to_value(workloads)?,
        "traitDefinitions": specs(&spec.trait_definitions)?,
        "policyDefinitions": specs(&spec.policy_definitions)?,
        "workflowStepDefinitions": specs(&spec.workflow_step_definitions)?,
        "policies": serde_json::to_value(policies)?,
        "workflow": serde_json::to_value(spec.workflow.as_ref().map(|workflow| &workflow.spec))?,
        "referredObjects": spec.referred_objects,
    });
    Ok(hash_of_json(&contents))
}

/// Returns the hash of JSON, independent of the order of fields.
#[must_use]
pub fn hash_of_json(contents: &Value) -> String {
    let mut text = String::new();
    write_canonical(contents, &mut text);
    let digest = Sha256::digest(text.as_bytes());
    let digits: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{PREFIX}{digits}")
}

#[must_use]
pub fn is_own_hash(hash: &str) -> bool {
    hash.starts_with(PREFIX)
}

fn specs<D: Definition>(definitions: &BTreeMap<String, D>) -> Result<Value, serde_json::Error> {
    let specs: BTreeMap<_, _> = definitions
        .iter()
        .map(|(name, definition)| (name, definition.spec()))
        .collect();
    serde_json::to_value(specs)
}

/// Writes JSON with sorted keys and without blanks. The depth of values is limited by their parser.
fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<_, _> = fields.iter().collect();
            for (index, (name, value)) in fields.into_iter().enumerate() {
                text.push(if index == 0 { '{' } else { ',' });
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write_canonical(value, text);
            }
            text.push('}');
        }
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                text.push(if index == 0 { '[' } else { ',' });
                write_canonical(element, text);
            }
            text.push(']');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}
