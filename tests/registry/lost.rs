//! Registries that have lost what they list, or tell nothing of it: the charts stay.

use portolan::controllers::apprepository::decision::Mode;
use portolan::controllers::apprepository::sync::request::SyncOutcome;
use rstest::rstest;

use super::site::{Site, is_complete, list, manifest, skipped};
use crate::support::chart_server::{Fault, Page};

#[rstest]
#[case::not_there(None)]
#[case::damaged(Some("<html>"))]
#[tokio::test]
async fn a_chart_stays_what_it_was_where_its_manifest_can_not_be_had_any_more(#[case] page: Option<&'static str>) {
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
    // Which is told once.
    site.let_a_day_pass().await;
    let finished = site.sync().await;
    assert!(is_complete(&finished));
    assert_eq!(skipped(&finished).len(), 3);
    assert_eq!(site.charts().await, charts);
    assert!(matches!(site.sync().await.outcome, SyncOutcome::NotModified));
    site.let_it_be_time().await;
    assert!(matches!(site.sync().await.outcome, SyncOutcome::NotModified));
    assert_eq!(site.number("SELECT min(tries) FROM portolan_oci_tags").await, 2);
    let problems = skipped(&site.attempt(Mode::Complete).await);
    assert!(problems[0].starts_with("harbour 1.0.0: "), "{problems:?}");
    assert_eq!(site.charts().await, charts);

    site.publish("harbour", &["1.0.0", "1.1.0"]);
    site.publish("quay", &["1.0.0"]);
    for (repository, tag) in [("harbour", "1.0.0"), ("harbour", "1.1.0"), ("quay", "1.0.0")] {
        site.server.repair(&manifest(repository, tag));
    }
    assert!(skipped(&site.attempt(Mode::Complete).await).is_empty());
    assert_eq!(site.charts().await, charts);
}

#[tokio::test]
async fn charts_that_are_not_for_us_any_more_stay_although_others_are_declared_beside_them() {
    let mut site = Site::new(&["gone", "harbour", "quay"]).await;
    for repository in ["gone", "harbour", "pier", "quay"] {
        site.publish(repository, &["1.0.0", "1.1.0"]);
    }
    site.sync().await;
    // One whose list is refused, and one whose pulls are. What was learnt from another list of repositories is not believed.
    site.server.break_path(&list("quay"), Fault::status(401));
    for tag in ["1.0.0", "1.1.0"] {
        site.server.break_path(&manifest("harbour", tag), Fault::status(401));
    }
    site.server.break_path(&list("gone"), Fault::status(404));
    site.declare(&["gone", "harbour", "pier", "quay"]);
    assert!(is_complete(&site.attempt(Mode::Complete).await));
    let charts = ["harbour 1.1.0 1.0.0", "pier 1.1.0 1.0.0", "quay 1.1.0 1.0.0"];
    assert_eq!(site.charts().await, charts);
    assert!(matches!(site.sync().await.outcome, SyncOutcome::NotModified));

    // Once it is known what there is, the rest goes.
    site.server.repair(&list("quay"));
    site.list("quay", &["1.1.0".to_owned()]);
    site.list("harbour", &["1.1.0".to_owned()]);
    site.sync().await;
    assert_eq!(site.charts().await, ["harbour 1.1.0", "pier 1.1.0 1.0.0", "quay 1.1.0"]);
    assert_eq!(
        site.number("SELECT count(*) FROM portolan_kept_versions").await,
        1,
        "it can't be pulled yet"
    );
}
