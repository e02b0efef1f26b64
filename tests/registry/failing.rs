//! What fails of a registry is told of, and spoils nothing else.

use std::time::Duration;

use portolan::repository::decide::Mode;
use portolan::repository::execute::Verdict;
use serde_json::json;

use super::site::{Site, interrupted, list, manifest, name, skipped};
use crate::support::chart_server::{Fault, Page};

#[tokio::test]
async fn one_bad_repository_is_told_of_and_the_others_are_synced() {
    let site = Site::new(&["forbidden", "gone", "harbour", "locked", "odd"]).await;
    site.publish("harbour", &["1.0.0"]);
    site.server.break_path(&list("forbidden"), Fault::status(403));
    site.server.break_path(&list("locked"), Fault::status(401));
    site.server.serve(&list("odd"), Page::new("<html>"));
    let problems = skipped(&site.sync().await);
    let told: Vec<&str> = problems.iter().filter_map(|text| text.split(':').next()).collect();
    assert_eq!(told, ["forbidden", "gone", "locked", "odd"], "{problems:?}");
    assert_eq!(site.charts().await, ["harbour 1.0.0"]);

    site.server.break_path(&list("harbour"), Fault::status(403));
    let finished = site.sync().await;
    let Verdict::Failed(failed) = finished.verdict else {
        panic!("{:?}", finished.verdict)
    };
    assert!(!failed.transient && failed.message.contains("403"), "{failed:?}");
    assert_eq!(site.charts().await, ["harbour 1.0.0"]);
}

#[tokio::test]
async fn charts_of_a_repository_that_is_not_for_us_any_more_stay_and_that_is_told_once() {
    let site = Site::new(&["harbour", "quay"]).await;
    site.publish("harbour", &["1.0.0"]);
    site.publish("quay", &["1.0.0"]);
    assert!(skipped(&site.sync().await).is_empty());
    site.server.break_path(&list("quay"), Fault::status(401));
    let problems = skipped(&site.sync().await);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("quay: "), "{problems:?}");
    let record = site.executor.record(&name()).await.unwrap().unwrap();
    assert!(record.state.message.contains("1 entry"), "{}", record.state.message);
    assert!(matches!(site.sync().await.verdict, Verdict::NotModified));
    // Its digests are not asked for, which would be refused one after the other.
    assert!(skipped(&site.attempt(Mode::Complete).await)[0].starts_with("quay: "));
    assert_eq!(site.server.count(&manifest("quay", "1.0.0")), 1);
    assert_eq!(site.charts().await, ["harbour 1.0.0", "quay 1.0.0"]);
    site.server.repair(&list("quay"));
    assert!(skipped(&site.sync().await).is_empty());
}

#[tokio::test]
async fn pulls_that_are_refused_leave_what_is_remembered_and_stop_for_that_repository() {
    let site = Site::new(&["harbour", "quay"]).await;
    let tags: Vec<String> = (0..50).map(|number| format!("1.{number}.0")).collect();
    site.publish("harbour", &["1.0.0"]);
    site.list("quay", &tags);
    for tag in &tags {
        site.server.break_path(&manifest("quay", tag), Fault::status(401));
    }
    let problems = skipped(&site.sync().await);
    assert_eq!(problems.len(), 1, "{problems:?}");
    let pulls = site.server.all_seen();
    let pulls = pulls
        .iter()
        .filter(|seen| seen.path.starts_with("/v2/ports/quay/manifests/"));
    assert!(pulls.count() < 30);
    assert_eq!(site.charts().await, ["harbour 1.0.0"]);
    // When it may be pulled again, nothing hides that it never was.
    for tag in &tags {
        site.server.repair(&manifest("quay", tag));
        site.push("quay", tag, &json!({}));
    }
    site.sync().await;
    assert_eq!(site.infos().await[1].chart_versions.len(), 50);
}

#[tokio::test]
async fn what_was_pulled_before_a_rate_limit_is_shown_and_the_failure_told() {
    let mut site = Site::new(&["harbour"]).await;
    site.publish_many("harbour", 60);
    site.server
        .break_path(&manifest("harbour", "1.9.0"), Fault::retry_after(429, "60"));
    let finished = site.sync().await;
    let (reason, retry_after, message) = interrupted(&finished);
    assert_eq!(
        (reason, retry_after),
        ("TooManyRequests", Some(Duration::from_secs(60)))
    );
    assert!(message.contains(" of 60 versions are pulled"), "{message}");
    let shown = site.shown(0).await;
    assert!((30..60).contains(&shown), "{shown}");
    let record = site.executor.record(&name()).await.unwrap().unwrap();
    assert_eq!((record.state.ready, record.state.stalled), (Some(false), false));
    assert_eq!((&*record.state.reason, record.state.failures), ("TooManyRequests", 1));

    site.server.repair(&manifest("harbour", "1.9.0"));
    site.restart();
    let Verdict::Synced { is_complete: true, .. } = site.sync().await.verdict else {
        panic!("it is repaired")
    };
    assert_eq!(site.shown(0).await, 60);
    assert!(matches!(site.sync().await.verdict, Verdict::NotModified));
    assert_eq!(
        site.server
            .all_seen()
            .iter()
            .filter(|seen| seen.path.contains("/1.59.0"))
            .count(),
        1
    );
}

#[tokio::test]
async fn a_rate_limit_before_anything_was_pulled_is_a_failure_and_nothing_else() {
    let site = Site::new(&["harbour"]).await;
    site.publish("harbour", &["1.0.0"]);
    site.server
        .break_path(&manifest("harbour", "1.0.0"), Fault::retry_after(429, "60"));
    for _ in 0..2 {
        let finished = site.sync().await;
        assert!(matches!(&finished.verdict, Verdict::Failed(failed) if failed.transient));
        assert!(finished.record.last_success.is_none());
    }
    assert_eq!(site.number("SELECT count(*) FROM portolan_syncs").await, 1);
}
