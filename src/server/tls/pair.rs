use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError as Refusal, Error, RootCertStore};

/// Causes are not added: those of the parser may quote the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    #[error("tls.crt has no valid certificate in PEM format")]
    Certificate,
    #[error("tls.key has no unencrypted RSA, ECDSA or Ed25519 key in PEM format")]
    Key,
    #[error("the key in tls.key does not belong to the first certificate in tls.crt")]
    Mismatch,
}

/// A certificate with its chain and its key.
#[derive(Clone)]
pub struct CertificatePair {
    certified: Arc<CertifiedKey>,
    validity: Validity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl fmt::Debug for CertificatePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificatePair")
            .field("validity", &self.validity)
            .finish_non_exhaustive()
    }
}

impl CertificatePair {
    /// Parses both, and checks that the key belongs to the first certificate. Expired certificates are accepted.
    ///
    /// # Errors
    /// One of them is not usable, or they do not belong together.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
        let chain = chain.map_err(|_| CertificateError::Certificate)?;
        let first = chain.first().ok_or(CertificateError::Certificate)?;
        let validity = Validity::of(first).ok_or(CertificateError::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| CertificateError::Key)?;
        let key = ring::default_provider().key_provider.load_private_key(key);
        let certified = CertifiedKey::new(chain, key.map_err(|_| CertificateError::Key)?);
        certified.keys_match().map_err(|_| CertificateError::Mismatch)?;
        Ok(Self {
            certified: Arc::new(certified),
            validity,
        })
    }

    #[must_use]
    pub const fn validity(&self) -> Validity {
        self.validity
    }

    /// Returns the certificate of the server, followed by those that signed it.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.certified.cert
    }

    pub(super) fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }
}

impl Validity {
    /// Reads it from the errors of verifications long ago and in the far future: the verifier of rustls looks at the time
    /// before all else, and its parser has no other access to these fields.
    fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let certificate = ParsedCertificate::try_from(certificate).ok()?;
        let verify = |seconds| {
            let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            verify_server_cert_signed_by_trust_anchor(&certificate, &RootCertStore::empty(), &[], time, &[])
        };
        let not_before = match verify(0) {
            Err(Error::InvalidCertificate(Refusal::NotValidYetContext { not_before, .. })) => timestamp(not_before),
            _ => Timestamp::UNIX_EPOCH,
        };
        match verify(u64::MAX) {
            Err(Error::InvalidCertificate(Refusal::ExpiredContext { not_after, .. })) => Some(Self {
                not_before,
                not_after: timestamp(not_after),
            }),
            _ => None,
        }
    }

    #[must_use]
    pub fn contains(&self, time: Timestamp) -> bool {
        (self.not_before..=self.not_after).contains(&time)
    }
}

/// The last day of the year 9999, which stands for no end, is later than the last timestamp.
fn timestamp(time: UnixTime) -> Timestamp {
    let seconds = i64::try_from(time.as_secs()).ok();
    let timestamp = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
    timestamp.unwrap_or(Timestamp::MAX)
}
