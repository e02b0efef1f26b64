//! The decision about a Secret: its contents are served, renewed, replaced, or belong to someone else.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;

use crate::api::jobs::{MANAGED_BY, MANAGER};
use crate::server::tls::{CertificateError, CertificatePair};

pub(super) const CERTIFICATE: &str = "tls.crt";
pub(super) const KEY: &str = "tls.key";
pub(super) const CA: &str = "ca.crt";
pub(super) const SECRET_TYPE: &str = "kubernetes.io/tls";
const END: &str = "-----END CERTIFICATE-----";

#[derive(Debug)]
pub(super) enum SecretState {
    Missing,
    /// Not ours to change.
    Foreign(Foreign),
    Unusable(Defect),
    /// Usable, but two thirds of its validity have passed.
    Due(CertificateCredentials),
    Current(CertificateCredentials),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    #[error("its type is {0} instead of {SECRET_TYPE}")]
    Type(String),
    #[error("it has no label {MANAGED_BY}={MANAGER}")]
    Label,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Defect {
    #[error("it has no {0}")]
    Absent(&'static str),
    #[error(transparent)]
    Pair(#[from] CertificateError),
    #[error("tls.crt is expired or not valid yet")]
    Validity,
    #[error("the first certificate in ca.crt did not sign tls.crt")]
    Authority,
    #[error("tls.crt lacks the name of the Service")]
    Name,
}

/// A certificate with its key, and the CAs that API servers trust.
#[derive(Clone)]
pub(super) struct CertificateCredentials {
    pub(super) pair: CertificatePair,
    pub(super) ca_bundle: String,
}

impl fmt::Debug for CertificateCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CertificateCredentials").field(&self.pair).finish()
    }
}

impl SecretState {
    pub(super) fn of(secret: Option<&Secret>, dns_name: &str, now: Timestamp) -> Self {
        let Some(secret) = secret else {
            return Self::Missing;
        };
        if let Some(foreign) = foreign(secret) {
            return Self::Foreign(foreign);
        }
        match CertificateCredentials::of(secret, dns_name, now) {
            Err(defect) => Self::Unusable(defect),
            Ok(credentials) if credentials.is_due(now) => Self::Due(credentials),
            Ok(credentials) => Self::Current(credentials),
        }
    }
}

fn foreign(secret: &Secret) -> Option<Foreign> {
    if secret.type_.as_deref() != Some(SECRET_TYPE) {
        return Some(Foreign::Type(secret.type_.clone().unwrap_or_default()));
    }
    let manager = secret.labels().get(MANAGED_BY);
    manager
        .is_none_or(|manager| manager != MANAGER)
        .then_some(Foreign::Label)
}

fn text<'a>(secret: &'a Secret, key: &'static str) -> Result<&'a str, Defect> {
    let value = secret.data.as_ref().and_then(|data| data.get(key));
    let text = value.and_then(|value| std::str::from_utf8(&value.0).ok());
    text.filter(|text| !text.trim().is_empty()).ok_or(Defect::Absent(key))
}

fn first_authority(pem: &str) -> Option<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).ok()?).ok()?;
    Some(roots)
}

impl CertificateCredentials {
    fn of(secret: &Secret, dns_name: &str, now: Timestamp) -> Result<Self, Defect> {
        let (certificate, key, ca) = (text(secret, CERTIFICATE)?, text(secret, KEY)?, text(secret, CA)?);
        let credentials = Self {
            pair: CertificatePair::from_pem(certificate.as_bytes(), key.as_bytes())?,
            ca_bundle: ca.to_owned(),
        };
        credentials.verify(dns_name, now)?;
        Ok(credentials)
    }

    /// Verifies the certificate as an API server does, which trusts the first CA.
    fn verify(&self, dns_name: &str, now: Timestamp) -> Result<(), Defect> {
        if !self.pair.validity().contains(now) {
            return Err(Defect::Validity);
        }
        let (first, intermediates) = self.pair.chain().split_first().ok_or(CertificateError::Certificate)?;
        let certificate = ParsedCertificate::try_from(first).map_err(|_| CertificateError::Certificate)?;
        let roots = first_authority(&self.ca_bundle).ok_or(Defect::Authority)?;
        let time = UnixTime::since_unix_epoch(now.as_duration().unsigned_abs());
        let algorithms = ring::default_provider().signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &roots, intermediates, time, algorithms)
            .map_err(|_| Defect::Authority)?;
        let name = ServerName::try_from(dns_name).map_err(|_| Defect::Name)?;
        verify_server_name(&certificate, &name).map_err(|_| Defect::Name)
    }

    fn is_due(&self, now: Timestamp) -> bool {
        let validity = self.pair.validity();
        let (start, end) = (validity.not_before.as_second(), validity.not_after.as_second());
        (now.as_second() - start) * 3 >= (end - start) * 2
    }

    pub(super) fn is_valid(&self, now: Timestamp) -> bool {
        self.pair.validity().contains(now)
    }

    pub(super) fn is_same_certificate(&self, other: &Self) -> bool {
        self.pair.chain() == other.pair.chain()
    }

    /// Returns the CA that signed the certificate, in PEM format.
    pub(super) fn ca(&self) -> String {
        let end = self.ca_bundle.find(END).map_or(0, |start| start + END.len());
        format!("{}\n", &self.ca_bundle[..end])
    }
}
