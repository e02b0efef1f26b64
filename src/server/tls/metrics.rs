use jiff::Timestamp;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Metrics of the certificate of webhooks. The default is not exported.
#[derive(Clone, Debug, Default)]
pub struct CertificateMetrics {
    pub(super) expiry: Gauge,
    pub(super) is_outdated: Gauge,
}

impl CertificateMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help =
            "Unix time of the end of the validity of the webhook certificate in seconds; 0 without a certificate";
        registry.register(
            "portolan_webhook_certificate_expiry_timestamp_seconds",
            help,
            metrics.expiry.clone(),
        );
        let help = "1 while the certificate of webhooks cannot be loaded, renewed or made trusted";
        registry.register(
            "portolan_webhook_certificate_outdated",
            help,
            metrics.is_outdated.clone(),
        );
        metrics
    }

    pub(super) fn set_expiry(&self, not_after: Timestamp) {
        self.expiry.set(not_after.as_second());
    }

    pub(super) fn set_outdated(&self, is_outdated: bool) {
        self.is_outdated.set(is_outdated.into());
    }
}
