use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use super::{CertificateMetrics, CertificatePair};

/// The certificate of a TLS server. It has none at first: handshakes fail until one is set.
#[derive(Clone)]
pub struct ServedCertificate {
    current: Arc<CurrentCertificate>,
    config: Arc<ServerConfig>,
    pub(super) metrics: CertificateMetrics,
}

impl ServedCertificate {
    /// # Errors
    /// The provider does not support TLS 1.2 and 1.3.
    pub fn new(metrics: CertificateMetrics) -> Result<Self, rustls::Error> {
        let current = Arc::<CurrentCertificate>::default();
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            current,
            config: Arc::new(config),
            metrics,
        })
    }

    #[must_use]
    pub fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// Waits for the first certificate.
    pub async fn ready(&self) {
        // The sender lives as long as `self`.
        let _ = self.current.0.subscribe().wait_for(Option::is_some).await;
    }

    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.current.0.borrow().is_some()
    }

    /// Serves this certificate to new connections.
    pub fn set(&self, pair: &CertificatePair) {
        let not_after = pair.validity().not_after;
        self.metrics.set_expiry(not_after);
        tracing::info!(%not_after, "serving a certificate for webhooks");
        self.current.0.send_replace(Some(pair.certified()));
    }

    /// Reports if a newer certificate can't be served, or the current one is not trusted.
    pub fn set_outdated(&self, is_outdated: bool) {
        self.metrics.set_outdated(is_outdated);
    }
}

#[derive(Default)]
struct CurrentCertificate(watch::Sender<Option<Arc<CertifiedKey>>>);

impl fmt::Debug for CurrentCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CurrentCertificate")
    }
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.borrow().clone()
    }
}
