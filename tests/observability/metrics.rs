//! docs/reference/metrics.md and the metrics of real processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use portolan::budget;
use portolan::manager::setup;
use portolan::serve::access::AccessMetrics;
use prometheus_client::registry::Registry;
use regex::Regex;

use super::serve_index;
use crate::applications::{Site, shop};
use crate::catalog::On;
use crate::oam_webhooks::site::Reviewed;
use crate::support::cue::executable;
use crate::support::eventually::{SOON, eventually};
use crate::support::project;
use crate::support::world::World;
use crate::watched_releases::Watching;

/// Type and labels of a metric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metric {
    pub kind: String,
    pub labels: BTreeSet<String>,
}

/// Returns the metrics of docs/reference/metrics.md by name.
pub fn documented() -> BTreeMap<String, Metric> {
    let page = fs::read_to_string(project("docs/reference/metrics.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let labels = cells[2].split(',').map(str::trim).filter(|label| !label.is_empty());
        let metric = Metric {
            kind: cells[1].to_owned(),
            labels: labels.map(str::to_owned).collect(),
        };
        (cells[0].trim_end_matches('`').to_owned(), metric)
    })
    .collect()
}

/// Returns the metrics of an OpenMetrics text by name, with the labels of their series.
fn exported(text: &str) -> BTreeMap<String, Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            current = if kind == "counter" {
                format!("{name}_total")
            } else {
                name.to_owned()
            };
            kind.clone_into(&mut metrics.entry(current.clone()).or_default().kind);
        } else if !line.starts_with('#') {
            let labels = line.split_once('{').and_then(|(_, line)| line.rsplit_once('}'));
            let labels = labels.map_or("", |(labels, _)| labels);
            let names = labels.split("\",").filter_map(|pair| pair.split_once("=\""));
            let names = names.map(|(name, _)| name.to_owned()).filter(|name| name != "le");
            metrics.entry(current.clone()).or_default().labels.extend(names);
        }
    }
    metrics.remove("");
    metrics
}

/// Returns the metrics of a process with a directory of manifests, of one in a cluster with all controllers, of one with
/// webhooks, and of one that watches releases.
async fn exported_by_all_controllers() -> BTreeMap<String, Metric> {
    let world = World::new().await;
    world.declare("stable", &serve_index(&world, "stable"), "");
    let traces = cfg!(feature = "otel").then_some("--otlp-endpoint=http://127.0.0.1:9");
    let portolan = world.run(&[&["--chart-files=all"], traces.as_slice()].concat()).await;
    let text = eventually(SOON, "a sync and requests for archives", async || {
        let text = portolan.get("/metrics").await.map_err(|error| error.to_string())?.1;
        let is_complete = text.contains("portolan_repository_charts{") && text.contains("portolan_chart_files_total{");
        if is_complete { Ok(text) } else { Err(text) }
    })
    .await;
    let site = Site::new().await;
    for crd in portolan::api::oam::crds() {
        site.control_plane.install_crd(&crd).await;
    }
    let evaluator = format!("--cue-evaluator={}", executable().display());
    let controllers = "--controllers=apprepository,application,oam";
    let of_kubevela = [
        "--compat-metrics",
        "--feature-gates=EnableApplicationStatusMetrics=true",
    ];
    let in_cluster = site
        .portolan(&[&[controllers, &evaluator], &of_kubevela[..]].concat())
        .await;
    site.declare("shop", shop(&[], false)).await;
    site.until_components("shop", "0/0").await;
    let of_leader = eventually(SOON, "gauges of the leader", async || {
        let text = in_cluster.get("/metrics").await.map_err(|error| error.to_string())?.1;
        if text.contains("kubevela_application_phase") {
            Ok(text)
        } else {
            Err(text)
        }
    })
    .await;
    let reviewed = Reviewed::new("Ignore").await;
    let with_webhooks = reviewed.portolan(&[]).await;
    let of_webhooks = with_webhooks.get("/metrics").await.unwrap().1;
    let watching = Watching::start(On::Sqlite, &["--releases"]).await;
    let of_releases = watching.portolan.get("/metrics").await.unwrap().1;
    let mut metrics = exported(&text);
    for text in [of_leader, of_webhooks, of_releases] {
        for (name, metric) in exported(&text) {
            let known = metrics.entry(name).or_default();
            known.kind = metric.kind;
            known.labels.extend(metric.labels);
        }
    }
    metrics
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_of_metrics_lists_each_metric_with_its_type_and_labels() {
    let exported = exported_by_all_controllers().await;
    let documented = documented();
    for (name, metric) in &exported {
        let row = documented
            .get(name)
            .unwrap_or_else(|| panic!("{name} is not in docs/reference/metrics.md"));
        assert_eq!(metric.kind, row.kind, "type of {name}");
        // A family without series has no labels yet.
        assert!(
            metric.labels.is_empty() || metric.labels == row.labels,
            "labels of {name}: {metric:?}"
        );
    }
    // A family without series is registered, and not exported.
    let registered = registered();
    let base = |name: &str| name.trim_end_matches("_total").to_owned();
    let mut unknown: BTreeSet<&String> = documented.keys().collect();
    unknown.retain(|name| !exported.contains_key(*name) && !registered.contains(&base(name)));
    unknown.retain(|name| cfg!(feature = "otel") || *name != "portolan_trace_spans_total");
    assert!(
        unknown.is_empty(),
        "in docs/reference/metrics.md, but not exported: {unknown:?}"
    );
    let documented: BTreeSet<String> = documented.keys().map(|name| base(name)).collect();
    let missing: Vec<&String> = registered.difference(&documented).collect();
    assert!(
        missing.is_empty(),
        "registered, but not in docs/reference/metrics.md: {missing:?}"
    );
}

/// Returns the names of all registered metrics of repositories, app.k8s.io Applications and access to the catalog, without the
/// suffix of counters. The registry shows them only in its debug output.
fn registered() -> BTreeSet<String> {
    let mut registry = Registry::default();
    let _metrics = setup::ManagerMetrics::register(&mut registry, &budget::Metrics::default(), None);
    let _of_serve = AccessMetrics::register(&mut registry, budget::ResourceMetrics::unregistered());
    let name = Regex::new("Descriptor \\{ name: \"([a-z_]+)\"").unwrap();
    let _requests = portolan::serve::metrics::ServeMetrics::register(&mut registry);
    let _of_receivers = portolan::serve::hooks::HookMetrics::register(&mut registry);
    let text = format!("{registry:?}");
    let names: BTreeSet<String> = name.captures_iter(&text).map(|found| found[1].to_owned()).collect();
    assert!(names.len() > 20 && names.contains("portolan_syncs"), "{names:?}");
    names
}
