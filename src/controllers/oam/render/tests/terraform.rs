use rstest::rstest;
use serde_json::{Value, json};

use super::fake::FakeEvaluator;
use super::template;
use crate::api::oam::ComponentDefinition;
use crate::controllers::oam::context::Context;
use crate::controllers::oam::render::cache_key::component_key;
use crate::controllers::oam::render::component::{Base, DefinitionTemplate, Rendered, TemplatedComponent, render};
use crate::controllers::oam::render::terraform::{Terraform, configuration_health};

const HCL: &str = "output \"a\" { value = 1 }";

fn definition(module: Value) -> ComponentDefinition {
    let annotations = json!({ "definition.oam.dev/description": "A database" });
    let definition = json!({
        "metadata": { "name": "rds", "annotations": annotations }, "spec": { "schematic": { "terraform": module } },
    });
    serde_json::from_value(definition).unwrap()
}

fn component<'a>(
    definition: &'a ComponentDefinition,
    properties: &'a Value,
    traits: &'a [DefinitionTemplate<'a>],
    context: &'a Context,
) -> TemplatedComponent<'a> {
    TemplatedComponent {
        name: "db",
        base: Base::Terraform(Terraform {
            name: "rds",
            definition,
            properties: Some(properties),
            namespace: "team",
        }),
        traits,
        context,
        output_status: None,
    }
}

async fn rendered(module: Value, properties: Value) -> Result<Rendered, String> {
    let (definition, context) = (definition(module), Context::default());
    let evaluator = FakeEvaluator::default();
    let rendered = render(&evaluator, &component(&definition, &properties, &[], &context)).await;
    assert_eq!(evaluator.sources(), [] as [&str; 0]);
    rendered.map_err(|error| error.to_string())
}

async fn spec(module: Value, properties: Value) -> Value {
    rendered(module, properties).await.unwrap().workload["spec"].clone()
}

#[tokio::test]
async fn a_terraform_component_is_a_configuration_with_the_annotations_of_its_definition() {
    let module = json!({ "configuration": HCL, "type": "hcl" });
    let rendered = rendered(module, json!({ "size": 2 })).await.unwrap();
    let expected = json!({
        "apiVersion": "terraform.core.oam.dev/v1beta2", "kind": "Configuration",
        "metadata": { "annotations": { "definition.oam.dev/description": "A database" } },
        "spec": { "hcl": HCL, "variable": { "size": 2 } },
    });
    assert_eq!(Value::Object(rendered.workload), expected);
    assert!(rendered.outputs.is_empty());
}

#[rstest]
#[case::the_default_is_hcl(json!({ "configuration": HCL }), json!({ "hcl": HCL }))]
#[case::remote(
    json!({ "configuration": "https://example.com/modules.git", "type": "remote", "path": "aws/rds" }),
    json!({ "remote": "https://example.com/modules.git", "path": "aws/rds" })
)]
#[tokio::test]
async fn a_module_is_a_text_or_a_repository(#[case] module: Value, #[case] mut expected: Value) {
    expected["variable"] = json!({});
    assert_eq!(spec(module.clone(), json!({})).await, expected);
    assert_eq!(spec(module, Value::Null).await, expected);
}

#[tokio::test]
async fn properties_are_variables_or_fields_or_both_as_in_kubevela() {
    let properties = json!({
        "size": 2, "customRegion": "eu", "forceDelete": true, "deleteResource": false, "region": "us",
        "jobEnv": { "LOG": "1" }, "backend": null, "gitCredentialsSecretReference": { "name": "git" },
    });
    let expected = json!({
        "hcl": HCL, "customRegion": "eu", "forceDelete": true, "deleteResource": false, "jobEnv": { "LOG": "1" },
        "gitCredentialsSecretReference": { "name": "git" },
        "variable": { "size": 2, "deleteResource": false, "region": "us", "jobEnv": { "LOG": "1" }, "backend": null },
    });
    assert_eq!(spec(json!({ "configuration": HCL }), properties).await, expected);
}

#[tokio::test]
async fn a_component_overrides_the_references_of_its_module() {
    let module = json!({
        "configuration": HCL, "providerRef": { "name": "aws", "namespace": "default" },
        "gitCredentialsSecretReference": { "name": "git" }, "writeConnectionSecretToRef": { "name": "shared" },
    });
    let of_module = spec(module.clone(), json!({})).await;
    assert_eq!(
        of_module["providerRef"],
        json!({ "name": "aws", "namespace": "default" })
    );
    assert_eq!(of_module["gitCredentialsSecretReference"], json!({ "name": "git" }));
    let properties = json!({ "providerRef": { "name": "own" }, "writeConnectionSecretToRef": { "name": "db" } });
    let overridden = spec(module, properties).await;
    assert_eq!(overridden["providerRef"], json!({ "name": "own" }));
    assert_eq!(overridden["writeConnectionSecretToRef"]["name"], "db");
    assert_eq!(overridden["variable"], json!({}));
}

#[rstest]
#[case::of_the_application(json!({ "name": "db" }), "team")]
#[case::empty(json!({ "name": "db", "namespace": "" }), "team")]
#[case::another(json!({ "name": "db", "namespace": "shared" }), "shared")]
#[tokio::test]
async fn the_secret_of_the_connection_has_a_namespace(#[case] secret: Value, #[case] expected: &str) {
    let module = json!({ "configuration": HCL });
    let of_component = spec(module, json!({ "writeConnectionSecretToRef": secret })).await;
    assert_eq!(of_component["writeConnectionSecretToRef"]["namespace"], expected);
    let module = json!({ "configuration": HCL, "writeConnectionSecretToRef": secret });
    assert_eq!(
        spec(module, json!({})).await["writeConnectionSecretToRef"]["namespace"],
        expected
    );
}

#[rstest]
#[case::no_configuration(json!({}), json!({}), "terraform configuration is not set")]
#[case::an_empty_one(json!({ "configuration": "" }), json!({}), "terraform configuration is not set")]
#[case::json_syntax(
    json!({ "configuration": "{}", "type": "json" }), json!({}),
    "a terraform configuration of type \"json\" is not supported; use hcl or remote"
)]
#[case::too_large(
    json!({ "configuration": "x".repeat(1_048_577) }), json!({}),
    "the terraform configuration takes 1048577 bytes, more than 1048576; use a remote module"
)]
#[case::a_reference(
    json!({ "configuration": HCL }), json!({ "providerRef": "hunter2" }),
    "failed to convert Terraform component properties: providerRef must be an object"
)]
#[case::a_boolean(
    json!({ "configuration": HCL }), json!({ "deleteResource": "no" }),
    "failed to convert Terraform component properties: deleteResource must be a boolean"
)]
#[case::no_properties(
    json!({ "configuration": HCL }), json!([1]),
    "failed to convert Terraform component properties: properties must be an object"
)]
#[tokio::test]
async fn errors_of_modules_are_in_the_words_of_kubevela(
    #[case] module: Value,
    #[case] properties: Value,
    #[case] expected: &str,
) {
    let prefix = "component db: failed to generate Terraform Configuration workload for workload db: ";
    assert_eq!(rendered(module, properties).await, Err(format!("{prefix}{expected}")));
}

#[tokio::test]
async fn a_definition_that_is_only_annotated_as_terraform_has_no_module() {
    let definition = json!({ "metadata": { "name": "rds", "annotations": { "type": "terraform" } }, "spec": {} });
    let definition: ComponentDefinition = serde_json::from_value(definition).unwrap();
    assert!(definition.is_terraform());
    let (properties, context) = (json!({}), Context::default());
    let component = component(&definition, &properties, &[], &context);
    let error = render(&FakeEvaluator::default(), &component).await.unwrap_err();
    assert!(
        error.to_string().ends_with("terraform configuration is not set"),
        "{error}"
    );
}

#[tokio::test]
async fn traits_see_and_patch_a_configuration() {
    let (definition, properties) = (definition(json!({ "configuration": HCL })), json!({}));
    let traits = [template(
        "keep",
        "// +patchStrategy=retainKeys\npatch: context.output",
        None,
    )];
    let patch =
        json!({ "patch": { "spec": { "deleteResource": false } }, "outputs": { "note": { "kind": "ConfigMap" } } });
    let (evaluator, context) = (FakeEvaluator::new([Ok(patch)]), Context::default());
    let component = component(&definition, &properties, &traits, &context);
    let rendered = render(&evaluator, &component).await.unwrap();
    assert_eq!(rendered.workload["spec"]["deleteResource"], false);
    assert_eq!(rendered.workload["spec"]["hcl"], HCL);
    assert_eq!(rendered.outputs.len(), 1);
    assert!(evaluator.sources()[0].contains("terraform.core.oam.dev/v1beta2"));
}

#[test]
fn the_key_of_a_terraform_component_covers_module_annotations_properties_and_namespace() {
    let key = |definition: &ComponentDefinition, properties: Value, namespace: &str| {
        let context = Context::default();
        let mut component = component(definition, &properties, &[], &context);
        if let Base::Terraform(terraform) = &mut component.base {
            terraform.namespace = namespace;
        }
        component_key(&component)
    };
    let module = definition(json!({ "configuration": HCL }));
    let base = key(&module, json!({}), "team");
    assert_eq!(base, key(&module.clone(), json!({}), "team"));
    let mut annotated = module.clone();
    annotated.metadata.annotations = None;
    for other in [
        key(&definition(json!({ "configuration": "" })), json!({}), "team"),
        key(&annotated, json!({}), "team"),
        key(&module, json!({ "size": 1 }), "team"),
        key(&module, json!({}), "other"),
    ] {
        assert_ne!(base, other);
    }
}

#[rstest]
#[case::no_status(json!({}), false, "")]
#[case::in_progress(json!({ "apply": { "state": "ProvisioningAndChecking", "message": "wait" } }), false, "wait")]
#[case::available(json!({ "apply": { "state": "Available", "message": "ready" } }), true, "ready")]
#[case::observed(json!({ "observedGeneration": 2, "apply": { "state": "Available" } }), true, "")]
#[case::of_an_older_generation(json!({ "observedGeneration": 1, "apply": { "state": "Available" } }), false, "")]
#[case::control_characters(json!({ "apply": { "state": "Failed", "message": "a\u{1b}b" } }), false, "a b")]
fn a_configuration_is_healthy_once_its_resources_are_available(
    #[case] status: Value,
    #[case] is_healthy: bool,
    #[case] message: &str,
) {
    let declared = json!({ "metadata": { "labels": { "app.oam.dev/appRevision": "shop-v1" } } });
    let mut live = declared.clone();
    live["metadata"]["generation"] = json!(2);
    live["status"] = status;
    let health = configuration_health(&declared, &live);
    assert_eq!((health.is_healthy, health.message.as_str()), (is_healthy, message));
}

#[rstest]
#[case::this_one(json!({ "app.oam.dev/appRevision": "shop-v2" }), true)]
#[case::none(json!({}), true)]
#[case::an_older_one(json!({ "app.oam.dev/appRevision": "shop-v1" }), false)]
fn a_configuration_of_another_revision_is_not_healthy(#[case] labels: Value, #[case] expected: bool) {
    let declared = json!({ "metadata": { "labels": { "app.oam.dev/appRevision": "shop-v2" } } });
    let live = json!({ "metadata": { "labels": labels }, "status": { "apply": { "state": "Available" } } });
    assert_eq!(configuration_health(&declared, &live).is_healthy, expected);
}
