//! Connection settings of a repository, and the scope of its credentials.

use std::fmt;

use ::url::Url;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::HeaderValue;
use sha2::{Digest as _, Sha256};

use super::encoded::percent_decoded;
use super::error::FetchError;
use super::proxy::Proxies;
use super::request::{Authorization, Request};
use super::secret::Secret;
use super::tracker::RequestTracker;
use super::url::UrlOrigin;
use crate::text::public_url;

/// The credentials are `authorization` or else the user information of `scope`. They are sent only to the origin of
/// `scope` unless `pass_credentials` is set, and never from `https` to plain `http`.
#[derive(Clone, Default)]
pub struct Access {
    pub authorization: Option<Secret>,
    /// URL of the repository; `oci` counts as `https`. Without it, credentials need `pass_credentials`.
    pub scope: Option<Url>,
    /// Sends the credentials to all hosts, as Helm's `--pass-credentials` does.
    pub pass_credentials: bool,
    /// Additional certificate authorities in PEM.
    pub ca: Option<Vec<u8>>,
    /// Certificate and key of this client in PEM.
    pub client_certificate: Option<Secret>,
    pub insecure: bool,
    /// Replaces the proxies of the environment.
    pub proxies: Option<Proxies>,
    /// Namespace of the repository. Spooled bytes are charged to it, and namespaces share the limits of a host fairly.
    pub namespace: String,
    pub repository: String,
    pub tracker: RequestTracker,
}

impl Access {
    fn credentials(&self) -> Option<Secret> {
        let user_info = || self.scope.as_ref().and_then(basic_credentials);
        self.authorization.clone().or_else(user_info)
    }

    pub(super) fn credentials_for(&self, url: &Url) -> Option<Secret> {
        let scope = self.scope.as_ref().and_then(UrlOrigin::of);
        let is_in_scope = scope.is_some() && scope == UrlOrigin::of(url);
        self.credentials().filter(|_| is_in_scope || self.pass_credentials)
    }

    /// Rejects credentials that are not a valid header.
    pub(super) fn check(&self) -> Result<(), FetchError> {
        self.authorization.as_ref().map(header).transpose().map(drop)
    }

    /// Returns `None` for the default TLS and proxy settings.
    pub(super) fn transport_key(&self) -> Option<TransportKey> {
        let has_own_tls = self.ca.is_some() || self.client_certificate.is_some() || self.insecure;
        if !has_own_tls && self.proxies.is_none() {
            return None;
        }
        let proxies = self.proxies.as_ref();
        let text = |text: Option<&String>| text.map(|text| text.clone().into_bytes());
        Some(TransportKey(digest([
            self.ca.clone(),
            self.client_certificate
                .as_ref()
                .map(|pem| pem.expose().as_bytes().to_vec()),
            self.insecure.then(Vec::new),
            proxies.map(|_| Vec::new()),
            text(proxies.and_then(|proxies| proxies.http.as_ref())),
            text(proxies.and_then(|proxies| proxies.https.as_ref())),
            text(proxies.and_then(|proxies| proxies.no_proxy.as_ref())),
        ])))
    }

    pub(super) fn host_requester(&self) -> HostRequester {
        let credentials = self.credentials();
        HostRequester {
            transport: self.transport_key(),
            namespace: self.namespace.clone(),
            repository: self.repository.clone(),
            credentials: credentials.map(|secret| digest([Some(secret.expose().as_bytes().to_vec())])),
        }
    }

    pub(super) fn requester(&self) -> RequesterDigest {
        let bytes = |text: &str| text.as_bytes().to_vec();
        RequesterDigest(digest([
            self.transport_key().map(|TransportKey(digest)| digest.to_vec()),
            self.authorization.as_ref().map(|secret| bytes(secret.expose())),
            self.scope.as_ref().map(|scope| bytes(scope.as_str())),
            self.pass_credentials.then(Vec::new),
        ]))
    }
}

/// Digest of a repository's own TLS and proxy settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TransportKey([u8; 32]);

#[cfg(test)]
impl TransportKey {
    pub(super) const fn of_test(number: u8) -> Self {
        Self([number; 32])
    }
}

/// The sender of requests to a host. Limits and backoffs of the host depend on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct HostRequester {
    /// `None` for the default TLS and proxy settings.
    pub(super) transport: Option<TransportKey>,
    pub(super) namespace: String,
    pub(super) repository: String,
    /// Digest of the credentials.
    pub(super) credentials: Option<[u8; 32]>,
}

/// Digest of credentials and connection settings. Never stored, because it depends on secrets.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RequesterDigest([u8; 32]);

fn digest<const FIELDS: usize>(fields: [Option<Vec<u8>>; FIELDS]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for field in fields {
        // The length makes the encoding unambiguous.
        match field {
            None => hash.update([0]),
            Some(bytes) => {
                hash.update([1]);
                hash.update((bytes.len() as u64).to_le_bytes());
                hash.update(bytes);
            }
        }
    }
    hash.finalize().into()
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("authorization", &self.authorization)
            .field("scope", &self.scope.as_ref().map(public_url))
            .field("pass_credentials", &self.pass_credentials)
            .field("ca_bytes", &self.ca.as_ref().map(Vec::len))
            .field("client_certificate", &self.client_certificate)
            .field("insecure", &self.insecure)
            .field("proxies", &self.proxies)
            .finish()
    }
}

/// Selects the `Authorization` header for each hop of a request.
#[derive(Debug)]
pub(super) struct Credentials {
    repository: Option<HeaderValue>,
    repository_origin: Option<UrlOrigin>,
    pass_credentials: bool,
    /// User information of the request's URL or its explicit token.
    request: Option<HeaderValue>,
    request_origin: Option<UrlOrigin>,
    /// True once the repository's URL or a previous hop used TLS.
    has_used_tls: bool,
}

impl Credentials {
    pub(super) fn new(access: &Access, request: &Request) -> Result<Self, FetchError> {
        let repository_origin = access.scope.as_ref().and_then(UrlOrigin::of);
        let (repository_header, request_header) = match &request.authorization {
            Authorization::None => (None, None),
            Authorization::Bearer(token) => (None, Some(Secret::new(format!("Bearer {}", token.expose())))),
            Authorization::Header(value) => (None, Some(value.clone())),
            Authorization::FromAccess => (access.credentials(), basic_credentials(&request.url)),
        };
        Ok(Self {
            repository: repository_header.as_ref().map(header).transpose()?,
            has_used_tls: repository_origin.as_ref().is_some_and(UrlOrigin::is_https),
            repository_origin,
            pass_credentials: access.pass_credentials,
            request: request_header.as_ref().map(header).transpose()?,
            request_origin: UrlOrigin::of(&request.url),
        })
    }

    /// Returns the header of the next hop. Call it once per hop, in order.
    pub(super) fn for_hop(&mut self, url: &Url) -> Option<HeaderValue> {
        let hop = UrlOrigin::of(url)?;
        let repository = self.repository.as_ref().filter(|_| {
            // An origin includes the scheme, so only `pass_credentials` could downgrade to plain http.
            let is_downgrade = self.has_used_tls && !hop.is_https();
            self.repository_origin.as_ref() == Some(&hop) || (self.pass_credentials && !is_downgrade)
        });
        self.has_used_tls |= hop.is_https();
        let request = self.request.as_ref();
        let request = request.filter(|_| self.request_origin.as_ref() == Some(&hop));
        repository.or(request).cloned()
    }
}

pub(super) fn basic_credentials(url: &Url) -> Option<Secret> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let mut pair = percent_decoded(url.username());
    pair.push(b':');
    pair.extend(percent_decoded(url.password().unwrap_or_default()));
    Some(Secret::new(format!("Basic {}", BASE64_STANDARD.encode(pair))))
}

/// Returns a sensitive header value, which reqwest does not log.
pub(super) fn header(secret: &Secret) -> Result<HeaderValue, FetchError> {
    let mut value = HeaderValue::from_str(secret.expose()).map_err(|_| FetchError::InvalidCredentials)?;
    value.set_sensitive(true);
    Ok(value)
}
