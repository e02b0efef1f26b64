//! Certificates as they are issued, and the decision about Secrets that hold them.

use k8s_openapi::ByteString;
use rcgen::{CertificateParams, KeyPair};
use rstest::rstest;

use super::super::credentials::{CA, CERTIFICATE, Foreign, KEY, SecretState};
use super::*;
use crate::api::jobs::{MANAGED_BY, MANAGER};

const ISSUED: &str = "2026-01-01T00:00:00Z";
const SOON: &str = "2026-01-02T00:00:00Z";

fn set(secret: &mut Secret, key: &str, text: impl Into<String>) {
    let data = secret.data.as_mut().unwrap();
    data.insert(key.to_owned(), ByteString(text.into().into_bytes()));
}

/// The certificate of another issuer for the same Service.
fn set_other_issuer(secret: &mut Secret) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new([settings().dns_name()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap().pem();
    set(secret, CERTIFICATE, &certificate);
    set(secret, CA, certificate);
    set(secret, KEY, key.serialize_pem());
}

fn state(secret: &Secret, now: &str) -> String {
    match SecretState::of(Some(secret), &settings().dns_name(), at(now)) {
        SecretState::Missing => "missing".to_owned(),
        SecretState::Foreign(reason) => format!("foreign: {reason}"),
        SecretState::Unusable(defect) => format!("unusable: {defect}"),
        SecretState::Due(_) => "due".to_owned(),
        SecretState::Current(_) => "current".to_owned(),
    }
}

#[rstest]
#[case("2025-12-31T23:54:59Z", "unusable: tls.crt is expired or not valid yet")]
#[case("2025-12-31T23:55:00Z", "current")]
#[case(ISSUED, "current")]
#[case("2026-09-01T00:00:00Z", "current")]
// Two thirds of 365 days and five minutes.
#[case("2026-09-01T07:58:19Z", "current")]
#[case("2026-09-01T07:58:20Z", "due")]
#[case("2027-01-01T00:00:00Z", "due")]
#[case("2027-01-01T00:00:01Z", "unusable: tls.crt is expired or not valid yet")]
fn a_certificate_is_due_after_two_thirds_of_a_year(#[case] now: &str, #[case] expected: &str) {
    assert_eq!(state(&issued(at(ISSUED), None, &[]), now), expected);
}

#[rstest]
#[case::no_key(|secret: &mut Secret| set(secret, KEY, " "), "unusable: it has no tls.key")]
#[case::no_data(|secret: &mut Secret| secret.data = None, "unusable: it has no tls.crt")]
#[case::no_ca(|secret: &mut Secret| drop(secret.data.as_mut().unwrap().remove(CA)), "unusable: it has no ca.crt")]
#[case::garbage(
    |secret: &mut Secret| set(secret, CERTIFICATE, "x"),
    "unusable: tls.crt has no valid certificate in PEM format"
)]
#[case::other_key(
    |secret: &mut Secret| set(secret, KEY, KeyPair::generate().unwrap().serialize_pem()),
    "unusable: the key in tls.key does not belong to the first certificate in tls.crt"
)]
#[case::other_ca(
    |secret: &mut Secret| {
        let other = issued(at(ISSUED), None, &[]);
        // The previous CA is for clients only.
        let bundle = format!("{}{}", value(&other, CA), value(secret, CA));
        set(secret, CA, bundle);
    },
    "unusable: the first certificate in ca.crt did not sign tls.crt"
)]
#[case::other_names(
    |secret: &mut Secret| {
        let other = SelfSigned { service: "other".to_owned(), ..settings() };
        let issued = IssuedCertificate::new(&other.dns_name(), at(ISSUED)).unwrap();
        *secret = issued.into_secret(&settings(), None, &[]);
    },
    "unusable: tls.crt lacks the name of the Service"
)]
#[case::another_type(
    |secret: &mut Secret| secret.type_ = Some("Opaque".to_owned()),
    "foreign: its type is Opaque instead of kubernetes.io/tls"
)]
#[case::no_label(
    |secret: &mut Secret| secret.metadata.labels = None,
    "foreign: it has no label app.kubernetes.io/managed-by=portolan"
)]
#[case::another_issuer(set_other_issuer, "current")]
fn what_a_secret_holds_decides(#[case] change: fn(&mut Secret), #[case] expected: &str) {
    let mut secret = issued(at(ISSUED), None, &[]);
    assert_eq!(secret.metadata.labels.as_ref().unwrap()[MANAGED_BY], MANAGER);
    change(&mut secret);
    assert_eq!(state(&secret, SOON), expected);
}

#[test]
fn a_missing_secret_is_missing() {
    let state = SecretState::of(None, &settings().dns_name(), at(SOON));
    assert!(matches!(state, SecretState::Missing));
    assert_eq!(
        Foreign::Type(String::new()).to_string(),
        "its type is  instead of kubernetes.io/tls"
    );
}

#[test]
fn the_certificate_is_for_the_service_and_no_other_name() {
    let secret = issued(at(ISSUED), None, &[]);
    let served = served_of(&secret);
    let accepts = |name: &str| is_accepted(&served, value(&secret, CA), name, at(SOON));
    assert!(accepts("portolan-webhooks.vela-system.svc"));
    assert!(!accepts("portolan-webhooks.other.svc") && !accepts("localhost"));
}

#[test]
fn clients_that_trust_one_ca_accept_its_certificate_and_those_that_trust_both_accept_both() {
    let old = issued(at(ISSUED), None, &[]);
    let old_ca = value(&old, CA).to_owned();
    let new = issued(at(SOON), Some(old.clone()), &[&old_ca, &old_ca]);
    let bundle = value(&new, CA);
    let new_ca = bundle.strip_suffix(old_ca.as_str()).unwrap();
    assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 2);
    let name = &settings().dns_name();
    let accepts = |secret: &Secret, ca: &str| is_accepted(&served_of(secret), ca, name, at(SOON));
    assert!(accepts(&old, &old_ca) && accepts(&new, new_ca));
    assert!(!accepts(&old, new_ca) && !accepts(&new, &old_ca));
    assert!(accepts(&old, bundle) && accepts(&new, bundle));
}

#[test]
fn a_replaced_secret_keeps_what_others_wrote() {
    let mut old = issued(at(ISSUED), None, &[]);
    old.metadata.resource_version = Some("7".to_owned());
    old.metadata.labels = Some([("team".to_owned(), "a".to_owned())].into());
    set(&mut old, "note", "x");
    let new = issued(at(SOON), Some(old), &[]);
    assert_eq!(new.metadata.resource_version.as_deref(), Some("7"));
    assert_eq!(new.metadata.labels.as_ref().unwrap().len(), 2);
    assert_eq!(value(&new, "note"), "x");
}
