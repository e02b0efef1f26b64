//! An unchanged index costs one request and no writes.

use super::*;
use crate::support::chart_server::Page;

/// Changes all times of an index, as some publishers do for every request.
fn restamped(second: usize) -> String {
    let stamp = format!("2026-03-01T12:00:{second:02}Z");
    let text = index(&[("web", &["1.1.0", "1.0.0"]), ("worker", &["0.1.0"])]);
    text.replace("2026-01-01T00:00:00Z", &stamp) + &format!("generated: \"{stamp}\"\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unchanged_index_costs_one_conditional_request_a_tick_and_nothing_is_written() {
    let fixture = Fixture::new(&["--min-interval=1s"]).await;
    let world = &fixture.world;
    let url = world.serve("quiet", index(&[("web", &["1.0.0"])]));
    world.declare_with("quiet", ticking(&url)).await;
    let object = world.until_ready("quiet").await;
    let (rows, events) = (fixture.rows("quiet").await, world.events("quiet").await);

    fixture.until_more_requests("quiet", 4).await;
    let requests = world.server.requests(&index_path("quiet"));
    let is_cheap = |request: &crate::support::chart_server::RecordedRequest| {
        request.is_conditional() && request.status == Some(http::StatusCode::NOT_MODIFIED)
    };
    assert!(
        !requests[0].is_conditional() && requests[1..].iter().all(is_cheap),
        "{requests:?}"
    );
    eventually(SOON, "as many syncs as requests", async || {
        let metrics = fixture.portolan.metrics().await;
        let syncs = metrics.sum("portolan_syncs_total", &[]);
        let not_modified = metrics.sum("portolan_not_modified_total", &[]);
        let requests = fixture.requests("quiet") as f64;
        let is_equal = syncs == Some(requests) && not_modified == Some(requests - 1.0);
        is_equal
            .then_some(())
            .ok_or_else(|| format!("{syncs:?}, {not_modified:?} of {requests}"))
    })
    .await;

    let now = world.until_ready("quiet").await;
    assert_eq!(
        now.metadata.resource_version, object.metadata.resource_version,
        "{:?} after {:?}",
        now.status, object.status
    );
    assert_eq!(fixture.rows("quiet").await, rows);
    assert_eq!(world.events("quiet").await, events);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unchanged_index_of_a_server_without_validators_writes_nothing() {
    let fixture = Fixture::new(&["--min-interval=1s"]).await;
    let world = &fixture.world;
    let page = Page::new(index(&[("web", &["1.0.0"])])).without_etag();
    world.server.serve(&index_path("plain"), page);
    world.declare_with("plain", ticking(&world.server.url("/plain"))).await;
    let object = world.until_ready("plain").await;
    let rows = fixture.rows("plain").await;
    fixture.until_more_requests("plain", 3).await;
    let now = world.until_ready("plain").await;
    assert_eq!(
        now.metadata.resource_version, object.metadata.resource_version,
        "{:?} after {:?}",
        now.status, object.status
    );
    assert_eq!(fixture.rows("plain").await, rows);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_times_alone_are_not_a_change() {
    let fixture = Fixture::new(&["--min-interval=1s"]).await;
    let world = &fixture.world;
    let url = world.serve("restamped", restamped(0));
    world.declare_with("restamped", ticking(&url)).await;
    let object = world.until_ready("restamped").await;
    let (rows, events) = (fixture.rows("restamped").await, world.events("restamped").await);
    for second in 1..4 {
        world.serve("restamped", restamped(second));
        fixture.until_more_requests("restamped", 2).await;
        assert_eq!(fixture.rows("restamped").await, rows);
        let now = world.until_ready("restamped").await;
        assert_eq!(
            now.metadata.resource_version, object.metadata.resource_version,
            "{:?} after {:?}",
            now.status, object.status
        );
    }
    assert_eq!(world.events("restamped").await, events);
}
