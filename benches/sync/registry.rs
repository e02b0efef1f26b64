//! A repository of a real OCI registry with many tags.

use serde_json::json;

use crate::report::Limit::{Peak, Requests};
use crate::report::Row;
use crate::rig::baseline::{RECEIVING, Receiver};
use crate::rig::{BenchProcess, Database, RUNS, Source};
use crate::support::archives::{Archive, Chart};
use crate::support::chart_server::ChartServer;
use crate::support::registry::{Registry, Setup};

const TAGS: usize = 500;
/// Syncs over which unchanged ones are averaged.
const UNCHANGED: usize = 20;
const REPOSITORY: &str = "charts/galleon";
const LIST: &str = "/v2/charts/galleon/tags/list";
const MEMORY: f64 = 100.0;

/// Measures both databases.
pub async fn run() -> Vec<Row> {
    let registry = Registry::start(Setup::default()).await;
    let charts = (0..TAGS).map(|number| chart(&format!("1.{number}.0")));
    registry.push_charts(REPOSITORY, charts).await;
    // Counts the requests.
    let proxy = ChartServer::in_front_of(registry.upstream()).await;
    let source = Source {
        server: &proxy,
        path: LIST,
        spec: format!(
            "  type: oci\n  url: {}\n  ociRepositories: [galleon]\n",
            proxy.url("/charts")
        ),
    };
    let mut receiver = Receiver::start();
    let mut rows = Vec::new();
    for database in [Database::Sqlite, Database::Postgres] {
        let (mut first, mut last) = (Vec::new(), None);
        for _ in 0..RUNS {
            let seen = proxy.all_requests().len();
            let mut process = BenchProcess::start(database, &source, &[]).await;
            let sample = process.first().await;
            let seen = proxy.all_requests().split_off(seen);
            let urls: Vec<String> = seen.iter().map(|request| proxy.url(&request.path)).collect();
            first.push(sample.against(receiver.receive(&urls).await.cpu));
            if let Some(process) = last.replace(process) {
                process.end().await;
            }
        }
        let mut process = last.expect("a process was started");
        process.sync_every_second(UNCHANGED).await;
        let list = receiver.receive(&[proxy.url(LIST)]).await;
        let unchanged = [process.unchanged.against(list.cpu)];
        let mut new_tags = Vec::new();
        for number in 1..=RUNS {
            let push = async || {
                let chart = chart(&format!("2.{number}.0"));
                registry.push_charts(REPOSITORY, [chart]).await;
            };
            new_tags.push(process.after(push).await.against(list.cpu));
        }
        process.end().await;
        for number in 1..=RUNS {
            registry.delete_tag(REPOSITORY, &format!("2.{number}.0")).await;
        }
        let row = |case: &str, samples| Row::new(case, samples).database(database.title()).against(RECEIVING);
        rows.push(
            row("500 OCI tags", &first)
                .neighbor("Kubeapps: five tags per run")
                .limits(&[Peak(MEMORY)]),
        );
        rows.push(row("500 OCI tags, unchanged", &unchanged).limits(&[Requests(1), Peak(MEMORY)]));
        rows.push(row("500 OCI tags, one new", &new_tags).limits(&[Requests(3), Peak(MEMORY)]));
    }
    rows
}

/// A chart with a Chart.yaml of common length and few files.
fn chart(version: &str) -> Archive {
    let maintainer = |name: &str| json!({"name": name, "email": format!("{name}@example.com")});
    let changes = "- kind: changed\n  description: The rudder turns both ways\n".repeat(6);
    Chart::new("galleon", version)
        .field("appVersion", version)
        .field("home", "https://example.com/galleon")
        .field("icon", "https://example.com/galleon/icon.png")
        .field("keywords", json!(["ship", "sail", "harbor", "trade"]))
        .field("maintainers", json!([maintainer("navigator"), maintainer("boatswain")]))
        .field("sources", json!(["https://example.com/galleon.git"]))
        .field("annotations", json!({"artifacthub.io/changes": changes}))
        .file("README.md", "# Galleon\n".repeat(400))
        .file("values.yaml", "berths: 3\n".repeat(400))
        .pack()
}
