//! What a registry does not give to whoever asks, although it lists it.

use portolan::controllers::apprepository::decision::Mode;
use portolan::controllers::apprepository::sync::request::SyncOutcome;

use super::site::{Site, is_complete, manifest, skipped, versions};
use crate::support::chart_server::Fault;

fn refuse(site: &Site, repository: &str, tags: &[String]) {
    for tag in tags {
        site.server.break_path(&manifest(repository, tag), Fault::status(401));
    }
}

fn asked(site: &Site, repository: &str) -> usize {
    let path = format!("/v2/ports/{repository}/manifests/");
    let seen = site.server.all_seen();
    seen.iter().filter(|seen| seen.path.starts_with(&path)).count()
}

#[tokio::test]
async fn pulls_that_are_refused_take_no_places_from_those_that_can_be_had() {
    let site = Site::new(&["harbour", "quay"]).await;
    let tags = versions(600);
    site.publish_many("harbour", 700);
    site.list("quay", &tags);
    refuse(&site, "quay", &tags);
    assert!(!is_complete(&site.sync().await));
    assert_eq!(site.shown(0).await, 500);
    assert!(is_complete(&site.sync().await));
    assert_eq!(site.shown(0).await, 700);
}

#[tokio::test]
async fn looks_at_digests_that_are_refused_stop_for_that_repository_and_make_no_sync_go_on() {
    let site = Site::new(&["harbour", "quay"]).await;
    let tags = versions(60);
    site.publish_many("harbour", 60);
    site.publish("quay", &["1.0.0"]);
    site.sync().await;
    refuse(&site, "harbour", &tags);
    let (harbour, quay) = (asked(&site, "harbour"), asked(&site, "quay"));
    let finished = site.attempt(Mode::Complete).await;
    assert!(is_complete(&finished));
    let problems = skipped(&finished);
    assert!(
        problems.len() == 1 && problems[0].starts_with("harbour: "),
        "{problems:?}"
    );
    assert!(asked(&site, "harbour") - harbour < 20);
    // The server states no digests, so that a look is two requests.
    assert_eq!(asked(&site, "quay") - quay, 2);
    assert_eq!((site.shown(0).await, site.shown(1).await), (60, 1));
}

#[tokio::test]
async fn one_tag_that_is_refused_is_named_and_tried_later_and_the_others_of_its_repository_are_there() {
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

    // Also where nothing else is new, or published anew.
    site.publish("harbour", &["1.0.0", "1.1.0", "1.2.0", "1.3.0"]);
    site.server
        .break_path(&manifest("harbour", "1.3.0"), Fault::status(403));
    site.server
        .break_path(&manifest("harbour", "1.0.0"), Fault::status(403));
    site.server.repair(&refused);
    let problems = skipped(&site.attempt(Mode::Complete).await);
    let named: Vec<&str> = problems.iter().filter_map(|text| text.split(": ").next()).collect();
    assert_eq!(named, ["harbour 1.0.0", "harbour 1.3.0"], "{problems:?}");
    assert_eq!(site.charts().await, ["harbour 1.2.0 1.1.0 1.0.0"]);
}

#[tokio::test]
async fn a_registry_that_gives_nothing_of_what_it_lists_is_a_failure() {
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
