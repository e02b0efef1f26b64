//! What fails of a registry is told of, and spoils nothing else.

use std::time::Duration;

use portolan::controllers::apprepository::decision::Mode;
use portolan::controllers::apprepository::sync::request::SyncOutcome;
use rstest::rstest;
use serde_json::json;

use super::site::{Site, interrupted, is_complete, list, manifest, name, skipped, versions};
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
    let SyncOutcome::Failed(failed) = finished.outcome else {
        panic!("{:?}", finished.outcome)
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
    let record = site.syncer.record(&name()).await.unwrap().unwrap();
    assert!(record.state.message.contains("1 entry"), "{}", record.state.message);
    assert!(matches!(site.sync().await.outcome, SyncOutcome::NotModified));
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
    let record = site.syncer.record(&name()).await.unwrap().unwrap();
    assert_eq!((record.state.ready, record.state.stalled), (Some(false), false));
    assert_eq!((&*record.state.reason, record.state.failures), ("TooManyRequests", 1));

    site.server.repair(&manifest("harbour", "1.9.0"));
    site.restart();
    let SyncOutcome::Synced { is_complete: true, .. } = site.sync().await.outcome else {
        panic!("it is repaired")
    };
    assert_eq!(site.shown(0).await, 60);
    assert!(matches!(site.sync().await.outcome, SyncOutcome::NotModified));
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
        assert!(matches!(&finished.outcome, SyncOutcome::Failed(failed) if failed.transient));
        assert!(finished.record.last_success.is_none());
    }
    assert_eq!(site.number("SELECT count(*) FROM portolan_syncs").await, 1);
}

/// What the lists of tags of one repository may answer in passing.
#[rstest]
#[case::fault(500, "ServerError")]
#[case::asked_too_often(429, "TooManyRequests")]
#[tokio::test]
async fn a_list_that_fails_in_passing_leaves_its_charts_and_the_others_go_on(
    #[case] status: u16,
    #[case] reason: &str,
) {
    let site = Site::new(&["harbour", "pier", "quay"]).await;
    site.publish("harbour", &["1.0.0"]);
    site.publish("pier", &["1.0.0", "2.0.0"]);
    site.publish("quay", &["1.0.0"]);
    site.sync().await;
    site.server.break_path(&list("quay"), Fault::status(status));
    // Nothing else has changed: there is nothing to write.
    let finished = site.sync().await;
    let SyncOutcome::Failed(failed) = &finished.outcome else {
        panic!("{:?}", finished.outcome)
    };
    assert!(failed.transient && failed.reason == reason, "{failed:?}");

    site.publish("harbour", &["1.0.0", "1.1.0"]);
    site.publish("pier", &["2.0.0"]);
    let finished = site.sync().await;
    let (told, _, message) = interrupted(&finished);
    assert_eq!(told, reason);
    assert!(
        message.contains("/quay/tags/list") && message.contains("1 of 3 repositories could not be listed"),
        "{message}"
    );
    let account = finished.record.last_sync.clone().unwrap();
    assert_eq!(account["skipped"][0]["chart"], "quay");
    assert_eq!(
        (finished.record.state.ready, finished.record.state.failures),
        (Some(false), 1),
        "it has come on"
    );
    let charts = ["harbour 1.1.0 1.0.0", "pier 2.0.0", "quay 1.0.0"];
    assert_eq!(site.charts().await, charts);

    site.server.repair(&list("quay"));
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
async fn charts_stay_whose_list_fails_although_nothing_is_remembered_of_them_and_others_go() {
    let site = Site::new(&["harbour", "pier", "quay"]).await;
    site.publish("harbour", &["1.0.0", "1.1.0"]);
    site.publish("pier", &["1.0.0"]);
    site.publish("quay", &["1.0.0"]);
    site.sync().await;
    site.forget(&["DELETE FROM portolan_oci_tags", "DELETE FROM portolan_oci_repositories"])
        .await;
    site.server.break_path(&list("quay"), Fault::status(502));
    // A tag that can't be pulled is no tag that has gone, either.
    site.server
        .break_path(&manifest("harbour", "1.1.0"), Fault::status(502));
    site.list("pier", &[]);
    interrupted(&site.attempt(Mode::Complete).await);
    assert_eq!(site.charts().await, ["harbour 1.1.0 1.0.0", "quay 1.0.0"]);
    site.server.repair(&list("quay"));
    assert_eq!(skipped(&site.sync().await).len(), 1);
    assert_eq!(site.charts().await, ["harbour 1.1.0 1.0.0", "quay 1.0.0"]);
}

#[tokio::test]
async fn a_host_that_wants_to_be_left_alone_is_asked_no_more_until_then_and_everything_stays() {
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
    let requests = site.server.all_seen().len();
    for _ in 0..2 {
        let finished = site.sync().await;
        let SyncOutcome::Failed(failed) = &finished.outcome else {
            panic!("{:?}", finished.outcome)
        };
        assert!(failed.retry_after.is_some_and(|time| time <= Duration::from_secs(60)));
    }
    assert_eq!(site.server.all_seen().len(), requests);
    assert_eq!(site.charts().await, ["harbour 1.0.0", "pier 1.0.0", "quay 1.0.0"]);
}

#[tokio::test]
async fn a_registry_that_only_fails_is_given_up_and_that_is_the_failure() {
    let names: Vec<String> = (0..60).map(|number| format!("chart{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let site = Site::new(&names).await;
    for name in &names {
        site.server.break_path(&list(name), Fault::status(500));
    }
    let finished = site.sync().await;
    assert!(matches!(&finished.outcome, SyncOutcome::Failed(failed) if failed.transient));
    let requests = site.server.all_seen().len();
    assert!(requests < 40, "{requests} requests");
    // Who is asked for no credentials, and who is away: what may pass counts.
    site.server.break_path(&list(names[0]), Fault::status(401));
    let finished = site.sync().await;
    assert!(matches!(&finished.outcome, SyncOutcome::Failed(failed) if failed.transient));
}

#[tokio::test]
async fn a_tag_that_can_not_be_pulled_in_passing_is_named_and_tried_later_and_the_others_are_there() {
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
    let asked = site.server.count(&broken);
    assert_eq!(asked, 2, "once more at the end");
    assert!(matches!(site.sync().await.outcome, SyncOutcome::NotModified));
    assert_eq!(site.server.count(&broken), asked, "its time has not come");
    let due = "UPDATE portolan_oci_tags SET next_try = '2020-01-01T00:00:00Z' WHERE next_try IS NOT NULL AND tries = 1";
    site.forget(&[due]).await;
    assert!(matches!(site.sync().await.outcome, SyncOutcome::NotModified));
    assert_eq!(site.number("SELECT max(tries) FROM portolan_oci_tags").await, 2);
    site.server.repair(&broken);
    site.attempt(Mode::Complete).await;
    assert_eq!(site.charts().await, ["harbour 1.2.0 1.1.0 1.0.0"]);
    assert_eq!(site.number("SELECT max(tries) FROM portolan_oci_tags").await, 0);
}

#[tokio::test]
async fn a_pull_that_fails_once_is_made_up_for_by_the_same_attempt() {
    let site = Site::new(&["harbour"]).await;
    site.publish_many("harbour", 30);
    for tag in ["1.3.0", "1.29.0"] {
        site.server
            .break_times(&manifest("harbour", tag), Fault::status(502), 1);
    }
    assert!(skipped(&site.sync().await).is_empty());
    assert_eq!(site.shown(0).await, 30);
}

#[tokio::test]
async fn pulls_that_only_fail_end_the_attempt_early_and_the_next_one_goes_on_with_others() {
    let site = Site::new(&["harbour", "quay"]).await;
    site.publish("harbour", &["1.0.0"]);
    site.publish_many("quay", 200);
    let tags = versions(200);
    for tag in &tags {
        site.server.break_path(&manifest("quay", tag), Fault::status(503));
    }
    interrupted(&site.sync().await);
    let pulls = || {
        let seen = site.server.all_seen();
        seen.iter()
            .filter(|seen| seen.path.contains("/quay/manifests/"))
            .count()
    };
    assert!(pulls() < 40, "{} pulls", pulls());
    assert_eq!(site.charts().await, ["harbour 1.0.0"]);
    for tag in &tags {
        site.server.repair(&manifest("quay", tag));
    }
    let finished = site.sync().await;
    assert!(matches!(
        finished.outcome,
        SyncOutcome::Synced { is_complete: true, .. }
    ));
    assert!(site.shown(1).await > 150);
    site.attempt(Mode::Complete).await;
    assert_eq!(site.shown(1).await, 200);
}

#[tokio::test]
async fn a_tag_that_was_published_anew_stays_what_it_was_until_it_can_be_pulled() {
    let site = Site::new(&["harbour"]).await;
    site.publish("harbour", &["1.0.0", "1.1.0"]);
    site.sync().await;
    site.push("harbour", "1.0.0", &json!({"appVersion": "another"}));
    site.server
        .break_path(&manifest("harbour", "1.0.0"), Fault::status(500));
    let finished = site.attempt(Mode::Complete).await;
    assert!(matches!(
        finished.outcome,
        SyncOutcome::Synced { is_complete: true, .. }
    ));
    assert_eq!(site.charts().await, ["harbour 1.1.0 1.0.0"]);
    site.server.repair(&manifest("harbour", "1.0.0"));
    site.attempt(Mode::Complete).await;
    assert_eq!(site.infos().await[0].chart_versions[1].app_version, "another");
}

#[tokio::test]
async fn tags_that_have_failed_before_say_nothing_of_the_registry() {
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
        "what was not asked a second time is noted too"
    );
    let times = "SELECT count(DISTINCT next_try) FROM portolan_oci_tags WHERE tries > 0";
    assert!(site.number(times).await > 30, "they are not tried at the same time");
    site.let_it_be_time().await;
    let finished = site.sync().await;
    assert!(
        matches!(finished.outcome, SyncOutcome::NotModified),
        "{:?}",
        finished.outcome
    );
    assert_eq!(site.number("SELECT max(tries) FROM portolan_oci_tags").await, 2);
    assert_eq!(site.number(failed).await, 60);
}
