use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResourceLabel {
    resource: &'static str,
}

#[derive(Clone)]
pub(super) struct Metrics {
    used: Family<ResourceLabel, Gauge>,
    limit: Family<ResourceLabel, Gauge>,
    wait: Family<ResourceLabel, Histogram, fn() -> Histogram>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            used: Family::default(),
            limit: Family::default(),
            // 1 ms to 262 s, close to the deadline of a wait.
            wait: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 10))),
        }
    }
}

impl Metrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Current use of a shared resource, in bytes or permits";
        registry.register("portolan_budget_used", help, self.used.clone());
        let help = "Limit of a shared resource, in bytes or permits";
        registry.register("portolan_budget_limit", help, self.limit.clone());
        let help = "Duration of waiting for a shared resource in seconds";
        registry.register("portolan_budget_wait_seconds", help, self.wait.clone());
    }

    pub(super) fn of(&self, resource: &'static str, limit: u64) -> ResourceMetrics {
        let label = ResourceLabel { resource };
        self.limit.get_or_create(&label).set(gauge(limit));
        ResourceMetrics {
            used: self.used.get_or_create(&label).clone(),
            wait: self.wait.get_or_create(&label).clone(),
        }
    }
}

/// The metrics of one resource.
pub(super) struct ResourceMetrics {
    used: Gauge,
    wait: Histogram,
}

impl ResourceMetrics {
    pub(super) fn set_used(&self, used: u64) {
        self.used.set(gauge(used));
    }

    pub(super) fn observe_wait(&self, waited: Duration) {
        self.wait.observe(waited.as_secs_f64());
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
