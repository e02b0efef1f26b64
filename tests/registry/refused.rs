//! Tags that a registry lists but denies.

use portolan::controllers::apprepository::decision::SyncMode;
use portolan::controllers::apprepository::sync::request::SyncOutcome;

use super::site::{Site, is_complete, manifest, skipped, versions};
use crate::support::chart_server::Fault;

fn refuse(site: &Site, repository: &str, tags: &[String]) {
    for tag in tags {
        site.server.break_path(&manifest(repository, tag), Fault::status(401));
    }
}

fn requests_for(site: &Site, repository: &str) -> usize {
    let path = format!("/v2/ports/{repository}/manifests/");
    let requests = site.server.all_requests();
    requests
        .iter()
        .filter(|request| request.path.starts_with(&path))
        .count()
}

#[tokio::test]
async fn forbidden_pulls_do_not_use_up_the_limit() {
    let site = Site::new(&["harbour", "quay"]).await;
    let tags = versions(600);
    site.publish_many("harbour", 700);
    site.list("quay", &tags);
    refuse(&site, "quay", &tags);
    assert!(!is_complete(&site.sync().await));
    assert_eq!(site.version_count(0).await, 500);
    assert!(is_complete(&site.sync().await));
    assert_eq!(site.version_count(0).await, 700);
}

#[tokio::test]
async fn forbidden_digest_checks_stop_for_the_repository() {
    let site = Site::new(&["harbour", "quay"]).await;
    let tags = versions(60);
    site.publish_many("harbour", 60);
    site.publish("quay", &["1.0.0"]);
    site.sync().await;
    refuse(&site, "harbour", &tags);
    let (harbour, quay) = (requests_for(&site, "harbour"), requests_for(&site, "quay"));
    let finished = site.attempt(SyncMode::Complete).await;
    assert!(is_complete(&finished));
    let problems = skipped(&finished);
    assert!(
        problems.len() == 1 && problems[0].starts_with("harbour: "),
        "{problems:?}"
    );
    assert!(requests_for(&site, "harbour") - harbour < 20);
    // The server sends no digest header, so a check needs two requests.
    assert_eq!(requests_for(&site, "quay") - quay, 2);
    assert_eq!((site.version_count(0).await, site.version_count(1).await), (60, 1));
}

#[tokio::test]
async fn a_forbidden_tag_is_reported_and_retried_without_affecting_others() {
    let site = Site::new(&["harbour"]).await;
    site.publish("harbour", &["1.0.0", "1.1.0", "1.2.0"]);
    let refused = manifest("harbour", "1.2.0");
    site.server.break_path(&refused, Fault::status(403));
    let finished = site.sync().await;
    let problems = skipped(&finished);
    assert!(
        problems.len() == 1 && problems[0].starts_with("harbour 1.2.0: ") && problems[0].contains("403"),
        "{problems:?}"
    );
    assert_eq!(site.charts().await, ["harbour 1.1.0 1.0.0"]);
    assert!(matches!(site.sync().await.outcome, SyncOutcome::NotModified));

    // The same if no other tag is new or changed.
    site.publish("harbour", &["1.0.0", "1.1.0", "1.2.0", "1.3.0"]);
    site.server
        .break_path(&manifest("harbour", "1.3.0"), Fault::status(403));
    site.server
        .break_path(&manifest("harbour", "1.0.0"), Fault::status(403));
    site.server.clear_faults(&refused);
    let problems = skipped(&site.attempt(SyncMode::Complete).await);
    let named: Vec<&str> = problems.iter().filter_map(|text| text.split(": ").next()).collect();
    assert_eq!(named, ["harbour 1.0.0", "harbour 1.3.0"], "{problems:?}");
    assert_eq!(site.charts().await, ["harbour 1.2.0 1.1.0 1.0.0"]);
}

#[tokio::test]
async fn a_registry_that_denies_all_tags_fails_the_sync() {
    let site = Site::new(&["harbour", "quay"]).await;
    for repository in ["harbour", "quay"] {
        site.publish(repository, &["1.0.0"]);
        refuse(&site, repository, &versions(1));
    }
    for _ in 0..2 {
        let finished = site.sync().await;
        assert!(
            matches!(&finished.outcome, SyncOutcome::Failed(failed) if failed.reason == "Unauthorized"),
            "{:?}",
            finished.outcome
        );
    }
}
