use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
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

#[derive(Clone, Copy, Debug)]
struct Gauges {
    /// Charts and versions; `None` before the first sync.
    contents: Option<(i64, i64)>,
    last_success: Option<Timestamp>,
    due: Due,
}

/// The times at which a sync is due to succeed, and to run; `None` while it is suspended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Due {
    pub success: Option<Timestamp>,
    pub attempt: Option<Timestamp>,
}

#[derive(Clone, Debug)]
pub struct RepositoryMetrics {
    syncs: Family<ResultLabel, Counter>,
    seconds: Family<ResultLabel, Histogram, fn() -> Histogram>,
    index_bytes: Counter,
    not_modified: Counter,
    verification_failures: Counter,
    chart_files: Family<ResultLabel, Counter>,
    oci_pulls: Counter,
    manifest_problems: Gauge<i64>,
    repositories: Arc<Mutex<HashMap<NamespacedName, Gauges>>>,
}

impl RepositoryMetrics {
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            syncs: Family::default(),
            // 1 ms (a 304 response on a warm connection) to 260 s (beyond every deadline).
            seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 10))),
            index_bytes: Counter::default(),
            not_modified: Counter::default(),
            verification_failures: Counter::default(),
            chart_files: Family::default(),
            oci_pulls: Counter::default(),
            manifest_problems: Gauge::default(),
            repositories: Arc::default(),
        };
        let help = "Total number of syncs, by result";
        registry.register("portolan_syncs", help, metrics.syncs.clone());
        let help = "Duration of syncs in seconds, by result";
        registry.register("portolan_sync_seconds", help, metrics.seconds.clone());
        let help = "Total number of bytes of downloaded chart indexes";
        registry.register("portolan_index_bytes", help, metrics.index_bytes.clone());
        let help = "Total number of 304 Not Modified responses";
        registry.register("portolan_not_modified", help, metrics.not_modified.clone());
        let help = "Total number of incremental decodes that differed from a full decode";
        let failures = metrics.verification_failures.clone();
        registry.register("portolan_index_verification_failures", help, failures);
        let help = "Total number of chart archive imports, by result";
        registry.register("portolan_chart_files", help, metrics.chart_files.clone());
        let help = "Total number of chart manifests pulled from OCI registries";
        registry.register("portolan_oci_pulls", help, metrics.oci_pulls.clone());
        let help = "Current number of problems with files of the manifests directory";
        registry.register("portolan_manifest_problems", help, metrics.manifest_problems.clone());
        registry.register_collector(Box::new(RepositoryGauges(Arc::clone(&metrics.repositories))));
        metrics
    }

    #[must_use]
    pub fn start(&self) -> SyncTimer {
        SyncTimer {
            metrics: self.clone(),
            started: Instant::now(),
        }
    }

    pub fn not_modified(&self) {
        self.not_modified.inc();
    }

    pub fn verification_failure(&self) {
        self.verification_failures.inc();
    }

    pub fn chart_files(&self, result: &'static str, count: usize) {
        let counter = self.chart_files.get_or_create(&ResultLabel { result });
        counter.inc_by(count as u64);
    }

    pub fn oci_pull(&self) {
        self.oci_pulls.inc();
    }

    pub fn index_bytes(&self, bytes: u64) {
        self.index_bytes.inc_by(bytes);
    }

    #[must_use]
    pub fn manifest_problems(&self) -> Gauge<i64> {
        self.manifest_problems.clone()
    }

    pub fn observe(&self, name: &NamespacedName, record: Option<&Record>, due: Due) {
        let count = |record: &Record, field: &str| record.last_sync.as_ref()?.get(field)?.as_i64();
        let contents = |record: &Record| ["charts", "versions"].map(|field| count(record, field).unwrap_or_default());
        let gauges = Gauges {
            contents: record.map(|record| contents(record).into()),
            last_success: record.and_then(|record| record.last_success),
            due,
        };
        self.repositories.lock().insert(name.clone(), gauges);
    }

    pub fn forget(&self, name: &NamespacedName) {
        self.repositories.lock().remove(name);
    }
}

pub struct SyncTimer {
    metrics: RepositoryMetrics,
    started: Instant,
}

impl SyncTimer {
    pub fn finish(self, result: &'static str) {
        let label = ResultLabel { result };
        self.metrics.syncs.get_or_create(&label).inc();
        let seconds = self.started.elapsed().as_secs_f64();
        self.metrics.seconds.get_or_create(&label).observe(seconds);
    }
}

/// Gauges of each repository. Some have no last success or next sync.
#[derive(Debug)]
struct RepositoryGauges(Arc<Mutex<HashMap<NamespacedName, Gauges>>>);

impl Collector for RepositoryGauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let repositories = self.0.lock().clone();
        if repositories.is_empty() {
            return Ok(());
        }
        let mut gauge = |name: &str, help: &str, value: &dyn Fn(&Gauges) -> Option<f64>| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (repository, gauges) in &repositories {
                if let Some(value) = value(gauges) {
                    let labels = [
                        ("namespace", repository.namespace.as_str()),
                        ("name", repository.name.as_str()),
                    ];
                    ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
                }
            }
            Ok(())
        };
        let charts = |gauges: &Gauges| gauges.contents.map(|(charts, _)| charts as f64);
        let help = "Current number of charts in the catalog";
        gauge("portolan_repository_charts", help, &charts)?;
        let versions = |gauges: &Gauges| gauges.contents.map(|(_, versions)| versions as f64);
        let help = "Current number of chart versions in the catalog";
        gauge("portolan_repository_versions", help, &versions)?;
        let help = "Unix time of the last successful sync in seconds";
        gauge("portolan_repository_last_success_timestamp_seconds", help, &|gauges| {
            gauges.last_success.map(|time| time.as_second() as f64)
        })?;
        let help = "Unix time at which the next successful sync is due in seconds";
        gauge("portolan_repository_next_sync_timestamp_seconds", help, &|gauges| {
            gauges.due.success.map(|time| time.as_second() as f64)
        })?;
        let help = "Unix time at which the next sync is due in seconds, whatever its result";
        gauge("portolan_repository_next_attempt_timestamp_seconds", help, &|gauges| {
            gauges.due.attempt.map(|time| time.as_second() as f64)
        })
    }
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
    fn the_series_of_a_removed_repository_disappear() {
        let mut registry = Registry::default();
        let metrics = RepositoryMetrics::register(&mut registry);
        let name = NamespacedName::new("default", "stable");
        let time = |second| Timestamp::from_second(second).unwrap();
        let record = Record {
            name: name.clone(),
            last_sync: Some(serde_json::json!({ "charts": 3, "versions": 7 })),
            last_success: Some(time(1_700_000_000)),
            ..Record::default()
        };
        let due = Due {
            success: Some(time(1_700_000_600)),
            attempt: Some(time(1_700_000_700)),
        };
        metrics.observe(&name, Some(&record), due);
        let gauges = text(&registry);
        assert!(
            gauges.contains("portolan_repository_charts{namespace=\"default\",name=\"stable\"} 3"),
            "{gauges}"
        );
        assert!(
            gauges.contains("portolan_repository_versions{namespace=\"default\",name=\"stable\"} 7"),
            "{gauges}"
        );
        assert!(
            gauges.contains(
                "portolan_repository_last_success_timestamp_seconds{namespace=\"default\",name=\"stable\"} 1700000000"
            ),
            "{gauges}"
        );
        assert!(
            gauges.contains(
                "portolan_repository_next_sync_timestamp_seconds{namespace=\"default\",name=\"stable\"} 1700000600"
            ),
            "{gauges}"
        );
        assert!(
            gauges.contains(
                "portolan_repository_next_attempt_timestamp_seconds{namespace=\"default\",name=\"stable\"} 1700000700"
            ),
            "{gauges}"
        );
        metrics.forget(&name);
        assert!(!text(&registry).contains("stable"));
    }

    #[test]
    fn a_repository_that_was_never_synced_is_only_due() {
        let mut registry = Registry::default();
        let metrics = RepositoryMetrics::register(&mut registry);
        let name = NamespacedName::new("default", "new");
        let due = Due {
            success: Some(Timestamp::from_second(1_700_000_000).unwrap()),
            attempt: None,
        };
        metrics.observe(&name, None, due);
        let gauges = text(&registry);
        let series: Vec<&str> = gauges.lines().filter(|line| line.contains("\"new\"")).collect();
        let due = "portolan_repository_next_sync_timestamp_seconds{namespace=\"default\",name=\"new\"} 1700000000.0";
        assert_eq!(series, [due]);
        // Suspended: neither due nor stale.
        metrics.observe(&name, None, Due::default());
        assert!(!text(&registry).contains("\"new\""));
    }

    #[test]
    fn syncs_are_counted_by_result() {
        let mut registry = Registry::default();
        let metrics = RepositoryMetrics::register(&mut registry);
        metrics.start().finish("success");
        metrics.start().finish("error");
        metrics.start().finish("success");
        let gauges = text(&registry);
        assert!(
            gauges.contains("portolan_syncs_total{result=\"success\"} 2"),
            "{gauges}"
        );
        assert!(gauges.contains("portolan_syncs_total{result=\"error\"} 1"), "{gauges}");
    }
}
