use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use crate::catalog::news::NewsBacklog;

/// The value of `oldest` if the outbox has no rows.
const NONE: i64 = i64::MAX;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug)]
pub struct NewsMetrics {
    delivered: Counter,
    failed: Family<ReasonLabel, Counter>,
    dropped: Family<ReasonLabel, Counter>,
    rows: Gauge<i64>,
    /// Creation of the oldest row in milliseconds, or [`NONE`].
    oldest: Arc<AtomicI64>,
}

impl NewsMetrics {
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            delivered: Counter::default(),
            failed: Family::default(),
            dropped: Family::default(),
            rows: Gauge::default(),
            oldest: Arc::new(AtomicI64::new(NONE)),
        };
        let help = "Total number of messages that sinks of news accepted";
        registry.register("portolan_news_delivered", help, metrics.delivered.clone());
        let help = "Total number of failed tries to deliver news, by reason";
        registry.register("portolan_news_failed", help, metrics.failed.clone());
        let help = "Total number of news that were dropped before a sink accepted them, by reason";
        registry.register("portolan_news_dropped", help, metrics.dropped.clone());
        let help = "Current number of news that wait for their delivery";
        registry.register("portolan_news_rows", help, metrics.rows.clone());
        registry.register_collector(Box::new(OldestAge(Arc::clone(&metrics.oldest))));
        metrics
    }

    pub(super) fn delivered(&self) {
        self.delivered.inc();
    }

    pub(super) fn failed(&self, reason: &'static str) {
        self.failed.get_or_create(&ReasonLabel { reason }).inc();
    }

    pub(super) fn dropped(&self, reason: &'static str, count: u64) {
        if count > 0 {
            self.dropped.get_or_create(&ReasonLabel { reason }).inc_by(count);
        }
    }

    pub(super) fn observe(&self, backlog: &NewsBacklog) {
        self.rows.set(i64::try_from(backlog.rows).unwrap_or(i64::MAX));
        let oldest = backlog.oldest.map_or(NONE, Timestamp::as_millisecond);
        self.oldest.store(oldest, Ordering::Relaxed);
    }
}

/// The age is computed when metrics are read.
#[derive(Debug)]
struct OldestAge(Arc<AtomicI64>);

impl Collector for OldestAge {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "Age of the oldest news that wait for their delivery in seconds; 0 without any";
        let gauge = encoder.encode_descriptor("portolan_news_oldest_seconds", help, None, MetricType::Gauge)?;
        let now = Timestamp::now().as_millisecond();
        let age = now.saturating_sub(self.0.load(Ordering::Relaxed)).max(0);
        ConstGauge::new(age as f64 / 1000.0).encode(gauge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_the_oldest_row_grows_until_there_is_none() {
        let mut registry = Registry::default();
        let metrics = NewsMetrics::register(&mut registry);
        let age = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            let line = text
                .lines()
                .find(|line| line.starts_with("portolan_news_oldest_seconds"));
            line.unwrap().rsplit(' ').next().unwrap().parse::<f64>().unwrap()
        };
        assert_eq!(age(), 0.0);
        metrics.observe(&NewsBacklog {
            rows: 1,
            oldest: Some(Timestamp::UNIX_EPOCH),
        });
        assert!(age() > 1e9);
        metrics.observe(&NewsBacklog::default());
        assert_eq!(age(), 0.0);
    }
}
