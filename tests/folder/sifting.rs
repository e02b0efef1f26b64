//! What is known of an index is let go while it comes; where the whole is needed all the same it is fetched once more.

use axum::http::{StatusCode, header};

use super::*;
use crate::support::chart_server::Seen;
use crate::support::portolan::Portolan;

const FLAGS: [&str; 2] = ["--min-interval=1s", "--verify-delta=false"];
const PATH: &str = "/web/index.yaml";

impl World {
    /// How many whole answers there were.
    fn bodies(&self) -> usize {
        let seen = self.server.seen(PATH);
        seen.iter()
            .filter(|seen| seen.status.is_some_and(|status| status == 200))
            .count()
    }

    fn publish(&self, page: Page) {
        self.server.serve(PATH, page);
    }

    /// A repository that is synced every second, in an index that can be cut.
    async fn followed(&self) -> Portolan {
        self.publish(Page::new(web(&["1.0.0"])));
        self.declare("web", &self.server.url("/web"), "  interval: \"* * * * * *\"\n");
        let portolan = self.run(&FLAGS).await;
        self.until_newest("web", "1.0.0").await;
        portolan
    }

    /// Waits for so many more requests.
    async fn until_asked(&self, times: usize) {
        let before = self.server.count(PATH);
        eventually(SOON, "requests", async || {
            (self.server.count(PATH) >= before + times).then_some(())
        })
        .await;
    }
}

/// How many indexes were cut while they came, with this result.
async fn streamed(portolan: &Portolan, result: &str) -> f64 {
    let metrics = portolan.metrics().await;
    let count = metrics.sum("portolan_streamed_indexes_total", &[("result", result)]);
    count.unwrap_or_default()
}

/// Another index than before, whatever the server was asked.
fn answer(index: String, etag: &str) -> Fault {
    let headers = vec![(header::ETAG, format!("\"{etag}\""))];
    Fault::Answer(StatusCode::OK, headers, index.into())
}

/// Versions of a chart, beside one that stays as it is.
fn web(versions: &[&str]) -> String {
    crate::cluster::index(&[("stays", &["1.0.0"]), ("web", versions)])
}

/// The same in JSON.
fn json(versions: &[&str]) -> String {
    let index: serde_json::Value = serde_yaml::from_str(&web(versions)).unwrap();
    index.to_string()
}

/// The same in a style that can't be cut.
fn uncuttable(versions: &[&str]) -> String {
    web(versions).replace("  web:", "  # by hand\n  web:")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_can_not_be_told_by_its_parts_any_more_is_fetched_twice_and_then_once_again() {
    let world = World::new().await;
    let portolan = world.followed().await;
    assert_eq!(world.bodies(), 1);
    world.publish(Page::new(web(&["1.1.0", "1.0.0"])));
    world.until_newest("web", "1.1.0").await;
    assert_eq!(world.bodies(), 2, "what has changed was there");
    assert_eq!(streamed(&portolan, "told").await, 1.0);
    world.publish(Page::new(uncuttable(&["1.2.0"])));
    world.until_newest("web", "1.2.0").await;
    assert_eq!(world.bodies(), 4, "once by parts, and once as a whole");
    assert_eq!(streamed(&portolan, "fetched_again").await, 1.0);
    world.publish(Page::new(uncuttable(&["1.3.0"])));
    world.until_newest("web", "1.3.0").await;
    assert_eq!(world.bodies(), 5, "it is remembered that it can't be");
    world.until_asked(2).await;
    assert_eq!(world.bodies(), 5);
    // One that can be told by its parts again, which is tried at once of another notation; and the next while it comes.
    for version in ["1.4.0", "1.5.0"] {
        world.publish(Page::new(json(&[version])));
        world.until_newest("web", version).await;
    }
    assert_eq!(world.bodies(), 7);
    assert_eq!(streamed(&portolan, "told").await, 2.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_bytes_without_validators_are_no_change() {
    let world = World::new().await;
    let portolan = world.followed().await;
    world.publish(Page::new(web(&["1.1.0"])).without_etag());
    world.until_newest("web", "1.1.0").await;
    let written = |metrics: &portolan::Metrics| metrics.sum("portolan_syncs_total", &[("result", "success")]);
    world.until_asked(1).await;
    let before = written(&portolan.metrics().await);
    assert!(before.is_some());
    world.until_asked(3).await;
    assert_eq!(written(&portolan.metrics().await), before);
    // With validators, which change although nothing else does.
    for etag in ["\"one\"", "\"other\""] {
        world.publish(Page::new(web(&["1.1.0"])).etag(etag));
        world.until_asked(3).await;
    }
    assert_eq!(written(&portolan.metrics().await), before);
    for version in ["1.2.0", "1.3.0"] {
        world.publish(Page::new(json(&[version])).without_etag());
        world.until_newest("web", version).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_breaks_off_changes_nothing() {
    let world = World::new().await;
    let portolan = world.followed().await;
    let next = web(&["1.1.0"]);
    world.server.break_path(PATH, Fault::CutAfter(next.len() / 2));
    world.publish(Page::new(next));
    portolan.line_with("SyncFailed", SOON).await;
    let charts = world.texts("SELECT chart_id FROM charts ORDER BY chart_id").await;
    assert_eq!(charts, ["web/stays", "web/web"]);
    world.until_newest("web", "1.0.0").await;
    world.server.repair(PATH);
    world.until_newest("web", "1.1.0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_in_the_place_of_an_index_is_fetched_twice_but_once() {
    let world = World::new().await;
    let _portolan = world.followed().await;
    for (number, bodies) in [(1, 3), (2, 4)] {
        world.publish(Page::new(format!("<html>come back at {number}</html>")));
        eventually(SOON, "the page to be fetched", async || {
            (world.bodies() >= bodies).then_some(())
        })
        .await;
        world.until_asked(2).await;
        assert_eq!(world.bodies(), bodies, "page {number}");
    }
    world.publish(Page::new(web(&["1.1.0"])));
    world.until_newest("web", "1.1.0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_are_the_same_both_get_what_is_new() {
    let world = World::new().await;
    world.publish(Page::new(web(&["1.0.0"])));
    for name in ["first", "second"] {
        world.declare(name, &world.server.url("/web"), "  interval: \"* * * * * *\"\n");
    }
    let portolan = world.run(&FLAGS).await;
    for newest in ["1.0.0", "1.1.0", "1.2.0", "1.3.0"] {
        world.publish(Page::new(web(&[newest])));
        for name in ["first", "second"] {
            world.until_newest(name, newest).await;
        }
    }
    assert_eq!(streamed(&portolan, "told").await, 0.0, "what is for both is kept whole");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_fetched_once_more_counts_and_not_what_came_before_it() {
    let world = World::new().await;
    let _portolan = world.followed().await;
    let turns = vec![
        answer(uncuttable(&["1.1.0"]), "parts"),
        answer(web(&["1.2.0"]), "whole"),
        Fault::status(304),
    ];
    world.server.break_in_turn(PATH, turns);
    world.until_newest("web", "1.2.0").await;
    world.until_asked(2).await;
    assert_eq!(world.bodies(), 3);
    let seen = world.server.seen(PATH);
    let asked_for = |etag: &str| {
        let value = |seen: &Seen| {
            seen.headers
                .get(header::IF_NONE_MATCH)?
                .to_str()
                .ok()
                .map(str::to_owned)
        };
        seen.iter()
            .filter_map(value)
            .filter(|value| value.contains(etag))
            .count()
    };
    assert_eq!(asked_for("parts"), 0, "of that nothing was taken over");
    assert!(asked_for("whole") > 0);
    world.server.repair(PATH);
    world.publish(Page::new(web(&["1.3.0"])));
    world.until_newest("web", "1.3.0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_fetched_once_more_may_be_what_is_there_already() {
    let world = World::new().await;
    let portolan = world.followed().await;
    // Behind the first turn the server has the page that it had before.
    world
        .server
        .break_times(PATH, answer(uncuttable(&["1.1.0"]), "parts"), 1);
    eventually(SOON, "both bodies", async || (world.bodies() >= 3).then_some(())).await;
    world.until_asked(2).await;
    assert_eq!(world.bodies(), 3);
    let written = portolan
        .metrics()
        .await
        .sum("portolan_syncs_total", &[("result", "success")]);
    assert_eq!(written, Some(1.0), "the first sync, and none since");
    world.publish(Page::new(web(&["1.2.0"])));
    world.until_newest("web", "1.2.0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_not_be_fetched_once_more_is_a_failure_that_changes_nothing() {
    let world = World::new().await;
    let portolan = world.followed().await;
    let turns = vec![answer(uncuttable(&["1.1.0"]), "parts"), Fault::status(500)];
    world.server.break_in_turn(PATH, turns);
    portolan.line_with("SyncFailed", SOON).await;
    let charts = world.texts("SELECT chart_id FROM charts ORDER BY chart_id").await;
    assert_eq!(charts, ["web/stays", "web/web"]);
    world.until_newest("web", "1.0.0").await;
    world.server.repair(PATH);
    world.publish(Page::new(uncuttable(&["1.2.0"])));
    world.until_newest("web", "1.2.0").await;
    assert_eq!(world.bodies(), 3, "that it has to be whole is remembered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chart_under_the_name_of_one_that_is_known_is_told_by_the_whole() {
    let world = World::new().await;
    let portolan = world.followed().await;
    world.publish(Page::new(web(&["1.1.0"]).replace("name: web", "name: stays")));
    eventually(SOON, "both bodies", async || (world.bodies() >= 3).then_some(())).await;
    portolan
        .line_with("another chart of the index has the same name", SOON)
        .await;
    eventually(SOON, "one chart of the name", async || {
        let charts = world.texts("SELECT chart_id FROM charts ORDER BY chart_id").await;
        (charts == ["web/stays"]).then_some(())
    })
    .await;
    assert_eq!(world.bodies(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_has_shrunk_is_refused_by_its_parts() {
    let world = World::new().await;
    let names: Vec<String> = (0..12).map(|number| format!("chart-{number}")).collect();
    let index = |count: usize| {
        let charts: Vec<(&str, &[&str])> = names[..count]
            .iter()
            .map(|name| (name.as_str(), &["1.0.0"][..]))
            .collect();
        crate::cluster::index(&charts)
    };
    world.publish(Page::new(index(12)));
    world.declare("web", &world.server.url("/web"), "  interval: \"* * * * * *\"\n");
    let portolan = world.run(&FLAGS).await;
    portolan.line_with("SyncSucceeded", SOON).await;
    world.publish(Page::new(index(2)));
    portolan.line_with("ShrinkRefused", SOON).await;
    world.until_asked(2).await;
    assert_eq!(world.bodies(), 2, "its parts were enough, and it is known by its ETag");
    assert_eq!(streamed(&portolan, "told").await, 1.0);
    assert_eq!(world.texts("SELECT chart_id FROM charts").await.len(), 12);
    world.publish(Page::new(index(11)));
    eventually(SOON, "the next", async || {
        let charts = world.texts("SELECT chart_id FROM charts").await;
        (charts.len() == 11).then_some(())
    })
    .await;
}
