//! Custom resource definitions, generated from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;

use super::{AppRepository, application};

/// Returns the definitions of the kinds that the chart installs.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![AppRepository::crd(), application::definition()];
    crds.iter_mut().for_each(simplify);
    crds
}

/// Serializes definitions as a deterministic YAML stream.
#[must_use]
#[expect(
    clippy::expect_used,
    reason = "definitions are maps with string keys, which always serialize"
)]
pub fn crds_yaml(crds: &[CustomResourceDefinition]) -> String {
    let document = |crd| serde_yaml::to_string(crd).expect("a definition serializes as YAML");
    crds.iter().map(document).collect::<Vec<_>>().join("---\n")
}

/// Removes `nullable`, so that the API server drops nulls, and `default`, which it would write into objects.
pub(super) fn simplify(crd: &mut CustomResourceDefinition) {
    for version in &mut crd.spec.versions {
        let schema = version.schema.as_mut();
        if let Some(schema) = schema.and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            simplify_schema(schema);
        }
    }
}

fn simplify_schema(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.default = None;
    let properties = schema.properties.iter_mut();
    properties
        .flat_map(|properties| properties.values_mut())
        .for_each(simplify_schema);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        simplify_schema(items);
    }
}

#[cfg(test)]
mod tests;
