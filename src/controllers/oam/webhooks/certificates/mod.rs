//! The certificate of the webhook server: from files, or issued here, without an issuer such as cert-manager.
//!
//! ```text
//!  read configurations ─► read Secret ─► current? ─────────────────────► CA in configurations? ─► 30 s ─► serve
//!                                           └─► issue, write Secret ─┘      └─► patch them ─┘
//! ```
//!
//! Each replica does this every minute, leader or not, and may end after any step. A key that was not written is lost
//! and unknown to all. A Secret that was written, and is not trusted yet, is not served by replicas that have another
//! certificate, and the next round of any replica makes it trusted. API servers then trust both CAs.
//!
//! Configurations are read before the Secret. A replica with an older Secret thus fails the test of their version,
//! instead of writing an older CA.

mod configurations;
mod credentials;
mod issue;
mod keeper;

use std::convert::Infallible;

use kube::Client;

use crate::api::NamespacedName;
use crate::controllers::oam::{CertificateSource, SelfSigned};
use crate::server::tls::{CertificateFiles, CertificateFilesError, ServedCertificate};
use keeper::Keeper;
pub use keeper::SelfSignedError;

#[derive(Debug, thiserror::Error)]
pub enum CertificateSourceError {
    #[error("{0} with --webhook-cert-dir")]
    Files(#[from] CertificateFilesError),
    #[error(transparent)]
    SelfSigned(#[from] SelfSignedError),
}

/// Sets the first certificate and each later one. The client must be allowed to write without a Lease, since each
/// replica serves webhooks.
///
/// # Errors
/// There can't be a first certificate without a change by a user. Later failures are logged, and set a metric.
pub async fn keep(
    source: &CertificateSource,
    client: &Client,
    served: &ServedCertificate,
) -> Result<Infallible, CertificateSourceError> {
    match source {
        CertificateSource::Files(directory) => Ok(CertificateFiles::new(directory).keep(served).await?),
        CertificateSource::SelfSigned(settings) => Ok(Keeper::new(settings, client, served).run().await?),
    }
}

impl SelfSigned {
    fn secret(&self) -> NamespacedName {
        NamespacedName::new(&self.namespace, &self.service)
    }

    /// Returns the name by which API servers know the Service.
    fn dns_name(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }
}

#[cfg(test)]
mod tests;
