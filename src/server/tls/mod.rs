//! The certificate of TLS servers. It is replaced while connections stay open.
//!
//! ```text
//!  CertificateFiles, or another source ─► CertificatePair ─► ServedCertificate ─► handshakes of new connections
//! ```

mod files;
mod metrics;
mod pair;
mod served;

pub use files::{CertificateFiles, CertificateFilesError};
pub use metrics::CertificateMetrics;
pub use pair::{CertificateError, CertificatePair, Validity};
pub use served::ServedCertificate;

#[cfg(test)]
mod tests;
