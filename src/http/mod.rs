//! The guarded HTTP client: whatever is fetched from outside is bounded in bytes and time, asked for no oftener than its
//! host can bear, and fails with an error that says what to do.
//!
//! ```text
//!  with(Access) ─► own client, if TLS or proxies differ
//!
//!  get, send ─► URL: address? ─► host: hold? turn, rate ─► credentials of this hop
//!                                            │
//!               resolver: addresses? ◄─ request ─┬─ 3xx ─► next hop, from the beginning
//!                                                ├─ 304 ─► NotModified
//!                                                ├─ 429, 503 + Retry-After ─► the host goes on hold
//!                                                └─ 200 ─► chunks ─► cap, gunzip, cap, SHA-256, spool ─► Body
//! ```

mod address;
mod body;
mod clients;
mod connect_error;
pub mod credentials;
mod download;
pub mod encoded;
mod error;
mod host_credentials;
mod no_proxy;
mod proxy;
mod rate_limit;
mod request;
mod request_loop;
mod resolve;
mod retry_after;
pub mod secret;
pub mod spool;
#[cfg(test)]
pub(crate) mod tests;
mod url;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::url::Url;
use address::Policy;
pub use body::{Body, read_file};
use clients::Clients;
pub use error::FetchError;
use host_credentials::Identity;
pub use host_credentials::{Access, Requester};
pub use proxy::Proxies;
use proxy::Routes;
use rate_limit::{HostLimits, Hosts};
pub use request::{Answer, Authorization, Request};
use reqwest::StatusCode;
use resolve::Lookup;
pub use url::index_url;

use crate::text::public_url;
pub use encoded::percent_decoded;
use secret::Secret;

/// Bounds of one fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Bytes of the body, before and after decompression.
    pub max_bytes: u64,
    /// For a connection to come about, DNS and TLS included.
    pub connect: Duration,
    /// For which nothing may come.
    pub stall: Duration,
    /// For all of it, redirects and waiting for a turn included.
    pub total: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 100 * 1024 * 1024,
            connect: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            total: Duration::from_secs(180),
        }
    }
}

/// How a [`Fetcher`] is set up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Sent with every request.
    pub user_agent: String,
    /// Where bodies of more than 256 KiB are kept; the system's temporary directory if there is none.
    pub spool_dir: Option<PathBuf>,
    /// Requests to one host in a second.
    pub requests_per_second: NonZeroU32,
    /// Requests to one host that may come together before that.
    pub burst: NonZeroU32,
    /// Requests to one host that are under way at once, until their bodies have been read.
    pub requests_at_once: usize,
    /// Whether loopback, private, carrier-grade NAT and other addresses that are not of the Internet may be reached.
    /// Link-local ones and metadata services of clouds never are.
    pub allow_private_networks: bool,
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
            requests_per_second: number(50),
            burst: number(100),
            requests_at_once: 8,
            allow_private_networks: true,
        }
    }
}

/// What we call ourselves; `comment` is what an operator adds, and may be empty.
#[must_use]
pub fn user_agent(comment: &str) -> String {
    let name = concat!("portolan/", env!("CARGO_PKG_VERSION"));
    if comment.is_empty() {
        name.to_owned()
    } else {
        format!("{name} ({comment})")
    }
}

/// What a server said about a body, to be sent back so that only a change is answered with another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validators {
    /// The header `ETag`.
    pub etag: Option<String>,
    /// The header `Last-Modified`.
    pub last_modified: Option<String>,
}

/// The answer to a fetch.
#[derive(Debug, Clone)]
pub enum Fetched {
    /// It is as it was when the validators came.
    NotModified,
    /// It is new, or nothing was known about it.
    Body(Body),
}

/// Fetches over HTTP. Cheap to clone; all clones share connections and limits.
///
/// No address is reached that may not be: names are checked as they are resolved, addresses in URLs before each request and
/// each hop of a redirect. Through a proxy, which resolves names itself, only what the URL shows can be checked.
///
/// Proxies are those of the environment (`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY` and in lower case, as Go reads them)
/// unless [`Access::proxies`] names others. The environment's may be at private addresses whatever the setting says, since
/// the operator has chosen them; a repository's may not.
#[derive(Debug, Clone)]
pub struct Fetcher(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    spool_dir: Option<PathBuf>,
    hosts: Arc<Hosts>,
    /// Of all repositories that need nothing of their own.
    shared: Arc<Clients>,
    clients: Arc<Clients>,
    /// How hosts are reached, if not as by all.
    way: Option<Identity>,
    access: Access,
}

impl Fetcher {
    /// Sets up a client.
    ///
    /// # Errors
    /// [`FetchError::Client`] when the user agent can't be used, [`FetchError::InvalidProxy`] when a proxy
    /// of the environment can't.
    pub fn new(settings: Settings) -> Result<Self, FetchError> {
        let environment = Routes::of_environment(|name| std::env::var(name).ok())?;
        Self::build(settings, resolve::of_the_system(), environment)
    }

    fn build(settings: Settings, lookup: Lookup, environment: Routes) -> Result<Self, FetchError> {
        self::install_crypto_provider();
        let hosts = Hosts::new(HostLimits {
            requests_per_second: settings.requests_per_second,
            burst: settings.burst,
            requests_at_once: settings.requests_at_once,
        });
        let policy = Policy {
            allow_private_networks: settings.allow_private_networks,
        };
        let clients = Clients::new(settings.user_agent, policy, lookup, environment)?;
        let clients = Arc::new(clients);
        Ok(Self(Arc::new(Inner {
            spool_dir: settings.spool_dir,
            hosts: Arc::new(hosts),
            shared: Arc::clone(&clients),
            clients,
            way: None,
            access: Access::default(),
        })))
    }

    /// The same for one repository, in place of what another was given. Connections, and the limits and holds of hosts, stay
    /// shared, unless TLS or proxies are the repository's own. Holds are then shared only with who has the very same
    /// ones: a proxy answers in the name of every host, and must not be able to say for others that one is to be left alone.
    ///
    /// # Errors
    /// [`FetchError::InvalidCa`], [`FetchError::InvalidProxy`], [`FetchError::InvalidCredentials`], and
    /// [`FetchError::AddressRefused`] for a proxy's.
    pub fn with(&self, access: Access) -> Result<Self, FetchError> {
        access.check()?;
        let own = self.0.shared.of(&access)?.map(Arc::new);
        Ok(Self(Arc::new(Inner {
            spool_dir: self.0.spool_dir.clone(),
            hosts: Arc::clone(&self.0.hosts),
            shared: Arc::clone(&self.0.shared),
            clients: own.unwrap_or_else(|| Arc::clone(&self.0.shared)),
            way: access.identity(),
            access,
        })))
    }

    /// Who asks, and in which way: two of the same get the same answer to the same request.
    #[must_use]
    pub fn requester(&self) -> Requester {
        self.0.access.requester()
    }

    /// The credentials that the [`Access`] gives to `url`, for those who get in by showing them to somebody else.
    #[must_use]
    pub(crate) fn credentials_for(&self, url: &Url) -> Option<Secret> {
        self.0.access.credentials_for(url)
    }

    /// Fetches what stands at `url`. With validators of an earlier body, an unchanged one is not sent again.
    ///
    /// # Errors
    /// [`FetchError`], which tells whether trying again may help, and when.
    pub async fn get(
        &self,
        url: &Url,
        validators: Option<&Validators>,
        limits: &Limits,
    ) -> Result<Fetched, FetchError> {
        let request = Request {
            validators: validators.cloned(),
            ..Request::new(url.clone())
        };
        let answer = self.send(&request, limits).await?;
        Ok(match answer.status {
            StatusCode::NOT_MODIFIED => Fetched::NotModified,
            _ => Fetched::Body(answer.body),
        })
    }

    /// Sends a request, follows where it is redirected to, and takes the answer in.
    ///
    /// # Errors
    /// [`FetchError`], as of [`Fetcher::get`]; any answer but 200, and 304 where that was asked for, is
    /// [`FetchError::Status`].
    pub async fn send(&self, request: &Request, limits: &Limits) -> Result<Answer, FetchError> {
        let timeout = |_| FetchError::Timeout {
            url: public_url(&request.url),
            limit: limits.total,
        };
        let following = self.0.follow(request, limits);
        tokio::time::timeout(limits.total, following).await.map_err(timeout)?
    }
}

/// Installs the process-wide TLS provider. Idempotent; call it before the first client is built.
pub fn install_crypto_provider() {
    // Fails only when a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
