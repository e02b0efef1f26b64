//! A repository of a real OCI registry with many tags.

use serde_json::json;

use crate::report::{Limit, Peak, Requests, Row};
use crate::rig::baseline::{RECEIVING, measure};
use crate::rig::{BenchProcess, ChartServer, POSTGRES, RUNS, SQLITE};
use crate::support::archives::{Archive, Chart};
use crate::support::registry::{Registry, Setup};

const TAGS: usize = 500;
/// Syncs over which unchanged ones are averaged.
const UNCHANGED: usize = 20;
const REPOSITORY: &str = "charts/galleon";
const LIST: &str = "/v2/charts/galleon/tags/list";
const MEMORY: Limit = Peak(100.0);

pub async fn run() -> Vec<Row> {
    let registry = Registry::start(Setup::default()).await;
    let charts = (0..TAGS).map(|number| chart(&format!("1.{number}.0")));
    registry.push_charts(REPOSITORY, charts).await;
    // Counts the requests.
    let proxy = ChartServer::in_front_of(registry.upstream()).await;
    let mut rows = Vec::new();
    for database in [SQLITE, POSTGRES] {
        let (mut first, mut last) = (Vec::new(), None);
        for _ in 0..RUNS {
            if let Some(process) = last.take() {
                BenchProcess::end(process).await;
            }
            let seen = proxy.request_count();
            let process = last.insert(BenchProcess::start(database, &proxy, LIST, &[]).await);
            let url = proxy.url("/charts");
            process.spec = format!("  type: oci\n  url: {url}\n  ociRepositories: [galleon]\n");
            let sample = process.first().await;
            let seen = proxy.all_requests().split_off(seen);
            let urls: Vec<String> = seen.iter().map(|request| proxy.url(&request.path)).collect();
            first.push(sample.against(measure("receive", &urls).await.cpu));
        }
        let mut process = last.expect("a process was started");
        process.sync_every_second(UNCHANGED).await;
        let list = measure("receive", &[proxy.url(LIST)]).await.cpu;
        let unchanged = [process.unchanged.against(list)];
        let mut new_tags = Vec::new();
        for number in 1..=RUNS {
            let push = async || {
                let chart = chart(&format!("2.{number}.0"));
                registry.push_charts(REPOSITORY, [chart]).await;
            };
            new_tags.push(process.after(push).await.against(list));
        }
        process.end().await;
        for number in 1..=RUNS {
            registry.delete_tag(REPOSITORY, &format!("2.{number}.0")).await;
        }
        let row = |case: &str, samples| Row::new(case, samples).on(database).against(RECEIVING);
        rows.push(row("500 OCI tags", &first).limits(&[MEMORY]));
        rows.push(row("500 OCI tags, unchanged", &unchanged).limits(&[Requests(1), MEMORY]));
        rows.push(row("500 OCI tags, one new", &new_tags).limits(&[Requests(3), MEMORY]));
    }
    rows
}

/// A chart with a Chart.yaml of common length and few files.
fn chart(version: &str) -> Archive {
    let changes = "- kind: changed\n  description: The rudder turns both ways\n".repeat(10);
    Chart::new("galleon", version)
        .field("appVersion", version)
        .field("annotations", json!({"artifacthub.io/changes": changes}))
        .file("README.md", "# Galleon\n".repeat(400))
        .file("values.yaml", "berths: 3\n".repeat(400))
        .pack()
}
