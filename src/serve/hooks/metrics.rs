use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// A handle, cheap to clone. No label names a tenant.
#[derive(Clone, Debug, Default)]
pub struct HookMetrics(Family<ResultLabel, Counter>);

impl HookMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Total number of requests to receivers by result: accepted, refused, limited or failed";
        registry.register("portolan_receiver_requests", help, metrics.0.clone());
        metrics
    }

    pub(super) fn count(&self, result: &'static str) {
        self.0.get_or_create(&ResultLabel { result }).inc();
    }
}
