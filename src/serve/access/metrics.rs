use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::budget::ResourceMetrics;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// A handle, cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct AccessMetrics {
    reviews: Family<ResultLabel, Counter>,
    pub(super) permits: ResourceMetrics,
}

impl AccessMetrics {
    /// `permits` shows the reviews in flight.
    pub fn register(registry: &mut Registry, permits: ResourceMetrics) -> Self {
        let metrics = Self {
            permits,
            ..Self::default()
        };
        let help = "Total number of reviews of callers of the catalog by result: allowed, refused or failed";
        registry.register("portolan_access_reviews", help, metrics.reviews.clone());
        metrics
    }

    pub(super) fn count(&self, result: &'static str) {
        self.reviews.get_or_create(&ResultLabel { result }).inc();
    }
}
