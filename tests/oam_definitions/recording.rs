//! Revisions of created, edited and versioned definitions.

use serde_json::{Value, json};

use super::*;

fn template(text: &str) -> Value {
    json!({ "spec": { "schematic": { "cue": { "template": text } } } })
}

#[tokio::test]
async fn definitions_of_all_kinds_get_a_revision_and_a_status() {
    let site = Site::new().await;
    let _controller = site.controller().await;
    let kinds = [
        (
            "ComponentDefinition",
            "Component",
            "componentdefinition.oam.dev/name",
            component("a"),
        ),
        ("TraitDefinition", "Trait", "trait.oam.dev/name", template("a")),
        (
            "PolicyDefinition",
            "Policy",
            "policydefinition.oam.dev/name",
            template("a"),
        ),
        (
            "WorkflowStepDefinition",
            "WorkflowStep",
            "workflowstepdefinition.oam.dev/name",
            template("a"),
        ),
    ];
    for (kind, type_, label, mut definition) in kinds {
        let name = type_.to_lowercase();
        definition["metadata"] = json!({ "labels": { "team": "a" }, "annotations": { "note": "b" } });
        let uid = site.apply(kind, &name, definition.clone()).await.uid().unwrap();
        let status = site.until_recorded(kind, &name, &format!("{name}-v1")).await;
        let revision = json!(site.revision(&format!("{name}-v1")).await.unwrap());
        let (metadata, spec) = (&revision["metadata"], &revision["spec"]);
        assert_eq!(metadata["labels"], json!({ "team": "a", label: name }));
        let owner = json!([{ "apiVersion": "core.oam.dev/v1beta1", "kind": kind, "name": name, "uid": uid,
            "controller": true }]);
        assert_eq!(metadata["ownerReferences"], owner);
        assert_eq!((&spec["revision"], &spec["definitionType"]), (&json!(1), &json!(type_)));
        let hash = spec["revisionHash"].as_str().unwrap();
        assert!(hash.starts_with('p') && hash.len() == 17, "{hash}");
        let latest = json!({ "name": format!("{name}-v1"), "revision": 1, "revisionHash": hash });
        assert_eq!(status["latestRevision"], latest);
        let field = format!("{}{}", kind[..1].to_lowercase(), &kind[1..]);
        assert_eq!(spec[&field]["spec"], definition["spec"]);
        assert_eq!(spec[&field]["metadata"]["annotations"], json!({ "note": "b" }));
    }
}

#[tokio::test]
async fn an_edit_of_the_spec_makes_a_revision_and_an_edit_of_labels_does_not() {
    let site = Site::new().await;
    let controller = site.controller().await;
    site.apply("ComponentDefinition", "web", component("a")).await;
    site.until_recorded("ComponentDefinition", "web", "web-v1").await;
    let mut labeled = component("a");
    labeled["metadata"] = json!({ "labels": { "team": "a" } });
    site.apply("ComponentDefinition", "web", labeled).await;
    site.apply("ComponentDefinition", "web", component("b")).await;
    site.until_recorded("ComponentDefinition", "web", "web-v2").await;
    // The contents of an older revision are new again.
    site.apply("ComponentDefinition", "web", component("a")).await;
    site.until_recorded("ComponentDefinition", "web", "web-v3").await;
    assert_eq!(site.revisions().await, ["web-v1", "web-v2", "web-v3"]);
    // A revision, two schemas and a status for each.
    assert_eq!(controller.writes().len(), 12, "{:#?}", controller.writes());
}

#[tokio::test]
async fn definitions_of_the_same_name_share_no_revision() {
    let site = Site::new().await;
    let _controller = site.controller().await;
    site.apply("ComponentDefinition", "web", component("a")).await;
    site.until_recorded("ComponentDefinition", "web", "web-v1").await;
    site.apply("TraitDefinition", "web", template("a")).await;
    site.until_recorded("TraitDefinition", "web", "web-v2").await;
    assert_eq!(site.revision("web-v2").await.unwrap().spec.definition_type, "Trait");
}

#[tokio::test]
async fn a_version_names_the_revision_which_then_never_changes() {
    let site = Site::new().await;
    let _controller = site.controller().await;
    let versioned = |template: &str, version: &str| {
        let mut definition = component(template);
        definition["spec"]["version"] = version.into();
        definition
    };
    site.apply("ComponentDefinition", "web", versioned("a", "v1.2")).await;
    site.until_recorded("ComponentDefinition", "web", "web-v1.2.0").await;
    let before = site.revision("web-v1.2.0").await;

    site.apply("ComponentDefinition", "web", versioned("b", "v1.2")).await;
    let status = site
        .until_failed("ComponentDefinition", "web", "web-v1.2.0 exists with other contents")
        .await;
    assert_eq!(latest(&status), "web-v1.2.0");
    assert_eq!(site.revision("web-v1.2.0").await, before);
    site.apply("ComponentDefinition", "web", versioned("b", "newest")).await;
    site.until_failed(
        "ComponentDefinition",
        "web",
        "spec.version \"newest\" is no semantic version",
    )
    .await;

    site.apply("ComponentDefinition", "web", versioned("b", "1.3.0")).await;
    site.until_recorded("ComponentDefinition", "web", "web-v1.3.0").await;
    assert_eq!(site.revision("web-v1.3.0").await.unwrap().spec.revision, 2);
    // A version that is recorded becomes the latest again.
    site.apply("ComponentDefinition", "web", versioned("a", "v1.2")).await;
    site.until_recorded("ComponentDefinition", "web", "web-v1.2.0").await;
    assert_eq!(site.revisions().await, ["web-v1.2.0", "web-v1.3.0"]);
}

#[tokio::test]
async fn an_annotation_names_the_revision() {
    let site = Site::new().await;
    let _controller = site.controller().await;
    let named = |name: &str| {
        let mut definition = template("a");
        definition["metadata"] = json!({ "annotations": { "definitionrevision.oam.dev/name": name } });
        definition
    };
    site.apply("TraitDefinition", "scaler", named("stable")).await;
    site.until_recorded("TraitDefinition", "scaler", "scaler-vstable").await;
    site.apply("TraitDefinition", "scaler", named("../secrets")).await;
    site.until_failed("TraitDefinition", "scaler", "is no name of a DefinitionRevision")
        .await;
    // The contents are recorded under the other name.
    site.apply("TraitDefinition", "scaler", template("a")).await;
    site.until_recorded("TraitDefinition", "scaler", "scaler-vstable").await;
}

#[tokio::test]
async fn definitions_of_another_controller_are_left_alone() {
    let site = Site::new().await;
    let required = DefinitionSettings {
        is_version_required: true,
        ..settings()
    };
    let controller = site.controller_with(required, Arc::new(|_, _| false)).await;
    let with_version = |version: &str| {
        let mut definition = template("a");
        definition["metadata"] = json!({ "annotations": { "app.oam.dev/controller-version-require": version } });
        definition
    };
    site.apply("PolicyDefinition", "none", template("a")).await;
    site.apply("PolicyDefinition", "disabled", with_version("Disabled"))
        .await;
    site.apply("PolicyDefinition", "ours", with_version("v1.11.0")).await;
    site.until_recorded("PolicyDefinition", "ours", "ours-v1").await;
    controller.until_reconciled(3).await;
    assert_eq!(site.revisions().await, ["ours-v1"]);
}
