use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde_json::{Map, Value};

use super::kinds::ReconciledKind;
use crate::api::oam::{DefinitionRevision, DefinitionRevisionSpec};
use crate::controllers::oam::revisions::hash_of_json;

pub(super) fn revision_of<D: ReconciledKind>(
    definition: &D,
    name: &str,
    number: i64,
) -> Result<DefinitionRevision, serde_json::Error> {
    let mut labels = definition.labels().clone();
    labels.insert(D::DEFINITION.name_label().to_owned(), definition.name_any());
    let mut spec = DefinitionRevisionSpec {
        revision: number,
        revision_hash: hash_of_json(&serde_json::to_value(definition.spec())?),
        definition_type: D::DEFINITION.type_name().to_owned(),
        ..DefinitionRevisionSpec::default()
    };
    definition.recorded().record_in(&mut spec);
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: definition.namespace(),
        labels: Some(labels),
        owner_references: Some(vec![OwnerReference {
            api_version: D::api_version(&()).into_owned(),
            kind: D::kind(&()).into_owned(),
            name: definition.name_any(),
            uid: definition.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: None,
        }]),
        ..ObjectMeta::default()
    };
    Ok(DefinitionRevision { metadata, spec })
}

/// Hashes of KubeVela can't be compared with ours.
pub(super) fn records<D: ReconciledKind>(revision: &DefinitionRevision, definition: &D) -> bool {
    revision.spec.definition_type == D::DEFINITION.type_name()
        && D::recorded_in(&revision.spec).is_some_and(|recorded| have_same_contents(recorded, definition))
}

fn have_same_contents<D: ReconciledKind>(recorded: &D, definition: &D) -> bool {
    recorded.spec() == definition.spec() || {
        let contents = |definition: &D| serde_json::to_value(definition.spec()).map(without_zero_values);
        // Specs that don't serialize were not recorded either.
        matches!((contents(recorded), contents(definition)), (Ok(recorded), Ok(new)) if recorded == new)
    }
}

/// Removes `false`, zero and empty values as KubeVela does, but for those of the free-form extension.
fn without_zero_values(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| match name.as_str() {
                "extension" => (name, value),
                _ => (name, without_zero_values(value)),
            });
            Value::Object(fields.filter(|(_, value)| !is_zero(value)).collect::<Map<_, _>>())
        }
        Value::Array(elements) => Value::Array(elements.into_iter().map(without_zero_values).collect()),
        scalar => scalar,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(is_true) => !is_true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// Returns true unless the revision belongs to an earlier definition of the same name, and will be deleted with it.
pub(super) fn is_owned_by<D: Resource>(revision: &impl ResourceExt, definition: &D) -> bool {
    let owners = revision.owner_references();
    let uid = definition.meta().uid.as_deref();
    owners.is_empty() || owners.iter().any(|owner| Some(owner.uid.as_str()) == uid)
}
