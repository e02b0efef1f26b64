//! The caches, and the changes that they report.

use kube::api::DeleteParams;
use portolan::api::oam::DefinitionKind;
use portolan::controllers::oam::definitions::{ChangedKind, Loaded};
use portolan::controllers::oam::parse::Lookup;

use super::*;

const COMPONENT: ChangedKind = ChangedKind::Definition(DefinitionKind::Component);

/// Waits until these changes, and no others of these names, were reported.
async fn until_reported(controller: &Controller, expected: &[(ChangedKind, &str)]) {
    eventually(SOON, &format!("{expected:?} to be reported"), async || {
        let changes = controller.changes.lock();
        let reported: Vec<_> = changes
            .iter()
            .map(|change| (change.kind, change.name.as_str()))
            .collect();
        if reported == expected {
            Ok(())
        } else {
            Err(format!("{reported:?}"))
        }
    })
    .await;
    controller.changes.lock().clear();
}

#[tokio::test]
async fn contents_that_change_are_reported_but_not_those_of_the_first_list() {
    let site = Site::new().await;
    site.apply("Policy", "first", json!({ "type": "topology" })).await;
    let controller = site.controller().await;
    controller.until_synced().await;
    site.apply(
        "Policy",
        "west",
        json!({ "type": "topology", "properties": { "clusters": ["local"] } }),
    )
    .await;
    until_reported(&controller, &[(ChangedKind::Policy, "west")]).await;
    let loaded = Loaded::default();
    let lookup = || controller.caches.lookup(&loaded);
    assert_eq!(lookup().policy(&site.namespace, "west").unwrap().spec.type_, "topology");
    assert!(lookup().policy(&site.namespace, "first").is_some());

    let labeled = json!({ "metadata": { "labels": { "a": "b" } }, "type": "topology" });
    site.apply("Policy", "first", labeled).await;
    site.apply("Policy", "first", json!({ "type": "override" })).await;
    until_reported(&controller, &[(ChangedKind::Policy, "first")]).await;
    site.api("Policy")
        .delete("first", &DeleteParams::default())
        .await
        .unwrap();
    until_reported(&controller, &[(ChangedKind::Policy, "first")]).await;
    assert!(lookup().policy(&site.namespace, "first").is_none());

    site.apply("Workflow", "deploy", json!({ "steps": [{ "type": "suspend" }] }))
        .await;
    until_reported(&controller, &[(ChangedKind::Workflow, "deploy")]).await;
    let workload = json!({ "spec": { "definitionRef": { "name": "deployments.apps" } } });
    site.apply("WorkloadDefinition", "deployments.apps", workload).await;
    until_reported(&controller, &[(COMPONENT, "deployments.apps")]).await;
    let workload = lookup().workload_definition(&site.namespace, "deployments.apps");
    assert!(workload.is_some());
}

#[tokio::test]
async fn a_definition_and_its_revision_are_found_without_what_nobody_reads() {
    let site = Site::new().await;
    let controller = site.controller().await;
    controller.until_synced().await;
    let mut definition = component("a");
    let last_applied = "kubectl.kubernetes.io/last-applied-configuration";
    definition["metadata"] = json!({ "annotations": { last_applied: "{}", "note": "a" } });
    site.apply("ComponentDefinition", "web", definition).await;
    site.until_recorded("ComponentDefinition", "web", "web-v1").await;
    let (loaded, namespace) = (Loaded::default(), &site.namespace);
    let caches = || controller.caches.lookup(&loaded);
    let revisions = || caches().definition_revisions(namespace, DefinitionKind::Component, "web");
    eventually(SOON, "the revision to be cached", async || revisions().pop()).await;
    until_reported(&controller, &[(COMPONENT, "web"), (COMPONENT, "web")]).await;
    let definition = caches().component_definition(namespace, "web").unwrap();
    assert_eq!(definition.annotations().keys().collect::<Vec<_>>(), ["note"]);
    assert!(definition.metadata.managed_fields.is_none());
    let revision = caches()
        .definition_revision(namespace, &revisions().pop().unwrap())
        .unwrap();
    let recorded = revision.spec.component_definition.as_ref().unwrap();
    assert_eq!(recorded.annotations().keys().collect::<Vec<_>>(), ["note"]);
    assert!(
        caches()
            .definition_revisions(namespace, DefinitionKind::Trait, "web")
            .is_empty()
    );

    site.api("ComponentDefinition")
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    eventually(SOON, "the revision to be dropped", async || {
        revisions().is_empty().then_some(())
    })
    .await;
}

/// Needs an API server of its own, without KubeVela's kinds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caches_of_kinds_that_are_not_installed_are_complete_and_empty() {
    let server = ControlPlane::start().await;
    let namespace = server.namespace().await;
    let is_in_use: IsInUse = Arc::new(|_, _| true);
    let controller = Controller::start(&server, &namespace, &settings(), &is_in_use).await;
    tokio::time::timeout(SOON, controller.caches.wait_until_synced())
        .await
        .unwrap();
    assert!(controller.caches.is_synced());
    let loaded = Loaded::default();
    assert!(
        controller
            .caches
            .lookup(&loaded)
            .component_definition(&namespace, "web")
            .is_none()
    );
    assert_no_writes(&controller);
}
