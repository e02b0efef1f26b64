//! Failed requests between the writes of a reconcile.

use super::*;
use crate::support::fault_proxy::ApiFault;

#[tokio::test]
async fn a_revision_whose_status_was_not_written_is_not_created_again() {
    for fault in [
        ApiFault::Refused,
        ApiFault::Status(409),
        ApiFault::Status(503),
        ApiFault::ResponseLost,
    ] {
        let site = Site::new().await;
        let controller = site.controller().await;
        controller
            .proxy
            .inject(2, fault, is_write_of("componentdefinitions", "/status"));
        site.apply("ComponentDefinition", "web", component("a")).await;
        site.until_recorded("ComponentDefinition", "web", "web-v1").await;
        assert_eq!(site.revisions().await, ["web-v1"]);
    }
}

#[tokio::test]
async fn a_process_that_ends_before_the_status_is_written_leaves_work_that_the_next_one_ends() {
    let site = Site::new().await;
    let first = site.controller().await;
    first.proxy.inject(
        usize::MAX,
        ApiFault::Refused,
        is_write_of("componentdefinitions", "/status"),
    );
    site.apply("ComponentDefinition", "web", component("a")).await;
    site.until_revisions(&["web-v1"]).await;
    drop(first);
    let _second = site.controller().await;
    site.until_recorded("ComponentDefinition", "web", "web-v1").await;
    assert_eq!(site.revisions().await, ["web-v1"]);
}

#[tokio::test]
async fn a_revision_that_was_created_without_a_response_is_found() {
    let site = Site::new().await;
    let controller = site.controller().await;
    controller
        .proxy
        .inject(1, ApiFault::ResponseLost, is_write_of("definitionrevisions", ""));
    let mut versioned = component("a");
    versioned["spec"]["version"] = "1.0.0".into();
    site.apply("ComponentDefinition", "web", versioned).await;
    site.until_recorded("ComponentDefinition", "web", "web-v1.0.0").await;
    assert_eq!(site.revisions().await, ["web-v1.0.0"]);
}

#[tokio::test]
async fn a_refused_revision_is_reported() {
    let site = Site::new().await;
    let controller = site.controller().await;
    controller
        .proxy
        .inject(1, ApiFault::Status(403), is_write_of("definitionrevisions", ""));
    site.apply("ComponentDefinition", "web", component("a")).await;
    site.until_failed(
        "ComponentDefinition",
        "web",
        "failed to create DefinitionRevision web-v1",
    )
    .await;
    site.apply("ComponentDefinition", "web", component("b")).await;
    // The event of the failed status may come before the response to its write; then "a" is tried again first.
    eventually(SOON, "a revision of the second version", async || {
        for name in site.revisions().await {
            let spec = site
                .revision(&name)
                .await
                .map(|revision| json!(revision.spec).to_string());
            if spec.is_some_and(|spec| spec.contains(r#""template":"b""#)) {
                return Some(());
            }
        }
        None
    })
    .await;
}
