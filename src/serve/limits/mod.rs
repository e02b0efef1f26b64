//! Limits of requests to the catalog, so that no caller takes the share of others.
//!
//! ```text
//!  server: connections, header ─► URI ─► rate ─► in flight ─► handler ─► bodies ─► server: speed of the client
//!                                         └─── by caller ───────┴───────────┘
//! ```
//! A caller is the token of a request if it was valid lately, or else the address of the client: anyone may send tokens.

mod client;
mod metrics;
mod permits;
mod proxies;
mod rate;

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::{Instant, timeout};

use client::Client;
pub use client::ClientAddress;
pub(super) use metrics::{Limit, LimitMetrics};
use permits::{Exhausted, Permit, Permits};
pub use proxies::{TrustedProxies, TrustedProxy, TrustedProxyError};
pub(super) use rate::RateTable;

use super::problem::Problem;
use super::site::Site;
use crate::server::tokens::TokenDigest;
use crate::server::{KeepUntilSent, Peer, SentResponse};

/// Path and query of a request. A cursor takes up to 6 KiB of it: it holds the names of a chart.
const MAX_URI_BYTES: usize = 8 * 1024;
/// Requests without a response yet. Others are refused, as they would only wait for the same CPU.
const MAX_REQUESTS: usize = 64;
/// Those that wait for an archive of another server, which may take minutes.
const MAX_ARCHIVES: usize = 64;
/// Responses of which the client has not read all.
const MAX_BODIES: usize = 128;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const ARCHIVE_TIMEOUT: Duration = Duration::from_secs(180);
/// Between sign-ins of an address, after a burst of them.
const SIGN_IN_INTERVAL: Duration = Duration::from_secs(12);
const SIGN_IN_BURST: NonZeroU32 = NonZeroU32::new(5).unwrap();
/// Rates by token and by address, each.
pub(super) const MAX_RATES: usize = 4096;

/// Requests of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Per second.
    pub rate: NonZeroU32,
    /// After a pause.
    pub burst: NonZeroU32,
}

impl Default for RequestLimits {
    fn default() -> Self {
        const RATE: NonZeroU32 = NonZeroU32::new(50).unwrap();
        const BURST: NonZeroU32 = NonZeroU32::new(200).unwrap();
        Self {
            rate: RATE,
            burst: BURST,
        }
    }
}

pub(super) struct Limiter {
    proxies: TrustedProxies,
    /// The path before `/helm`.
    prefix: String,
    by_token: RateTable<TokenDigest>,
    by_address: RateTable<ClientAddress>,
    sign_ins: RateTable<ClientAddress>,
    requests: Permits,
    archives: Permits,
    bodies: Permits,
    metrics: LimitMetrics,
}

/// A limit that a request exceeds, and its response.
struct Exceeded(Limit, Problem);

/// Limits the requests of a site, and observes their duration.
pub(super) async fn limit(State(site): State<Site>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let token = site.known_token(request.headers());
    let limiter = site.limiter();
    let response = limiter.respond(request, token, |request| next.run(request)).await;
    site.metrics()
        .observe_request(response.status().as_u16(), started.elapsed());
    response
}

impl Limiter {
    pub(super) fn new(limits: RequestLimits, proxies: TrustedProxies, prefix: String, metrics: LimitMetrics) -> Self {
        Self {
            proxies,
            prefix,
            by_token: RateTable::new(limits.rate, limits.burst, MAX_RATES),
            by_address: RateTable::new(limits.rate, limits.burst, MAX_RATES),
            sign_ins: RateTable::with_interval(SIGN_IN_INTERVAL, SIGN_IN_BURST, MAX_RATES),
            requests: Permits::new(MAX_REQUESTS, metrics.in_flight("request")),
            archives: Permits::new(MAX_ARCHIVES, metrics.in_flight("archive")),
            bodies: Permits::new(MAX_BODIES, metrics.in_flight("body")),
            metrics,
        }
    }

    /// Returns the address that unknown tokens of the current request count for. Without trusted proxies it may be the one of
    /// a proxy, so they count for the process.
    pub(super) fn address_of_unknown_tokens(&self) -> Option<ClientAddress> {
        ClientAddress::current().filter(|_| !self.proxies.is_empty())
    }

    /// Counts a sign-in of the current request's address. If it exceeds the rate, returns the seconds to wait.
    pub(super) fn check_sign_in(&self) -> Result<(), u64> {
        let address = ClientAddress::current().unwrap_or_else(|| IpAddr::V4(Ipv4Addr::UNSPECIFIED).into());
        self.sign_ins.check(address).map_err(|wait| {
            self.metrics.count(Limit::SignIns);
            seconds(wait)
        })
    }

    async fn respond<F>(
        &self,
        request: Request,
        token: Option<TokenDigest>,
        handle: impl FnOnce(Request) -> F,
    ) -> Response
    where
        F: Future<Output = Response>,
    {
        let response = self.respond_within_limits(request, token, handle).await;
        response.unwrap_or_else(|Exceeded(limit, problem)| {
            self.metrics.count(limit);
            problem.into_response()
        })
    }

    async fn respond_within_limits<F>(
        &self,
        request: Request,
        token: Option<TokenDigest>,
        handle: impl FnOnce(Request) -> F,
    ) -> Result<Response, Exceeded>
    where
        F: Future<Output = Response>,
    {
        let uri = request.uri();
        if uri.path().len() + uri.query().map_or(0, str::len) > MAX_URI_BYTES {
            return Err(Exceeded(Limit::Uri, Problem::uri_too_long(MAX_URI_BYTES)));
        }
        let (permits, time) = if self.is_archive(uri.path()) {
            (&self.archives, ARCHIVE_TIMEOUT)
        } else {
            (&self.requests, REQUEST_TIMEOUT)
        };
        let address = self.address(&request);
        let client = token.map_or(Client::Address(address), Client::Token);
        self.check_rate(client)?;
        let permit = permits.try_acquire(client).map_err(in_flight)?;
        let response = timeout(time, address.scope(handle(request))).await;
        drop(permit);
        let mut response = response.map_err(|_| Exceeded(Limit::Timeout, Problem::late()))?;
        let body = Body {
            _permit: self.bodies.try_acquire(client).map_err(bodies)?,
            metrics: self.metrics.clone(),
        };
        response.extensions_mut().insert(KeepUntilSent(Arc::new(body)));
        Ok(response)
    }

    fn is_archive(&self, path: &str) -> bool {
        let path = path.strip_prefix(&self.prefix).unwrap_or_default();
        // Not the index of a repository with this name.
        path.starts_with("/helm/") && path.split('/').nth(4) == Some("archives")
    }

    fn address(&self, request: &Request) -> ClientAddress {
        let peer = request.extensions().get::<Peer>();
        let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
        self.proxies.client(peer, request.headers()).into()
    }

    fn check_rate(&self, client: Client) -> Result<(), Exceeded> {
        let checked = match client {
            Client::Token(token) => self.by_token.check(token),
            Client::Address(address) => self.by_address.check(address),
        };
        checked.map_err(|wait| Exceeded(Limit::Rate, Problem::too_many(seconds(wait))))
    }
}

/// Rounds up, as a request would be refused before.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

fn in_flight(exhausted: Exhausted) -> Exceeded {
    match exhausted {
        Exhausted::Total => Exceeded(
            Limit::InFlight,
            Problem::busy("too many requests are in flight; retry later"),
        ),
        Exhausted::ByCaller => Exceeded(
            Limit::InFlightByCaller,
            Problem::busy("too many requests of this caller are in flight; wait for their responses"),
        ),
    }
}

fn bodies(exhausted: Exhausted) -> Exceeded {
    match exhausted {
        Exhausted::Total => Exceeded(
            Limit::Bodies,
            Problem::busy("too many responses are being sent; retry later"),
        ),
        Exhausted::ByCaller => Exceeded(
            Limit::BodiesByCaller,
            Problem::busy("too many responses are being sent to this caller; read them first"),
        ),
    }
}

/// The body of a response, until the client has read it.
struct Body {
    _permit: Permit,
    metrics: LimitMetrics,
}

impl SentResponse for Body {
    fn cut(&self) {
        self.metrics.count(Limit::BodySpeed);
    }
}

#[cfg(test)]
mod tests;
