use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::serve::Webhook;

/// From a review without a trial render to the limit of the API server.
const BUCKETS: [f64; 9] = [0.001, 0.005, 0.02, 0.05, 0.1, 0.5, 1.0, 3.0, 10.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReviewLabels {
    webhook: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WebhookLabel {
    webhook: &'static str,
}

/// Clones share the values.
#[derive(Clone, Debug)]
pub struct WebhookMetrics {
    reviews: Family<ReviewLabels, Counter>,
    seconds: Family<WebhookLabel, Histogram, fn() -> Histogram>,
}

/// Metrics that are not exported.
impl Default for WebhookMetrics {
    fn default() -> Self {
        Self {
            reviews: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        }
    }
}

impl WebhookMetrics {
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        for webhook in Webhook::ALL {
            let webhook = webhook.name();
            // Without a first value, a rate would miss the first event.
            let result = "allowed";
            metrics
                .reviews
                .get_or_create(&ReviewLabels { webhook, result })
                .inc_by(0);
        }
        let help = "Total number of reviews by webhook and result: allowed, refused, invalid, busy or failed";
        registry.register("portolan_oam_webhook_reviews", help, metrics.reviews.clone());
        let help = "Duration of reviews in seconds, with the wait for a turn";
        registry.register("portolan_oam_webhook_seconds", help, metrics.seconds.clone());
        metrics
    }

    pub(super) fn count(&self, webhook: Webhook, result: &'static str, duration: Duration) {
        let webhook = webhook.name();
        self.reviews.get_or_create(&ReviewLabels { webhook, result }).inc();
        let seconds = self.seconds.get_or_create(&WebhookLabel { webhook });
        seconds.observe(duration.as_secs_f64());
    }
}
