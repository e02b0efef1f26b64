//! Unchanged, broken and refused index bodies.

use super::*;
use crate::support::portolan::Portolan;

const PATH: &str = "/web/index.yaml";

impl World {
    /// Number of complete responses.
    fn bodies(&self) -> usize {
        let seen = self.server.requests(PATH);
        seen.iter()
            .filter(|seen| seen.status.is_some_and(|status| status == 200))
            .count()
    }

    fn publish(&self, page: Page) {
        self.server.serve(PATH, page);
    }

    /// Starts Portolan with a repository that is synced every second.
    async fn start_syncing(&self) -> Portolan {
        self.publish(Page::new(web(&["1.0.0"])));
        self.declare("web", &self.server.url("/web"), "  interval: \"* * * * * *\"\n");
        let portolan = self.run(&["--min-interval=1s"]).await;
        self.until_newest("web", "1.0.0").await;
        portolan
    }

    /// Waits for this many more requests.
    async fn until_requested(&self, times: usize) {
        let before = self.server.count(PATH);
        eventually(SOON, "requests", async || {
            (self.server.count(PATH) >= before + times).then_some(())
        })
        .await;
    }
}

/// Versions of a chart, and an unchanged chart.
fn web(versions: &[&str]) -> String {
    crate::cluster::index(&[("stays", &["1.0.0"]), ("web", versions)])
}

/// The same as JSON.
fn json(versions: &[&str]) -> String {
    let index: serde_json::Value = serde_yaml::from_str(&web(versions)).unwrap();
    index.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_bytes_without_validators_are_no_change() {
    let world = World::new().await;
    let portolan = world.start_syncing().await;
    world.publish(Page::new(web(&["1.1.0"])).without_etag());
    world.until_newest("web", "1.1.0").await;
    let written = |metrics: &portolan::Metrics| metrics.sum("portolan_syncs_total", &[("result", "success")]);
    world.until_requested(1).await;
    let before = written(&portolan.metrics().await);
    assert!(before.is_some());
    world.until_requested(3).await;
    assert_eq!(written(&portolan.metrics().await), before);
    // With validators, which change although nothing else does.
    for etag in ["\"one\"", "\"other\""] {
        world.publish(Page::new(web(&["1.1.0"])).etag(etag));
        world.until_requested(3).await;
    }
    assert_eq!(written(&portolan.metrics().await), before);
    for version in ["1.2.0", "1.3.0"] {
        world.publish(Page::new(json(&[version])).without_etag());
        world.until_newest("web", version).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_body_changes_nothing() {
    let world = World::new().await;
    let portolan = world.start_syncing().await;
    let next = web(&["1.1.0"]);
    world.server.break_path(PATH, Fault::TruncateAfter(next.len() / 2));
    world.publish(Page::new(next));
    portolan.line_with("SyncFailed", SOON).await;
    let charts = world.texts("SELECT chart_id FROM charts ORDER BY chart_id").await;
    assert_eq!(charts, ["web/stays", "web/web"]);
    world.until_newest("web", "1.0.0").await;
    world.server.clear_faults(PATH);
    world.until_newest("web", "1.1.0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_web_page_instead_of_an_index_is_downloaded_once() {
    let world = World::new().await;
    let _portolan = world.start_syncing().await;
    for (number, bodies) in [(1, 2), (2, 3)] {
        world.publish(Page::new(format!("<html>come back at {number}</html>")));
        eventually(SOON, "the page to be fetched", async || {
            (world.bodies() >= bodies).then_some(())
        })
        .await;
        world.until_requested(2).await;
        assert_eq!(world.bodies(), bodies, "page {number}");
    }
    world.publish(Page::new(web(&["1.1.0"])));
    world.until_newest("web", "1.1.0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_chart_with_the_name_of_an_unchanged_one_is_reported_as_a_duplicate() {
    let world = World::new().await;
    let portolan = world.start_syncing().await;
    world.publish(Page::new(web(&["1.1.0"]).replace("name: web", "name: stays")));
    portolan
        .line_with("another chart of the index has the same name", SOON)
        .await;
    eventually(SOON, "one chart with the name", async || {
        let charts = world.texts("SELECT chart_id FROM charts ORDER BY chart_id").await;
        (charts == ["web/stays"]).then_some(())
    })
    .await;
    assert_eq!(world.bodies(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shrunken_index_is_refused_and_not_downloaded_again() {
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
    let portolan = world.run(&["--min-interval=1s"]).await;
    portolan.line_with("SyncSucceeded", SOON).await;
    world.publish(Page::new(index(2)));
    portolan.line_with("ShrinkRefused", SOON).await;
    world.until_requested(2).await;
    assert_eq!(world.bodies(), 2, "the ETag avoids a download");
    assert_eq!(world.texts("SELECT chart_id FROM charts").await.len(), 12);
    world.publish(Page::new(index(11)));
    eventually(SOON, "the next", async || {
        let charts = world.texts("SELECT chart_id FROM charts").await;
        (charts.len() == 11).then_some(())
    })
    .await;
}
