//! ConfigMaps with the schemas of parameters.

use kube::api::DeleteParams;

use super::*;
use crate::support::fault_proxy::ApiFault;

/// Only the parameters are compiled.
const TEMPLATE: &str = "
import \"vela/kube\"

apply: kube.#Apply & {$params: missing}
parameter: {
	// +usage=Image of the container
	image: string
}
";

/// Counts to 10^15 without memory.
const ENDLESS: &str = r#"
import "list"

let r = list.Range(0, 1000, 1)
parameter: a: len([for a in r for b in r for c in r for d in r for e in r if a+b+c+d+e < 0 {a}])
"#;

#[tokio::test]
async fn definitions_of_all_kinds_and_their_revisions_have_schemas() {
    let site = Site::new().await;
    let _controller = site.controller().await;
    for (kind, type_) in [
        ("ComponentDefinition", "component"),
        ("TraitDefinition", "trait"),
        ("PolicyDefinition", "policy"),
        ("WorkflowStepDefinition", "workflowstep"),
    ] {
        let mut definition = component(TEMPLATE);
        if kind != "ComponentDefinition" {
            definition["spec"].as_object_mut().unwrap().remove("workload");
        }
        definition["metadata"] = json!({ "labels": { "team": "a" } });
        let uid = site.apply(kind, type_, definition).await.uid();
        let revision = format!("{type_}-v1");
        let status = site.until_recorded(kind, type_, &revision).await;
        assert_eq!(status["configMapRef"], format!("{type_}-schema-{type_}"));
        let revision_uid = site.revision(&revision).await.unwrap().uid();
        for (name, owner, uid) in [
            (type_, kind, uid),
            (revision.as_str(), "DefinitionRevision", revision_uid),
        ] {
            let config_map = format!("{type_}-schema-{name}");
            let schema: Value = serde_json::from_str(&site.schema(&config_map).await).unwrap();
            let image = json!({ "title": "image", "type": "string", "description": "Image of the container" });
            let expected = json!({ "type": "object", "required": ["image"], "properties": { "image": image } });
            assert_eq!(schema, expected);
            let metadata = json!(site.api("ConfigMap").get(&config_map).await.unwrap().metadata);
            let labels = json!({ "team": "a", "definition.oam.dev": "schema", "definition.oam.dev/name": name });
            assert_eq!(metadata["labels"], labels);
            let owners = json!([{ "apiVersion": "core.oam.dev/v1beta1", "kind": owner, "name": name, "uid": uid }]);
            assert_eq!(metadata["ownerReferences"], owners);
        }
    }
}

#[tokio::test]
async fn a_definition_without_a_schema_is_recorded_and_says_why() {
    let site = Site::new().await;
    let first = site.controller().await;
    site.apply("ComponentDefinition", "web", component("parameter: a: 1 & 2"))
        .await;
    let words = "cannot store capability web in ConfigMap: parameter.a: conflicting values";
    let status = site.until_failed("ComponentDefinition", "web", words).await;
    assert_eq!(
        (latest(&status), &status["configMapRef"]),
        ("web-v1".to_owned(), &Value::Null)
    );
    drop(first);
    let second = site.controller().await;
    second.until_reconciled(1).await;
    assert_no_writes(&second);
    site.apply("ComponentDefinition", "web", component("parameter: a: int"))
        .await;
    let status = site.until_recorded("ComponentDefinition", "web", "web-v2").await;
    assert_eq!(status["configMapRef"], "component-schema-web");
}

#[tokio::test]
async fn a_definition_of_a_terraform_module_has_no_schema_and_says_so() {
    let site = Site::new().await;
    let _controller = site.controller().await;
    let mut module = component("");
    module["spec"]["schematic"] = json!({ "terraform": { "type": "hcl", "configuration": "variable \"size\" {}" } });
    site.apply("ComponentDefinition", "bucket", module).await;
    let words = "cannot store capability bucket in ConfigMap: only CUE templates have schemas";
    let status = site.until_failed("ComponentDefinition", "bucket", words).await;
    assert_eq!(
        (latest(&status), &status["configMapRef"]),
        ("bucket-v1".to_owned(), &Value::Null)
    );
    let config_map = site.api("ConfigMap").get_opt("component-schema-bucket").await;
    assert_eq!(config_map.unwrap(), None);
}

#[tokio::test]
async fn a_refused_config_map_is_reported_and_applied_with_the_next_event() {
    let site = Site::new().await;
    let controller = site.controller().await;
    controller
        .proxy
        .inject(1, ApiFault::Status(403), is_write_of("configmaps", ""));
    site.apply("ComponentDefinition", "web", component("parameter: a: int"))
        .await;
    site.until_failed("ComponentDefinition", "web", "cannot store capability web in ConfigMap")
        .await;
    let mut labeled = component("parameter: a: int");
    labeled["metadata"] = json!({ "labels": { "team": "a" } });
    site.apply("ComponentDefinition", "web", labeled).await;
    site.until_recorded("ComponentDefinition", "web", "web-v1").await;
    assert!(site.schema("component-schema-web").await.contains("integer"));
}

#[tokio::test]
async fn a_failed_request_is_repeated_before_the_status_names_the_schema() {
    for fault in [ApiFault::Refused, ApiFault::Status(503), ApiFault::ResponseLost] {
        let site = Site::new().await;
        let controller = site.controller().await;
        controller.proxy.inject(1, fault, is_write_of("configmaps", ""));
        site.apply("ComponentDefinition", "web", component("parameter: a: int"))
            .await;
        site.until_recorded("ComponentDefinition", "web", "web-v1").await;
        for name in ["component-schema-web", "component-schema-web-v1"] {
            assert!(site.schema(name).await.contains("integer"));
        }
    }
}

#[tokio::test]
async fn the_status_names_a_revision_while_its_schema_cannot_be_stored() {
    let site = Site::new().await;
    let first = site.controller().await;
    first
        .proxy
        .inject(usize::MAX, ApiFault::Status(503), is_write_of("configmaps", ""));
    site.apply("ComponentDefinition", "web", component("parameter: a: int"))
        .await;
    let words = "cannot store capability web in ConfigMap: failed to apply ConfigMap component-schema-web";
    let status = site.until_failed("ComponentDefinition", "web", words).await;
    assert_eq!(latest(&status), "web-v1");
    drop(first);
    let _second = site.controller().await;
    site.until_recorded("ComponentDefinition", "web", "web-v1").await;
}

#[tokio::test]
async fn a_template_without_an_end_delays_others_of_its_kind_for_a_turn() {
    let site = Site::new().await;
    let _controller = site.controller().await;
    site.apply("ComponentDefinition", "endless", component(ENDLESS)).await;
    let status = site
        .until_failed("ComponentDefinition", "endless", "waiting for a CUE evaluator")
        .await;
    assert_eq!(latest(&status), "endless-v1");
    site.apply("ComponentDefinition", "web", component("parameter: a: int"))
        .await;
    site.until_recorded("ComponentDefinition", "web", "web-v1").await;
}

#[tokio::test]
async fn a_config_map_without_a_schema_stays() {
    let site = Site::new().await;
    let _controller = site.controller().await;
    let foreign = json!({ "data": { "a": "b" } });
    let foreign = site.apply("ConfigMap", "component-schema-web", foreign).await;
    site.apply("ComponentDefinition", "web", component("parameter: a: int"))
        .await;
    let words = "ConfigMap component-schema-web exists and holds no schema";
    let status = site.until_failed("ComponentDefinition", "web", words).await;
    assert_eq!(latest(&status), "web-v1");
    let found = site.api("ConfigMap").get("component-schema-web").await.unwrap();
    assert_eq!(found.resource_version(), foreign.resource_version());
}

#[tokio::test]
async fn a_definition_with_the_name_of_a_revision_leaves_the_schema_of_the_revision() {
    let site = Site::new().await;
    let _controller = site.controller().await;
    site.apply("ComponentDefinition", "web", component("parameter: a: int"))
        .await;
    site.until_recorded("ComponentDefinition", "web", "web-v1").await;
    site.apply("ComponentDefinition", "web-v1", component("parameter: a: bool"))
        .await;
    let words = "ConfigMap component-schema-web-v1 belongs to another object";
    site.until_failed("ComponentDefinition", "web-v1", words).await;
    assert!(site.schema("component-schema-web-v1").await.contains("integer"));
}

#[tokio::test]
async fn schemas_are_collected_with_their_definition() {
    let site = Site::new().await;
    let _controller = site.controller().await;
    site.apply("ComponentDefinition", "web", component("parameter: a: int"))
        .await;
    site.until_recorded("ComponentDefinition", "web", "web-v1").await;
    let definitions = site.api("ComponentDefinition");
    definitions.delete("web", &DeleteParams::default()).await.unwrap();
    let config_maps = site.api("ConfigMap");
    eventually(SOON, "both ConfigMaps to be gone", async || {
        for name in ["component-schema-web", "component-schema-web-v1"] {
            if config_maps.get_opt(name).await.unwrap().is_some() {
                return None;
            }
        }
        Some(())
    })
    .await;
}
