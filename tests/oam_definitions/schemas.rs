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
