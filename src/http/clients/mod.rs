//! reqwest clients of a fetcher: one for each connect timeout and proxy.

mod transport;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::url::Url;
use parking_lot::Mutex;
use reqwest::{Certificate, Identity};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::address::{HostLookup, Policy, Resolver};
use super::error::{FetchError, root_cause};
use super::host_credentials::Access;
use super::proxy::{ProxyConfig, Scheme};
use super::secret::Secret;
pub use transport::HttpTransport;

/// Clients with the same TLS and proxy settings.
pub(super) struct Clients {
    user_agent: String,
    lookup: HostLookup,
    policy: Policy,
    /// Trusted in addition to the system's.
    roots: Vec<Certificate>,
    identity: Option<Identity>,
    insecure: bool,
    proxies: Arc<ProxyConfig>,
    /// Applies to the addresses of the proxies.
    proxy_policy: Policy,
    cache: Mutex<HashMap<ClientKey, reqwest::Client>>,
}

/// Watches of the Kubernetes API are silent for up to 290 s.
const TRANSPORT_READ_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ClientKey {
    /// True for clients of an [`HttpTransport`].
    is_transport: bool,
    connect: Duration,
    proxy: Option<Scheme>,
    /// The port to connect to, if it is a port of the API server.
    api_server_port: Option<u16>,
}

impl Clients {
    /// Returns the clients that repositories share by default.
    pub(super) fn new(
        user_agent: String,
        policy: Policy,
        lookup: HostLookup,
        environment: ProxyConfig,
    ) -> Result<Self, FetchError> {
        let clients = Self {
            user_agent,
            lookup,
            policy,
            roots: Vec::new(),
            identity: None,
            insecure: false,
            proxies: Arc::new(environment),
            // The operator chose these proxies.
            proxy_policy: Policy::default(),
            cache: Mutex::default(),
        };
        // Reports invalid settings at startup.
        let key = ClientKey {
            is_transport: false,
            connect: super::FetchLimits::default().connect,
            proxy: None,
            api_server_port: None,
        };
        let direct = clients.build(key, None)?;
        clients.insert(key, direct);
        Ok(clients)
    }

    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(super) fn with_policy(&self, policy: Policy) -> Self {
        Self {
            user_agent: self.user_agent.clone(),
            lookup: Arc::clone(&self.lookup),
            policy,
            roots: self.roots.clone(),
            identity: self.identity.clone(),
            insecure: self.insecure,
            proxies: Arc::clone(&self.proxies),
            proxy_policy: self.proxy_policy.clone(),
            cache: Mutex::default(),
        }
    }

    /// Returns the clients of a repository, or `None` if it uses the default TLS and proxy settings.
    pub(super) fn for_access(&self, access: &Access) -> Result<Option<Self>, FetchError> {
        if access.transport_key().is_none() {
            return Ok(None);
        }
        let roots = access
            .ca
            .as_deref()
            .map(parse_ca)
            .transpose()
            .map_err(FetchError::InvalidCa)?
            .unwrap_or_default();
        let (proxies, proxy_policy) = match &access.proxies {
            None => (Arc::clone(&self.proxies), self.proxy_policy.clone()),
            Some(proxies) => (
                Arc::new(ProxyConfig::from_repository(proxies, &self.policy)?),
                self.policy.clone(),
            ),
        };
        Ok(Some(Self {
            user_agent: self.user_agent.clone(),
            lookup: Arc::clone(&self.lookup),
            policy: self.policy.clone(),
            roots,
            identity: access.client_certificate.as_ref().map(parse_identity).transpose()?,
            insecure: access.insecure,
            proxies,
            proxy_policy,
            cache: Mutex::default(),
        }))
    }

    /// Returns the client and the proxy of a URL, after checking the URL's literal address.
    pub(super) async fn for_url(
        self: &Arc<Self>,
        url: &Url,
        connect: Duration,
    ) -> Result<(reqwest::Client, Option<&Url>), FetchError> {
        self.client(url, connect, false).await
    }

    /// Clients of transports are separate. Their custom authorities replace those of the system.
    async fn client(
        self: &Arc<Self>,
        url: &Url,
        connect: Duration,
        is_transport: bool,
    ) -> Result<(reqwest::Client, Option<&Url>), FetchError> {
        self.policy.check_url(url)?;
        let (scheme, proxy) = self.proxies.proxy_for(url).unzip();
        // With a proxy, the client connects to the proxy only.
        let port = proxy.unwrap_or(url).port_or_known_default();
        let policy = if proxy.is_some() {
            &self.proxy_policy
        } else {
            &self.policy
        };
        let key = ClientKey {
            is_transport,
            connect,
            proxy: scheme,
            api_server_port: port.filter(|port| policy.api_server.has_port(*port)),
        };
        if let Some(client) = self.cache.lock().get(&key) {
            return Ok((client.clone(), proxy));
        }
        // Building a client reads the system's certificates from disk.
        let (clients, proxy_url) = (Arc::clone(self), proxy.cloned());
        let built = tokio::task::spawn_blocking(move || clients.build(key, proxy_url.as_ref())).await;
        let client = built.map_err(|error| FetchError::Client(error.to_string()))??;
        Ok((self.insert(key, client), proxy))
    }

    /// Returns the first client inserted for the key, so that all requests share its connections.
    fn insert(&self, key: ClientKey, client: reqwest::Client) -> reqwest::Client {
        /// Repositories may set their own timeouts, so the number of keys must be bounded.
        const MAX_CLIENTS: usize = 16;
        let mut cache = self.cache.lock();
        if cache.len() >= MAX_CLIENTS && !cache.contains_key(&key) {
            cache.clear();
        }
        cache.entry(key).or_insert(client).clone()
    }

    fn build(&self, key: ClientKey, proxy: Option<&Url>) -> Result<reqwest::Client, FetchError> {
        let failed = |error: reqwest::Error| FetchError::Client(root_cause(&error));
        let proxy = proxy.map(|url| reqwest::Proxy::all(url.clone()));
        let proxy = proxy.transpose().map_err(failed)?;
        let policy = proxy.as_ref().map_or(&self.policy, |_| &self.proxy_policy);
        let resolver = Arc::new(Resolver {
            lookup: Arc::clone(&self.lookup),
            policy: policy.clone(),
            api_server_port: key.api_server_port,
        });
        let builder = || {
            // Prevents reqwest from reading the environment itself.
            let builder = reqwest::Client::builder().no_proxy();
            let proxies = proxy.clone().into_iter();
            let builder = proxies.fold(builder, reqwest::ClientBuilder::proxy);
            let identity = self.identity.clone().into_iter();
            let builder = identity.fold(builder, reqwest::ClientBuilder::identity);
            let builder = if key.is_transport {
                // Watches of one HTTP/2 connection would share its limit of streams.
                builder.http1_only().read_timeout(TRANSPORT_READ_TIMEOUT)
            } else {
                builder
            };
            builder
                .user_agent(&self.user_agent)
                .redirect(reqwest::redirect::Policy::none())
                .referer(false)
                .connect_timeout(key.connect)
                .dns_resolver(Arc::clone(&resolver))
                .tls_danger_accept_invalid_certs(self.insecure)
        };
        if key.is_transport && !self.roots.is_empty() {
            return builder().tls_certs_only(self.roots.clone()).build().map_err(failed);
        }
        // Without any system certificates, plain HTTP must still work.
        builder()
            .tls_certs_merge(self.roots.clone())
            .build()
            .or_else(|_| builder().tls_certs_only(self.roots.clone()).build())
            .map_err(failed)
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients")
            .field("policy", &self.policy)
            .field("roots", &self.roots.len())
            .field("insecure", &self.insecure)
            .field("proxies", &self.proxies)
            .finish_non_exhaustive()
    }
}

/// The parser's message may quote the key.
fn parse_identity(pem: &Secret) -> Result<Identity, FetchError> {
    let identity = Identity::from_pem(pem.expose().as_bytes());
    identity.map_err(|_| FetchError::Client("the client certificate or its key is not valid PEM".to_owned()))
}

/// Parses a PEM bundle. The error is a predicate for [`FetchError::InvalidCa`].
fn parse_ca(pem: &[u8]) -> Result<Vec<Certificate>, String> {
    let mut certificates = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| "has an invalid PEM section".to_owned())?;
        // reqwest reports an invalid certificate only when the client is built.
        RootCertStore::empty()
            .add(certificate.clone())
            .map_err(|_| "contains an invalid certificate".to_owned())?;
        let certificate =
            Certificate::from_der(&certificate).map_err(|_| "contains an unsupported certificate".to_owned())?;
        certificates.push(certificate);
    }
    if certificates.is_empty() {
        return Err("contains no certificate".to_owned());
    }
    Ok(certificates)
}
