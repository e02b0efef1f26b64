use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn spec(spec: &Value) -> ApplicationSpec {
    serde_json::from_value(spec.clone()).unwrap()
}

#[test]
fn unknown_fields_of_a_spec_are_kept() {
    let written = json!({
        "components": [{
            "name": "web", "type": "webservice", "properties": { "image": "nginx", "port": 80 }, "scopes": { "a": "b" },
            "traits": [{ "type": "scaler", "properties": { "replicas": 2 }, "ofTrait": 1 }], "ofComponent": [2],
            "inputs": [{ "parameterKey": "image", "from": "built" }], "outputs": [{ "name": "ip", "valueFrom": "output.x" }],
        }],
        "policies": [{ "name": "p", "type": "take-over", "properties": {}, "ofPolicy": null }],
        "workflow": {
            "ref": "r", "mode": { "steps": "DAG", "subSteps": "StepByStep" }, "ofWorkflow": {},
            "steps": [{
                "name": "group", "type": "step-group", "if": "always", "timeout": "5m", "meta": { "alias": "a" }, "ofStep": 1,
                "subSteps": [{ "name": "one", "type": "suspend", "ofSubStep": 1, "dependsOn": ["x"] }],
            }],
        },
        "ofSpec": { "a": [1, "b"] },
    });
    assert_eq!(serde_json::to_value(spec(&written)).unwrap(), written);
}

#[rstest]
#[case::nulls(json!({ "components": null, "policies": null, "workflow": null }))]
#[case::empty_lists(json!({ "components": [], "policies": [null] }))]
#[case::no_spec(Value::Null)]
fn null_and_zero_values_mean_absent_fields(#[case] odd: Value) {
    assert_eq!(spec(&odd), ApplicationSpec::default());
    let bare: Application = serde_json::from_value(json!({ "metadata": { "name": "bare" } })).unwrap();
    assert_eq!(bare.spec, ApplicationSpec::default());
}

#[test]
fn nulls_in_a_component_mean_absent_fields() {
    let odd = spec(&json!({ "components": [{
        "name": "web", "type": "webservice", "externalRevision": null, "properties": null, "dependsOn": [null, "db"],
        "inputs": null, "traits": [null, { "type": "scaler", "properties": null }], "scopes": null,
    }] }));
    let plain = spec(&json!({ "components": [{
        "name": "web", "type": "webservice", "dependsOn": ["db"], "traits": [{ "type": "scaler" }],
    }] }));
    assert_eq!(odd, plain);
}

#[rstest]
#[case(json!({ "components": "web" }))]
#[case(json!({ "components": [{ "name": 1, "type": "webservice" }] }))]
#[case(json!({ "workflow": [] }))]
fn an_invalid_spec_is_an_error(#[case] odd: Value) {
    assert!(serde_json::from_value::<ApplicationSpec>(odd).is_err());
}

#[test]
fn a_status_of_kubevela_survives_a_round_trip() {
    let written = json!({
        "conditions": [{
            "type": "Parsed", "status": "True", "reason": "Available", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
        "observedGeneration": 3, "status": "running",
        "services": [{
            "name": "web", "namespace": "shop", "healthy": true, "workloadHealthy": true, "message": "Ready:1/1",
            "workloadDefinition": { "apiVersion": "apps/v1", "kind": "Deployment" }, "details": { "replicas": "1" },
            "traits": [{ "type": "expose", "healthy": true, "pending": true, "message": "ClusterIP: 10.0.0.1" }],
        }],
        "workflow": {
            "appRevision": "shop-v1", "mode": "DAG-DAG", "status": "succeeded", "suspend": false, "terminated": false,
            "finished": true, "startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T00:00:01Z",
            "contextBackend": { "apiVersion": "v1", "kind": "ConfigMap", "name": "workflow-shop-context", "namespace": "shop" },
            "steps": [{ "id": "abcdefghij", "name": "web", "type": "apply-component", "phase": "succeeded",
                "firstExecuteTime": "2026-01-01T00:00:00Z", "lastExecuteTime": "2026-01-01T00:00:01Z",
                "subSteps": [{ "id": "x", "phase": "failed", "reason": "Timeout", "message": "m" }] }],
        },
        "workflowRestartScheduledAt": "2026-01-02T00:00:00Z",
        "latestRevision": { "name": "shop-v1", "revision": 1, "revisionHash": "0123456789abcdef" },
        "appliedResources": [{ "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web",
            "creator": "workflow", "cluster": "local" }],
        "components": [{ "kind": "Deployment" }], "policy": [{ "name": "p", "type": "env-binding" }],
    });
    let status: ApplicationStatus = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(serde_json::to_value(status).unwrap(), written);
}

#[rstest]
#[case(json!({ "conditions": "x", "services": [7, { "name": ["web"] }], "workflow": 7, "latestRevision": "v1" }))]
#[case(json!({ "observedGeneration": "x", "status": 7, "appliedResources": null, "workflowRestartScheduledAt": "soon" }))]
fn an_invalid_status_does_not_fail_its_object(#[case] status: Value) {
    let object = json!({ "metadata": { "name": "a" }, "spec": { "components": [] }, "status": status });
    let odd: Application = serde_json::from_value(object).unwrap();
    assert_eq!(odd.status, Some(ApplicationStatus::default()));
}

#[test]
fn templates_are_read_from_schematics_and_old_extensions() {
    let definition = |spec: Value| -> ComponentDefinition {
        serde_json::from_value(json!({ "metadata": { "name": "web" }, "spec": spec })).unwrap()
    };
    let cue = json!({ "cue": { "template": "output: {}" } });
    let both = definition(json!({ "schematic": cue, "extension": { "template": "old: {}" } }));
    assert_eq!(both.template(), Some("output: {}"));
    let old = definition(json!({ "extension": { "template": "old: {}" }, "schematic": { "cue": { "template": "" } } }));
    assert_eq!(old.template(), Some("old: {}"));
    let none = definition(json!({ "schematic": { "helm": { "release": {} } }, "extension": { "template": 7 } }));
    assert_eq!(none.template(), None);
}

#[test]
fn definitions_are_recorded_with_unknown_fields_and_without_status() {
    let written = json!({
        "apiVersion": "core.oam.dev/v1beta1", "kind": "TraitDefinition",
        "metadata": { "name": "scaler", "namespace": "vela-system", "managedFields": [{ "manager": "helm" }] },
        "spec": {
            "appliesToWorkloads": ["deployments.apps"], "podDisruptive": true, "stage": "PostDispatch",
            "schematic": { "cue": { "template": "patch: {}", "new": 1 }, "wasm": {} },
            "status": { "healthPolicy": "isHealth: true", "new": 2 }, "revisionEnabled": true,
        },
        "status": { "configMapRef": "trait-schema-scaler" },
    });
    let definition: TraitDefinition = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(definition.status_templates().unwrap().health_policy, "isHealth: true");
    let mut expected = written;
    expected.as_object_mut().unwrap().remove("status");
    expected["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert_eq!(serde_json::to_value(definition.recorded()).unwrap(), expected);
}

#[test]
fn revisions_of_kubevela_with_empty_definitions_are_read() {
    let empty = json!({ "metadata": { "creationTimestamp": null }, "spec": {}, "status": {} });
    let revision: DefinitionRevision = serde_json::from_value(json!({
        "metadata": { "name": "scaler-v1" },
        "spec": {
            "revision": 1, "revisionHash": "5a0c", "definitionType": "Trait", "componentDefinition": {
                "metadata": { "creationTimestamp": null }, "status": {},
                "spec": { "workload": { "definition": { "apiVersion": "", "kind": "" } } },
            },
            "traitDefinition": { "metadata": { "name": "scaler" }, "spec": { "stage": "PreDispatch" } },
            "policyDefinition": empty, "workflowStepDefinition": empty,
        },
    }))
    .unwrap();
    assert_eq!(revision.spec.trait_definition.unwrap().spec.stage, "PreDispatch");
    let component = revision.spec.component_definition.unwrap();
    assert_eq!(component.spec, ComponentDefinitionSpec::default());
}

#[test]
fn policies_and_workflows_have_their_fields_at_the_top_level() {
    let written = json!({
        "apiVersion": "core.oam.dev/v1alpha1", "kind": "Policy", "metadata": { "name": "p" },
        "type": "topology", "properties": { "clusters": ["local"] },
    });
    let policy: Policy = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(policy.spec.type_, "topology");
    assert_eq!(serde_json::to_value(policy).unwrap(), written);
    let written = json!({
        "apiVersion": "core.oam.dev/v1alpha1", "kind": "Workflow", "metadata": { "name": "w" },
        "mode": { "steps": "DAG" }, "steps": [{ "name": "one", "type": "suspend" }],
    });
    let workflow: Workflow = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(workflow.spec.steps[0].type_, "suspend");
    assert_eq!(serde_json::to_value(workflow).unwrap(), written);
}

/// One line per definition: name, scope, short names, versions (`*` stored), status subresource and columns.
const DEFINITIONS: [&str; 11] = [
    "applications Namespaced app,velaapp v1beta1* status COMPONENT,TYPE,PHASE,HEALTHY,STATUS,AGE",
    "applicationrevisions Namespaced apprev v1beta1* status AGE,PUBLISH_VERSION,SUCCEEDED",
    "resourcetrackers Cluster rt v1beta1* status TYPE,APP,APP-NS,APP-GEN",
    "componentdefinitions Namespaced comp v1beta1* status WORKLOAD-KIND,DESCRIPTION",
    "traitdefinitions Namespaced trait v1beta1* status APPLIES-TO,DESCRIPTION",
    "policydefinitions Namespaced def-policy v1beta1* status ",
    "workflowstepdefinitions Namespaced workflowstep v1beta1* status ",
    "definitionrevisions Namespaced defrev v1beta1* - REVISION,HASH,TYPE",
    "workloaddefinitions Namespaced workload v1alpha2,v1beta1* - DEFINITION-NAME,DESCRIPTION",
    "policies Namespaced  v1alpha1* - TYPE",
    "workflows Namespaced  v1alpha1* - ",
];

fn describe(crd: &CustomResourceDefinition) -> String {
    let names = &crd.spec.names;
    let versions = crd.spec.versions.iter().map(|version| {
        assert!(version.served);
        format!("{}{}", version.name, if version.storage { "*" } else { "" })
    });
    let versions: Vec<_> = versions.collect();
    let stored = crd.spec.versions.iter().find(|version| version.storage).unwrap();
    let has_status = stored
        .subresources
        .as_ref()
        .is_some_and(|subresources| subresources.status.is_some());
    let columns = stored.additional_printer_columns.iter().flatten();
    let columns: Vec<_> = columns.map(|column| column.name.as_str()).collect();
    format!(
        "{} {} {} {} {} {}",
        names.plural,
        crd.spec.scope,
        names
            .short_names
            .iter()
            .flatten()
            .cloned()
            .collect::<Vec<_>>()
            .join(","),
        versions.join(","),
        if has_status { "status" } else { "-" },
        columns.join(",")
    )
}

#[test]
fn names_versions_and_columns_of_the_definitions_are_those_of_kubevela() {
    let crds = crds();
    assert_eq!(crds.iter().map(describe).collect::<Vec<_>>(), DEFINITIONS);
    for crd in &crds {
        assert_eq!(crd.spec.group, GROUP);
        assert_eq!(crd.spec.names.categories.as_deref(), Some(&["oam".to_owned()][..]));
    }
    let old = &crds[8].spec.versions[0];
    let columns: Vec<_> = old
        .additional_printer_columns
        .iter()
        .flatten()
        .map(|column| column.name.as_str())
        .collect();
    assert_eq!(
        (old.name.as_str(), &columns[..]),
        ("v1alpha2", &["DEFINITION-NAME"][..])
    );
}

/// Checks the rules of structural schemas that a derived schema may break.
fn assert_structural(schema: &Value, path: &str) {
    let schema = schema.as_object().unwrap_or_else(|| panic!("{path} is {schema}"));
    assert!(schema.contains_key("type"), "{path} has no type: {schema:?}");
    for forbidden in [
        "$ref",
        "nullable",
        "default",
        "anyOf",
        "oneOf",
        "allOf",
        "definitions",
        "$defs",
    ] {
        assert!(!schema.contains_key(forbidden), "{path} has {forbidden}");
    }
    let has = |key: &str| schema.contains_key(key);
    assert!(
        !(has("properties") && has("additionalProperties")),
        "{path} has both kinds of properties"
    );
    for (name, property) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        assert_structural(property, &format!("{path}.{name}"));
    }
    for child in ["items", "additionalProperties"] {
        if let Some(child) = schema.get(child) {
            assert_structural(child, &format!("{path}[]"));
        }
    }
}

#[test]
fn schemas_are_structural() {
    for crd in crds() {
        let crd = serde_json::to_value(crd).unwrap();
        for version in crd["spec"]["versions"].as_array().unwrap() {
            let name = crd["metadata"]["name"].as_str().unwrap();
            assert_structural(&version["schema"]["openAPIV3Schema"], name);
        }
    }
}
