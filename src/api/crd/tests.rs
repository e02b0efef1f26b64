use super::*;

/// CRDs of the chart, in the order of [`crds`].
const SHIPPED: [&str; 2] = [
    include_str!("../../../charts/portolan/crds/apprepositories.yaml"),
    include_str!("../../../charts/portolan/crds/applications.yaml"),
];

/// Returns the root schema as JSON.
fn root(crd: &CustomResourceDefinition) -> serde_json::Value {
    let crd = serde_json::to_value(crd).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Returns the schema at `path` of an AppRepository as JSON.
fn schema_at(path: &[&str]) -> serde_json::Value {
    path.iter()
        .fold(root(&crds()[0]), |schema, name| schema["properties"][name].clone())
}

fn columns(crd: &CustomResourceDefinition) -> Vec<&str> {
    let columns = crd.spec.versions[0].additional_printer_columns.iter().flatten();
    columns.map(|column| column.name.as_str()).collect()
}

/// Collects validation rules below `schema`, except types.
fn validation_rules(schema: &serde_json::Value, path: &str, found: &mut Vec<String>) {
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
        validation_rules(property, &format!("{path}.{name}"), found);
    }
    for child in ["items", "additionalProperties"] {
        if schema[child].is_object() {
            validation_rules(&schema[child], &format!("{path}[]"), found);
        }
    }
}

#[test]
fn the_spec_is_not_stricter_than_kubeapps_definition() {
    let mut found = Vec::new();
    validation_rules(&schema_at(&["spec"]), "spec", &mut found);
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
fn schemas_have_no_nullable_fields_and_no_defaults() {
    let yaml = crds_yaml(&crds());
    assert!(!yaml.contains("nullable") && !yaml.contains("default:"), "{yaml}");
}

#[test]
fn unknown_fields_of_a_pod_template_are_preserved() {
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
fn names_and_columns_of_app_repositories_are_as_specified() {
    let crd = &crds()[0];
    assert_eq!(crd.metadata.name.as_deref(), Some("apprepositories.kubeapps.com"));
    assert_eq!(
        crd.spec.names.short_names.as_deref(),
        Some(&["apprepos".to_owned()][..])
    );
    assert_eq!(
        columns(crd),
        ["Type", "URL", "Ready", "Suspended", "Charts", "Last sync", "Age"]
    );
    let version = &crd.spec.versions[0];
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
fn names_and_columns_of_applications_are_those_of_upstream() {
    let crd = &crds()[1];
    assert_eq!(crd.metadata.name.as_deref(), Some("applications.app.k8s.io"));
    let names = serde_json::to_value(&crd.spec.names).unwrap();
    assert_eq!(
        names,
        serde_json::json!({
            "kind": "Application", "plural": "applications", "singular": "application",
            "shortNames": ["app"], "categories": ["all"],
        })
    );
    assert_eq!(crd.spec.scope, "Namespaced");
    assert_eq!(columns(crd), ["Type", "Version", "Owner", "Ready", "Age"]);
    let [version] = &crd.spec.versions[..] else {
        panic!("one version");
    };
    assert!(version.name == "v1beta1" && version.served && version.storage);
    assert!(version.subresources.as_ref().is_some_and(|sub| sub.status.is_some()));
}

/// Schema of the upstream definition: one line per object, with required fields starred and the types of non-string fields.
const APPLICATION: [&str; 18] = [
    "spec: addOwnerRef=boolean assemblyPhase componentKinds=array descriptor=object info=array selector=object",
    "spec.componentKinds[]: group* kind*",
    "spec.descriptor: description icons=array keywords=array links=array maintainers=array notes owners=array type version",
    "spec.descriptor.icons[]: size src* type",
    "spec.descriptor.links[]: description url",
    "spec.descriptor.maintainers[]: email name url",
    "spec.descriptor.owners[]: email name url",
    "spec.info[]: name type value valueFrom=object",
    "spec.info[].valueFrom: configMapKeyRef=object ingressRef=object secretKeyRef=object serviceRef=object type",
    "spec.info[].valueFrom.configMapKeyRef: apiVersion fieldPath key kind name namespace resourceVersion uid",
    "spec.info[].valueFrom.ingressRef: apiVersion fieldPath host kind name namespace path protocol resourceVersion uid",
    "spec.info[].valueFrom.secretKeyRef: apiVersion fieldPath key kind name namespace resourceVersion uid",
    "spec.info[].valueFrom.serviceRef: \
     apiVersion fieldPath kind name namespace path port=integer(int32) protocol resourceVersion uid",
    "spec.selector: matchExpressions=array matchLabels=object",
    "spec.selector.matchExpressions[]: key* operator* values=array",
    "status: components=array componentsReady conditions=array observedGeneration=integer(int64)",
    "status.components[]: group kind link name status",
    "status.conditions[]: \
     lastTransitionTime=string(date-time) lastUpdateTime=string(date-time) message reason status* type*",
];

/// Collects the objects below `schema` in the format of [`APPLICATION`].
fn objects(schema: &serde_json::Value, path: &str, found: &mut Vec<String>) {
    if let Some(properties) = schema["properties"].as_object() {
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|name| name.as_str())
            .collect();
        let fields = properties.iter().map(|(name, property)| {
            let star = if required.contains(&name.as_str()) { "*" } else { "" };
            let type_ = property["type"].as_str().unwrap();
            match property["format"].as_str() {
                Some(format) => format!(" {name}{star}={type_}({format})"),
                None if type_ == "string" => format!(" {name}{star}"),
                None => format!(" {name}{star}={type_}"),
            }
        });
        found.push(format!("{path}:{}", fields.collect::<String>()));
        for (name, property) in properties {
            objects(property, &format!("{path}.{name}"), found);
        }
    }
    if schema["items"].is_object() {
        objects(&schema["items"], &format!("{path}[]"), found);
    }
}

#[test]
fn an_application_has_the_fields_of_upstream_and_is_not_stricter() {
    let root = root(&crds()[1]);
    let mut found = Vec::new();
    let mut rules = Vec::new();
    for part in ["spec", "status"] {
        objects(&root["properties"][part], part, &mut found);
        validation_rules(&root["properties"][part], part, &mut rules);
    }
    assert_eq!(found, APPLICATION);
    // The table contains all validation rules of the schema.
    rules.retain(|rule| !rule.contains(": required ") && !rule.contains(": format "));
    assert_eq!(rules, Vec::<String>::new());
    assert_eq!(root["required"], serde_json::Value::Null);
    let additional =
        &root["properties"]["spec"]["properties"]["selector"]["properties"]["matchLabels"]["additionalProperties"];
    assert_eq!(additional["type"], "string");
}

#[test]
fn the_chart_contains_the_generated_definitions() {
    for (crd, shipped) in crds().into_iter().zip(SHIPPED) {
        let name = crd.spec.names.plural.clone();
        let expected = crds_yaml(&[crd]);
        assert!(
            shipped == expected,
            "the types of src/api have changed: run `make crds`; {name}.yaml should now hold:\n{expected}"
        );
    }
    assert_eq!(crds().len(), SHIPPED.len());
}
