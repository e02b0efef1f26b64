use super::super::application::parse_placed;
use super::*;

fn spec(components: &Value) -> Value {
    json!({
        "components": [{ "name": "web", "type": "webservice", "traits": [{ "type": "expose" }] }],
        "policies": [{ "name": "o", "type": "override", "properties": { "components": components } }],
    })
}

#[test]
fn a_revision_records_definitions_that_only_an_override_names() {
    let cluster = Cluster::with_definitions();
    let overridden = spec(&json!([{ "name": "job", "type": "worker", "traits": [{ "type": "scaler" }] }]));
    let contents = contents_in(&cluster, &overridden);
    assert_eq!(
        contents.component_definitions.keys().collect::<Vec<_>>(),
        ["webservice", "worker"]
    );
    assert_eq!(
        contents.trait_definitions.keys().collect::<Vec<_>>(),
        ["expose", "scaler"]
    );
}

#[test]
fn an_external_override_counts_too() {
    let mut cluster = Cluster::with_definitions();
    let properties = json!({ "components": [{ "type": "worker" }] });
    cluster.add(
        "Policy",
        "team",
        "ext",
        &json!({ "type": "override", "properties": properties }),
    );
    let spec = json!({
        "components": [],
        "workflow": { "steps": [{ "name": "s", "type": "deploy", "properties": { "policies": ["ext"] } }] },
    });
    let contents = contents_in(&cluster, &spec);
    assert_eq!(contents.component_definitions.keys().collect::<Vec<_>>(), ["worker"]);
    assert_eq!(contents.policies.keys().collect::<Vec<_>>(), ["team/ext"]);
}

#[test]
fn a_missing_definition_of_an_override_is_named() {
    let cluster = Cluster::with_definitions();
    let error = |components: &Value| parse_in(&cluster, &spec(components)).unwrap_err();
    assert_eq!(
        error(&json!([{ "type": "lost" }])),
        "failed to parsePolicies: failed to get component definition lost for override policy o: \
         ComponentDefinition lost not found in namespace team, namespace vela-system"
    );
    assert_eq!(
        error(&json!([{ "traits": [{ "type": "lost" }] }])),
        "failed to parsePolicies: failed to get trait definition lost for override policy o: \
         TraitDefinition lost not found in namespace team, namespace vela-system"
    );
}

#[test]
fn two_versions_of_a_type_of_a_component_and_an_override_are_refused() {
    let mut cluster = Cluster::with_definitions();
    cluster.add_revision(
        "team",
        DefinitionKind::Component,
        "webservice",
        "webservice-v1",
        "// old",
    );
    let error = parse_in(&cluster, &spec(&json!([{ "type": "webservice@v1" }]))).unwrap_err();
    assert_eq!(
        error,
        "failed to parseComponents: types webservice and webservice@v1 are versions of one definition, which can't be \
         used in one application"
    );
}

#[test]
fn a_published_revision_may_lack_definitions_of_overrides() {
    let cluster = Cluster::with_definitions();
    let overridden = spec(&json!([{ "name": "job", "type": "worker" }]));
    let mut contents = contents_in(&cluster, &overridden);
    contents.component_definitions.remove("worker");
    let app = application(&overridden);
    let frozen = Definitions::frozen("shop-v1", &contents);
    let parsed = parse(&app, &frozen).unwrap();
    assert!(parsed.overrides.components.is_empty());
    let component = serde_json::from_value(json!({ "name": "job", "type": "worker" })).unwrap();
    let error = parse_placed(&component, &frozen).unwrap_err().to_string();
    assert_eq!(
        error,
        "component job: ComponentDefinition worker not found in revision shop-v1"
    );
    let recorded_first = live(&cluster).recorded_first("shop-v1", &contents);
    assert_eq!(
        parse_placed(&component, &recorded_first).unwrap().definition.name(),
        "worker"
    );
}

#[test]
fn a_placed_component_is_parsed_with_recorded_definitions_first() {
    let mut cluster = Cluster::with_definitions();
    let contents = contents_in(&cluster, &spec(&json!([{ "type": "worker" }])));
    cluster.add("ComponentDefinition", "team", "worker", &template("// changed"));
    cluster.add("TraitDefinition", "team", "new", &template("// new"));
    let component = json!({ "name": "job", "type": "worker", "traits": [{ "type": "new" }] });
    let component = serde_json::from_value(component).unwrap();
    let definitions = live(&cluster).recorded_first("shop-v1", &contents);
    let parsed = parse_placed(&component, &definitions).unwrap();
    assert_eq!(parsed.definition.template(), Some("// worker"));
    assert_eq!(parsed.traits[0].type_label, "new");
}

#[test]
fn a_placed_component_needs_all_its_definitions() {
    let cluster = Cluster::with_definitions();
    let error = |component: Value| {
        let component = serde_json::from_value(component).unwrap();
        parse_placed(&component, &live(&cluster)).unwrap_err().to_string()
    };
    assert_eq!(
        error(json!({ "name": "job", "type": "worker", "traits": [{ "type": "lost" }] })),
        "component job: trait lost: TraitDefinition lost not found in namespace team, namespace vela-system"
    );
    let text = error(json!({ "name": "job" }));
    assert!(text.starts_with("component job: invalid type \"\""), "{text}");
}

#[test]
fn external_policies_are_found_in_revisions_of_both_forms() {
    let spec = json!({
        "components": [],
        "workflow": { "steps": [{ "name": "s", "type": "deploy", "properties": { "policies": ["ext"] } }] },
    });
    let policy: Policy =
        serde_json::from_value(json!({ "metadata": {}, "type": "topology", "properties": {} })).unwrap();
    for key in ["team/ext", "ext"] {
        let mut contents = contents_in(&Cluster::with_definitions(), &json!({ "components": [] }));
        let deploy = serde_json::from_value(json!({ "metadata": { "name": "deploy" } })).unwrap();
        contents.workflow_step_definitions.insert("deploy".to_owned(), deploy);
        contents.policies = [(key.to_owned(), policy.clone())].into();
        let parsed = parse(&application(&spec), &Definitions::frozen("shop-v1", &contents)).unwrap();
        assert_eq!(parsed.all_policies[0].name, "ext");
    }
}

#[test]
fn a_revision_records_objects_that_components_refer_to() {
    let cluster = Cluster::with_definitions();
    let app = application(&json!({ "components": [] }));
    let mut parsed = parse(&app, &live(&cluster)).unwrap();
    assert!(parsed.referred_objects.is_empty());
    parsed.referred_objects = vec![json!({ "kind": "ConfigMap" })];
    let contents = parsed.contents(&app);
    let frozen = parse(&app, &Definitions::frozen("shop-v1", &contents)).unwrap();
    assert_eq!(frozen.referred_objects, parsed.referred_objects);
    assert_eq!(contents.referred_objects, parsed.referred_objects);
}
