//! Custom resource definitions, generated from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;

use super::{AppRepository, application};

#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![AppRepository::crd(), application::definition()];
    for version in crds.iter_mut().flat_map(|crd| &mut crd.spec.versions) {
        let schema = version.schema.as_mut();
        if let Some(schema) = schema.and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            simplify(schema);
        }
    }
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
fn simplify(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.default = None;
    let properties = schema.properties.iter_mut();
    properties
        .flat_map(|properties| properties.values_mut())
        .for_each(simplify);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        simplify(items);
    }
}

#[cfg(test)]
mod tests;
