//! Rows that no sink accepted for a day.

use serde_json::json;

use super::KEY;
use super::sink_server::{Answer, SinkServer};
use crate::support::world::{SOON, World};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_older_than_a_day_is_dropped_and_holds_no_later_row() {
    let (world, sink) = (World::new().await, SinkServer::start(Answer::Status(200)).await);
    world.release("web", &["1.0.0"]);
    world.write_sink("team-a", "web", &json!({ "url": sink.url, "token": KEY }));
    world.declare_with_news("team-a", "web");
    let mut portolan = world.run_with_news().await;
    sink.request(1).await;
    world.until_outbox_is_empty().await;
    portolan.signal("KILL");
    portolan.exit(SOON).await;
    let old = "INSERT INTO portolan_news (id, origin, namespace, name, sink, event, created, tries, next_try)
        SELECT 'old', origin, namespace, name, 'team-a/hook-web',
            '{\"kind\":\"failed\",\"namespace\":\"team-a\",\"repository\":\"web\"}', unixepoch() * 1000 - 90000000, 9, 0
        FROM portolan_repositories";
    assert_eq!(world.execute(old).await, 1);
    world.release("web", &["1.1.0", "1.0.0"]);

    let portolan = world.run_with_news().await;
    sink.request_with("\"1.1.0\"").await;
    world.until_outbox_is_empty().await;
    assert_eq!(sink.requests().len(), 2);
    let dropped = portolan.metrics().await;
    assert_eq!(
        dropped.sum("portolan_news_dropped_total", &[("reason", "Expired")]),
        Some(1.0)
    );
}
