//! Delivery to sinks that work, fail, are slow, or must not be reached.

use serde_json::{Value, json};
use sqlx::PgPool;

use super::KEY;
use super::sink_server::{Answer, SinkServer, trickling_server};
use crate::support::chart_server::{Fault, Page};
use crate::support::eventually::eventually;
use crate::support::portolan::Portolan;
use crate::support::postgres;
use crate::support::world::{SOON, World};

const FIRST_SYNC: &str = "dev.portolan.repository.synced";

/// A repository `web` in the namespace `team-a` whose first sync was delivered.
struct Scene {
    world: World,
    sink: SinkServer,
    portolan: Portolan,
}

impl Scene {
    async fn new() -> Self {
        let (world, sink) = (World::new().await, SinkServer::start(Answer::Status(200)).await);
        world.release("web", &["1.0.0"]);
        world.write_sink("team-a", "web", &json!({ "url": sink.url, "token": KEY }));
        world.declare_with_news("team-a", "web");
        let portolan = world.run_with_news().await;
        assert_eq!(sink.request(1).await.json()["type"], FIRST_SYNC);
        world.until_outbox_is_empty().await;
        Self { world, sink, portolan }
    }

    async fn kill(&mut self) {
        self.portolan.signal("KILL");
        self.portolan.exit(SOON).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_version_reaches_a_sink_as_a_signed_cloud_event() {
    let Scene { world, sink, portolan } = Scene::new().await;
    world.release("web", &["1.1.0", "1.0.0"]);
    let received = sink.request(2).await;
    assert!(received.is_accepted_by_flux(KEY));
    assert!(!received.is_accepted_by_flux("another key"));
    assert_eq!(
        received.headers["content-type"],
        "application/cloudevents+json; charset=utf-8"
    );
    let event = received.json();
    let (id, source, time) = (&event["id"], &event["source"], &event["time"]);
    assert!(source.as_str().unwrap().ends_with("/team-a/web"), "{source}");
    let expected = json!({
        "specversion": "1.0",
        "id": id,
        "source": source,
        "type": "dev.portolan.chart.version.added",
        "subject": "web",
        "time": time,
        "datacontenttype": "application/json",
        "data": {
            "namespace": "team-a", "repository": "web",
            "chart": "web", "version": "1.1.0", "digest": "web1.1.0", "change": "added",
        },
    });
    assert_eq!(event, expected);
    world.until_outbox_is_empty().await;
    assert_eq!(
        portolan.metrics().await.sum("portolan_news_delivered_total", &[]),
        Some(2.0)
    );
    assert!(!portolan.lines().iter().any(|line| line.contains("hunter2")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_format_of_the_secret_decides_the_body() {
    let world = World::new().await;
    let sinks = [
        ("slack", json!({ "format": "slack" })),
        ("flux", json!({ "format": "flux", "token": KEY })),
        ("filtered", json!({ "token": KEY, "charts": "postgres\nmy*l" })),
    ];
    let mut servers = Vec::new();
    for (name, mut values) in sinks {
        let server = SinkServer::start(Answer::Status(204)).await;
        values["url"] = json!(server.url);
        world.release(name, &["1.0.0"]);
        world.write_sink("team-a", name, &values);
        world.declare_with_news("team-a", name);
        servers.push((name, server));
    }
    let _portolan = world.run_with_news().await;
    for (name, server) in &servers {
        server.request(1).await;
        world.release(name, &["1.1.0", "1.0.0"]);
    }
    let slack = servers[0].1.request(2).await;
    assert_eq!(slack.json(), json!({ "text": "web 1.1.0 is new in team-a/slack" }));
    assert!(!slack.headers.contains_key("x-signature"));

    let flux = servers[1].1.request(2).await;
    assert!(flux.is_accepted_by_flux(KEY));
    let event = flux.json();
    let expected = json!({
        "involvedObject": {
            "apiVersion": "kubeapps.com/v1alpha1", "kind": "AppRepository", "namespace": "team-a", "name": "flux",
        },
        "severity": "info",
        "timestamp": event["timestamp"],
        "message": "web 1.1.0 is new in team-a/flux",
        "reason": "ChartVersionAdded",
        "metadata": { "id": event["metadata"]["id"], "chart": "web", "revision": "1.1.0" },
        "reportingController": "portolan",
    });
    assert_eq!(event, expected);

    // Messages of a sink keep their order: one of mysql is delivered after all of web.
    let charts: [(&str, &[&str]); 2] = [("web", &["1.2.0", "1.1.0", "1.0.0"]), ("mysql", &["8.0.0"])];
    let index = Page::new(crate::cluster::index(&charts));
    world.server.serve("/filtered/index.yaml", index);
    let filtered = &servers[2].1;
    assert_eq!(filtered.request(2).await.json()["subject"], "mysql");
    world.until_outbox_is_empty().await;
    assert_eq!(filtered.requests().len(), 2, "web is not among the charts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_that_fails_and_recovers_is_news_once() {
    let Scene {
        world,
        sink,
        portolan: _portolan,
    } = Scene::new().await;
    world.server.break_path("/web/index.yaml", Fault::html());
    let failed = sink.request(2).await.json();
    assert_eq!(failed["type"], "dev.portolan.repository.failed");
    assert!(
        failed["data"]["message"]
            .as_str()
            .is_some_and(|message| !message.is_empty())
    );
    world.server.clear_faults("/web/index.yaml");
    assert_eq!(
        sink.request(3).await.json()["type"],
        "dev.portolan.repository.recovered"
    );
    world.until_outbox_is_empty().await;
    assert_eq!(sink.requests().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_is_invalid_is_news_until_it_is_synced_again() {
    let Scene {
        world,
        sink,
        portolan: _portolan,
    } = Scene::new().await;
    let valid = std::fs::read_to_string(world.manifest("web")).unwrap();
    let mut invalid: Value = serde_json::from_str(&valid).unwrap();
    invalid["spec"]["url"] = json!(["no text"]);
    world.write("web.yaml", invalid.to_string());
    let failed = sink.request(2).await.json();
    assert_eq!(failed["type"], "dev.portolan.repository.failed");
    let message = failed["data"]["message"].as_str().unwrap();
    assert!(message.starts_with("invalid AppRepository"), "{message}");
    world.write("web.yaml", valid);
    assert_eq!(
        sink.request(3).await.json()["type"],
        "dev.portolan.repository.recovered"
    );
    world.until_outbox_is_empty().await;
    assert_eq!(sink.requests().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_changes_is_one_summary() {
    let Scene {
        world,
        sink,
        portolan: _portolan,
    } = Scene::new().await;
    let versions: Vec<String> = (0..1_001).map(|minor| format!("1.{minor}.0")).collect();
    world.release("web", &versions.iter().map(String::as_str).collect::<Vec<_>>());
    let summary = sink.request(2).await.json();
    assert_eq!(summary["type"], "dev.portolan.repository.synced");
    assert_eq!(summary["data"]["changes"].as_array().unwrap().len(), 20);
    assert_eq!(summary["data"]["more"], 980);
    world.until_outbox_is_empty().await;
    assert_eq!(sink.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_failed_is_sent_again_with_its_id() {
    let Scene { world, sink, portolan } = Scene::new().await;
    sink.answer(Answer::Once(500));
    world.release("web", &["1.1.0", "1.0.0"]);
    let first = sink.request(2).await;
    let line = portolan.line_with("news is not delivered", SOON).await;
    assert!(line.contains("500") && !line.contains("hunter2"), "{line}");
    let second = sink.request(3).await;
    assert_eq!(first.body, second.body);
    world.until_outbox_is_empty().await;
    assert_eq!(sink.requests().len(), 3);
    let failed = portolan.metrics().await;
    assert_eq!(
        failed.sum("portolan_news_failed_total", &[("reason", "Unavailable")]),
        Some(1.0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_between_commit_and_delivery_loses_nothing() {
    let mut scene = Scene::new().await;
    scene.sink.answer(Answer::Status(503));
    scene.world.release("web", &["1.1.0", "1.0.0"]);
    let refused = scene.sink.request(2).await;
    scene.kill().await;
    assert_eq!(scene.world.news_ids().await.len(), 1);
    scene.sink.answer(Answer::Status(200));
    scene.portolan = scene.world.run_with_news().await;
    scene.world.until_outbox_is_empty().await;
    let requests = scene.sink.requests();
    assert_eq!(requests.last().unwrap().body, refused.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_between_delivery_and_deletion_delivers_twice_with_one_id() {
    let mut scene = Scene::new().await;
    // The sink has the message, and Portolan does not know.
    scene.sink.answer(Answer::Never);
    scene.world.release("web", &["1.1.0", "1.0.0"]);
    let first = scene.sink.request(2).await.json();
    scene.kill().await;
    scene.sink.answer(Answer::Status(200));
    scene.portolan = scene.world.run_with_news().await;
    scene.world.until_outbox_is_empty().await;
    let requests = scene.sink.requests();
    assert!(requests.len() >= 3, "{} requests", requests.len());
    assert_eq!(requests.last().unwrap().json()["id"], first["id"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_rejected_three_times_makes_room_for_the_next() {
    let Scene { world, sink, portolan } = Scene::new().await;
    sink.answer(Answer::RejectsText("1.1.0"));
    world.release("web", &["1.1.0", "1.0.0"]);
    sink.request_with("1.1.0").await;
    world.release("web", &["1.2.0", "1.1.0", "1.0.0"]);
    sink.request_with("\"1.2.0\"").await;
    let rejected = sink
        .requests()
        .into_iter()
        .filter(|request| request.text().contains("\"1.1.0\""))
        .count();
    assert_eq!(rejected, 3);
    world.until_outbox_is_empty().await;
    let dropped = portolan.metrics().await;
    assert_eq!(
        dropped.sum("portolan_news_dropped_total", &[("reason", "Rejected")]),
        Some(1.0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_is_gone_loses_its_news() {
    let Scene { world, sink, portolan } = Scene::new().await;
    sink.answer(Answer::Status(410));
    world.release("web", &["1.1.0", "1.0.0"]);
    sink.request(2).await;
    world.until_outbox_is_empty().await;
    portolan.line_with("all news for it was dropped", SOON).await;
    eventually(SOON, "the dropped row to be counted", async || {
        let dropped = portolan.metrics().await;
        (dropped.sum("portolan_news_dropped_total", &[("reason", "Gone")]) == Some(1.0)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_is_not_followed() {
    let Scene { world, sink, portolan } = Scene::new().await;
    let other = SinkServer::start(Answer::Status(200)).await;
    sink.answer(Answer::Redirect(other.url.clone()));
    world.release("web", &["1.1.0", "1.0.0"]);
    portolan.line_with("redirects are not followed", SOON).await;
    sink.answer(Answer::Status(200));
    world.until_outbox_is_empty().await;
    assert!(other.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_that_tenants_must_not_reach_are_refused() {
    let (world, sink) = (World::new().await, SinkServer::start(Answer::Status(200)).await);
    let metadata = "http://169.254.169.254/latest/meta-data".to_owned();
    for (name, url) in [("loopback", &sink.url), ("metadata", &metadata)] {
        world.release(name, &["1.0.0"]);
        world.write_sink("team-a", name, &json!({ "url": url, "token": KEY }));
        world.declare_with_news("team-a", name);
    }
    let portolan = world.run(&["--min-interval=1s"]).await;
    let private = portolan.line_with("Secret hook-loopback", SOON).await;
    assert!(private.contains("--news-private-networks"), "{private}");
    let metadata = portolan.line_with("Secret hook-metadata", SOON).await;
    assert!(metadata.contains("link-local"), "{metadata}");
    assert!(sink.requests().is_empty());
    assert_eq!(world.news_ids().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn news_waits_for_a_secret_that_was_deleted() {
    let Scene { world, sink, portolan } = Scene::new().await;
    std::fs::remove_file(world.manifest("hook-web")).unwrap();
    world.release("web", &["1.1.0", "1.0.0"]);
    let line = portolan
        .line_with("news is not delivered to the sink of Secret hook-web", SOON)
        .await;
    assert!(
        line.contains("does not exist; create it with the keys url and token"),
        "{line}"
    );
    world.write_sink("team-a", "web", &json!({ "url": sink.url, "token": KEY }));
    sink.request_with("\"1.1.0\"").await;
    world.until_outbox_is_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_and_dead_sinks_of_a_namespace_delay_no_other_namespace() {
    let world = World::new().await;
    let (dead, healthy) = (
        SinkServer::start(Answer::Never).await,
        SinkServer::start(Answer::Status(200)).await,
    );
    for number in 0..10 {
        let name = format!("dead-{number}");
        let url = if number == 0 {
            trickling_server().await
        } else {
            dead.url.clone()
        };
        world.release(&name, &["1.0.0"]);
        world.write_sink("team-a", &name, &json!({ "url": url, "token": KEY }));
        world.declare_with_news("team-a", &name);
    }
    let portolan = world.run_with_news().await;
    dead.request(1).await;
    world.release("healthy", &["1.0.0"]);
    world.write_sink("team-b", "healthy", &json!({ "url": healthy.url, "token": KEY }));
    world.declare_with_news("team-b", "healthy");
    healthy.request(1).await;
    assert!(dead.requests().len() <= 4, "team-a has half of the permits");
    let timeouts = portolan
        .metrics()
        .await
        .sum("portolan_news_failed_total", &[("reason", "Timeout")]);
    assert_eq!(timeouts.unwrap_or_default(), 0.0, "team-b has not waited for a timeout");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_that_trickles_is_a_timeout() {
    let world = World::new().await;
    world.release("web", &["1.0.0"]);
    world.write_sink(
        "team-a",
        "web",
        &json!({ "url": trickling_server().await, "token": KEY }),
    );
    world.declare_with_news("team-a", "web");
    let portolan = world.run_with_news().await;
    portolan.line_with("within 10s", SOON).await;
    assert_eq!(world.news_ids().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn news_in_postgres_survives_a_crash() {
    let (world, database) = (World::new().await, postgres::database().await);
    let sink = SinkServer::start(Answer::Status(503)).await;
    world.release("web", &["1.0.0"]);
    world.write_sink("team-a", "web", &json!({ "url": sink.url, "token": KEY }));
    world.declare_with_news("team-a", "web");
    let flags = ["--min-interval=1s", "--news-private-networks"];
    let mut portolan = world.run_on(&database.url, &flags).await;
    let refused = sink.request(1).await;
    portolan.signal("KILL");
    portolan.exit(SOON).await;
    sink.answer(Answer::Status(200));
    let _portolan = world.run_on(&database.url, &flags).await;
    let pool = PgPool::connect(&database.url).await.unwrap();
    eventually(SOON, "the outbox to be empty", async || {
        let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM portolan_news")
            .fetch_one(&pool)
            .await
            .unwrap();
        if rows == 0 { Ok(()) } else { Err(format!("{rows} rows")) }
    })
    .await;
    assert_eq!(sink.requests().last().unwrap().body, refused.body);
}
