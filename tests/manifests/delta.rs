//! Incremental decoding of a changed index, and `--verify-delta`.

use super::*;

/// Index with versions of two charts.
fn two(first: &[&str], second: &[&str]) -> String {
    crate::cluster::index(&[("web", first), ("worker", second)])
}

impl World {
    fn serve_two(&self, index: &str) -> String {
        self.server.serve("/two/index.yaml", Page::new(index.to_owned()));
        self.server.url("/two")
    }

    /// Changes a row without any trace in other tables.
    async fn corrupt(&self, chart: &str) {
        let spoil = format!(
            "UPDATE charts SET info = json_set(info, '$.description', 'spoiled') WHERE chart_id = 'two/{chart}' RETURNING chart_id"
        );
        assert_eq!(self.texts(&spoil).await, [format!("two/{chart}")]);
    }

    async fn description(&self, chart: &str) -> String {
        let select = format!("SELECT info ->> 'description' FROM charts WHERE chart_id = 'two/{chart}'");
        self.texts(&select).await.concat()
    }

    async fn until_described(&self, chart: &str, text: &str) {
        eventually(SOON, &format!("{chart} to be {text}"), async || {
            let description = self.description(chart).await;
            (description == text).then_some(()).ok_or(description)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unchanged_chart_is_not_compared_until_a_complete_sync() {
    let world = World::new().await;
    let url = world.serve_two(&two(&["1.0.0"], &["1.0.0"]));
    world.declare("two", &url, "  interval: \"* * * * * *\"\n");
    let _portolan = world.run(&["--min-interval=1s", "--verify-delta=false"]).await;
    world.until_described("worker", "A chart").await;
    world.corrupt("worker").await;
    world.serve_two(&two(&["1.1.0", "1.0.0"], &["1.0.0"]));
    eventually(SOON, "the new version", async || {
        let versions = world
            .texts("SELECT info ->> '$.chartVersions[0].version' FROM charts WHERE chart_id = 'two/web'")
            .await;
        (versions == ["1.1.0"]).then_some(()).ok_or(format!("{versions:?}"))
    })
    .await;
    assert_eq!(world.description("worker").await, "spoiled");
    // A requested sync compares all rows.
    world.resync("two").await;
    world.until_described("worker", "A chart").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_delta_compares_with_a_full_decode_and_uses_it() {
    let world = World::new().await;
    let url = world.serve_two(&two(&["1.0.0"], &["1.0.0"]));
    world.declare("two", &url, "  interval: \"* * * * * *\"\n");
    let mut portolan = world.run(&["--min-interval=1s", "--verify-delta=false"]).await;
    world.until_described("worker", "A chart").await;
    world.corrupt("worker").await;
    portolan.signal("TERM");
    portolan.exit(SOON).await;

    world.serve_two(&two(&["1.1.0", "1.0.0"], &["1.0.0"]));
    let portolan = world.run(&["--min-interval=1s", "--verify-delta"]).await;
    world.until_described("worker", "A chart").await;
    portolan.line_with("chart two/worker differs", SOON).await;
    let mismatches = portolan
        .metrics()
        .await
        .sum("portolan_index_verification_failures_total", &[]);
    assert_eq!(mismatches, Some(1.0));
    portolan.forget_lines();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_on_times_is_evaluated_again_when_only_times_changed() {
    let world = World::new().await;
    let url = world.serve_two(&two(&["1.0.0"], &["1.0.0"]));
    let filter = "  interval: \"* * * * * *\"\n  filterRule:\n    jq: '.chartVersions[0].created < \"2026-06-01\"'\n";
    world.declare("two", &url, filter);
    let _portolan = world.run(&["--min-interval=1s"]).await;
    world.until_described("web", "A chart").await;
    let index = two(&["1.0.0"], &["1.0.0"]);
    let (web, worker) = index.split_at(index.find("  worker:").unwrap());
    world.serve_two(&format!("{}{worker}", web.replace("2026-01-01", "2026-07-01")));
    eventually(SOON, "the filter to exclude the chart", async || {
        let charts = world.texts("SELECT chart_id FROM charts").await;
        (charts == ["two/worker"]).then_some(()).ok_or(format!("{charts:?}"))
    })
    .await;
}

/// The same charts in a layout that is not supported by incremental decoding.
fn unsupported_layout(first: &[&str], second: &[&str]) -> String {
    two(first, second).replace("  worker:", "  # by hand\n  worker:")
}

impl World {
    /// Waits until digests of these charts are stored.
    async fn until_digests(&self, expected: &[&str]) {
        eventually(SOON, "the stored digests", async || {
            let keys = self.texts("SELECT key FROM portolan_chart_digests ORDER BY key").await;
            (keys == expected).then_some(()).ok_or(format!("{keys:?}"))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_with_an_unsupported_layout_is_synced() {
    let world = World::new().await;
    let url = world.serve_two(&unsupported_layout(&["1.0.0"], &["1.0.0"]));
    world.declare("two", &url, "  interval: \"* * * * * *\"\n");
    let _portolan = world.run(&["--min-interval=1s"]).await;
    for newest in ["1.0.0", "1.1.0", "1.2.0", "1.3.0"] {
        world.serve_two(&unsupported_layout(&[newest], &["1.0.0"]));
        world.until_newest("two", newest).await;
    }
    world.until_digests(&[]).await;
    world.serve_two(&two(&["2.0.0"], &["1.0.0"]));
    world.until_newest("two", "2.0.0").await;
    world.until_digests(&["web", "worker"]).await;
    world.serve_two(&unsupported_layout(&["2.1.0"], &["1.0.0"]));
    world.until_newest("two", "2.1.0").await;
    world.until_digests(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_rows_of_an_index_with_an_unsupported_layout_are_compared_at_each_change() {
    let world = World::new().await;
    let url = world.serve_two(&unsupported_layout(&["1.0.0"], &["1.0.0"]));
    world.declare("two", &url, "  interval: \"* * * * * *\"\n");
    let _portolan = world.run(&["--min-interval=1s", "--verify-delta=false"]).await;
    world.until_described("worker", "A chart").await;
    world.corrupt("worker").await;
    world.serve_two(&unsupported_layout(&["1.1.0", "1.0.0"], &["1.0.0"]));
    world.until_newest("two", "1.1.0").await;
    world.until_described("worker", "A chart").await;
    // A chart that leaves the index is removed, and restored later.
    world.serve_two(&crate::cluster::index(&[("web", &["1.2.0"])]).replace("  web:", "  # by hand\n  web:"));
    world.until_newest("two", "1.2.0").await;
    assert_eq!(world.texts("SELECT chart_id FROM charts").await, ["two/web"]);
    world.serve_two(&unsupported_layout(&["1.3.0"], &["1.0.0"]));
    world.until_described("worker", "A chart").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resync_refreshes_creation_times() {
    let world = World::new().await;
    let complete = two(&["1.0.0"], &["1.0.0"]);
    let times = async |expected: &str| {
        eventually(SOON, &format!("the creation time {expected}"), async || {
            let select = "SELECT info ->> '$.chartVersions[0].created' FROM charts WHERE chart_id = 'two/web'";
            let times = world.texts(select).await;
            (times == [expected]).then_some(()).ok_or(format!("{times:?}"))
        })
        .await;
    };
    for unreadable in ["", "    created: yesterday\n"] {
        let url = world.serve_two(&complete.replacen("    created: \"2026-01-01T00:00:00Z\"\n", unreadable, 1));
        world.declare("two", &url, "");
        let mut portolan = world.run(&["--crontab=@yearly"]).await;
        if !unreadable.is_empty() {
            world.resync("two").await;
        }
        times("0001-01-01T00:00:00Z").await;
        world.serve_two(&complete);
        world.resync("two").await;
        times("2026-01-01T00:00:00Z").await;
        portolan.signal("TERM");
        portolan.exit(SOON).await;
    }
}
