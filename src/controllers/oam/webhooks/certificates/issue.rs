//! New certificates. Each has a CA of its own, whose key exists only while it signs.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::core::ObjectMeta;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use super::SelfSigned;
use super::credentials::{CA, CERTIFICATE, KEY, SECRET_TYPE};
use crate::api::jobs::{MANAGED_BY, MANAGER};

pub(super) const LIFETIME: Duration = Duration::from_hours(365 * 24);
/// Clocks of API servers may be behind.
pub(super) const BACKDATING: Duration = Duration::from_mins(5);

/// A certificate, its key and its CA in PEM format.
pub(super) struct IssuedCertificate {
    certificate: String,
    key: String,
    ca: String,
}

impl IssuedCertificate {
    pub(super) fn new(dns_name: &str, now: Timestamp) -> Result<Self, rcgen::Error> {
        let now = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
        let parameters = |dns_names, common_name: &str| {
            let mut parameters = CertificateParams::new(dns_names)?;
            parameters.not_before = date_time_ymd(1970, 1, 1) + now.saturating_sub(BACKDATING);
            parameters.not_after = date_time_ymd(1970, 1, 1) + (now + LIFETIME);
            parameters.distinguished_name = DistinguishedName::new();
            parameters.distinguished_name.push(DnType::CommonName, common_name);
            Ok::<_, rcgen::Error>(parameters)
        };
        // Two CAs in one bundle have different names, by which verifiers look for the issuer.
        let mut authority = parameters(Vec::new(), &format!("Portolan webhook CA {}", now.as_secs()))?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority_key = KeyPair::generate()?;
        let ca = authority.self_signed(&authority_key)?.pem();

        let mut server = parameters(vec![dns_name.to_owned()], "Portolan webhooks")?;
        // rustls rejects the certificate of an authority as that of a server.
        server.is_ca = IsCa::ExplicitNoCa;
        server.use_authority_key_identifier_extension = true;
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = server.signed_by(&key, &Issuer::new(authority, authority_key))?.pem();
        Ok(Self {
            certificate,
            key: key.serialize_pem(),
            ca,
        })
    }

    /// Returns the Secret to create or to replace the existing one with. CAs of certificates that may still be served
    /// follow the new one.
    pub(super) fn into_secret(self, settings: &SelfSigned, existing: Option<Secret>, served_cas: &[&str]) -> Secret {
        let mut secret = existing.unwrap_or_else(|| Secret {
            metadata: ObjectMeta {
                namespace: Some(settings.namespace.clone()),
                name: Some(settings.service.clone()),
                ..ObjectMeta::default()
            },
            type_: Some(SECRET_TYPE.to_owned()),
            ..Secret::default()
        });
        let labels = secret.metadata.labels.get_or_insert_default();
        labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
        let mut bundle = self.ca;
        for ca in served_cas {
            if !bundle.contains(ca) {
                bundle.push_str(ca);
            }
        }
        let data = secret.data.get_or_insert_default();
        for (key, text) in [(CERTIFICATE, self.certificate), (KEY, self.key), (CA, bundle)] {
            data.insert(key.to_owned(), ByteString(text.into_bytes()));
        }
        secret
    }
}
