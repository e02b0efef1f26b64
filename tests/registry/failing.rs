//! Failures of a registry are reported and isolated.

use std::time::Duration;

use portolan::controllers::apprepository::decision::SyncMode;
use portolan::controllers::apprepository::sync::request::SyncOutcome;
use rstest::rstest;
use serde_json::json;

use super::site::{Site, interrupted, is_complete, list, manifest, name, skipped, versions};
use crate::support::chart_server::{Fault, Page};

#[tokio::test]
async fn a_failing_repository_is_reported_and_the_others_are_synced() {
    let site = Site::new(&["forbidden", "gone", "harbour", "locked", "odd"]).await;
    site.publish("harbour", &["1.0.0"]);
    site.server.break_path(&list("forbidden"), Fault::status(403));
    site.server.break_path(&list("locked"), Fault::status(401));
    site.server.serve(&list("odd"), Page::new("<html>"));
    let problems = skipped(&site.sync().await);
    let repositories: Vec<&str> = problems.iter().filter_map(|text| text.split(':').next()).collect();
    assert_eq!(repositories, ["forbidden", "gone", "locked", "odd"], "{problems:?}");
    assert_eq!(site.charts().await, ["harbour 1.0.0"]);

    site.server.break_path(&list("harbour"), Fault::status(403));
    let finished = site.sync().await;
    let SyncOutcome::Failed(failed) = finished.outcome else {
        panic!("{:?}", finished.outcome)
    };
    assert!(!failed.transient && failed.message.contains("403"), "{failed:?}");
    assert_eq!(site.charts().await, ["harbour 1.0.0"]);
}

#[tokio::test]
async fn charts_of_a_forbidden_repository_remain_and_are_reported_once() {
    let site = Site::new(&["harbour", "quay"]).await;
    site.publish("harbour", &["1.0.0"]);
    site.publish("quay", &["1.0.0"]);
    assert!(skipped(&site.sync().await).is_empty());
    site.server.break_path(&list("quay"), Fault::status(401));
    let problems = skipped(&site.sync().await);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("quay: "), "{problems:?}");
    let record = site.syncer.record(&name()).await.unwrap().unwrap();
    assert!(record.state.message.contains("1 entry"), "{}", record.state.message);
    assert!(matches!(site.sync().await.outcome, SyncOutcome::NotModified));
    // Its digests are not checked, because each request would be denied.
    assert!(skipped(&site.attempt(SyncMode::Complete).await)[0].starts_with("quay: "));
    assert_eq!(site.server.count(&manifest("quay", "1.0.0")), 1);
    assert_eq!(site.charts().await, ["harbour 1.0.0", "quay 1.0.0"]);
    site.server.clear_faults(&list("quay"));
    assert!(skipped(&site.sync().await).is_empty());
}

#[tokio::test]
async fn forbidden_pulls_keep_cached_metadata_and_stop_for_the_repository() {
    let site = Site::new(&["harbour", "quay"]).await;
    let tags: Vec<String> = (0..50).map(|number| format!("1.{number}.0")).collect();
    site.publish("harbour", &["1.0.0"]);
    site.list("quay", &tags);
    for tag in &tags {
        site.server.break_path(&manifest("quay", tag), Fault::status(401));
    }
    let problems = skipped(&site.sync().await);
    assert_eq!(problems.len(), 1, "{problems:?}");
    let pulls = site.server.all_requests();
    let pulls = pulls
        .iter()
        .filter(|request| request.path.starts_with("/v2/ports/quay/manifests/"));
    assert!(pulls.count() < 30);
    assert_eq!(site.charts().await, ["harbour 1.0.0"]);
    // Once allowed, the missing tags are pulled.
    for tag in &tags {
        site.server.clear_faults(&manifest("quay", tag));
        site.push("quay", tag, &json!({}));
    }
    site.sync().await;
    assert_eq!(site.infos().await[1].chart_versions.len(), 50);
}

#[tokio::test]
async fn tags_pulled_before_a_rate_limit_are_stored_and_the_failure_reported() {
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
    let count = site.version_count(0).await;
    assert!((30..60).contains(&count), "{count}");
    let record = site.syncer.record(&name()).await.unwrap().unwrap();
    assert_eq!((record.state.ready, record.state.stalled), (Some(false), false));
    assert_eq!((&*record.state.reason, record.state.failures), ("TooManyRequests", 1));

    site.server.clear_faults(&manifest("harbour", "1.9.0"));
    site.restart();
    let SyncOutcome::Synced { is_complete: true, .. } = site.sync().await.outcome else {
        panic!("the registry works again")
    };
    assert_eq!(site.version_count(0).await, 60);
    assert!(matches!(site.sync().await.outcome, SyncOutcome::NotModified));
    assert_eq!(
        site.server
            .all_requests()
            .iter()
            .filter(|request| request.path.contains("/1.59.0"))
            .count(),
        1
    );
}

#[tokio::test]
async fn a_rate_limit_before_the_first_pull_fails_the_sync() {
    let site = Site::new(&["harbour"]).await;
    site.publish("harbour", &["1.0.0"]);
    site.server
        .break_path(&manifest("harbour", "1.0.0"), Fault::retry_after(429, "60"));
    for _ in 0..2 {
        let finished = site.sync().await;
        assert!(matches!(&finished.outcome, SyncOutcome::Failed(failed) if failed.transient));
        assert!(finished.record.last_success.is_none());
    }
    assert_eq!(site.number("SELECT count(*) FROM portolan_syncs").await, 1);
}

/// Transient failures of a tag list.
#[rstest]
#[case::fault(500, "ServerError")]
#[case::too_many_requests(429, "TooManyRequests")]
#[tokio::test]
async fn a_transient_list_failure_keeps_charts_and_does_not_affect_others(#[case] status: u16, #[case] reason: &str) {
    let site = Site::new(&["harbour", "pier", "quay"]).await;
    site.publish("harbour", &["1.0.0"]);
    site.publish("pier", &["1.0.0", "2.0.0"]);
    site.publish("quay", &["1.0.0"]);
    site.sync().await;
    site.server.break_path(&list("quay"), Fault::status(status));
    // Nothing else has changed, so nothing is written.
    let finished = site.sync().await;
    let SyncOutcome::Failed(failed) = &finished.outcome else {
        panic!("{:?}", finished.outcome)
    };
    assert!(failed.transient && failed.reason == reason, "{failed:?}");

    site.publish("harbour", &["1.0.0", "1.1.0"]);
    site.publish("pier", &["2.0.0"]);
    let finished = site.sync().await;
    let (found_reason, _, message) = interrupted(&finished);
    assert_eq!(found_reason, reason);
    assert!(
        message.contains("/quay/tags/list") && message.contains("1 of 3 repositories could not be listed"),
        "{message}"
    );
    let account = finished.record.last_sync.clone().unwrap();
    assert_eq!(account["skipped"][0]["chart"], "quay");
    assert_eq!(
        (finished.record.state.ready, finished.record.state.failures),
        (Some(false), 1),
        "progress is not a failure"
    );
    let charts = ["harbour 1.1.0 1.0.0", "pier 2.0.0", "quay 1.0.0"];
    assert_eq!(site.charts().await, charts);

    site.server.clear_faults(&list("quay"));
    let finished = site.sync().await;
    assert!(matches!(
        finished.outcome,
        SyncOutcome::Synced { is_complete: true, .. }
    ));
    assert_eq!(
        (site.charts().await, finished.record.state.ready),
        (charts.map(str::to_owned).to_vec(), Some(true))
    );
    assert!(matches!(site.sync().await.outcome, SyncOutcome::NotModified));
}

#[tokio::test]
async fn charts_remain_if_their_list_fails_without_cached_metadata() {
    let site = Site::new(&["harbour", "pier", "quay"]).await;
    site.publish("harbour", &["1.0.0", "1.1.0"]);
    site.publish("pier", &["1.0.0"]);
    site.publish("quay", &["1.0.0"]);
    site.sync().await;
    site.execute(&["DELETE FROM portolan_oci_tags", "DELETE FROM portolan_oci_repositories"])
        .await;
    site.server.break_path(&list("quay"), Fault::status(502));
    // A failed pull does not remove a tag either.
    site.server
        .break_path(&manifest("harbour", "1.1.0"), Fault::status(502));
    site.list("pier", &[]);
    interrupted(&site.attempt(SyncMode::Complete).await);
    assert_eq!(site.charts().await, ["harbour 1.1.0 1.0.0", "quay 1.0.0"]);
    site.server.clear_faults(&list("quay"));
    assert_eq!(skipped(&site.sync().await).len(), 1);
    assert_eq!(site.charts().await, ["harbour 1.1.0 1.0.0", "quay 1.0.0"]);
}

#[tokio::test]
async fn a_backoff_stops_requests_and_keeps_all_charts() {
    let site = Site::new(&["harbour", "pier", "quay"]).await;
    for name in ["harbour", "pier", "quay"] {
        site.publish(name, &["1.0.0"]);
    }
    site.sync().await;
    site.publish("harbour", &["1.1.0"]);
    site.server.break_path(&list("pier"), Fault::retry_after(429, "60"));
    let finished = site.sync().await;
    let (_, retry_after, message) = interrupted(&finished);
    assert_eq!(retry_after, Some(Duration::from_secs(60)));
    assert!(message.contains("/pier/tags/list"), "{message}");
    assert_eq!(site.server.count(&manifest("harbour", "1.1.0")), 0);
    let requests = site.server.request_count();
    for _ in 0..2 {
        let finished = site.sync().await;
        let SyncOutcome::Failed(failed) = &finished.outcome else {
            panic!("{:?}", finished.outcome)
        };
        assert!(failed.retry_after.is_some_and(|time| time <= Duration::from_secs(60)));
    }
    assert_eq!(site.server.request_count(), requests);
    assert_eq!(site.charts().await, ["harbour 1.0.0", "pier 1.0.0", "quay 1.0.0"]);
}

#[tokio::test]
async fn a_registry_with_only_failures_fails_the_sync() {
    let names: Vec<String> = (0..60).map(|number| format!("chart{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let site = Site::new(&names).await;
    for name in &names {
        site.server.break_path(&list(name), Fault::status(500));
    }
    let finished = site.sync().await;
    assert!(matches!(&finished.outcome, SyncOutcome::Failed(failed) if failed.transient));
    let requests = site.server.request_count();
    assert!(requests < 40, "{requests} requests");
    // Of permanent and transient errors, the transient one is reported.
    site.server.break_path(&list(names[0]), Fault::status(401));
    let finished = site.sync().await;
    assert!(matches!(&finished.outcome, SyncOutcome::Failed(failed) if failed.transient));
}

#[tokio::test]
async fn a_transient_pull_failure_is_reported_and_retried_without_affecting_others() {
    let site = Site::new(&["harbour"]).await;
    site.publish("harbour", &["1.0.0", "1.1.0", "1.2.0"]);
    let broken = manifest("harbour", "1.1.0");
    site.server.break_path(&broken, Fault::status(500));
    let finished = site.sync().await;
    let problems = skipped(&finished);
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0].starts_with("harbour 1.1.0: ") && problems[0].contains("500"),
        "{problems:?}"
    );
    assert_eq!(finished.record.state.ready, Some(true));
    assert_eq!(site.charts().await, ["harbour 1.2.0 1.0.0"]);
    let requests = site.server.count(&broken);
    assert_eq!(requests, 2, "one retry at the end");
    assert!(matches!(site.sync().await.outcome, SyncOutcome::NotModified));
    assert_eq!(site.server.count(&broken), requests, "the retry is not due");
    let due = "UPDATE portolan_oci_tags SET next_try = '2020-01-01T00:00:00Z' WHERE next_try IS NOT NULL AND tries = 1";
    site.execute(&[due]).await;
    assert!(matches!(site.sync().await.outcome, SyncOutcome::NotModified));
    assert_eq!(site.number("SELECT max(tries) FROM portolan_oci_tags").await, 2);
    site.server.clear_faults(&broken);
    site.attempt(SyncMode::Complete).await;
    assert_eq!(site.charts().await, ["harbour 1.2.0 1.1.0 1.0.0"]);
    assert_eq!(site.number("SELECT max(tries) FROM portolan_oci_tags").await, 0);
}

#[tokio::test]
async fn a_failed_pull_is_retried_in_the_same_attempt() {
    let site = Site::new(&["harbour"]).await;
    site.publish_many("harbour", 30);
    for tag in ["1.3.0", "1.29.0"] {
        site.server
            .break_times(&manifest("harbour", tag), Fault::status(502), 1);
    }
    assert!(skipped(&site.sync().await).is_empty());
    assert_eq!(site.version_count(0).await, 30);
}

#[tokio::test]
async fn repeated_pull_failures_end_the_attempt_and_the_next_one_tries_other_tags() {
    let site = Site::new(&["harbour", "quay"]).await;
    site.publish("harbour", &["1.0.0"]);
    site.publish_many("quay", 200);
    let tags = versions(200);
    for tag in &tags {
        site.server.break_path(&manifest("quay", tag), Fault::status(503));
    }
    interrupted(&site.sync().await);
    let pulls = || {
        let requests = site.server.all_requests();
        requests
            .iter()
            .filter(|request| request.path.contains("/quay/manifests/"))
            .count()
    };
    assert!(pulls() < 40, "{} pulls", pulls());
    assert_eq!(site.charts().await, ["harbour 1.0.0"]);
    for tag in &tags {
        site.server.clear_faults(&manifest("quay", tag));
    }
    let finished = site.sync().await;
    assert!(matches!(
        finished.outcome,
        SyncOutcome::Synced { is_complete: true, .. }
    ));
    assert!(site.version_count(1).await > 150);
    site.attempt(SyncMode::Complete).await;
    assert_eq!(site.version_count(1).await, 200);
}

#[tokio::test]
async fn a_tag_pushed_again_keeps_its_old_metadata_until_it_is_pulled() {
    let site = Site::new(&["harbour"]).await;
    site.publish("harbour", &["1.0.0", "1.1.0"]);
    site.sync().await;
    site.push("harbour", "1.0.0", &json!({"appVersion": "another"}));
    site.server
        .break_path(&manifest("harbour", "1.0.0"), Fault::status(500));
    let finished = site.attempt(SyncMode::Complete).await;
    assert!(matches!(
        finished.outcome,
        SyncOutcome::Synced { is_complete: true, .. }
    ));
    assert_eq!(site.charts().await, ["harbour 1.1.0 1.0.0"]);
    site.server.clear_faults(&manifest("harbour", "1.0.0"));
    site.attempt(SyncMode::Complete).await;
    assert_eq!(site.infos().await[0].chart_versions[1].app_version, "another");
}

#[tokio::test]
async fn tags_that_failed_before_do_not_count_as_registry_failures() {
    let site = Site::new(&["harbour"]).await;
    site.publish_many("harbour", 120);
    for tag in versions(120).iter().step_by(2) {
        site.server.break_path(&manifest("harbour", tag), Fault::status(500));
    }
    let failed = "SELECT count(*) FROM portolan_oci_tags WHERE tries > 0";
    assert!(is_complete(&site.sync().await));
    assert_eq!(
        site.number(failed).await,
        60,
        "tags without a second request are recorded too"
    );
    let times = "SELECT count(DISTINCT next_try) FROM portolan_oci_tags WHERE tries > 0";
    assert!(site.number(times).await > 30, "retries have different times");
    site.make_retries_due().await;
    let finished = site.sync().await;
    assert!(
        matches!(finished.outcome, SyncOutcome::NotModified),
        "{:?}",
        finished.outcome
    );
    assert_eq!(site.number("SELECT max(tries) FROM portolan_oci_tags").await, 2);
    assert_eq!(site.number(failed).await, 60);
}
