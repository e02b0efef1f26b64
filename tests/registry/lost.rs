//! Registries that list tags whose manifests are missing or forbidden: charts remain.

use portolan::controllers::apprepository::decision::SyncMode;
use portolan::controllers::apprepository::sync::request::SyncOutcome;
use rstest::rstest;

use super::site::{Site, is_complete, list, manifest, skipped};
use crate::support::chart_server::{Fault, Page};

#[rstest]
#[case::not_there(None)]
#[case::damaged(Some("<html>"))]
#[tokio::test]
async fn a_chart_remains_unchanged_if_its_manifest_is_gone(#[case] page: Option<&'static str>) {
    let site = Site::new(&["harbour", "quay"]).await;
    site.publish("harbour", &["1.0.0", "1.1.0"]);
    site.publish("quay", &["1.0.0"]);
    site.sync().await;
    let charts = ["harbour 1.1.0 1.0.0", "quay 1.0.0"];
    for (repository, tag) in [("harbour", "1.0.0"), ("harbour", "1.1.0"), ("quay", "1.0.0")] {
        match page {
            Some(page) => site.server.serve(&manifest(repository, tag), Page::new(page)),
            None => site.server.break_path(&manifest(repository, tag), Fault::status(404)),
        }
    }
    // Reported once.
    site.make_digest_checks_due().await;
    let finished = site.sync().await;
    assert!(is_complete(&finished));
    assert_eq!(skipped(&finished).len(), 3);
    assert_eq!(site.charts().await, charts);
    assert!(matches!(site.sync().await.outcome, SyncOutcome::NotModified));
    site.make_retries_due().await;
    assert!(matches!(site.sync().await.outcome, SyncOutcome::NotModified));
    assert_eq!(site.number("SELECT min(tries) FROM portolan_oci_tags").await, 2);
    let problems = skipped(&site.attempt(SyncMode::Complete).await);
    assert!(problems[0].starts_with("harbour 1.0.0: "), "{problems:?}");
    assert_eq!(site.charts().await, charts);

    site.publish("harbour", &["1.0.0", "1.1.0"]);
    site.publish("quay", &["1.0.0"]);
    for (repository, tag) in [("harbour", "1.0.0"), ("harbour", "1.1.0"), ("quay", "1.0.0")] {
        site.server.clear_faults(&manifest(repository, tag));
    }
    assert!(skipped(&site.attempt(SyncMode::Complete).await).is_empty());
    assert_eq!(site.charts().await, charts);
}

#[tokio::test]
async fn charts_that_became_forbidden_remain_if_other_repositories_are_added() {
    let mut site = Site::new(&["gone", "harbour", "quay"]).await;
    for repository in ["gone", "harbour", "pier", "quay"] {
        site.publish(repository, &["1.0.0", "1.1.0"]);
    }
    site.sync().await;
    // One repository denies its list, one its pulls. A changed spec invalidates cached results.
    site.server.break_path(&list("quay"), Fault::status(401));
    for tag in ["1.0.0", "1.1.0"] {
        site.server.break_path(&manifest("harbour", tag), Fault::status(401));
    }
    site.server.break_path(&list("gone"), Fault::status(404));
    site.declare(&["gone", "harbour", "pier", "quay"]);
    assert!(is_complete(&site.attempt(SyncMode::Complete).await));
    let charts = ["harbour 1.1.0 1.0.0", "pier 1.1.0 1.0.0", "quay 1.1.0 1.0.0"];
    assert_eq!(site.charts().await, charts);
    assert!(matches!(site.sync().await.outcome, SyncOutcome::NotModified));

    // After a complete listing, other charts are removed.
    site.server.clear_faults(&list("quay"));
    site.list("quay", &["1.1.0".to_owned()]);
    site.list("harbour", &["1.1.0".to_owned()]);
    site.sync().await;
    assert_eq!(site.charts().await, ["harbour 1.1.0", "pier 1.1.0 1.0.0", "quay 1.1.0"]);
    assert_eq!(
        site.number("SELECT count(*) FROM portolan_kept_versions").await,
        1,
        "one version has not been pulled yet"
    );
}
