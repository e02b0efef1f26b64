//! The outbound HTTP client: limits, SSRF policy, redirects, proxies, credentials, spooling.
//!
//! An [`HttpTransport`] has the SSRF policy, proxies and credentials only.
//!
//! ```text
//!  with(Access) ─► separate client, if TLS or proxies differ
//!
//!  get, send, exchange ─► URL: address policy ─► host: backoff, permit, rate limit ─► credentials of this hop
//!                                              │
//!           resolver: address policy ◄─ request ─┬─ 3xx ─► next hop, from the beginning
//!                                                ├─ 304 ─► NotModified
//!                                                ├─ 429, 503 + Retry-After ─► backoff of the repository, its namespace or the host
//!                                                └─ 200 ─► chunks ─► limit, gunzip, limit, SHA-256, spool ─► Body
//! ```

mod address;
mod body;
mod clients;
pub mod credentials;
mod download;
pub mod encoded;
mod error;
mod exchange;
mod host_credentials;
mod hosts;
mod proxy;
mod request;
mod request_loop;
mod retry_after;
pub mod secret;
#[cfg(test)]
pub(crate) mod tests;
mod tracker;
mod url;

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::url::Url;
pub use address::API_SERVER;
use address::{ApiServer, HostLookup, Policy, system_lookup};
pub use body::Body;
use body::SpoolSpace;
use clients::Clients;
pub use clients::HttpTransport;
pub use error::FetchError;
pub use exchange::{Exchange, Exchanged, ResponseHead};
use host_credentials::HostRequester;
pub use host_credentials::{Access, RequesterDigest};
use hosts::{HostLimits, Hosts};
pub use proxy::Proxies;
use proxy::ProxyConfig;
pub use request::{Authorization, Request, Response};
use reqwest::StatusCode;
pub use tracker::{InFlight, RequestTracker};
pub use url::index_url;

use crate::budget::{Budget, Budgets, ResourceMetrics};
use crate::text::public_url;
pub use encoded::percent_decoded;
use secret::Secret;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FetchLimits {
    /// Applies before and after decompression.
    pub max_bytes: u64,
    /// Timeout of connecting, including DNS and TLS.
    pub connect: Duration,
    /// Time within which a response begins, and within which each 1 KiB per second of its body arrives.
    pub stall: Duration,
    /// Timeout of the fetch, including redirects and the rate limit.
    pub total: Duration,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self {
            max_bytes: 100 * 1024 * 1024,
            connect: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            total: Duration::from_secs(180),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub user_agent: String,
    /// Directory of bodies larger than 64 KiB. Defaults to the system's temporary directory.
    pub spool_dir: Option<PathBuf>,
    /// Bytes of all bodies.
    pub spool: Budget,
    /// Rate limit per host.
    pub requests_per_second: NonZeroU32,
    pub burst: NonZeroU32,
    /// Limit per host of requests whose bodies are not fully read. A namespace gets half of it while another waits.
    pub max_concurrent_requests: NonZeroU32,
    /// Metrics of the requests in flight to all hosts.
    pub request_metrics: ResourceMetrics,
    /// Allows connections to non-public addresses, except link-local addresses and metadata services.
    pub allow_private_networks: bool,
    /// Allows connections to loopback and unspecified addresses, if private networks are allowed too.
    pub allow_loopback: bool,
}

impl Default for Settings {
    fn default() -> Self {
        const fn number(value: u32) -> NonZeroU32 {
            match NonZeroU32::new(value) {
                Some(number) => number,
                None => NonZeroU32::MIN,
            }
        }
        Self {
            user_agent: user_agent(""),
            spool_dir: None,
            spool: Budgets::default().spool,
            requests_per_second: number(50),
            burst: number(100),
            max_concurrent_requests: number(8),
            request_metrics: ResourceMetrics::unregistered(),
            allow_private_networks: true,
            allow_loopback: true,
        }
    }
}

/// Returns the value of the `User-Agent` header. An empty `comment` is omitted.
#[must_use]
pub fn user_agent(comment: &str) -> String {
    let name = concat!("portolan/", env!("CARGO_PKG_VERSION"));
    if comment.is_empty() {
        name.to_owned()
    } else {
        format!("{name} ({comment})")
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validators {
    pub etag: Option<String>,
    pub last_modified: Option<String>,
}

#[derive(Debug, Clone)]
pub enum Fetched {
    /// The body is unchanged since the validators were issued.
    NotModified,
    Body(Body),
}

/// Clones share connections and limits.
///
/// The address policy applies to resolved names, and to the URL of each hop. A proxy resolves names itself, so only the
/// URL is checked then. Proxies of the environment may have private addresses, because the operator chose them.
#[derive(Debug, Clone)]
pub struct Fetcher(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    spool: SpoolSpace,
    hosts: Arc<Hosts>,
    /// Clients of repositories without their own TLS or proxy settings.
    shared: Arc<Clients>,
    clients: Arc<Clients>,
    requester: HostRequester,
    access: Access,
}

impl Fetcher {
    pub fn new(settings: Settings) -> Result<Self, FetchError> {
        let environment = ProxyConfig::from_environment(|name| std::env::var(name).ok())?;
        Self::build(settings, system_lookup(), environment)
    }

    fn build(settings: Settings, lookup: HostLookup, environment: ProxyConfig) -> Result<Self, FetchError> {
        install_crypto_provider();
        let hosts = Hosts::new(HostLimits {
            requests_per_second: settings.requests_per_second,
            burst: settings.burst,
            max_concurrent_requests: settings.max_concurrent_requests,
            metrics: settings.request_metrics,
        });
        let policy = Policy {
            allow_private_networks: settings.allow_private_networks,
            allow_loopback: settings.allow_loopback,
            api_server: Arc::default(),
        };
        let clients = Arc::new(Clients::new(settings.user_agent, policy, lookup, environment)?);
        Ok(Self(Arc::new(Inner {
            spool: SpoolSpace {
                directory: settings.spool_dir,
                budget: settings.spool,
            },
            hosts: Arc::new(hosts),
            shared: Arc::clone(&clients),
            clients,
            requester: HostRequester::default(),
            access: Access::default(),
        })))
    }

    /// Returns a fetcher that does not connect to the API server at these hosts and ports. Names are resolved now.
    pub async fn without_api_server(&self, endpoints: Vec<(String, u16)>) -> Self {
        let mut api_server = ApiServer::default();
        for (host, port) in endpoints {
            let host = host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
            // Without an answer, the name itself is still refused.
            let addresses = tokio::net::lookup_host((host.as_str(), port)).await;
            api_server.addresses.extend(addresses.into_iter().flatten());
            api_server.names.push((host, port));
        }
        self.with_policy(Policy {
            api_server: Arc::new(api_server),
            ..self.0.shared.policy().clone()
        })
    }

    /// Returns a fetcher that connects to private networks, or doesn't. Its requests count toward the limits of this one.
    #[must_use]
    pub fn with_private_networks(&self, are_allowed: bool) -> Self {
        self.with_policy(Policy {
            allow_private_networks: are_allowed,
            ..self.0.shared.policy().clone()
        })
    }

    fn with_policy(&self, policy: Policy) -> Self {
        let clients = Arc::new(self.0.shared.with_policy(policy));
        Self(Arc::new(Inner {
            spool: self.0.spool.clone(),
            hosts: Arc::clone(&self.0.hosts),
            shared: Arc::clone(&clients),
            clients,
            requester: HostRequester::default(),
            access: Access::default(),
        }))
    }

    /// Shares connections and host limits with all repositories that have the same TLS and proxy settings.
    pub fn with(&self, access: Access) -> Result<Self, FetchError> {
        access.check()?;
        let separate = self.0.shared.for_access(&access)?.map(Arc::new);
        Ok(Self(Arc::new(Inner {
            spool: self.0.spool.clone(),
            hosts: Arc::clone(&self.0.hosts),
            shared: Arc::clone(&self.0.shared),
            clients: separate.unwrap_or_else(|| Arc::clone(&self.0.shared)),
            requester: access.host_requester(),
            access,
        })))
    }

    #[must_use]
    pub fn tracker(&self) -> &RequestTracker {
        &self.0.access.tracker
    }

    /// Returns a digest of the credentials and connection settings. Equal requesters get equal responses.
    #[must_use]
    pub fn requester(&self) -> RequesterDigest {
        self.0.access.requester()
    }

    /// Returns the credentials allowed for `url`. The OCI client sends them to a token server.
    #[must_use]
    pub(crate) fn credentials_for(&self, url: &Url) -> Option<Secret> {
        self.0.access.credentials_for(url)
    }

    /// Fetches `url`, conditionally if there are validators.
    pub async fn get(
        &self,
        url: &Url,
        validators: Option<&Validators>,
        limits: &FetchLimits,
    ) -> Result<Fetched, FetchError> {
        let request = Request {
            validators: validators.cloned(),
            ..Request::new(url.clone())
        };
        let response = self.send(&request, limits).await?;
        Ok(match response.status {
            StatusCode::NOT_MODIFIED => Fetched::NotModified,
            _ => Fetched::Body(response.body),
        })
    }

    /// The caller decides if the path may be read. Copies it, so that it cannot change between hash and decoding.
    pub async fn read_file(&self, path: &Path, limits: &FetchLimits) -> Result<Body, FetchError> {
        body::read_file(path, &self.0.spool, &self.0.access.namespace, limits).await
    }

    /// Follows redirects. Any status except 200, and 304 for conditional requests, is a [`FetchError::Status`].
    pub async fn send(&self, request: &Request, limits: &FetchLimits) -> Result<Response, FetchError> {
        let timeout = |_| FetchError::Timeout {
            url: public_url(&request.url),
            limit: limits.total,
        };
        tokio::select! {
            sent = tokio::time::timeout(limits.total, self.0.follow(request, limits)) => sent.map_err(timeout)?,
            () = self.0.access.tracker.aborted() => Err(FetchError::Aborted(public_url(&request.url))),
        }
    }
}

/// Installs the process-wide TLS provider. Idempotent; call it before the first client is built.
pub fn install_crypto_provider() {
    // Fails only when a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
