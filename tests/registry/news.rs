//! News of a repository that fails and recovers.

use portolan::controllers::apprepository::sync::request::SyncOutcome;
use serde_json::Value;

use super::site::{Site, list};
use crate::support::chart_server::Fault;

async fn site() -> Site {
    let mut site = Site::new(&["harbour"]).await;
    site.declaration.news_sinks = vec!["ops/all".to_owned()];
    site.publish("harbour", &["1.0.0"]);
    site
}

/// Returns the kinds of the events in the outbox.
async fn kinds(site: &Site) -> Vec<String> {
    let select = sqlx::query_scalar("SELECT event FROM portolan_news ORDER BY rowid");
    let events: Vec<String> = select.fetch_all(&site.tables).await.unwrap();
    let kind = |event: &String| {
        let event: Value = serde_json::from_str(event).unwrap();
        event["kind"].as_str().unwrap().to_owned()
    };
    events.iter().map(kind).collect()
}

#[tokio::test]
async fn the_third_failure_in_a_row_is_news_once_and_the_success_after_it() {
    let site = site().await;
    site.sync().await;
    assert_eq!(kinds(&site).await, ["firstSync"]);
    site.server.break_path(&list("harbour"), Fault::status(500));
    for failed in [0, 0, 1, 1] {
        site.sync().await;
        let reported = kinds(&site).await.iter().filter(|kind| *kind == "failed").count();
        assert_eq!(reported, failed);
    }
    site.server.clear_faults(&list("harbour"));
    for _ in 0..2 {
        site.sync().await;
        assert_eq!(kinds(&site).await, ["firstSync", "failed", "recovered"]);
    }
    site.publish("harbour", &["1.0.0", "1.1.0"]);
    site.sync().await;
    assert_eq!(kinds(&site).await, ["firstSync", "failed", "recovered", "versions"]);
}

#[tokio::test]
async fn a_first_sync_in_parts_is_one_event_and_a_later_version_another() {
    let site = site().await;
    site.publish_many("harbour", 700);
    for is_last in [false, true] {
        let synced = site.sync().await;
        let is_complete = matches!(synced.outcome, SyncOutcome::Synced { is_complete: true, .. });
        assert_eq!(is_complete, is_last);
        assert_eq!(kinds(&site).await, ["firstSync"]);
    }
    site.publish_many("harbour", 701);
    site.sync().await;
    assert_eq!(kinds(&site).await, ["firstSync", "versions"]);
}

#[tokio::test]
async fn a_repository_that_needs_a_user_is_news_at_once() {
    let site = site().await;
    site.sync().await;
    site.server.break_path(&list("harbour"), Fault::status(403));
    for _ in 0..2 {
        site.sync().await;
        assert_eq!(kinds(&site).await, ["firstSync", "failed"]);
    }
}

#[tokio::test]
async fn a_sink_that_is_added_later_learns_of_a_failure_that_lasts() {
    let mut site = site().await;
    let sinks = std::mem::take(&mut site.declaration.news_sinks);
    site.server.break_path(&list("harbour"), Fault::status(500));
    for _ in 0..3 {
        site.sync().await;
    }
    assert!(kinds(&site).await.is_empty());
    site.declaration.news_sinks = sinks;
    site.sync().await;
    assert_eq!(kinds(&site).await, ["failed"]);
    site.server.clear_faults(&list("harbour"));
    site.sync().await;
    let mut kinds = kinds(&site).await;
    kinds.sort();
    assert_eq!(kinds, ["failed", "firstSync", "recovered"]);
}
