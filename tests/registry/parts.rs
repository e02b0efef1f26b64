//! Registries that need several attempts.

use std::time::Duration;

use portolan::controllers::apprepository::decision::SyncMode;
use portolan::controllers::apprepository::sync::request::SyncOutcome;
use reqwest::Method;
use serde_json::json;

use super::site::{Site, interrupted, is_complete, list, manifest, versions};
use crate::support::chart_server::Fault;

#[tokio::test]
async fn a_large_registry_is_pulled_in_several_attempts_and_charts_are_removed_at_the_end() {
    let site = Site::new(&["harbour", "quay"]).await;
    site.publish_many("harbour", 700);
    site.publish("quay", &["1.0.0"]);
    let first = site.sync().await;
    assert!(matches!(first.outcome, SyncOutcome::Synced { is_complete: false, .. }));
    let state = &first.record.state;
    assert_eq!((state.ready, &*state.reason), (None, "Progressing"));
    assert!(
        state.message.starts_with("500 of 701 versions are pulled"),
        "{}",
        state.message
    );
    assert_eq!((site.version_count(0).await, site.successes().await), (499, 0));
    site.sync().await;
    assert_eq!((site.version_count(0).await, site.successes().await), (700, 1));
    let changes = "SELECT added * 100 + changed * 10 + removed FROM portolan_syncs WHERE result = 'Succeeded'";
    assert_eq!(site.number(changes).await, 200, "two charts were added in total");

    // The cached metadata is lost, and one chart has been removed from the registry.
    site.execute(&["DELETE FROM portolan_oci_tags", "DELETE FROM portolan_oci_repositories"])
        .await;
    site.list("quay", &[]);
    site.push("harbour", "1.3.0", &json!({"appVersion": "another"}));
    let part = site.attempt(SyncMode::Complete).await;
    assert!(matches!(part.outcome, SyncOutcome::Synced { is_complete: false, .. }));
    assert_eq!(
        (
            site.version_count(0).await,
            site.version_count(1).await,
            site.successes().await
        ),
        (700, 1, 1)
    );
    let whole = site.sync().await;
    assert!(matches!(whole.outcome, SyncOutcome::Synced { is_complete: true, .. }));
    assert_eq!(
        (
            site.version_count(0).await,
            site.version_count(1).await,
            site.successes().await
        ),
        (700, 0, 2)
    );
    assert_eq!(site.number("SELECT count(*) FROM portolan_kept_versions").await, 0);
}

/// Returns the number of attempts until the sync is complete.
async fn attempts_until_complete(site: &Site) -> usize {
    for part in 1..20 {
        match site.sync().await.outcome {
            SyncOutcome::Synced { is_complete: false, .. } => {}
            SyncOutcome::Synced { is_complete: true, .. } | SyncOutcome::NotModified => return part,
            other => panic!("{other:?}"),
        }
    }
    panic!("the sync does not complete")
}

#[tokio::test]
async fn a_slow_registry_is_pulled_in_attempts_of_the_fetch_timeout_without_duplicate_requests() {
    const TAGS: usize = 120;
    let mut site = Site::new(&["harbour"]).await;
    site.declaration.fetch_timeout = Some(Duration::from_secs(2));
    site.publish_many("harbour", TAGS);
    let slow = Fault::Delay(Duration::from_millis(300));
    for tag in versions(TAGS) {
        site.server.break_path(&manifest("harbour", &tag), slow.clone());
    }
    let first = site.sync().await;
    assert!(matches!(first.outcome, SyncOutcome::Synced { is_complete: false, .. }));
    assert_eq!(
        (first.record.state.ready, &*first.record.state.reason),
        (None, "Progressing")
    );
    let count = site.version_count(0).await;
    assert!((8..TAGS).contains(&count), "{count}");
    assert!(attempts_until_complete(&site).await < 20);
    assert_eq!(site.version_count(0).await, TAGS);
    // The server sends no digest header, so each digest check also pulls the manifest.
    let pull_count = || {
        let requests = site.server.all_requests();
        let pulls = requests.iter().filter(|request| request.method == Method::GET);
        pulls
            .filter(|request| request.path.contains("/harbour/manifests/"))
            .count()
    };
    assert_eq!(pull_count(), TAGS);

    // The digest check finds that the last tag was pushed again.
    site.push("harbour", "1.99.0", &json!({"appVersion": "another"}));
    let first = site.attempt(SyncMode::Complete).await;
    assert!(matches!(first.outcome, SyncOutcome::Synced { is_complete: false, .. }));
    attempts_until_complete(&site).await;
    let infos = site.infos().await;
    let versions = &infos[0].chart_versions;
    let found = versions.iter().find(|version| version.version == "1.99.0").unwrap();
    assert_eq!((versions.len(), &*found.app_version), (TAGS, "another"));
    assert!(pull_count() <= 2 * TAGS + 1, "{}", pull_count());
}

#[tokio::test]
async fn slow_tag_lists_fail_the_sync_with_partial_results() {
    let names: Vec<String> = (0..40).map(|number| format!("chart{number}")).collect();
    let mut site = Site::new(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    site.declaration.fetch_timeout = Some(Duration::from_secs(1));
    for name in &names {
        site.publish(name, &["1.0.0"]);
        site.server
            .break_path(&list(name), Fault::Delay(Duration::from_millis(400)));
    }
    let finished = site.sync().await;
    let (reason, _, message) = interrupted(&finished);
    assert_eq!(reason, "Timeout");
    assert!(message.contains("of 40 repositories could not be listed"), "{message}");
    let count = site.infos().await.len();
    assert!((8..40).contains(&count), "{count}");
    // The next attempt starts with the missing lists.
    site.sync().await;
    assert!(site.infos().await.len() > count);
}

#[tokio::test]
async fn a_failed_list_does_not_delay_the_next_attempt() {
    let site = Site::new(&["harbour", "quay"]).await;
    site.publish_many("harbour", 700);
    site.server.break_path(&list("quay"), Fault::status(500));
    let first = site.sync().await;
    assert!(!is_complete(&first));
    assert_eq!(first.record.state.ready, None);
    let last = site.sync().await;
    assert_eq!(interrupted(&last).0, "ServerError");
    assert_eq!((site.version_count(0).await, last.record.state.failures), (700, 1));
    // Further attempts back off unless there are new tags.
    assert!(matches!(site.sync().await.outcome, SyncOutcome::Failed(_)));
    assert_eq!(site.sync().await.record.state.failures, 3);
    site.publish_many("harbour", 701);
    let finished = site.sync().await;
    interrupted(&finished);
    assert_eq!(finished.record.state.failures, 1);
}

#[tokio::test]
async fn digest_checks_complete_although_they_become_due_again() {
    const TAGS: usize = 40;
    let mut site = Site::new(&["harbour", "quay"]).await;
    site.publish_many("harbour", TAGS);
    site.publish_many("quay", TAGS);
    site.sync().await;
    site.declaration.fetch_timeout = Some(Duration::from_secs(1));
    site.context.check_digests = Duration::from_millis(1);
    site.restart();
    let slow = Fault::Delay(Duration::from_millis(300));
    for tag in versions(TAGS) {
        site.server.break_path(&manifest("harbour", &tag), slow.clone());
        site.server.break_path(&manifest("quay", &tag), slow.clone());
    }
    site.push("quay", "1.0.0", &json!({"appVersion": "another"}));
    assert!(attempts_until_complete(&site).await > 1);
    let infos = site.infos().await;
    let oldest = infos[1].chart_versions.last().unwrap();
    assert_eq!(oldest.app_version, "another");
}
