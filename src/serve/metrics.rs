use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::limits::LimitMetrics;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CodeLabel {
    code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// A handle, cheap to clone. No label names a tenant.
#[derive(Clone)]
pub struct ServeMetrics {
    requests: Family<CodeLabel, Histogram, fn() -> Histogram>,
    checks: Family<ResultLabel, Counter>,
    pub(super) limits: LimitMetrics,
}

impl Default for ServeMetrics {
    fn default() -> Self {
        Self {
            // 1 ms to 16 s, above the timeout of a request.
            requests: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 8))),
            checks: Family::default(),
            limits: LimitMetrics::default(),
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
        metrics
    }

    pub(super) fn observe_request(&self, code: u16, duration: Duration) {
        let label = CodeLabel { code };
        self.requests.get_or_create(&label).observe(duration.as_secs_f64());
    }

    pub(super) fn count_check(&self, has_succeeded: bool) {
        let result = if has_succeeded { "succeeded" } else { "failed" };
        self.checks.get_or_create(&ResultLabel { result }).inc();
    }
}
