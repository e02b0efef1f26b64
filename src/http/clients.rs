//! The HTTP clients behind a fetcher: one for each way to connect.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::url::Url;
use parking_lot::Mutex;
use reqwest::Certificate;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::address::Policy;
use super::error::FetchError;
use super::host_credentials::Access;
use super::proxy::{Routes, Scheme};
use super::resolve::{Lookup, Resolver};

/// The clients that share TLS and proxies.
pub(super) struct Clients {
    user_agent: String,
    lookup: Lookup,
    policy: Policy,
    /// Trusted beside the system's.
    roots: Vec<Certificate>,
    insecure: bool,
    proxies: Arc<Routes>,
    /// Holds for the proxies themselves.
    proxy_policy: Policy,
    made: Mutex<HashMap<Way, reqwest::Client>>,
}

/// What a client fixes: how long connecting may take, which is the limit of a fetch, and its proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Way {
    connect: Duration,
    proxy: Option<Scheme>,
}

impl Clients {
    /// Those that all repositories share.
    pub(super) fn new(
        user_agent: String,
        policy: Policy,
        lookup: Lookup,
        environment: Routes,
    ) -> Result<Self, FetchError> {
        let clients = Self {
            user_agent,
            lookup,
            policy,
            roots: Vec::new(),
            insecure: false,
            proxies: Arc::new(environment),
            // The operator has chosen them.
            proxy_policy: Policy {
                allow_private_networks: true,
            },
            made: Mutex::default(),
        };
        // What can't be used is told at once.
        let connect = super::Limits::default().connect;
        let direct = clients.build(connect, None)?;
        clients.keep(Way { connect, proxy: None }, direct);
        Ok(clients)
    }

    /// Those of one repository, or none if it needs nothing of its own.
    pub(super) fn of(&self, access: &Access) -> Result<Option<Self>, FetchError> {
        if access.identity().is_none() {
            return Ok(None);
        }
        let own_roots = access.ca.as_deref().map(authorities).transpose();
        let own_roots = own_roots.map_err(FetchError::InvalidCa)?.unwrap_or_default();
        let (proxies, proxy_policy) = match &access.proxies {
            None => (Arc::clone(&self.proxies), self.proxy_policy),
            Some(proxies) => (Arc::new(Routes::of_repository(proxies, self.policy)?), self.policy),
        };
        Ok(Some(Self {
            user_agent: self.user_agent.clone(),
            lookup: Arc::clone(&self.lookup),
            policy: self.policy,
            roots: own_roots,
            insecure: access.insecure,
            proxies,
            proxy_policy,
            made: Mutex::default(),
        }))
    }

    /// The client for a URL, and the proxy that it asks. Refuses a URL whose address may not be reached, as far as the
    /// URL shows it; the client's resolver refuses the others, unless a proxy resolves the name.
    pub(super) async fn for_url(
        self: &Arc<Self>,
        url: &Url,
        connect: Duration,
    ) -> Result<(reqwest::Client, Option<&Url>), FetchError> {
        self.policy.check_url(url)?;
        let (scheme, proxy) = self.proxies.of(url).unzip();
        let way = Way { connect, proxy: scheme };
        if let Some(client) = self.made.lock().get(&way) {
            return Ok((client.clone(), proxy));
        }
        // It reads the system's certificates, for which nobody else should have to wait.
        let (clients, own_proxy) = (Arc::clone(self), proxy.cloned());
        let built = tokio::task::spawn_blocking(move || clients.build(connect, own_proxy.as_ref())).await;
        let client = built.map_err(|error| FetchError::Client(error.to_string()))??;
        Ok((self.keep(way, client), proxy))
    }

    /// The client that was made first for this way, so that all use its connections.
    fn keep(&self, way: Way, client: reqwest::Client) -> reqwest::Client {
        /// Limits may be set for one repository; so many different ones are not of good will.
        const KEPT_CLIENTS: usize = 16;
        let mut made = self.made.lock();
        if made.len() >= KEPT_CLIENTS && !made.contains_key(&way) {
            made.clear();
        }
        made.entry(way).or_insert(client).clone()
    }

    /// No panic can leave the map half changed.
    fn build(&self, connect: Duration, proxy: Option<&Url>) -> Result<reqwest::Client, FetchError> {
        let failed = |error: reqwest::Error| FetchError::Client(super::connect_error::innermost(&error));
        let proxy = proxy
            .map(|url| reqwest::Proxy::all(url.clone()))
            .transpose()
            .map_err(failed)?;
        let policy = if proxy.is_some() {
            self.proxy_policy
        } else {
            self.policy
        };
        let resolver = Arc::new(Resolver {
            lookup: Arc::clone(&self.lookup),
            policy,
        });
        let builder = || {
            // The client would read the environment by itself.
            let builder = reqwest::Client::builder().no_proxy();
            let builder = match &proxy {
                None => builder,
                Some(proxy) => builder.proxy(proxy.clone()),
            };
            builder
                .user_agent(&self.user_agent)
                .redirect(reqwest::redirect::Policy::none())
                .referer(false)
                .connect_timeout(connect)
                .dns_resolver(Arc::clone(&resolver))
                .tls_danger_accept_invalid_certs(self.insecure)
        };
        // Where the system has no certificate authorities at all, plain HTTP must still do.
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

/// The certificates of a PEM bundle; or what is wrong with it, to stand behind its name.
fn authorities(pem: &[u8]) -> Result<Vec<Certificate>, String> {
    let mut certificates = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| "has a section whose PEM is broken".to_owned())?;
        // The client would tell of a certificate that can't be read only when it is built, among other things.
        RootCertStore::empty()
            .add(certificate.clone())
            .map_err(|_| "holds a certificate that can't be read".to_owned())?;
        let certificate = Certificate::from_der(&certificate).map_err(|_| "can't be used".to_owned())?;
        certificates.push(certificate);
    }
    if certificates.is_empty() {
        return Err("holds no certificate".to_owned());
    }
    Ok(certificates)
}
