//! The custom resource definitions, generated from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;

use super::AppRepository;

/// The definitions of all resources that Portolan brings.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![AppRepository::crd()];
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

/// The definitions as YAML, one document each, the same bytes every time.
#[must_use]
#[expect(
    clippy::expect_used,
    reason = "definitions are plain trees of maps with text keys, which YAML can always hold"
)]
pub fn crds_yaml() -> String {
    let document = |crd| serde_yaml::to_string(&crd).expect("a definition can be written as YAML");
    crds().into_iter().map(document).collect::<Vec<_>>().join("---\n")
}

/// Takes off what the generator adds and Kubeapps' definition has nowhere:
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
mod tests {
    use super::*;

    const SHIPPED: &str = include_str!("../../charts/portolan/crds/apprepositories.yaml");

    /// The schema at `path` below the root, as JSON.
    fn schema_at(path: &[&str]) -> serde_json::Value {
        let crd = serde_json::to_value(&crds()[0]).unwrap();
        let root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
        path.iter()
            .fold(root, |schema, name| schema["properties"][name].clone())
    }

    /// Every place below `schema` where a rule stands that can refuse an object, other than by a wrong type.
    fn refusals(schema: &serde_json::Value, path: &str, found: &mut Vec<String>) {
        for rule in [
            "required",
            "enum",
            "pattern",
            "minimum",
            "maximum",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "format",
            "x-kubernetes-validations",
            "x-kubernetes-list-type",
            "uniqueItems",
            "not",
            "oneOf",
            "anyOf",
            "allOf",
        ] {
            if let Some(value) = schema.get(rule) {
                found.push(format!("{path}: {rule} {value}"));
            }
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            refusals(property, &format!("{path}.{name}"), found);
        }
        for child in ["items", "additionalProperties"] {
            if schema[child].is_object() {
                refusals(&schema[child], &format!("{path}[]"), found);
            }
        }
    }

    #[test]
    fn the_spec_refuses_nothing_that_kubeapps_own_definition_takes() {
        let mut found = Vec::new();
        refusals(&schema_at(&["spec"]), "spec", &mut found);
        assert_eq!(
            found,
            [
                r#"spec: required ["type","url"]"#,
                r#"spec.auth.customCA.secretKeyRef: required ["key","name"]"#,
                r#"spec.auth.header.secretKeyRef: required ["key","name"]"#,
                r#"spec.type: enum ["helm","oci"]"#,
            ]
        );
        assert_eq!(schema_at(&[])["required"], serde_json::json!(["spec"]));
        assert_eq!(schema_at(&["spec", "resyncRequests"])["type"], "integer");
        assert_eq!(schema_at(&["status", "status"])["type"], "string");
    }

    #[test]
    fn nothing_is_nullable_or_filled_in_by_the_server() {
        let yaml = crds_yaml();
        assert!(!yaml.contains("nullable") && !yaml.contains("default:"), "{yaml}");
    }

    #[test]
    fn a_pod_template_keeps_fields_that_the_definition_does_not_know() {
        for path in [
            &["spec", "syncJobPodTemplate"][..],
            &["spec", "syncJobPodTemplate", "metadata"],
            &["spec", "syncJobPodTemplate", "spec"],
        ] {
            let schema = schema_at(path);
            assert_eq!(schema["x-kubernetes-preserve-unknown-fields"], true, "{path:?}");
            assert_eq!(schema["type"], "object", "{path:?}");
        }
    }

    #[test]
    fn the_definition_has_the_names_and_columns_that_users_know() {
        let crd = &crds()[0];
        assert_eq!(crd.metadata.name.as_deref(), Some("apprepositories.kubeapps.com"));
        assert_eq!(
            crd.spec.names.short_names.as_deref(),
            Some(&["apprepos".to_owned()][..])
        );
        let version = &crd.spec.versions[0];
        let columns: Vec<_> = version
            .additional_printer_columns
            .iter()
            .flatten()
            .map(|c| c.name.as_str())
            .collect();
        assert_eq!(
            columns,
            ["Type", "URL", "Ready", "Suspended", "Charts", "Last sync", "Age"]
        );
        assert!(
            version
                .subresources
                .as_ref()
                .is_some_and(|subresources| subresources.status.is_some())
        );
        let conditions = schema_at(&["status", "conditions"]);
        assert_eq!(conditions["x-kubernetes-list-type"], "map");
        assert_eq!(conditions["x-kubernetes-list-map-keys"], serde_json::json!(["type"]));
    }

    #[test]
    fn the_chart_ships_the_definitions_that_the_types_give() {
        assert!(
            SHIPPED == crds_yaml(),
            "the types of src/api have changed: run `portolan crds > charts/portolan/crds/apprepositories.yaml`; \
             it should now hold:\n{}",
            crds_yaml()
        );
    }
}
