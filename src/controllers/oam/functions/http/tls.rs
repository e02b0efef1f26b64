//! The Secret of `tls_config`: a certificate authority, and a certificate of the client.

use base64::Engine as _;

use super::params::TlsConfig;
use crate::controllers::oam::functions::params::required;
use crate::controllers::oam::functions::secrets::{Secrets, existing, value};
use crate::http::Access;
use crate::http::encoded::BASE64;
use crate::http::secret::Secret;

const CA: &str = "ca.crt";
const CERTIFICATE: &str = "client.crt";
const KEY: &str = "client.key";

/// Puts the Secret into `access`. KubeVela reads it from any namespace, and goes on without it if it is invalid.
pub(super) async fn read(
    config: &TlsConfig,
    namespace: &str,
    secrets: &impl Secrets,
    access: &mut Access,
) -> Result<(), String> {
    let is_other = |other: &&str| !other.is_empty() && *other != namespace;
    if config.namespace.as_deref().filter(is_other).is_some() {
        return Err(format!(
            "$params.tls_config.namespace is not the namespace of the Application; copy the Secret to {namespace}"
        ));
    }
    let name = required(config.secret.clone(), "tls_config.secret")?;
    let secret = existing(secrets, namespace, &name).await?;
    let pem = |key: &str| {
        let encoded = value(&secret, key);
        let invalid = || format!("Secret {name} in namespace {namespace}: {key} is not PEM or PEM in base64");
        encoded.map(|encoded| decode(encoded).ok_or_else(invalid)).transpose()
    };
    access.ca = pem(CA)?.map(String::into_bytes);
    access.client_certificate = match (pem(CERTIFICATE)?, pem(KEY)?) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(Secret::new(format!("{certificate}\n{key}"))),
        _ => {
            return Err(format!(
                "Secret {name} in namespace {namespace} has only one of {CERTIFICATE} and {KEY}"
            ));
        }
    };
    Ok(())
}

/// Returns the PEM text. KubeVela expects it in base64, within the base64 of the Secret.
fn decode(bytes: &[u8]) -> Option<String> {
    const BEGIN: &str = "-----BEGIN";
    let text = std::str::from_utf8(bytes).ok()?;
    if text.contains(BEGIN) {
        return Some(text.to_owned());
    }
    let encoded: String = text.split_ascii_whitespace().collect();
    let text = String::from_utf8(BASE64.decode(encoded).ok()?).ok()?;
    text.contains(BEGIN).then_some(text)
}

#[cfg(test)]
mod tests {
    use base64::prelude::BASE64_STANDARD;

    use super::*;
    use crate::controllers::oam::functions::secrets::tests::FakeSecrets;

    const PEM: &str = "-----BEGIN CERTIFICATE-----\nMTIz\n-----END CERTIFICATE-----\n";

    async fn access(namespace: Option<&str>, data: &[(&str, &[u8])]) -> Result<Access, String> {
        let config = TlsConfig {
            secret: Some("tls".to_owned()),
            namespace: namespace.map(str::to_owned),
        };
        let mut access = Access::default();
        read(&config, "ns", &FakeSecrets::with("ns", "tls", data), &mut access).await?;
        Ok(access)
    }

    #[tokio::test]
    async fn certificates_are_read_as_text_and_in_base64() {
        let encoded = BASE64_STANDARD.encode(PEM);
        for text in [PEM, &encoded] {
            let text = text.as_bytes();
            let access = access(Some("ns"), &[(CA, text), (CERTIFICATE, text), (KEY, text)])
                .await
                .unwrap();
            assert_eq!(access.ca.as_deref(), Some(PEM.as_bytes()));
            assert_eq!(access.client_certificate.unwrap().expose(), format!("{PEM}\n{PEM}"));
        }
    }

    #[tokio::test]
    async fn another_namespace_is_refused() {
        let error = access(Some("kube-system"), &[]).await.unwrap_err();
        assert!(error.contains("is not the namespace of the Application"), "{error}");
    }

    #[tokio::test]
    async fn an_invalid_secret_is_an_error_without_its_values() {
        for data in [
            [(CA, b"hunter2".as_slice())].as_slice(),
            &[(CA, b"\xff\xfe")],
            &[(CERTIFICATE, PEM.as_bytes())],
            &[(KEY, PEM.as_bytes())],
        ] {
            let error = access(None, data).await.unwrap_err();
            assert!(error.starts_with("Secret tls in namespace ns"), "{error}");
            assert!(!error.contains("hunter2") && !error.contains("BEGIN"), "{error}");
        }
    }
}
