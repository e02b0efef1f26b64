use rstest::rstest;

use super::*;

fn template_of(definitions: &Definitions<'_>, type_: &str) -> Result<String, String> {
    let parsed = parse(&application(&components(&[("web", type_)])), definitions).map_err(|error| error.to_string())?;
    Ok(parsed.components[0]
        .definition
        .template()
        .unwrap_or_default()
        .to_owned())
}

/// A cluster with revisions of the definition `web` in two namespaces.
fn versions() -> Cluster {
    let mut cluster = Cluster::default();
    cluster.add("ComponentDefinition", "vela-system", "web", &template("live"));
    for (namespace, version) in [
        ("vela-system", "v1"),
        ("vela-system", "v1.2.9"),
        ("vela-system", "v1.2.10"),
        ("team", "v1.3.0"),
        ("vela-system", "v1.20.0"),
        ("vela-system", "v2.0.0"),
        ("vela-system", "v2.1.0-beta.1"),
        ("vela-system", "v3.odd"),
        ("vela-system", "v3.1"),
    ] {
        let name = format!("web-{version}");
        cluster.add_revision(namespace, DefinitionKind::Component, "web", &name, version);
    }
    // Another definition, and another kind, whose revisions have similar names.
    cluster.add_revision("vela-system", DefinitionKind::Trait, "web", "web-v1.9.0", "of a trait");
    cluster.add_revision(
        "vela-system",
        DefinitionKind::Component,
        "web-v1",
        "web-v1-v9",
        "of another",
    );
    cluster
}

#[rstest]
#[case::live("web", Ok("live"), Ok("live"))]
#[case::exact("web@v1", Ok("v1"), Ok("v1"))]
#[case::exact_patch("web@v1.2.9", Ok("v1.2.9"), Ok("v1.2.9"))]
#[case::of_the_application("web@v1.3.0", Ok("v1.3.0"), Ok("v1.3.0"))]
#[case::newest_patch("web@v1.2", Err("web-v1.2"), Ok("v1.2.10"))]
#[case::newest_minor("web@v2", Err("web-v2"), Ok("v2.1.0-beta.1"))]
#[case::odd_versions_are_skipped("web@v3", Err("web-v3"), Ok("v3.1"))]
#[case::no_such_version("web@v4", Err("web-v4"), Err("web-v4"))]
#[case::of_another_kind("web@v1.9.0", Err("web-v1.9.0"), Err("web-v1.9.0"))]
fn versions_are_exact_unless_autoupdate_allows_newer_ones(
    #[case] type_: &str,
    #[case] exact: Result<&str, &str>,
    #[case] updated: Result<&str, &str>,
) {
    let cluster = versions();
    for (auto_update, expected) in [(false, exact), (true, updated)] {
        let definitions = Definitions::live(&cluster, "team", "vela-system", auto_update);
        let expected = expected.map(str::to_owned).map_err(|name| {
            format!(
                "failed to parseComponents: component web: DefinitionRevision {name} not found in namespace team, \
                 namespace vela-system"
            )
        });
        assert_eq!(template_of(&definitions, type_), expected, "{auto_update}");
    }
}

#[test]
fn recorded_definitions_come_first_and_missing_ones_from_the_cluster() {
    let mut cluster = Cluster::with_definitions();
    let recorded = contents_in(&cluster, &components(&[("web", "webservice")]));
    cluster.0.clear();
    cluster.add("ComponentDefinition", "vela-system", "webservice", &template("edited"));
    cluster.add("ComponentDefinition", "vela-system", "worker", &template("new"));
    let definitions = live(&cluster).recorded_first("shop-v1", &recorded);
    assert_eq!(template_of(&definitions, "webservice").unwrap(), "// webservice");
    assert_eq!(template_of(&definitions, "worker").unwrap(), "new");
    assert_eq!(template_of(&live(&cluster), "webservice").unwrap(), "edited");
}

#[test]
fn a_published_version_is_parsed_from_its_revision_alone() {
    let mut cluster = versions();
    cluster.add("TraitDefinition", "team", "scaler", &template("scale"));
    cluster.add("PolicyDefinition", "team", "quota", &template("limit"));
    cluster.add("WorkflowStepDefinition", "team", "deploy", &template("deploy"));
    let external = json!({ "type": "override", "properties": {} });
    cluster.add("Policy", "team", "ext", &external);
    cluster.add(
        "Workflow",
        "team",
        "flow",
        &json!({ "steps": [
        { "name": "one", "type": "deploy", "properties": { "policies": ["ext"] } },
    ] }),
    );
    let spec = json!({
        "components": [{ "name": "web", "type": "web@v1.2.9", "traits": [{ "type": "scaler" }] }],
        "policies": [{ "name": "q", "type": "quota", "properties": {} }],
        "workflow": { "ref": "flow" },
    });
    let recorded = contents_in(&cluster, &spec);
    assert!(recorded.workflow.is_some() && recorded.policies.contains_key("team/ext"));
    assert!(recorded.component_definitions.contains_key("web"));

    let frozen = Definitions::frozen("shop-v1", &recorded);
    let parsed = parse(&application(&spec), &frozen).unwrap();
    assert_eq!(parsed.components[0].definition.template(), Some("v1.2.9"));
    assert_eq!(parsed.contents(&application(&spec)), recorded);

    let missing = components(&[("web", "worker")]);
    let error = parse(&application(&missing), &frozen).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to parseComponentsFromRevision: component web: ComponentDefinition worker not found in revision shop-v1"
    );
    let missing = json!({ "components": [], "workflow": { "steps": [{ "name": "s", "type": "notify" }] } });
    let error = parse(&application(&missing), &frozen).unwrap_err().to_string();
    assert!(
        error.starts_with("failed to parseWorkflowStepsFromRevision: failed to get workflow step"),
        "{error}"
    );
}

#[test]
fn a_revision_of_another_kind_of_definition_is_an_error() {
    let mut cluster = Cluster::default();
    let labels = json!({ DefinitionKind::Component.name_label(): "web" });
    let empty = json!({
        "metadata": { "labels": labels }, "spec": { "definitionType": "Component", "revision": 1, "revisionHash": "" },
    });
    cluster.add("DefinitionRevision", "team", "web-v1", &empty);
    let error = template_of(&live(&cluster), "web@v1").unwrap_err();
    assert!(
        error.ends_with("DefinitionRevision web-v1 holds no ComponentDefinition"),
        "{error}"
    );
}

#[rstest]
#[case("webservice", "webservice", None)]
#[case("webservice@v2", "webservice", Some("2"))]
#[case("my.web_service@v1.2.3-beta", "my.web_service", Some("1.2.3-beta"))]
fn types_have_a_name_and_maybe_a_version(#[case] text: &str, #[case] name: &str, #[case] version: Option<&str>) {
    let type_name = TypeName::parse(text).unwrap();
    assert_eq!(type_name, TypeName { name, version });
    assert_eq!(type_name.to_string(), text);
}

#[rstest]
#[case("")]
#[case("@v1")]
#[case("web@")]
#[case("web@v")]
#[case("web@1")]
#[case("web@v1@v2")]
#[case("-web")]
#[case("web/../x")]
#[case("a234567890123456789012345678901234567890123456789012345678901234")]
fn invalid_types_are_errors(#[case] text: &str) {
    assert!(TypeName::parse(text).is_err());
}

#[test]
fn labels_name_the_revision_of_a_type() {
    assert_eq!(type_label("webservice"), "webservice");
    assert_eq!(type_label("webservice@v1.2"), "webservice-v1.2");
    assert_eq!(type_label("webservice@1"), "webservice@1");
}
