//! Use of the database connections, and the time that calls wait for one.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

const RESOURCE: ResourceLabel = ResourceLabel {
    resource: "database_connections",
};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResourceLabel {
    resource: &'static str,
}

#[derive(Clone, Debug)]
pub struct ConnectionMetrics {
    used: Gauge,
    limit: Gauge,
    wait: Histogram,
}

impl Default for ConnectionMetrics {
    fn default() -> Self {
        Self {
            used: Gauge::default(),
            limit: Gauge::default(),
            wait: waits(),
        }
    }
}

/// 1 ms to 260 s, beyond every deadline of a wait but that of a commit.
fn waits() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 4.0, 10))
}

impl ConnectionMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let (used, limit) = (Family::<_, Gauge>::default(), Family::<_, Gauge>::default());
        let wait = Family::<_, Histogram, fn() -> Histogram>::new_with_constructor(waits);
        let metrics = Self {
            used: used.get_or_create_owned(&RESOURCE),
            limit: limit.get_or_create_owned(&RESOURCE),
            wait: wait.get_or_create_owned(&RESOURCE),
        };
        let help = "Current use of a shared resource, by resource";
        registry.register("portolan_budget_used", help, used);
        let help = "Limit of a shared resource, by resource";
        registry.register("portolan_budget_limit", help, limit);
        let help = "Time that work waits for a shared resource in seconds, by resource";
        registry.register("portolan_budget_wait_seconds", help, wait);
        metrics
    }

    pub(super) fn set_used(&self, used: usize) {
        self.used.set(gauge(used));
    }

    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.set(gauge(limit));
    }

    pub(super) fn waited(&self, time: Duration) {
        self.wait.observe(time.as_secs_f64());
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
