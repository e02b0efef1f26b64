//! Syncs that wait for responses that never come.

use std::time::Duration;

use portolan::controllers::apprepository::decision::{SyncMode, is_slow};
use portolan::controllers::apprepository::running_syncs::SyncAttempt;

use super::site::{Site, list};
use crate::support::chart_server::Fault;

/// Returns an attempt that has waited for this time for a response.
async fn unanswered(time: Duration) -> SyncAttempt {
    let attempt = SyncAttempt::default();
    let request = attempt.requests.begin();
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
    drop(request);
    attempt
}

#[tokio::test]
async fn failed_syncs_that_waited_over_a_minute_are_counted_until_one_succeeds() {
    let site = Site::new(&["harbour"]).await;
    site.publish("harbour", &["1.0.0"]);
    site.server.break_path(&list("harbour"), Fault::status(500));
    for (seconds, count) in [(61, 1), (61, 2), (59, 0), (61, 1), (61, 2), (61, 3), (1, 3)] {
        let attempt = unanswered(Duration::from_secs(seconds)).await;
        let record = site.attempt_as(SyncMode::Conditional, attempt).await.record;
        assert_eq!(record.state.slow_syncs, count);
        assert_eq!(is_slow(&site.declaration.url, &record), count == 3);
    }
    site.server.clear_faults(&list("harbour"));
    let attempt = unanswered(Duration::from_secs(61)).await;
    let record = site.attempt_as(SyncMode::Conditional, attempt).await.record;
    assert_eq!((record.state.ready, record.state.slow_syncs), (Some(true), 0));
}

#[tokio::test]
async fn an_aborted_sync_makes_its_repository_slow() {
    let site = Site::new(&["harbour"]).await;
    site.publish("harbour", &["1.0.0"]);
    let attempt = SyncAttempt::default();
    attempt.requests.abort();
    let record = site.attempt_as(SyncMode::Complete, attempt).await.record;
    assert_eq!(record.state.reason, "DownloadAborted");
    assert!(is_slow(&site.declaration.url, &record));
    assert_eq!(site.server.count(&list("harbour")), 0);
}
