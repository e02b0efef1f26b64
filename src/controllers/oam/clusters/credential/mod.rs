//! The Secret of a joined cluster, in the format of KubeVela's cluster-gateway.

mod fingerprint;
#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use url::Url;

pub use self::fingerprint::Fingerprint;
use super::CREDENTIAL_TYPE;
use crate::controllers::oam::trackers::LOCAL;
use crate::http::secret::Secret as Sensitive;
use crate::http::{Access, Proxies};
use crate::text::sanitize;

/// Label with the way to the cluster; `Const` if it is missing.
pub const ENDPOINT_TYPE: &str = "cluster.core.oam.dev/cluster-endpoint-type";
/// The way through cluster-gateway.
pub const CLUSTER_PROXY: &str = "ClusterProxy";
pub(super) const X509_CERTIFICATE: &str = "X509Certificate";
const SERVICE_ACCOUNT_TOKEN: &str = "ServiceAccountToken";

/// The key of the URL of the API server.
pub const ENDPOINT: &str = "endpoint";
const PROXY: &str = "proxy-url";
const TOKEN: &str = "token";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// The first one that is there counts.
const AUTHORITIES: [&str; 2] = ["ca.crt", "ca"];

/// Maximum sizes in bytes. A bundle of authorities may have many certificates.
const MAX_URL: usize = 2 << 10;
const MAX_TOKEN: usize = 16 << 10;
const MAX_PEM: usize = 256 << 10;

/// The address of a cluster's API server, and what a client sends and trusts there.
#[derive(Debug)]
pub struct ClusterCredential {
    pub endpoint: Url,
    pub access: Access,
}

/// The way to the API server of a cluster.
#[derive(Debug)]
pub enum ClusterAccess {
    Direct(Box<ClusterCredential>),
    /// cluster-gateway has the credential, and finds the cluster.
    Gateway,
}

/// The reason why a Secret is no credential. It contains no values, except names and types.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    #[error("the name local belongs to the cluster of Portolan; join the cluster by another name")]
    ReservedName,
    #[error(
        "the credential type Dynamic is not supported, because it runs a command; use X509Certificate or ServiceAccountToken"
    )]
    Dynamic,
    #[error("unknown credential type {0:?}; use X509Certificate or ServiceAccountToken")]
    UnknownType(String),
    #[error("unknown endpoint type {0:?}; use Const or ClusterProxy")]
    UnknownEndpointType(String),
    #[error("the Secret has no {0}; add it")]
    Missing(&'static str),
    #[error("{key} is larger than {limit} bytes; check its value")]
    TooLarge { key: &'static str, limit: usize },
    #[error("{0} is not text; check its value")]
    NotText(&'static str),
    #[error("endpoint is not the URL of an API server: {0}; use https://HOST:PORT")]
    InvalidEndpoint(String),
    #[error(
        "endpoint is not https, so the credential could be read on its way; use https, or --allow-insecure-clusters"
    )]
    PlainHttp,
    #[error(
        "the Secret has no ca.crt, so the certificate of the API server is not verified; add it, or use --allow-insecure-clusters"
    )]
    Unverified,
    #[error("proxy-url is not the URL of an HTTP proxy: {0}; use http://HOST:PORT")]
    InvalidProxy(String),
}

impl ClusterAccess {
    /// `allow_insecure` accepts servers that are not verified, as cluster-gateway does.
    pub fn parse(secret: &Secret, allow_insecure: bool) -> Result<Self, CredentialError> {
        if secret.name_any() == LOCAL {
            return Err(CredentialError::ReservedName);
        }
        match secret.labels().get(ENDPOINT_TYPE).map_or("Const", String::as_str) {
            "Const" => {
                let credential = ClusterCredential::parse(secret, allow_insecure)?;
                Ok(Self::Direct(Box::new(credential)))
            }
            CLUSTER_PROXY => Ok(Self::Gateway),
            other => Err(CredentialError::UnknownEndpointType(sanitize(other))),
        }
    }
}

impl ClusterCredential {
    fn parse(secret: &Secret, allow_insecure: bool) -> Result<Self, CredentialError> {
        let mut access = credential(secret)?;
        let endpoint = endpoint(secret)?;
        if endpoint.scheme() != "https" && !allow_insecure {
            return Err(CredentialError::PlainHttp);
        }
        match authority(secret)? {
            // The authorities of the system count, as for cluster-gateway.
            Some([]) => {}
            Some(pem) => access.ca = Some(pem.to_vec()),
            None if allow_insecure => access.insecure = true,
            None => return Err(CredentialError::Unverified),
        }
        access.proxies = proxies(secret)?;
        access.scope = Some(endpoint.clone());
        Ok(Self { endpoint, access })
    }
}

fn credential(secret: &Secret) -> Result<Access, CredentialError> {
    let type_ = secret.labels().get(CREDENTIAL_TYPE).map_or("", String::as_str);
    match type_ {
        X509_CERTIFICATE => {
            let pair = format!(
                "{}\n{}",
                text(secret, CERTIFICATE, MAX_PEM)?,
                text(secret, KEY, MAX_PEM)?
            );
            Ok(Access {
                client_certificate: Some(Sensitive::new(pair)),
                ..Access::default()
            })
        }
        SERVICE_ACCOUNT_TOKEN => Ok(Access {
            authorization: Some(Sensitive::new(format!("Bearer {}", text(secret, TOKEN, MAX_TOKEN)?))),
            ..Access::default()
        }),
        "Dynamic" => Err(CredentialError::Dynamic),
        other => Err(CredentialError::UnknownType(sanitize(other))),
    }
}

fn endpoint(secret: &Secret) -> Result<Url, CredentialError> {
    let invalid = |problem: &str| Err(CredentialError::InvalidEndpoint(problem.to_owned()));
    let url = match Url::parse(text(secret, ENDPOINT, MAX_URL)?) {
        Ok(url) => url,
        Err(error) => return invalid(&error.to_string()),
    };
    match url.scheme() {
        "https" | "http" => {}
        _ => return invalid("its scheme is not https"),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return invalid("it contains a user name");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return invalid("it contains a query or a fragment");
    }
    Ok(url)
}

fn authority(secret: &Secret) -> Result<Option<&[u8]>, CredentialError> {
    let present = AUTHORITIES.into_iter().find_map(|key| Some((key, value(secret, key)?)));
    present.map(|(key, pem)| limited(key, pem, MAX_PEM)).transpose()
}

fn proxies(secret: &Secret) -> Result<Option<Proxies>, CredentialError> {
    let invalid = |problem: &str| Err(CredentialError::InvalidProxy(problem.to_owned()));
    if value(secret, PROXY).is_none_or(<[u8]>::is_empty) {
        return Ok(None);
    }
    let proxy = text(secret, PROXY, MAX_URL)?;
    match Url::parse(proxy) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(Some(Proxies {
            http: Some(proxy.to_owned()),
            https: Some(proxy.to_owned()),
            no_proxy: None,
        })),
        Ok(_) => invalid("its scheme is not http or https"),
        Err(error) => invalid(&error.to_string()),
    }
}

/// Returns a value that is needed, without the line break that `echo` appends.
fn text<'a>(secret: &'a Secret, key: &'static str, limit: usize) -> Result<&'a str, CredentialError> {
    let bytes = limited(key, value(secret, key).unwrap_or_default(), limit)?;
    match std::str::from_utf8(bytes).map(str::trim) {
        Ok("") => Err(CredentialError::Missing(key)),
        Ok(text) => Ok(text),
        Err(_) => Err(CredentialError::NotText(key)),
    }
}

fn limited<'a>(key: &'static str, bytes: &'a [u8], limit: usize) -> Result<&'a [u8], CredentialError> {
    if bytes.len() > limit {
        return Err(CredentialError::TooLarge { key, limit });
    }
    Ok(bytes)
}

fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    let data = secret.data.as_ref()?;
    data.get(key).map(|value| value.0.as_slice())
}
