//! Definitions that the webhooks change or refuse.

use rstest::rstest;
use serde_json::{Value, json};

use super::site::{Reviewed, definition, template};

const DEPLOYMENT: &str = "output: {apiVersion: \"apps/v1\", kind: \"Deployment\"}\nparameter: {image: string}\n";

fn component(workload: Value, text: &str) -> Value {
    definition(
        "ComponentDefinition",
        "mine",
        json!({ "workload": workload, "schematic": template(text) }),
    )
}

fn detected(text: &str) -> Value {
    component(json!({ "type": "autodetects.core.oam.dev" }), text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_definitions_are_denied_with_the_reason() {
    let reviewed = Reviewed::new("Fail").await;
    let _portolan = reviewed
        .portolan(&["--feature-gates=ValidateResourcesExist=true"])
        .await;
    let trait_ = |spec: Value| definition("TraitDefinition", "mine", spec);
    let cases = [
        ("componentdefinitions", detected("output: {"), "expected '}'"),
        (
            "componentdefinitions",
            detected("output: nothing.x\n"),
            "reference \"nothing\" not found",
        ),
        (
            "componentdefinitions",
            detected("output: {apiVersion: \"example.com/v1\", kind: \"Nothing\"}\n"),
            "resource type not found on cluster: example.com/v1/Nothing",
        ),
        (
            "traitdefinitions",
            trait_(json!({})),
            "if definition reference is omitted, patch or output with GVK is required",
        ),
        (
            "traitdefinitions",
            trait_(json!({ "schematic": template("patch: {") })),
            "expected '}'",
        ),
        (
            "traitdefinitions",
            trait_(json!({ "schematic": template("patch: {}\n"), "version": "1.2" })),
            "Not a valid version",
        ),
    ];
    for (resource, object, expected) in cases {
        let denied = reviewed.create(resource, &object).await;
        assert_eq!(denied.code, 403, "{object}: {denied:?}");
        assert!(denied.message().contains(expected), "{expected}: {}", denied.message());
    }
    let created = reviewed.create("componentdefinitions", &detected(DEPLOYMENT)).await;
    assert_eq!(created.code, 201, "{created:?}");
}

#[rstest]
#[case::of_a_kind(json!({ "definition": { "apiVersion": "apps/v1", "kind": "Deployment" } }), "deployments.apps")]
#[case::without_anything(json!({ "type": "" }), "autodetects.core.oam.dev")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_definition_gets_its_workload_type(#[case] workload: Value, #[case] expected: &str) {
    let reviewed = Reviewed::new("Fail").await;
    let _portolan = reviewed.portolan(&[]).await;
    let object = component(workload, DEPLOYMENT);
    let workload_definition = "core.oam.dev/v1beta1 WorkloadDefinition";
    let tried = reviewed.create_dry("componentdefinitions", &object).await;
    assert_eq!(tried.code, 201, "{tried:?}");
    assert_eq!(
        reviewed.site.get(workload_definition, expected).await,
        None,
        "a dry run writes nothing"
    );
    let created = reviewed.create("componentdefinitions", &object).await;
    assert_eq!(created.body["spec"]["workload"]["type"], expected, "{created:?}");
    let is_made = reviewed.site.get(workload_definition, expected).await.is_some();
    assert_eq!(is_made, expected.starts_with("deployments"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_template_for_an_older_cue_passes_with_a_warning() {
    let reviewed = Reviewed::new("Fail").await;
    let _portolan = reviewed.portolan(&[]).await;
    let text =
        "parameter: {}\na: [1] + [2]\noutput: {apiVersion: \"v1\", kind: \"ConfigMap\", data: b: \"\\(len(a))\"}\n";
    let created = reviewed.create("componentdefinitions", &detected(text)).await;
    assert_eq!(created.code, 201, "{created:?}");
    assert_eq!(created.warnings.len(), 1, "{:?}", created.warnings);
}
