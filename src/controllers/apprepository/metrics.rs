//! Metrics of the AppRepository controller.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::api::NamespacedName;
use crate::catalog::Record;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RepositoryLabels {
    namespace: String,
    name: String,
}

#[derive(Clone, Copy, Debug)]
struct Shown {
    charts: i64,
    versions: i64,
    last_success: Option<Timestamp>,
}

/// The metrics; a handle, cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics {
    syncs: Family<ResultLabel, Counter>,
    seconds: Family<ResultLabel, Histogram, fn() -> Histogram>,
    index_bytes: Counter,
    not_modified: Counter,
    delta_mismatches: Counter,
    chart_files: Family<ResultLabel, Counter>,
    oci_pulls: Counter,
    removals_held: Gauge<i64>,
    repositories: Arc<Mutex<HashMap<NamespacedName, Shown>>>,
}

impl Metrics {
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            syncs: Family::default(),
            // 1 ms (a 304 response on a warm connection) to 260 s (beyond every deadline).
            seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 10))),
            index_bytes: Counter::default(),
            not_modified: Counter::default(),
            delta_mismatches: Counter::default(),
            chart_files: Family::default(),
            oci_pulls: Counter::default(),
            removals_held: Gauge::default(),
            repositories: Arc::default(),
        };
        registry.register("portolan_syncs", "Syncs by result", metrics.syncs.clone());
        registry.register(
            "portolan_sync_seconds",
            "Time that a sync took, by result",
            metrics.seconds.clone(),
        );
        registry.register(
            "portolan_index_bytes",
            "Bytes of chart indexes received",
            metrics.index_bytes.clone(),
        );
        registry.register(
            "portolan_not_modified",
            "Requests that servers answered with 304 Not Modified",
            metrics.not_modified.clone(),
        );
        registry.register(
            "portolan_delta_mismatches",
            "Indexes whose changes gave something else than the whole, which --verify-delta finds out",
            metrics.delta_mismatches.clone(),
        );
        registry.register(
            "portolan_chart_files",
            "Chart archives that were asked for, by result",
            metrics.chart_files.clone(),
        );
        registry.register(
            "portolan_oci_pulls",
            "Manifests of charts that were pulled from registries",
            metrics.oci_pulls.clone(),
        );
        registry.register(
            "portolan_removals_held",
            "Repositories missing from the list of declarations whose charts are kept until --confirm-removals",
            metrics.removals_held.clone(),
        );
        registry.register_collector(Box::new(Repositories(Arc::clone(&metrics.repositories))));
        metrics
    }

    #[must_use]
    pub fn start(&self) -> Timer {
        Timer {
            metrics: self.clone(),
            started: Instant::now(),
        }
    }

    pub fn not_modified(&self) {
        self.not_modified.inc();
    }

    /// Counts an incremental decode that differs from the full decode.
    pub fn delta_mismatch(&self) {
        self.delta_mismatches.inc();
    }

    pub fn chart_files(&self, result: &'static str) {
        self.chart_files.get_or_create(&ResultLabel { result }).inc();
    }

    pub fn oci_pull(&self) {
        self.oci_pulls.inc();
    }

    pub fn index_bytes(&self, bytes: u64) {
        self.index_bytes.inc_by(bytes);
    }

    pub fn removals_held(&self, count: usize) {
        self.removals_held.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub fn observe(&self, record: &Record) {
        let count = |field: &str| {
            record
                .last_sync
                .as_ref()
                .and_then(|account| account.get(field))
                .and_then(serde_json::Value::as_i64)
        };
        let shown = Shown {
            charts: count("charts").unwrap_or_default(),
            versions: count("versions").unwrap_or_default(),
            last_success: record.last_success,
        };
        self.repositories.lock().insert(record.name.clone(), shown);
    }

    pub fn forget(&self, name: &NamespacedName) {
        self.repositories.lock().remove(name);
    }
}

pub struct Timer {
    metrics: Metrics,
    started: Instant,
}

impl Timer {
    pub fn ended(self, result: &'static str) {
        let label = ResultLabel { result };
        self.metrics.syncs.get_or_create(&label).inc();
        self.metrics
            .seconds
            .get_or_create(&label)
            .observe(self.started.elapsed().as_secs_f64());
    }
}

/// Gauges of each repository, computed on each scrape because the age of the last success changes constantly.
#[derive(Debug)]
struct Repositories(Arc<Mutex<HashMap<NamespacedName, Shown>>>);

impl Collector for Repositories {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let shown: Vec<(RepositoryLabels, Shown)> = {
            let all = self.0.lock();
            let labels = |name: &NamespacedName| RepositoryLabels {
                namespace: name.namespace.clone(),
                name: name.name.clone(),
            };
            all.iter().map(|(name, shown)| (labels(name), *shown)).collect()
        };
        let now = Timestamp::now();
        let age = |shown: &Shown| {
            shown
                .last_success
                .map(|time| now.duration_since(time).as_secs_f64().max(0.0))
        };
        gauge(
            &mut encoder,
            "portolan_repository_charts",
            "Charts in the catalogue",
            &shown,
            |shown| Some(shown.charts as f64),
        )?;
        gauge(
            &mut encoder,
            "portolan_repository_versions",
            "Chart versions in the catalogue",
            &shown,
            |shown| Some(shown.versions as f64),
        )?;
        gauge(
            &mut encoder,
            "portolan_repository_last_success_age_seconds",
            "Seconds since the last success",
            &shown,
            age,
        )
    }
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    shown: &[(RepositoryLabels, Shown)],
    value: impl Fn(&Shown) -> Option<f64>,
) -> Result<(), std::fmt::Error> {
    if shown.is_empty() {
        return Ok(());
    }
    let kind = ConstGauge::<f64>::new(0.0).metric_type();
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, shown) in shown {
        if let Some(value) = value(shown) {
            ConstGauge::new(value).encode(family.encode_family(labels)?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn the_series_of_a_repository_go_with_it() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let name = NamespacedName {
            namespace: "default".to_owned(),
            name: "stable".to_owned(),
        };
        metrics.observe(&Record {
            name: name.clone(),
            last_sync: Some(serde_json::json!({ "charts": 3, "versions": 7 })),
            last_success: Some(Timestamp::now()),
            ..Record::default()
        });
        let shown = text(&registry);
        assert!(
            shown.contains("portolan_repository_charts{namespace=\"default\",name=\"stable\"} 3"),
            "{shown}"
        );
        assert!(
            shown.contains("portolan_repository_versions{namespace=\"default\",name=\"stable\"} 7"),
            "{shown}"
        );
        assert!(
            shown.contains("portolan_repository_last_success_age_seconds{"),
            "{shown}"
        );
        metrics.forget(&name);
        assert!(!text(&registry).contains("stable"));
    }

    #[test]
    fn syncs_are_counted_by_result() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        metrics.start().ended("success");
        metrics.start().ended("error");
        metrics.start().ended("success");
        let shown = text(&registry);
        assert!(shown.contains("portolan_syncs_total{result=\"success\"} 2"), "{shown}");
        assert!(shown.contains("portolan_syncs_total{result=\"error\"} 1"), "{shown}");
    }
}
