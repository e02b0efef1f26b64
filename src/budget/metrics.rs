use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::time::Instant;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResourceLabel {
    resource: &'static str,
}

/// The metrics of all resources; a handle, cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    used: Family<ResourceLabel, Gauge>,
    limit: Family<ResourceLabel, Gauge>,
    wait: Family<ResourceLabel, Histogram, fn() -> Histogram>,
    polls: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            used: Family::default(),
            limit: Family::default(),
            // 1 ms to 262 s, close to the deadline of a wait.
            wait: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 10))),
            polls: Histogram::new([0.001, 0.01, 0.1, 1.0]),
        }
    }
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        let help = "Current use of a shared resource, in bytes or permits";
        registry.register("portolan_budget_used", help, self.used.clone());
        let help = "Limit of a shared resource, in bytes or permits";
        registry.register("portolan_budget_limit", help, self.limit.clone());
        let help = "Duration of waiting for a shared resource in seconds";
        registry.register("portolan_budget_wait_seconds", help, self.wait.clone());
        let help = "Duration for which a reconcile held a thread that serves probes and all tenants, in seconds";
        registry.register("portolan_runtime_poll_seconds", help, self.polls.clone());
    }

    /// Observes how long a task held a thread of the runtime.
    pub(super) fn observe_poll(&self, held: Duration) {
        self.polls.observe(held.as_secs_f64());
    }

    #[must_use]
    pub fn of(&self, resource: &'static str, limit: u64) -> ResourceMetrics {
        let label = ResourceLabel { resource };
        let metrics = ResourceMetrics {
            used: self.used.get_or_create(&label).clone(),
            limit: self.limit.get_or_create(&label).clone(),
            wait: self.wait.get_or_create(&label).clone(),
        };
        metrics.set_limit(limit);
        metrics
    }
}

#[derive(Clone, Debug)]
pub struct ResourceMetrics {
    used: Gauge,
    limit: Gauge,
    wait: Histogram,
}

impl Default for ResourceMetrics {
    fn default() -> Self {
        Self::unregistered()
    }
}

impl ResourceMetrics {
    /// Returns metrics that are not exported.
    #[must_use]
    pub fn unregistered() -> Self {
        Metrics::default().of("", 0)
    }

    pub fn add_used(&self, amount: u64) {
        self.used.inc_by(gauge(amount));
    }

    pub fn subtract_used(&self, amount: u64) {
        self.used.dec_by(gauge(amount));
    }

    pub fn set_limit(&self, limit: u64) {
        self.limit.set(gauge(limit));
    }

    pub fn observe_wait(&self, waited: Duration) {
        self.wait.observe(waited.as_secs_f64());
    }

    /// Observes the time until the timer is dropped: a canceled wait counts too.
    pub fn start_wait(&self) -> WaitTimer<'_> {
        WaitTimer(self, Instant::now())
    }
}

pub struct WaitTimer<'a>(&'a ResourceMetrics, Instant);

impl Drop for WaitTimer<'_> {
    fn drop(&mut self) {
        self.0.observe_wait(self.1.elapsed());
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
