use rstest::rstest;

use super::*;

#[rstest]
#[case::automatic(definition(json!({ "workload": { "type": "autodetects.core.oam.dev" } })), None)]
#[case::type_alone(definition(json!({ "workload": { "type": "webservice" } })), None)]
#[case::definition_alone(with_workload("", "example.com/v1", "Unknown"), None)]
#[case::same(with_workload("deployments.apps", "apps/v1", "Deployment"), None)]
#[case::same_of_core(with_workload("services", "v1", "Service"), None)]
#[case::nothing(definition(json!({ "workload": {} })), Some(
    "neither the type nor the definition of the workload field in the ComponentDefinition web can be empty"))]
#[case::different(
    with_workload("services", "apps/v1", "Deployment"),
    Some(
        "the type and the definition of the workload field in ComponentDefinition web should represent the same workload"
    )
)]
#[case::subresource(
    with_workload("deployments.apps", "apps/v1", "Scale"),
    Some("no matches for kind \"Scale\" in version \"apps/v1\"")
)]
#[case::other_version(
    with_workload("deployments.apps", "apps/v2", "Deployment"),
    Some("no matches for kind \"Deployment\" in version \"apps/v2\"")
)]
#[tokio::test]
async fn the_type_and_the_definition_of_a_workload_are_the_same(
    #[case] component: Value,
    #[case] expected: Option<&str>,
) {
    let fixture = Fixture::new(Server::default());
    let request = created(DefinitionKind::Component, &component);
    let verdict = fixture.validate(DefinitionKind::Component, &request).await;
    assert_eq!(verdict, expected.map_or_else(Verdict::allowed, denied));
}

#[rstest]
#[tokio::test]
async fn templates_that_do_not_compile_are_denied_except_those_of_steps(
    #[values(
        DefinitionKind::Component,
        DefinitionKind::Trait,
        DefinitionKind::Policy,
        DefinitionKind::WorkflowStep
    )]
    kind: DefinitionKind,
) {
    let fixture = Fixture::new(Server::default());
    let request = created(kind, &definition(template("broken")));
    let verdict = fixture.validate(kind, &request).await;
    let is_step = kind == DefinitionKind::WorkflowStep;
    if is_step {
        let expected = "template can't be parsed: a: conflicting values 1 and 2";
        assert_eq!(warnings(verdict), [expected]);
    } else {
        let expected = "template does not compile: a: conflicting values 1 and 2";
        assert_eq!(verdict, denied(expected));
    }
    let inspected = (NAMESPACE.to_owned(), "broken".to_owned(), !is_step);
    assert_eq!(*fixture.webhooks.evaluator.requests.lock(), [inspected]);
}

#[rstest]
#[case::limit("huge", Verdict::Denied(
    "template exceeds a limit when it is compiled: more than 512MiB; simplify it (requestUID=7)".to_owned()))]
#[case::crash("crash", Verdict::Failed(
    "failed to check the template: CUE evaluator failed: exit status: 2 (requestUID=7)".to_owned()))]
#[tokio::test]
async fn a_review_without_a_result_of_the_evaluator_fails(#[case] text: &str, #[case] expected: Verdict) {
    let fixture = Fixture::new(Server::default());
    let request = created(DefinitionKind::Policy, &definition(template(text)));
    assert_eq!(fixture.validate(DefinitionKind::Policy, &request).await, expected);
}

#[rstest]
#[case("", &[])]
#[case("new", &[])]
#[case("old", &["template uses + or * on lists as CUE before 0.11, which are replaced when it is rendered; use \
                 list.Concat and list.Repeat"])]
#[case("long", &["template is not checked: no result of the CUE evaluator in time"])]
#[case("slow", &["template is not checked: no result of the CUE evaluator in time"])]
#[tokio::test(start_paused = true)]
async fn warnings_allow_a_template(#[case] text: &str, #[case] expected: &[&str]) {
    let fixture = Fixture::new(Server::default());
    let request = created(DefinitionKind::Policy, &definition(template(text)));
    let verdict = fixture.validate(DefinitionKind::Policy, &request).await;
    assert_eq!(warnings(verdict), expected);
}

#[tokio::test]
async fn a_trait_needs_a_template_or_a_reference() {
    let fixture = Fixture::new(Server::default());
    let request = created(DefinitionKind::Trait, &definition(json!({})));
    let verdict = fixture.validate(DefinitionKind::Trait, &request).await;
    let expected = "if definition reference is omitted, patch or output with GVK is required";
    assert_eq!(verdict, denied(expected));
}

#[rstest]
#[case("installed", None)]
#[case(
    "missing",
    Some("apps/v1/Widget (no matches for kind \"Widget\" in version \"apps/v1\")")
)]
#[case(
    "path",
    Some("apps/../v1/Service (no matches for kind \"Service\" in version \"apps/../v1\")")
)]
#[tokio::test]
async fn with_the_gate_the_kinds_of_a_template_are_installed(
    #[case] text: &str,
    #[case] missing: Option<&str>,
    #[values(DefinitionKind::Component, DefinitionKind::WorkflowStep)] kind: DefinitionKind,
) {
    let request = created(kind, &definition(template(text)));
    let without_gate = Fixture::new(Server::default());
    assert_eq!(without_gate.validate(kind, &request).await, Verdict::allowed());
    let fixture = Fixture::requiring_kinds();
    let denied = |missing| denied(&format!("resource type not found on cluster: {missing}"));
    let expected = missing.map_or_else(Verdict::allowed, denied);
    assert_eq!(fixture.validate(kind, &request).await, expected);
    if missing.is_none() {
        assert_eq!(*fixture.server.discoveries.lock(), ["apps/v1", "v1"]);
    }
}

#[tokio::test]
async fn a_group_that_is_down_is_not_missing_and_addons_bring_their_kinds() {
    let fixture = Fixture::requiring_kinds();
    let request = created(DefinitionKind::Policy, &definition(template("down")));
    let verdict = fixture.validate(DefinitionKind::Policy, &request).await;
    let expected = "failed to discover the kinds of down.example.com/v1: ServiceUnavailable (requestUID=7)";
    assert_eq!(verdict, Verdict::Failed(expected.to_owned()));
    let mut of_addon = definition(template("missing"));
    of_addon["metadata"]["labels"] = json!({ "app.oam.dev/name": "addon-widgets" });
    let request = created(DefinitionKind::Policy, &of_addon);
    let verdict = fixture.validate(DefinitionKind::Policy, &request).await;
    assert_eq!(verdict, Verdict::allowed());
}

#[rstest]
#[case::version("1.2", None, Some("Not a valid version"))]
#[case::both(
    "1.2.3",
    Some("stable"),
    Some("ComponentDefinition has both spec.version and revision name annotation. Only one can be present")
)]
#[case::first("", Some("new"), None)]
#[case::same("", Some("stable"), None)]
#[case::changed(
    "",
    Some("other"),
    Some("the definition's spec is different with existing definitionRevision's spec")
)]
#[case::path(
    "",
    Some("../x"),
    Some("invalid definitionRevision name: \"web-v../x\" is no name of a DefinitionRevision")
)]
#[tokio::test]
async fn a_named_revision_never_changes(
    #[case] version: &str,
    #[case] annotation: Option<&str>,
    #[case] expected: Option<&str>,
) {
    let path = |name: &str| format!("/apis/core.oam.dev/v1beta1/namespaces/{NAMESPACE}/definitionrevisions/{name}");
    let revision = |text: &str| {
        let component = json!({ "metadata": {}, "spec": template(text) });
        json!({
            "apiVersion": "core.oam.dev/v1beta1", "kind": "DefinitionRevision", "metadata": { "name": "r" },
            "spec": { "revision": 1, "definitionType": "Component", "componentDefinition": component },
        })
    };
    let server = Server::with(&path("web-vstable"), revision("new"));
    server.objects.lock().push((path("web-vother"), revision("old")));
    let mut component = definition(template("new"));
    component["spec"]["version"] = json!(version);
    if let Some(name) = annotation {
        component["metadata"]["annotations"] = json!({ "definitionrevision.oam.dev/name": name });
    }
    let fixture = Fixture::new(server);
    let request = created(DefinitionKind::Component, &component);
    let verdict = fixture.validate(DefinitionKind::Component, &request).await;
    assert_eq!(verdict, expected.map_or_else(Verdict::allowed, denied));
}

#[tokio::test]
async fn a_version_that_can_name_no_revision_is_denied() {
    let fixture = Fixture::new(Server::default());
    let mut policy = definition(template("new"));
    policy["spec"]["version"] = json!("1.02.3");
    let request = created(DefinitionKind::Policy, &policy);
    let verdict = fixture.validate(DefinitionKind::Policy, &request).await;
    let expected = "invalid definitionRevision name: spec.version \"1.02.3\" is no semantic version";
    assert!(
        matches!(&verdict, Verdict::Denied(text) if text.starts_with(expected)),
        "{verdict:?}"
    );
}

#[tokio::test]
async fn only_definitions_that_are_written_are_reviewed() {
    let fixture = Fixture::new(Server::default());
    let kind = DefinitionKind::Component;
    let broken = definition(template("broken"));
    let deleted = reviewed(kind, "DELETE", &Value::Null, &[]);
    assert_eq!(fixture.validate(kind, &deleted).await, Verdict::allowed());
    let mut ending = broken.clone();
    ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let ending = reviewed(kind, "UPDATE", &ending, &[]);
    assert_eq!(fixture.validate(kind, &ending).await, Verdict::allowed());

    let other = json!({ "group": "core.oam.dev", "version": "v1beta1", "resource": "traitdefinitions" });
    let other = reviewed(kind, "CREATE", &broken, &[("resource", other)]);
    let expected = "expect resource to be core.oam.dev/v1beta1, Resource=componentdefinitions";
    let refused = Verdict::Invalid(format!("{expected} (requestUID=7)"));
    assert_eq!(fixture.validate(kind, &other).await, refused);
    assert_eq!(fixture.mutate(&other).await, Verdict::Invalid(expected.to_owned()));
    let invalid = created(kind, &json!({ "metadata": {}, "spec": { "workload": 1 } }));
    let verdict = fixture.validate(kind, &invalid).await;
    assert!(
        matches!(&verdict, Verdict::Invalid(text) if text.starts_with("invalid ComponentDefinition: ")),
        "{verdict:?}"
    );
}
