//! The guarded HTTP client: whatever is fetched from outside is bounded in bytes and time, asked for no oftener than its
//! host can bear, and fails with an error that says what to do.
//!
//! ```text
//!  get ─► host: hold? turn, rate ─► request ─┬─ 3xx ─► next hop, with its own host's turn
//!                                            ├─ 304 ─► NotModified
//!                                            ├─ 429, 503 + Retry-After ─► the host goes on hold
//!                                            └─ 200 ─► chunks ─► cap, SHA-256, spool ─► Body
//! ```

mod body;
mod classify;
mod error;
mod host;
mod resolve;
mod retry_after;
#[cfg(test)]
mod tests;
mod url;

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::url::Url;
use body::Spool;
pub use body::{Body, read_file};
pub use error::FetchError;
use host::{Host, HostLimits, Hosts};
use jiff::Timestamp;
use reqwest::header::{self, HeaderMap, HeaderValue};
use reqwest::{Response, StatusCode};
pub use url::index_url;

use crate::text::public_url;

/// Redirects that are followed, as many as Go's client follows.
const REDIRECTS: usize = 10;

/// Bytes that a validator may have to be kept and sent back.
const VALIDATOR_BYTES: usize = 1024;

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

/// Fetches over HTTP. Cheap to clone; all clones share connections and limits. Proxies are taken from the environment
/// (`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY` and in lower case).
#[derive(Debug, Clone)]
pub struct Fetcher(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Settings,
    roots: Vec<reqwest::Certificate>,
    hosts: Hosts,
    /// The client fixes how long connecting may take, which is the limit of a fetch: one client for each such limit.
    clients: Mutex<HashMap<Duration, reqwest::Client>>,
}

impl Fetcher {
    /// Sets up a client.
    ///
    /// # Errors
    /// [`FetchError::Client`] when a certificate or the user agent can't be used.
    pub fn new(settings: Settings) -> Result<Self, FetchError> {
        super::install_crypto_provider();
        let roots = settings
            .extra_roots
            .iter()
            .map(|pem| reqwest::Certificate::from_pem(pem));
        let roots = roots
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| FetchError::Client(error.to_string()))?;
        let hosts = Hosts::new(HostLimits {
            requests_per_second: settings.requests_per_second,
            burst: settings.burst,
            requests_at_once: settings.requests_at_once,
        });
        let inner = Inner {
            settings,
            roots,
            hosts,
            clients: Mutex::new(HashMap::new()),
        };
        inner.client(Limits::default().connect)?;
        Ok(Self(Arc::new(inner)))
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
        let conditions = conditions(validators);
        let fetching = self.0.follow(url, &conditions, limits);
        let timeout = |_| FetchError::Timeout {
            url: public_url(url),
            limit: limits.total,
        };
        tokio::time::timeout(limits.total, fetching).await.map_err(timeout)?
    }
}

impl Inner {
    /// Follows redirects by itself rather than by the client, so that each hop keeps to its own host's limits.
    async fn follow(&self, first: &Url, conditions: &HeaderMap, limits: &Limits) -> Result<Fetched, FetchError> {
        let client = self.client(limits.connect)?;
        let mut url = first.clone();
        for _ in 0..=REDIRECTS {
            url::check(&url)?;
            let host = self.hosts.get(&url::host_and_port(&url));
            let _turn = host.turn().await?;
            let sent = client.get(url.clone()).headers(conditions.clone()).send();
            // Connecting has its own limit within this one.
            let response = tokio::time::timeout(limits.connect.saturating_add(limits.stall), sent)
                .await
                .map_err(|_| FetchError::Stalled {
                    url: public_url(&url),
                    limit: limits.stall,
                    bytes: 0,
                })?
                .map_err(|error| classify::no_answer(&error, &url))?;
            match response.status() {
                StatusCode::OK => return self.receive(response, &url, limits).await.map(Fetched::Body),
                StatusCode::NOT_MODIFIED if !conditions.is_empty() => return Ok(Fetched::NotModified),
                status if is_redirect(status) => url = target(&url, &response)?,
                _ => return Err(refused(&response, &url, &host)),
            }
        }
        Err(FetchError::TooManyRedirects {
            url: public_url(first),
            limit: REDIRECTS,
        })
    }

    async fn receive(&self, mut response: Response, url: &Url, limits: &Limits) -> Result<Body, FetchError> {
        let what = || public_url(url);
        let validators = validators_of(response.headers());
        if let Some(length) = response.content_length().filter(|length| *length > limits.max_bytes) {
            return Err(FetchError::TooLarge {
                what: what(),
                limit: limits.max_bytes,
                seen: length,
                validators,
            });
        }
        let mut spool = Spool::new(self.settings.spool_dir.as_deref(), limits.max_bytes);
        loop {
            let chunk = tokio::time::timeout(limits.stall, response.chunk()).await;
            let stalled = |_| FetchError::Stalled {
                url: what(),
                limit: limits.stall,
                bytes: spool.bytes(),
            };
            match chunk.map_err(stalled)? {
                Ok(Some(chunk)) => spool
                    .push(&chunk, what)
                    .map_err(|error| error.of_body_with(&validators))?,
                Ok(None) => return spool.finish(validators),
                Err(error) => {
                    let detail = classify::innermost(&error);
                    return Err(FetchError::CutShort {
                        url: what(),
                        bytes: spool.bytes(),
                        detail,
                    });
                }
            }
        }
    }

    fn client(&self, connect: Duration) -> Result<reqwest::Client, FetchError> {
        /// Limits may be set for one repository; so many different ones are not of good will.
        const KEPT_CLIENTS: usize = 8;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&connect) {
            return Ok(client.clone());
        }
        if clients.len() >= KEPT_CLIENTS {
            clients.clear();
        }
        let client = self.build_client(connect)?;
        clients.insert(connect, client.clone());
        Ok(client)
    }

    fn build_client(&self, connect: Duration) -> Result<reqwest::Client, FetchError> {
        let builder = || {
            reqwest::Client::builder()
                .user_agent(&self.settings.user_agent)
                .redirect(reqwest::redirect::Policy::none())
                .referer(false)
                .connect_timeout(connect)
                .dns_resolver(Arc::new(resolve::Resolver))
        };
        // Where the system has no certificate authorities at all, plain HTTP must still do.
        builder()
            .tls_certs_merge(self.roots.clone())
            .build()
            .or_else(|_| builder().tls_certs_only(self.roots.clone()).build())
            .map_err(|error| FetchError::Client(error.to_string()))
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
    Ok(target)
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
    FetchError::Status {
        url: public_url(url),
        status,
        retry_after,
    }
}

/// The headers that make a request conditional. What can't be a header's value can't have come from one.
fn conditions(validators: Option<&Validators>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let Some(validators) = validators else { return headers };
    let pairs = [
        (header::IF_NONE_MATCH, &validators.etag),
        (header::IF_MODIFIED_SINCE, &validators.last_modified),
    ];
    for (name, value) in pairs {
        if let Some(value) = value.as_deref().and_then(|value| HeaderValue::from_str(value).ok()) {
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
