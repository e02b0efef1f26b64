mod api_server;
mod credentials;
mod keeper;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use rustls::client::{ClientConnection, WebPkiServerVerifier};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore, ServerConnection};

use super::SelfSigned;
use super::credentials::{CA, CERTIFICATE, KEY};
use super::issue::IssuedCertificate;
use crate::server::tls::{CertificateMetrics, CertificatePair, ServedCertificate};

fn settings() -> SelfSigned {
    SelfSigned {
        namespace: "vela-system".to_owned(),
        service: "portolan-webhooks".to_owned(),
        configuration: "portolan".to_owned(),
    }
}

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

fn issued(now: Timestamp, existing: Option<Secret>, served_cas: &[&str]) -> Secret {
    let issued = IssuedCertificate::new(&settings().dns_name(), now).unwrap();
    issued.into_secret(&settings(), existing, served_cas)
}

fn value<'a>(secret: &'a Secret, key: &str) -> &'a str {
    std::str::from_utf8(&secret.data.as_ref().unwrap()[key].0).unwrap()
}

fn served() -> ServedCertificate {
    ServedCertificate::new(CertificateMetrics::default()).unwrap()
}

fn served_of(secret: &Secret) -> ServedCertificate {
    let pair = CertificatePair::from_pem(value(secret, CERTIFICATE).as_bytes(), value(secret, KEY).as_bytes());
    let served = served();
    served.set(&pair.unwrap());
    served
}

#[derive(Debug)]
struct Clock(Timestamp);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.0.as_duration().unsigned_abs()))
    }
}

/// Returns true if a client that trusts these CAs completes a handshake.
fn is_accepted(served: &ServedCertificate, ca_bundle: &str, name: &str, now: Timestamp) -> bool {
    let mut roots = RootCertStore::empty();
    for ca in CertificateDer::pem_slice_iter(ca_bundle.as_bytes()) {
        roots.add(ca.unwrap()).unwrap();
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let config = ClientConfig::builder_with_details(provider, Arc::new(Clock(now)))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_webpki_verifier(verifier.build().unwrap())
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut server = ServerConnection::new(served.server_config()).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut received = bytes.as_slice();
        while !received.is_empty() {
            server.read_tls(&mut received).unwrap();
            if server.process_new_packets().is_err() {
                return false;
            }
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut received = bytes.as_slice();
        while !received.is_empty() {
            client.read_tls(&mut received).unwrap();
            if client.process_new_packets().is_err() {
                return false;
            }
        }
    }
    true
}
