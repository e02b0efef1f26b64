use kube::ResourceExt;
use serde_json::{Value, json};

use crate::api::oam::{Application, ApplicationRevision, ManagedResource};
use crate::controllers::oam::workflow::operations::{OperationError, choose_rollback, restore_status};

fn application(version: Option<&str>, workflow: Value) -> Application {
    let annotations = version.map(|version| json!({ "app.oam.dev/publishVersion": version }));
    let object = json!({
        "apiVersion": "core.oam.dev/v1beta1", "kind": "Application",
        "metadata": { "name": "web", "namespace": "shop", "annotations": annotations },
        "spec": {}, "status": { "workflow": workflow },
    });
    serde_json::from_value(object).unwrap()
}

fn revision(number: u32, version: Option<&str>, succeeded: bool) -> ApplicationRevision {
    let annotations = version.map(|version| json!({ "app.oam.dev/publishVersion": version }));
    let object = json!({
        "apiVersion": "core.oam.dev/v1beta1", "kind": "ApplicationRevision",
        "metadata": {
            "name": format!("web-v{number}"), "annotations": annotations,
            "labels": { "app.oam.dev/app-revision-hash": "abc" },
        },
        "spec": {}, "status": { "succeeded": succeeded, "workflow": { "appRevision": "two", "finished": true } },
    });
    serde_json::from_value(object).unwrap()
}

fn ended() -> Value {
    json!({ "finished": true, "terminated": true })
}

#[test]
fn the_newest_revision_that_succeeded_is_restored() {
    let revisions = [
        revision(1, None, true),
        revision(2, Some("two"), true),
        revision(3, None, false),
    ];
    let app = application(None, ended());
    let chosen = choose_rollback(&app, &revisions).unwrap();
    assert_eq!((chosen.revision.name_any().as_str(), chosen.version), ("web-v2", None));
    assert!(chosen.outdated.is_empty());
}

#[test]
fn a_published_application_returns_to_a_published_revision() {
    let revisions = [
        revision(1, Some("one"), true),
        revision(2, Some("two"), true),
        revision(3, None, true),
        revision(4, Some("four"), false),
    ];
    let app = application(Some("four"), ended());
    let chosen = choose_rollback(&app, &revisions).unwrap();
    assert_eq!(
        (chosen.revision.name_any().as_str(), chosen.version),
        ("web-v2", Some("two"))
    );
    let outdated: Vec<_> = chosen.outdated.iter().map(|revision| revision.name_any()).collect();
    assert_eq!(outdated, ["web-v4", "web-v3"]);
}

#[test]
fn nothing_is_restored_while_the_workflow_runs_or_without_a_success() {
    let revisions = [revision(1, Some("one"), true)];
    let running = application(None, json!({ "finished": false }));
    assert_eq!(choose_rollback(&running, &revisions), Err(OperationError::Running));
    let suspended = application(None, json!({ "finished": false, "suspend": true }));
    assert!(choose_rollback(&suspended, &revisions).is_ok());
    let failed = [revision(1, None, false)];
    let refused = choose_rollback(&application(None, ended()), &failed);
    assert_eq!(refused, Err(OperationError::NoSucceededRevision));
    let unpublished = [revision(1, None, true)];
    let refused = choose_rollback(&application(Some("two"), ended()), &unpublished);
    assert_eq!(refused, Err(OperationError::NoPublishedRevision));
}

#[test]
fn the_status_is_that_at_the_end_of_the_restored_run() {
    let mut status = application(Some("four"), ended()).status.unwrap();
    status.services = serde_json::from_value(json!([{ "name": "web", "healthy": false }])).unwrap();
    let object = |kind: &str, deleted: bool| ManagedResource {
        kind: kind.to_owned(),
        creator: "workflow".to_owned(),
        deleted,
        ..ManagedResource::default()
    };
    let objects = [object("Deployment", false), object("Job", true)];
    restore_status(&mut status, &revision(2, Some("two"), true), &objects);
    assert_eq!(status.workflow.as_ref().unwrap().app_revision, "two");
    assert!(status.workflow.as_ref().unwrap().finished && status.services.is_empty());
    let kinds: Vec<_> = status
        .applied_resources
        .iter()
        .map(|object| object.kind.as_str())
        .collect();
    assert_eq!(kinds, ["Deployment"]);
    let latest = status.latest_revision.unwrap();
    assert_eq!((latest.name.as_str(), latest.revision), ("web-v2", 2));
    assert_eq!(latest.revision_hash, "abc");
}
