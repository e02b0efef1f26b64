use k8s_openapi::ByteString;
use rstest::rstest;

use super::*;

const PEM: &str = "-----BEGIN CERTIFICATE-----\nMTIz\n-----END CERTIFICATE-----\n";
const DATA: [(&str, &str); 3] = [(ENDPOINT, "https://10.0.0.1:6443"), ("ca.crt", PEM), (TOKEN, "hunter2")];

fn secret(type_: &str, data: &[(&str, &str)]) -> Secret {
    let mut secret = Secret::default();
    secret.metadata.name = Some("prod".to_owned());
    secret.labels_mut().insert(CREDENTIAL_TYPE.to_owned(), type_.to_owned());
    let data = data.iter();
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    secret.data = Some(data.map(|(key, text)| ((*key).to_owned(), bytes(text))).collect());
    secret
}

/// Returns the Secret of a token with another value.
fn with(key: &str, value: &str) -> Secret {
    let mut secret = secret(SERVICE_ACCOUNT_TOKEN, &DATA);
    let data = secret.data.get_or_insert_default();
    data.insert(key.to_owned(), ByteString(value.as_bytes().to_vec()));
    secret
}

fn without(key: &str) -> Secret {
    let mut secret = secret(SERVICE_ACCOUNT_TOKEN, &DATA);
    secret.data.get_or_insert_default().remove(key);
    secret
}

fn refused(secret: &Secret) -> String {
    let error = ClusterAccess::parse(secret, false).unwrap_err().to_string();
    assert!(!error.contains("hunter2"), "{error}");
    error
}

#[test]
fn a_token_is_sent_to_the_endpoint_only() {
    let parsed = ClusterCredential::parse(&with(TOKEN, "hunter2\n"), false).unwrap();
    assert_eq!(parsed.endpoint.as_str(), "https://10.0.0.1:6443/");
    let access = &parsed.access;
    assert_eq!(access.authorization.as_ref().unwrap().expose(), "Bearer hunter2");
    assert_eq!(access.scope, Some(parsed.endpoint.clone()));
    assert_eq!(access.ca.as_deref(), Some(PEM.as_bytes()));
    assert!(!access.insecure && access.proxies.is_none() && !access.pass_credentials);
    assert!(!format!("{parsed:?}").contains("hunter2"));
}

#[test]
fn a_certificate_needs_its_key() {
    let mut data = vec![
        (ENDPOINT, "https://10.0.0.1\n"),
        ("ca", PEM),
        (CERTIFICATE, "cert"),
        (KEY, "hunter2"),
    ];
    let parsed = ClusterCredential::parse(&secret(X509_CERTIFICATE, &data), false).unwrap();
    let pair = parsed.access.client_certificate.unwrap();
    assert_eq!(pair.expose(), "cert\nhunter2");
    assert_eq!(parsed.access.ca.as_deref(), Some(PEM.as_bytes()));
    data.pop();
    let error = refused(&secret(X509_CERTIFICATE, &data));
    assert_eq!(error, "the Secret has no tls.key; add it");
}

#[rstest]
#[case::dynamic("Dynamic", "it runs a command; use X509Certificate or ServiceAccountToken")]
#[case::unknown("Password", "unknown credential type \"Password\"")]
fn a_credential_of_another_type_is_refused(#[case] type_: &str, #[case] expected: &str) {
    let error = refused(&secret(type_, &DATA));
    assert!(error.contains(expected), "{error}");
}

#[rstest]
#[case::token(SERVICE_ACCOUNT_TOKEN, &DATA)]
#[case::command_of_the_gateway("Dynamic", &[])]
fn a_cluster_of_type_cluster_proxy_needs_no_credential_here(#[case] type_: &str, #[case] data: &[(&str, &str)]) {
    let mut secret = secret(type_, data);
    secret
        .labels_mut()
        .insert(ENDPOINT_TYPE.to_owned(), "ClusterProxy".to_owned());
    assert!(matches!(
        ClusterAccess::parse(&secret, false),
        Ok(ClusterAccess::Gateway)
    ));
}

#[test]
fn an_endpoint_of_another_type_is_refused() {
    let mut secret = secret(SERVICE_ACCOUNT_TOKEN, &DATA);
    secret
        .labels_mut()
        .insert(ENDPOINT_TYPE.to_owned(), "Tunnel".to_owned());
    let error = refused(&secret);
    assert_eq!(error, "unknown endpoint type \"Tunnel\"; use Const or ClusterProxy");
    secret.labels_mut().insert(ENDPOINT_TYPE.to_owned(), "Const".to_owned());
    assert!(matches!(
        ClusterAccess::parse(&secret, false),
        Ok(ClusterAccess::Direct(_))
    ));
}

#[test]
fn the_name_of_the_local_cluster_is_reserved() {
    let mut secret = secret(SERVICE_ACCOUNT_TOKEN, &DATA);
    secret.metadata.name = Some("local".to_owned());
    assert!(refused(&secret).contains("join the cluster by another name"));
}

#[rstest]
#[case::without_scheme("10.0.0.1:6443", "use https://HOST:PORT")]
#[case::other_scheme("ftp://10.0.0.1", "its scheme is not https")]
#[case::user("https://me:hunter2@10.0.0.1", "it contains a user name")]
#[case::query("https://10.0.0.1?token=hunter2", "it contains a query or a fragment")]
#[case::plain("http://10.0.0.1", "use https, or --allow-insecure-clusters")]
#[case::empty(" \n", "the Secret has no endpoint")]
fn an_endpoint_that_is_no_url_of_an_api_server_is_refused(#[case] endpoint: &str, #[case] expected: &str) {
    let error = refused(&with(ENDPOINT, endpoint));
    assert!(error.contains(expected), "{error}");
}

#[test]
fn missing_and_oversized_values_are_named() {
    assert_eq!(refused(&without(TOKEN)), "the Secret has no token; add it");
    assert_eq!(refused(&without(ENDPOINT)), "the Secret has no endpoint; add it");
    for (key, limit) in [
        (TOKEN, MAX_TOKEN),
        (ENDPOINT, MAX_URL),
        ("ca.crt", MAX_PEM),
        (PROXY, MAX_URL),
    ] {
        let error = refused(&with(key, &"x".repeat(limit + 1)));
        assert_eq!(error, format!("{key} is larger than {limit} bytes; check its value"));
    }
}

#[test]
fn servers_that_are_not_verified_need_the_flag() {
    let unverified = without("ca.crt");
    assert!(refused(&unverified).contains("add it, or use --allow-insecure-clusters"));
    let accepted = ClusterCredential::parse(&unverified, true).unwrap();
    assert!(accepted.access.insecure);
    assert!(ClusterCredential::parse(&with(ENDPOINT, "http://10.0.0.1"), true).is_ok());
    // The flag changes nothing for clusters with an authority.
    let verified = ClusterCredential::parse(&secret(SERVICE_ACCOUNT_TOKEN, &DATA), true).unwrap();
    assert!(!verified.access.insecure);
    let by_system = ClusterCredential::parse(&with("ca.crt", ""), false).unwrap();
    assert!(by_system.access.ca.is_none() && !by_system.access.insecure);
}

#[test]
fn a_proxy_is_one_for_http() {
    let parsed = ClusterCredential::parse(&with(PROXY, "http://me:hunter2@proxy:3128"), false).unwrap();
    assert!(parsed.access.proxies.as_ref().unwrap().has_credentials());
    assert!(!format!("{parsed:?}").contains("hunter2"));
    let error = refused(&with(PROXY, "socks5://me:hunter2@proxy:1080"));
    assert!(error.contains("its scheme is not http or https"), "{error}");
    let none = ClusterCredential::parse(&with(PROXY, ""), false).unwrap();
    assert!(none.access.proxies.is_none());
}

#[test]
fn a_fingerprint_changes_with_values_and_types_only() {
    let secret = with(TOKEN, "hunter2");
    let fingerprint = Fingerprint::of(&secret);
    let mut annotated = secret.clone();
    annotated
        .annotations_mut()
        .insert("healthy".to_owned(), "true".to_owned());
    annotated.labels_mut().insert("region".to_owned(), "eu".to_owned());
    assert_eq!(Fingerprint::of(&annotated), fingerprint);
    let mut typed = secret;
    typed.labels_mut().insert(ENDPOINT_TYPE.to_owned(), "Const".to_owned());
    let others = [typed, with(TOKEN, "hunter3"), without(TOKEN), with("ca", PEM)];
    for other in others {
        assert_ne!(Fingerprint::of(&other), fingerprint);
    }
}
