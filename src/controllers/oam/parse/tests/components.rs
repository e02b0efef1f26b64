use rstest::rstest;

use super::*;
use crate::controllers::oam::placement::PlacementSettings;

#[test]
fn components_and_traits_get_their_definitions_in_order() {
    let spec = json!({ "components": [
        { "name": "web", "type": "webservice", "properties": { "image": "nginx" },
          "traits": [{ "type": "expose" }, { "type": "scaler", "properties": { "replicas": 2 } }] },
        { "name": "job", "type": "worker" },
    ] });
    let parsed = parse_in(&Cluster::with_definitions(), &spec).unwrap();
    let [web, job] = &parsed.components[..] else {
        panic!("two components");
    };
    assert_eq!(
        (web.definition.template(), job.definition.template()),
        (Some("// webservice"), Some("// worker"))
    );
    let traits: Vec<_> = web.traits.iter().map(|trait_| trait_.type_label.as_str()).collect();
    assert_eq!(traits, ["expose", "scaler"]);
    assert_eq!(web.component.properties, Some(json!({ "image": "nginx" })));
    assert!(parsed.policies.is_empty() && parsed.workflow.definitions.is_empty());
}

#[test]
fn deploy_steps_leave_out_components_whose_definition_is_a_terraform_module() {
    let mut cluster = Cluster::with_definitions();
    let module = json!({ "spec": { "schematic": { "terraform": { "configuration": "" } } } });
    cluster.add("ComponentDefinition", "team", "rds", &module);
    let parsed = parse_in(&cluster, &components(&[("web", "worker"), ("db", "rds")])).unwrap();
    let settings = PlacementSettings {
        namespace: "team",
        allow_cross_namespace: true,
        unanchored_overrides: false,
        clusters: Ok(&[]),
        accepts_any_cluster: false,
    };
    let deployed = |properties: Value| {
        let step = json!({ "name": "all", "type": "deploy", "properties": properties });
        let placed = parsed.deployments(settings).of(&serde_json::from_value(step).unwrap());
        placed.unwrap().len()
    };
    assert_eq!(deployed(json!({})), 1);
    assert_eq!(deployed(json!({ "ignoreTerraformComponent": false })), 2);
}

#[test]
fn the_namespace_of_the_application_comes_before_the_definition_namespace() {
    let mut cluster = Cluster::with_definitions();
    cluster.add("ComponentDefinition", "team", "webservice", &template("own"));
    cluster.add("ComponentDefinition", "other", "worker", &template("foreign"));
    let spec = components(&[("web", "webservice"), ("job", "worker")]);
    let parsed = parse_in(&cluster, &spec).unwrap();
    let templates: Vec<_> = parsed
        .components
        .iter()
        .map(|component| component.definition.template())
        .collect();
    assert_eq!(templates, [Some("own"), Some("// worker")]);
}

#[test]
fn a_workload_definition_replaces_a_missing_component_definition() {
    let mut cluster = Cluster::default();
    let old =
        json!({ "spec": { "definitionRef": { "name": "deployments.apps" }, "extension": { "template": "old" } } });
    cluster.add("WorkloadDefinition", "vela-system", "deployment", &old);
    let spec = components(&[("web", "deployment")]);
    let parsed = parse_in(&cluster, &spec).unwrap();
    assert_eq!(parsed.components[0].definition.template(), Some("old"));
    let contents = contents_in(&cluster, &spec);
    assert!(contents.component_definitions.is_empty());
    assert!(contents.workload_definitions.contains_key("deployment"));
}

#[rstest]
#[case::component(
    components(&[("web", "website")]),
    "failed to parseComponents: component web: ComponentDefinition website not found in namespace team, \
     namespace vela-system"
)]
#[case::trait_(
    json!({ "components": [{ "name": "web", "type": "worker", "traits": [{ "type": "gateway" }] }] }),
    "failed to parseComponents: component web: trait gateway: TraitDefinition gateway not found in namespace team, \
     namespace vela-system"
)]
#[case::revision(
    components(&[("web", "worker@v7")]),
    "failed to parseComponents: component web: DefinitionRevision worker-v7 not found in namespace team, \
     namespace vela-system"
)]
#[case::version_without_v(
    components(&[("web", "worker@7")]),
    "failed to parseComponents: component web: invalid type \"worker@7\"; expected a name such as webservice, or a \
     revision such as webservice@v2"
)]
#[case::duplicate(
    components(&[("web", "worker"), ("web", "webservice")]),
    "failed to parseComponents: duplicated component name web"
)]
#[case::policy(
    json!({ "components": [], "policies": [{ "name": "p", "type": "health", "properties": {} }] }),
    "failed to parsePolicies: policy p: PolicyDefinition health not found in namespace team, namespace vela-system"
)]
#[case::empty_properties(
    json!({ "components": [], "policies": [{ "type": "quota" }] }),
    "failed to parsePolicies: policy quota named quota-auto-gen-0 must not have empty properties"
)]
#[case::step(
    json!({ "components": [], "workflow": { "steps": [{ "name": "s", "type": "unknown" }] } }),
    "failed to parseWorkflowSteps: failed to get workflow step definition unknown: WorkflowStepDefinition unknown not \
     found in namespace team, namespace vela-system"
)]
#[case::workflow(
    json!({ "components": [], "workflow": { "ref": "testing-wf" } }),
    "failed to parseWorkflowSteps: Workflow.core.oam.dev \"testing-wf\" not found"
)]
#[case::steps_and_reference(
    json!({ "components": [], "workflow": { "ref": "w", "steps": [{ "name": "s", "type": "suspend" }] } }),
    "failed to parseWorkflowSteps: cannot set steps and ref in workflow at the same time"
)]
fn errors_tell_what_is_missing_where(#[case] spec: Value, #[case] expected: &str) {
    let error = parse_in(&Cluster::with_definitions(), &spec).unwrap_err();
    assert_eq!(error, expected);
}

#[test]
fn the_number_of_components_is_limited() {
    let names: Vec<_> = (0..1001).map(|number| format!("c{number}")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "worker")).collect();
    let error = parse_in(&Cluster::with_definitions(), &components(&many)).unwrap_err();
    assert!(error.contains("1001 components exceed the limit of 1000"), "{error}");
}

#[test]
fn two_versions_of_one_definition_are_refused_unless_they_are_equal() {
    let mut cluster = Cluster::with_definitions();
    cluster.add_revision("vela-system", DefinitionKind::Component, "worker", "worker-v1", "first");
    cluster.add_revision(
        "vela-system",
        DefinitionKind::Component,
        "worker",
        "worker-v2",
        "// worker",
    );
    let equal = components(&[("a", "worker"), ("b", "worker@v2")]);
    assert!(parse_in(&cluster, &equal).is_ok());
    let different = components(&[("a", "worker"), ("b", "worker@v1")]);
    assert_eq!(
        parse_in(&cluster, &different).unwrap_err(),
        "failed to parseComponents: types worker and worker@v1 are versions of one definition, which can't be used in \
         one application"
    );
}

#[test]
fn a_revision_records_all_that_was_used_and_named_policies() {
    let spec = json!({
        "components": [{ "name": "web", "type": "webservice", "traits": [{ "type": "scaler" }] }],
        "policies": [
            { "type": "quota", "properties": { "cpu": 1 } },
            { "name": "once", "type": "apply-once", "properties": {} },
        ],
        "workflow": { "steps": [
            { "name": "a", "type": "notify" }, { "name": "b", "type": "step-group", "subSteps": [{ "name": "c", "type": "deploy" }] },
        ] },
    });
    let contents = contents_in(&Cluster::with_definitions(), &spec);
    let keys = |value: Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let json = serde_json::to_value(&contents).unwrap();
    assert_eq!(keys(json["componentDefinitions"].clone()), ["webservice"]);
    assert_eq!(keys(json["traitDefinitions"].clone()), ["scaler"]);
    assert_eq!(keys(json["policyDefinitions"].clone()), ["quota"]);
    assert_eq!(keys(json["workflowStepDefinitions"].clone()), ["deploy", "notify"]);
    let names: Vec<_> = contents
        .application
        .spec
        .policies
        .iter()
        .map(|policy| policy.name.as_str())
        .collect();
    assert_eq!(names, ["quota-auto-gen-0", "once"]);
    assert!(contents.application.status.is_none());
}

#[test]
fn a_revision_records_no_uid_generation_and_creation_time_of_its_application() {
    let contents = contents_in(&Cluster::with_definitions(), &json!({ "components": [] }));
    let metadata = serde_json::to_value(&contents.application.metadata).unwrap();
    assert_eq!(metadata["name"], "shop");
    for field in ["uid", "generation", "creationTimestamp", "resourceVersion"] {
        assert_eq!(metadata[field], Value::Null, "{field}");
    }
}
