//! Registries that are too much for one attempt.

use std::time::Duration;

use portolan::controllers::apprepository::decision::Mode;
use portolan::controllers::apprepository::sync::request::SyncOutcome;
use reqwest::Method;
use serde_json::json;

use super::site::{Site, interrupted, is_complete, list, manifest, versions};
use crate::support::chart_server::Fault;

#[tokio::test]
async fn a_large_registry_is_pulled_in_parts_that_are_one_sync_and_nothing_goes_before_its_end() {
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
    assert_eq!((site.shown(0).await, site.successes().await), (499, 0));
    site.sync().await;
    assert_eq!((site.shown(0).await, site.successes().await), (700, 1));
    let told = "SELECT added * 100 + changed * 10 + removed FROM portolan_syncs WHERE result = 'Succeeded'";
    assert_eq!(
        site.number(told).await,
        200,
        "two charts were added, whatever became of them in between"
    );

    // The memory is lost, and one of the charts has left the registry meanwhile.
    site.forget(&["DELETE FROM portolan_oci_tags", "DELETE FROM portolan_oci_repositories"])
        .await;
    site.list("quay", &[]);
    site.push("harbour", "1.3.0", &json!({"appVersion": "another"}));
    let part = site.attempt(Mode::Complete).await;
    assert!(matches!(part.outcome, SyncOutcome::Synced { is_complete: false, .. }));
    assert_eq!(
        (site.shown(0).await, site.shown(1).await, site.successes().await),
        (700, 1, 1)
    );
    let whole = site.sync().await;
    assert!(matches!(whole.outcome, SyncOutcome::Synced { is_complete: true, .. }));
    assert_eq!(
        (site.shown(0).await, site.shown(1).await, site.successes().await),
        (700, 0, 2)
    );
    assert_eq!(site.number("SELECT count(*) FROM portolan_kept_versions").await, 0);
}

/// The parts that it takes until nothing is left.
async fn parts(site: &Site) -> usize {
    for part in 1..20 {
        match site.sync().await.outcome {
            SyncOutcome::Synced { is_complete: false, .. } => {}
            SyncOutcome::Synced { is_complete: true, .. } | SyncOutcome::NotModified => return part,
            other => panic!("{other:?}"),
        }
    }
    panic!("it does not come to an end")
}

#[tokio::test]
async fn a_slow_registry_is_had_in_parts_as_long_as_a_fetch_may_take_and_nothing_is_asked_twice() {
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
    let shown = site.shown(0).await;
    assert!((8..TAGS).contains(&shown), "{shown}");
    assert!(parts(&site).await < 20);
    assert_eq!(site.shown(0).await, TAGS);
    // The server states no digests, so that a look at one is a pull of the manifest beside.
    let asked = || {
        let seen = site.server.all_seen();
        let pulls = seen.iter().filter(|seen| seen.method == Method::GET);
        pulls.filter(|seen| seen.path.contains("/harbour/manifests/")).count()
    };
    assert_eq!(asked(), TAGS);

    // The look at all digests, which finds the last one published anew.
    site.push("harbour", "1.99.0", &json!({"appVersion": "another"}));
    let first = site.attempt(Mode::Complete).await;
    assert!(matches!(first.outcome, SyncOutcome::Synced { is_complete: false, .. }));
    parts(&site).await;
    let infos = site.infos().await;
    let versions = &infos[0].chart_versions;
    let found = versions.iter().find(|version| version.version == "1.99.0").unwrap();
    assert_eq!((versions.len(), &*found.app_version), (TAGS, "another"));
    assert!(asked() <= 2 * TAGS + 1, "{}", asked());
}

#[tokio::test]
async fn lists_that_take_too_long_are_a_failure_that_shows_what_was_had() {
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
    let shown = site.infos().await.len();
    assert!((8..40).contains(&shown), "{shown}");
    // Those that were not had come first the next time.
    site.sync().await;
    assert!(site.infos().await.len() > shown);
}

#[tokio::test]
async fn a_list_that_fails_makes_no_part_wait_for_the_next() {
    let site = Site::new(&["harbour", "quay"]).await;
    site.publish_many("harbour", 700);
    site.server.break_path(&list("quay"), Fault::status(500));
    let first = site.sync().await;
    assert!(!is_complete(&first));
    assert_eq!(first.record.state.ready, None);
    let last = site.sync().await;
    assert_eq!(interrupted(&last).0, "ServerError");
    assert_eq!((site.shown(0).await, last.record.state.failures), (700, 1));
    // From now on it waits, and longer and longer, unless there is something new.
    assert!(matches!(site.sync().await.outcome, SyncOutcome::Failed(_)));
    assert_eq!(site.sync().await.record.state.failures, 3);
    site.publish_many("harbour", 701);
    let finished = site.sync().await;
    interrupted(&finished);
    assert_eq!(finished.record.state.failures, 1);
}

#[tokio::test]
async fn looks_at_digests_come_to_an_end_although_they_are_due_again_before() {
    const TAGS: usize = 40;
    let mut site = Site::new(&["harbour", "quay"]).await;
    site.publish_many("harbour", TAGS);
    site.publish_many("quay", TAGS);
    site.sync().await;
    site.declaration.fetch_timeout = Some(Duration::from_secs(1));
    site.tools.check_digests = Duration::from_millis(1);
    site.restart();
    let slow = Fault::Delay(Duration::from_millis(300));
    for tag in versions(TAGS) {
        site.server.break_path(&manifest("harbour", &tag), slow.clone());
        site.server.break_path(&manifest("quay", &tag), slow.clone());
    }
    site.push("quay", "1.0.0", &json!({"appVersion": "another"}));
    assert!(parts(&site).await > 1);
    let infos = site.infos().await;
    let oldest = infos[1].chart_versions.last().unwrap();
    assert_eq!(oldest.app_version, "another");
}
