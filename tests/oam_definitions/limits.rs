//! Revisions that are kept and deleted, and those of KubeVela.

use kube::api::DeleteParams;
use portolan::api::oam::DefinitionKind;

use super::*;

fn limited(limit: usize) -> DefinitionSettings {
    DefinitionSettings {
        revision_limit: limit,
        ..settings()
    }
}

#[tokio::test]
async fn the_oldest_revisions_are_deleted_but_none_that_is_in_use() {
    let site = Site::new().await;
    let is_in_use: IsInUse = Arc::new(|kind, name| kind == DefinitionKind::Component && name == "web-v1");
    let _controller = site.controller_with(limited(1), is_in_use).await;
    for number in 1..=5 {
        site.apply("ComponentDefinition", "web", component(&number.to_string()))
            .await;
        site.until_recorded("ComponentDefinition", "web", &format!("web-v{number}"))
            .await;
    }
    // The last reconcile may not have seen the last but one revision; another one does.
    let mut labeled = component("5");
    labeled["metadata"] = json!({ "labels": { "team": "a" } });
    site.apply("ComponentDefinition", "web", labeled).await;
    site.until_revisions(&["web-v1", "web-v4", "web-v5"]).await;
}

/// A definition and its revision as KubeVela leaves them.
async fn recorded_by_kubevela(site: &Site) {
    let mut definition = component("a");
    definition["spec"]["podDisruptive"] = json!(false);
    let uid = site.apply("ComponentDefinition", "web", definition).await.uid();
    let mut recorded = component("a");
    recorded["apiVersion"] = json!("core.oam.dev/v1beta1");
    recorded["kind"] = json!("ComponentDefinition");
    recorded["metadata"] = json!({ "name": "web", "creationTimestamp": null, "uid": uid });
    recorded["spec"]["workload"]["type"] = json!("");
    let revision = json!({
        "metadata": {
            "labels": { "componentdefinition.oam.dev/name": "web" },
            "ownerReferences": [{ "apiVersion": "core.oam.dev/v1beta1", "kind": "ComponentDefinition", "name": "web",
                "uid": uid }],
        },
        "spec": { "revision": 4, "revisionHash": "5f8c1d2a9b3e4f60", "definitionType": "Component",
            "componentDefinition": recorded, "traitDefinition": { "metadata": {}, "spec": {} } },
    });
    site.apply("DefinitionRevision", "web-v4", revision).await;
    let latest = json!({ "name": "web-v4", "revision": 4, "revisionHash": "5f8c1d2a9b3e4f60" });
    let status = json!({ "configMapRef": "component-schema-web", "latestRevision": latest });
    site.write_status("ComponentDefinition", "web", status).await;
    for name in ["component-schema-web", "component-schema-web-v4"] {
        let config_map = json!({
            "metadata": { "labels": { "definition.oam.dev": "schema" } },
            "data": { "openapi-v3-json-schema": "{}" },
        });
        site.apply("ConfigMap", name, config_map).await;
    }
}

#[tokio::test]
async fn taking_over_writes_nothing_until_the_definition_is_edited() {
    let site = Site::new().await;
    recorded_by_kubevela(&site).await;
    let controller = site.controller().await;
    controller.until_synced().await;
    controller.until_reconciled(1).await;
    assert_no_writes(&controller);

    site.apply("ComponentDefinition", "web", component("parameter: b?: int"))
        .await;
    let status = site.until_recorded("ComponentDefinition", "web", "web-v5").await;
    assert_eq!(status["configMapRef"], "component-schema-web");
    assert!(site.schema("component-schema-web").await.contains("integer"));
    assert!(site.schema("component-schema-web-v5").await.contains("integer"));
    assert_eq!(site.schema("component-schema-web-v4").await, "{}");
    assert_eq!(
        site.revision("web-v4").await.unwrap().spec.revision_hash,
        "5f8c1d2a9b3e4f60"
    );
}

#[tokio::test]
async fn a_restart_writes_nothing() {
    let site = Site::new().await;
    let first = site.controller().await;
    for name in ["web", "worker"] {
        site.apply("ComponentDefinition", name, component("a")).await;
        site.until_recorded("ComponentDefinition", name, &format!("{name}-v1"))
            .await;
    }
    let mut invalid = component("a");
    invalid["spec"]["version"] = "x".into();
    site.apply("ComponentDefinition", "invalid", invalid).await;
    site.until_failed("ComponentDefinition", "invalid", "is no semantic version")
        .await;
    drop(first);
    let second = site.controller().await;
    second.until_reconciled(3).await;
    assert_no_writes(&second);
}

#[tokio::test]
async fn a_deleted_revision_is_replaced_and_those_of_a_deleted_definition_are_collected() {
    let site = Site::new().await;
    let _controller = site.controller().await;
    site.apply("ComponentDefinition", "web", component("a")).await;
    site.until_recorded("ComponentDefinition", "web", "web-v1").await;
    site.api("DefinitionRevision")
        .delete("web-v1", &DeleteParams::default())
        .await
        .unwrap();
    site.until_recorded("ComponentDefinition", "web", "web-v2").await;
    site.api("ComponentDefinition")
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    site.until_revisions(&[]).await;
}

#[tokio::test]
async fn a_definition_that_is_created_again_gets_a_revision_that_stays() {
    let site = Site::new().await;
    let _controller = site.controller().await;
    let mut versioned = component("a");
    versioned["spec"]["version"] = "1.0.0".into();
    let definitions = site.api("ComponentDefinition");
    site.apply("ComponentDefinition", "web", versioned.clone()).await;
    site.until_recorded("ComponentDefinition", "web", "web-v1.0.0").await;
    definitions.delete("web", &DeleteParams::default()).await.unwrap();
    let uid = site.apply("ComponentDefinition", "web", versioned).await.uid().unwrap();
    site.until_recorded("ComponentDefinition", "web", "web-v1.0.0").await;
    let owners = site
        .revision("web-v1.0.0")
        .await
        .unwrap()
        .metadata
        .owner_references
        .unwrap();
    assert_eq!(owners[0].uid, uid);
}
