//! The guarded HTTP client: whatever is fetched from outside is bounded in bytes and time, asked for no oftener than its
//! host can bear, and fails with an error that says what to do.
//!
//! ```text
//!  get ─► host: hold? turn, rate ─► request ─┬─ 3xx ─► next hop, with its own host's turn
//!                                            ├─ 304 ─► NotModified
//!                                            ├─ 429, 503 + Retry-After ─► the host goes on hold
//!                                            └─ 200 ─► chunks ─► cap, SHA-256, spool ─► Body
//! ```

mod access;
mod address;
mod body;
mod classify;
mod clients;
mod error;
mod host;
mod no_proxy;
mod proxy;
mod receive;
mod request;
mod resolve;
mod retry_after;
#[cfg(test)]
pub(in crate::source) mod tests;
mod url;

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::url::Url;
pub use access::Access;
use access::Credentials;
use address::Policy;
use body::Spool;
pub use body::{Body, read_file};
use clients::Clients;
pub use error::FetchError;
use host::{Host, HostLimits, Hosts};
use jiff::Timestamp;
pub use proxy::Proxies;
use proxy::Routes;
pub use request::{Answer, Authorization, Request};
use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use resolve::Lookup;
pub use url::index_url;

use crate::source::secret::Secret;
use crate::text::public_url;

/// Redirects that are followed, as many as Go's client follows.
const REDIRECTS: usize = 10;

/// Bytes that a validator may have to be kept and sent back.
const VALIDATOR_BYTES: usize = 1024;

/// Challenges of a 401 that are kept; servers send one, or two.
const CHALLENGES: usize = 8;

/// Bytes that one of them may have; a longer one is as good as none.
const CHALLENGE_BYTES: usize = 4096;

/// Bounds of one fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Where bodies of more than 1 MiB are kept; the system's temporary directory if there is none.
    pub spool_dir: Option<PathBuf>,
    /// Requests to one host in a second.
    pub requests_per_second: NonZeroU32,
    /// Requests to one host that may come together before that.
    pub burst: NonZeroU32,
    /// Requests to one host that are under way at once, until their bodies have been read.
    pub requests_at_once: usize,
    /// Certificate authorities in PEM that are trusted besides the system's.
    pub extra_roots: Vec<Vec<u8>>,
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
            extra_roots: Vec::new(),
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
#[derive(Debug)]
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
    access: Access,
}

impl Fetcher {
    /// Sets up a client.
    ///
    /// # Errors
    /// [`FetchError::Client`] when a certificate or the user agent can't be used, [`FetchError::InvalidProxy`] when a proxy
    /// of the environment can't.
    pub fn new(settings: Settings) -> Result<Self, FetchError> {
        let environment = Routes::of_environment(|name| std::env::var(name).ok())?;
        Self::build(settings, resolve::of_the_system(), environment)
    }

    fn build(settings: Settings, lookup: Lookup, environment: Routes) -> Result<Self, FetchError> {
        super::install_crypto_provider();
        let hosts = Hosts::new(HostLimits {
            requests_per_second: settings.requests_per_second,
            burst: settings.burst,
            requests_at_once: settings.requests_at_once,
        });
        let policy = Policy {
            allow_private_networks: settings.allow_private_networks,
        };
        let clients = Clients::new(settings.user_agent, &settings.extra_roots, policy, lookup, environment)?;
        let clients = Arc::new(clients);
        Ok(Self(Arc::new(Inner {
            spool_dir: settings.spool_dir,
            hosts: Arc::new(hosts),
            shared: Arc::clone(&clients),
            clients,
            access: Access::default(),
        })))
    }

    /// The same for one repository, in place of what another was given. Limits and holds of hosts stay shared;
    /// connections do too, unless TLS or proxies are the repository's own.
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
            access,
        })))
    }

    /// The credentials that the [`Access`] gives to `url`, for those who get in by showing them to somebody else.
    #[must_use]
    pub(in crate::source) fn credentials_for(&self, url: &Url) -> Option<Secret> {
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

impl Inner {
    /// Follows redirects by itself rather than by the client, so that each hop keeps to its own host's limits, gets only
    /// the credentials that it may have, and leads nowhere that may not be reached.
    async fn follow(&self, request: &Request, limits: &Limits) -> Result<Answer, FetchError> {
        url::check(&request.url)?;
        let mut credentials = Credentials::new(&self.access, request)?;
        let headers = headers(request);
        let may_be_unchanged =
            headers.contains_key(header::IF_NONE_MATCH) || headers.contains_key(header::IF_MODIFIED_SINCE);
        let mut url = url::bare(&request.url);
        for _ in 0..=REDIRECTS {
            let (client, proxy) = self.clients.for_url(&url, limits.connect)?;
            let host = self.hosts.get(&url::host_and_port(&url));
            let _turn = host.turn().await?;
            let mut headers = headers.clone();
            if let Some(authorization) = credentials.at(&url) {
                headers.insert(header::AUTHORIZATION, authorization);
            }
            let method = if request.head { Method::HEAD } else { Method::GET };
            let sent = client.request(method, url.clone()).headers(headers).send();
            // Connecting has its own limit within this one.
            let response = tokio::time::timeout(limits.connect.saturating_add(limits.stall), sent)
                .await
                .map_err(|_| FetchError::Stalled {
                    url: public_url(&url),
                    limit: limits.stall,
                    bytes: 0,
                })?
                .map_err(|error| classify::no_answer(&error, &url, proxy))?;
            match response.status() {
                StatusCode::OK => return self.answer(request, response, url, limits).await,
                StatusCode::NOT_MODIFIED if may_be_unchanged => return self.without_body(response, url),
                status if is_redirect(status) => url = target(&url, &response)?,
                _ => return Err(refused(&response, &url, &host)),
            }
        }
        Err(FetchError::TooManyRedirects {
            url: public_url(&request.url),
            limit: REDIRECTS,
        })
    }

    async fn answer(
        &self,
        request: &Request,
        mut response: Response,
        url: Url,
        limits: &Limits,
    ) -> Result<Answer, FetchError> {
        if request.head {
            return self.without_body(response, url);
        }
        let shown = public_url(&url);
        let is_packed = receive::is_packed(&response, &shown, request.verbatim)?;
        let headers = std::mem::take(response.headers_mut());
        let spool = Spool::new(self.spool_dir.as_deref(), limits.max_bytes);
        let body = receive::receive(response, spool, &shown, is_packed, validators_of(&headers), limits).await?;
        Ok(Answer {
            status: StatusCode::OK,
            headers,
            url,
            body,
        })
    }

    fn without_body(&self, mut response: Response, url: Url) -> Result<Answer, FetchError> {
        let headers = std::mem::take(response.headers_mut());
        let body = Spool::new(self.spool_dir.as_deref(), 0).finish(validators_of(&headers))?;
        Ok(Answer {
            status: response.status(),
            headers,
            url,
            body,
        })
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Where a redirect leads.
fn target(url: &Url, response: &Response) -> Result<Url, FetchError> {
    let bad = |problem: &str| FetchError::BadRedirect {
        url: public_url(url),
        problem: problem.to_owned(),
    };
    let location = response
        .headers()
        .get(header::LOCATION)
        .ok_or_else(|| bad("it names no location"))?;
    let location = location.to_str().map_err(|_| bad("its location is no text"))?;
    let target = url.join(location).map_err(|_| bad("its location is no URL"))?;
    url::check(&target).map_err(|_| bad("its location is neither http nor https"))?;
    // Credentials are given by who declares a repository, never by a server.
    Ok(url::bare(&target))
}

/// The error for an answer that is neither a body nor a redirect. A host that asks to be left alone is.
fn refused(response: &Response, url: &Url, host: &Host) -> FetchError {
    let status = response.status();
    let is_overloaded = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let text = |name| {
        response
            .headers()
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let retry_after = text(header::RETRY_AFTER).filter(|_| is_overloaded).and_then(|value| {
        // A date is told by the server's clock.
        let now = text(header::DATE)
            .and_then(retry_after::http_date)
            .unwrap_or_else(Timestamp::now);
        retry_after::parse(value, now)
    });
    let retry_after = retry_after.map(|wanted| host.hold(status, wanted));
    let challenges = response.headers().get_all(header::WWW_AUTHENTICATE).iter();
    let challenges = challenges
        .filter(|_| status == StatusCode::UNAUTHORIZED)
        .filter_map(|value| value.to_str().ok())
        .filter(|value| value.len() <= CHALLENGE_BYTES)
        .take(CHALLENGES);
    FetchError::Status {
        url: public_url(url),
        status,
        retry_after,
        challenges: challenges.map(str::to_owned).collect(),
    }
}

/// The headers of each hop of a request. What can't be a header's value can't have come from one.
fn headers(request: &Request) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let encoding = if request.verbatim { "identity" } else { "gzip" };
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(encoding));
    let validators = request.validators.as_ref();
    let optional = [
        (header::ACCEPT, request.accept.as_ref()),
        (
            header::IF_NONE_MATCH,
            validators.and_then(|validators| validators.etag.as_ref()),
        ),
        (
            header::IF_MODIFIED_SINCE,
            validators.and_then(|validators| validators.last_modified.as_ref()),
        ),
    ];
    for (name, value) in optional {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    }
    headers
}

fn validators_of(headers: &HeaderMap) -> Validators {
    let text = |name| {
        let value = headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok())?;
        (!value.is_empty() && value.len() <= VALIDATOR_BYTES).then(|| value.to_owned())
    };
    Validators {
        etag: text(header::ETAG),
        last_modified: text(header::LAST_MODIFIED),
    }
}
