//! The custom resource definitions, generated from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;

use super::{AppRepository, application};

/// The definitions of all resources that Portolan brings.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![AppRepository::crd(), application::definition()];
    for version in crds.iter_mut().flat_map(|crd| &mut crd.spec.versions) {
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        {
            plain(schema);
        }
    }
    crds
}

/// Definitions as YAML, one document each, the same bytes every time.
#[must_use]
#[expect(
    clippy::expect_used,
    reason = "definitions are plain trees of maps with text keys, which YAML can always hold"
)]
pub fn crds_yaml(crds: &[CustomResourceDefinition]) -> String {
    let document = |crd| serde_yaml::to_string(crd).expect("a definition can be written as YAML");
    crds.iter().map(document).collect::<Vec<_>>().join("---\n")
}

/// Takes off what the generator adds and the neighbours' definitions have nowhere:
///
/// - `nullable`, on whatever is optional. Without it the API server drops a null that is written instead of storing it,
///   so that readers in any language see an absent field.
/// - `default`, on whatever serde fills in. The API server would write it into its users' objects.
fn plain(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.default = None;
    for property in schema
        .properties
        .iter_mut()
        .flat_map(|properties| properties.values_mut())
    {
        plain(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        plain(items);
    }
}

#[cfg(test)]
mod tests;
