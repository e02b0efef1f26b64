use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::limits::LimitMetrics;
use super::snapshot::{Repository, Snapshot};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CodeLabel {
    code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

/// A handle, cheap to clone. No label names a tenant.
#[derive(Clone)]
pub struct ServeMetrics {
    requests: Family<CodeLabel, Histogram, fn() -> Histogram>,
    checks: Family<ResultLabel, Counter>,
    pub(super) limits: LimitMetrics,
    charts: Family<StateLabel, Gauge>,
    bytes: Gauge,
    reloads: Histogram,
}

impl Default for ServeMetrics {
    fn default() -> Self {
        Self {
            // 1 ms to 16 s, above the timeout of a request.
            requests: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 8))),
            checks: Family::default(),
            limits: LimitMetrics::default(),
            charts: Family::default(),
            bytes: Gauge::default(),
            // 1 ms to 65 s.
            reloads: Histogram::new(exponential_buckets(0.001, 4.0, 9)),
        }
    }
}

impl ServeMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Duration of requests to the catalog in seconds by status code";
        registry.register(
            "portolan_catalog_request_duration_seconds",
            help,
            metrics.requests.clone(),
        );
        let help = "Total number of checks of the database for changes by result: succeeded or failed";
        registry.register("portolan_catalog_checks", help, metrics.checks.clone());
        metrics.limits.register(registry);
        let help = "Current number of charts by state: served, left_out of lists because --catalog-memory is used up, or \
                    unreadable";
        registry.register("portolan_snapshot_charts", help, metrics.charts.clone());
        let help = "Current memory of the charts that lists and searches show, in bytes";
        registry.register("portolan_snapshot_bytes", help, metrics.bytes.clone());
        let help = "Duration of reading the charts of a changed repository in seconds";
        registry.register("portolan_snapshot_reload_seconds", help, metrics.reloads.clone());
        metrics
    }

    pub(super) fn observe_request(&self, code: u16, duration: Duration) {
        let label = CodeLabel { code };
        self.requests.get_or_create(&label).observe(duration.as_secs_f64());
    }

    pub(super) fn set_snapshot(&self, snapshot: &Snapshot) {
        let repositories = snapshot.repositories().values();
        let sum = |count: fn(&Repository) -> usize| repositories.clone().map(count).sum::<usize>();
        for (state, count) in [
            ("served", sum(|repository| repository.charts.len())),
            ("left_out", sum(|repository| repository.left_out)),
            ("unreadable", sum(|repository| repository.unreadable)),
        ] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.charts.get_or_create(&StateLabel { state }).set(count);
        }
        let bytes: u64 = repositories.map(Repository::size).sum();
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(super) fn observe_reload(&self, duration: Duration) {
        self.reloads.observe(duration.as_secs_f64());
    }

    pub(super) fn count_check(&self, has_succeeded: bool) {
        let result = if has_succeeded { "succeeded" } else { "failed" };
        self.checks.get_or_create(&ResultLabel { result }).inc();
    }
}
