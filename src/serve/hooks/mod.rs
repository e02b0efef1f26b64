//! Receivers: a webhook of a registry or a forge requests a conditional sync of one repository.
//!
//! ```text
//!  POST ─► address: known key, or limits of guesses ─► look-up ─► rate of the namespace ─► body, signature ─► Poll ─► 202
//!                          └──── 404 ◄────────────────────┘                                    │
//!                                 ▲────────────────────────────────────────────────────────────┘
//! ```
//! It has no catalog and no state that a restart loses: the sender of a request without a response repeats it.

mod cluster;
mod event;
mod metrics;
mod namespace;
mod poll;
mod receiver;
mod signature;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::time::{Instant, sleep_until, timeout};

pub use cluster::ClusterObjects;
pub use metrics::HookMetrics;
use namespace::{Entry, Namespace};
pub use receiver::{Receiver, ReceiverError};
use signature::Mismatch;

use super::limits::{ClientAddress, MAX_RATES, RateTable, TrustedProxies};
use crate::api::{NamespacedName, is_object_name};
use crate::budget::ResourceMetrics;
use crate::runtime::fair_semaphore::{FairLimits, FairSemaphore, Requester};
use crate::runtime::kube_client::ApiError;
use crate::server::Peer;

/// Webhooks of GitHub and GitLab have some 10 KiB.
const MAX_BODY: usize = 1024 * 1024;
/// Bodies in memory, also the permits of the semaphore.
pub const MAX_BODIES: usize = 16;
const MAX_BODIES_OF_NAMESPACE: usize = 4;
/// GitHub and GitLab wait for 10 s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(9);
/// From a request to the refusal of its address, longer than a look-up: the time does not tell which names exist.
const REFUSAL_TIME: Duration = Duration::from_millis(250);
/// Guesses of addresses, of each client and of the process, per second. A look-up takes two requests to the API server.
const GUESS_RATE: NonZeroU32 = NonZeroU32::new(10).unwrap();
/// Guesses after a pause: a registry may push to many repositories right after a restart of this process.
const GUESS_BURST: NonZeroU32 = NonZeroU32::new(64).unwrap();

/// The objects behind the addresses.
pub trait Objects: Send + Sync {
    /// Returns the receiver of a repository; `None` if it has none, is suspended or absent.
    fn receiver<'a>(&'a self, name: &'a NamespacedName) -> BoxFuture<'a, Result<Option<Receiver>, ApiError>>;

    /// Requests a conditional sync.
    fn poll<'a>(&'a self, name: &'a NamespacedName, at: Timestamp) -> BoxFuture<'a, Result<(), ApiError>>;
}

pub struct HookOptions {
    pub objects: Arc<dyn Objects>,
    /// Repositories of other namespaces have no receivers.
    pub namespaces: Vec<String>,
    pub trusted_proxies: TrustedProxies,
    pub bodies: ResourceMetrics,
    pub metrics: HookMetrics,
}

/// A handle, cheap to clone.
#[derive(Clone)]
pub struct Hooks(Arc<Inner>);

struct Inner {
    objects: Arc<dyn Objects>,
    namespaces: BTreeMap<String, Namespace>,
    proxies: TrustedProxies,
    guesses_by_address: RateTable<ClientAddress>,
    guesses: RateTable<()>,
    bodies: FairSemaphore,
    metrics: HookMetrics,
}

#[derive(Debug)]
enum Refusal {
    /// The repository or its receiver is absent, or the key or signature is wrong.
    Unknown,
    /// As [`Self::Unknown`], but nothing was looked up.
    TooManyGuesses,
    /// The requests with right addresses of this namespace exceed its rate.
    TooMany,
    TooLarge,
    /// The API server or the sender was too slow. The sender should repeat the request.
    Failed,
}

impl Hooks {
    #[must_use]
    pub fn new(options: HookOptions) -> Self {
        let count = options.namespaces.len();
        let namespaces = options.namespaces.into_iter();
        let limits = FairLimits {
            total: MAX_BODIES,
            per_object: MAX_BODIES_OF_NAMESPACE,
        };
        Self(Arc::new(Inner {
            objects: options.objects,
            namespaces: namespaces.map(|name| (name, Namespace::new(count))).collect(),
            proxies: options.trusted_proxies,
            guesses_by_address: RateTable::new(GUESS_RATE, GUESS_BURST, MAX_RATES),
            guesses: RateTable::new(GUESS_RATE, GUESS_BURST, 1),
            bodies: FairSemaphore::new(limits, options.bodies),
            metrics: options.metrics,
        }))
    }

    pub fn routes(&self) -> Router {
        Router::new()
            .route("/hooks/{namespace}/{name}/{key}", post(receive))
            .with_state(self.clone())
    }
}

async fn receive(
    State(Hooks(hooks)): State<Hooks>,
    Path((namespace, name, key)): Path<(String, String, String)>,
    request: Request,
) -> Response {
    let started = Instant::now();
    let name = NamespacedName::new(namespace, name);
    let received = timeout(REQUEST_TIMEOUT, hooks.receive(&name, &key, request)).await;
    let received = received.unwrap_or(Err(Refusal::Failed));
    hooks.metrics.count(match &received {
        Ok(()) => "accepted",
        Err(Refusal::Unknown | Refusal::TooLarge) => "refused",
        Err(Refusal::TooManyGuesses | Refusal::TooMany) => "limited",
        Err(Refusal::Failed) => "failed",
    });
    match received {
        Ok(()) => StatusCode::ACCEPTED.into_response(),
        Err(refusal) => {
            if matches!(refusal, Refusal::Unknown) {
                sleep_until(started + REFUSAL_TIME).await;
            }
            refusal.into_response()
        }
    }
}

impl Inner {
    async fn receive(&self, name: &NamespacedName, key: &str, request: Request) -> Result<(), Refusal> {
        let (parts, body) = request.into_parts();
        let address = self.address(&parts);
        let Some(namespace) = self
            .namespaces
            .get(&name.namespace)
            .filter(|_| is_object_name(&name.name))
        else {
            self.check_guess(address)?;
            return Err(Refusal::Unknown);
        };
        let entry = self.find(namespace, name, key, address).await?;
        if !self.verify(&entry.receiver, name, address, &parts, body).await? {
            return Ok(());
        }
        let polled = entry.poll.request(&*self.objects, name).await;
        polled.map_err(|error| {
            if error.is_not_found() {
                namespace.forget(&name.name);
                return Refusal::Unknown;
            }
            failed(name, "request a sync", &error)
        })
    }

    fn address(&self, parts: &Parts) -> ClientAddress {
        let peer = parts.extensions.get::<Peer>();
        let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
        self.proxies.client(peer, &parts.headers).into()
    }

    fn check_guess(&self, address: ClientAddress) -> Result<(), Refusal> {
        let checked = self.guesses_by_address.check(address);
        checked.map_err(|_| Refusal::TooManyGuesses)
    }

    /// Returns the receiver with this key. A known one is renewed outside of the limits, which guesses may exhaust.
    async fn find(
        &self,
        namespace: &Namespace,
        name: &NamespacedName,
        key: &str,
        address: ClientAddress,
    ) -> Result<Arc<Entry>, Refusal> {
        let known = namespace.get(&name.name);
        match known.filter(|entry| entry.receiver.has_key(key)) {
            Some(entry) => {
                namespace.check_rate().map_err(|_| Refusal::TooMany)?;
                if entry.is_fresh() {
                    return Ok(entry);
                }
            }
            None => {
                self.check_guess(address)?;
                let checked = namespace.check_guess().and_then(|()| self.guesses.check(()));
                checked.map_err(|_| Refusal::TooManyGuesses)?;
            }
        }
        let found = self.objects.receiver(name).await;
        let Some(receiver) = found.map_err(|error| failed(name, "read the receiver", &error))? else {
            namespace.forget(&name.name);
            return Err(Refusal::Unknown);
        };
        let entry = namespace.store(&name.name, receiver);
        Some(entry)
            .filter(|entry| entry.receiver.has_key(key))
            .ok_or(Refusal::Unknown)
    }

    /// Verifies the sender, by the headers before the body is read. Returns false for an event that changes no chart.
    async fn verify(
        &self,
        receiver: &Receiver,
        name: &NamespacedName,
        address: ClientAddress,
        parts: &Parts,
        body: Body,
    ) -> Result<bool, Refusal> {
        let mismatched = |mismatch| self.mismatched(name, address, mismatch);
        receiver.verify_headers(&parts.headers).map_err(mismatched)?;
        let length = parts.headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > MAX_BODY as u64) {
            return Err(Refusal::TooLarge);
        }
        let requester = Requester {
            class: name.namespace.clone(),
            group: name.name.clone(),
            object: name.namespace.clone(),
        };
        let _permit = self.bodies.acquire(requester).await;
        let body = to_bytes(body, MAX_BODY).await.map_err(|_| Refusal::TooLarge)?;
        let now = Timestamp::now();
        receiver.verify_body(&parts.headers, &body, now).map_err(mismatched)?;
        Ok(receiver.is_change(&body))
    }

    fn mismatched(&self, name: &NamespacedName, address: ClientAddress, mismatch: Mismatch) -> Refusal {
        if let Err(limited) = self.check_guess(address) {
            return limited;
        }
        tracing::info!(repository = %name, reason = %mismatch, "refused a request to a receiver");
        Refusal::Unknown
    }
}

fn failed(name: &NamespacedName, action: &str, error: &ApiError) -> Refusal {
    tracing::warn!(repository = %name, %error, "failed to {action} of a repository");
    Refusal::Failed
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let retry_after = |seconds: &'static str| [(header::RETRY_AFTER, seconds)];
        match self {
            Self::Unknown | Self::TooManyGuesses => (StatusCode::NOT_FOUND, "not found\n").into_response(),
            Self::TooMany => {
                let text = "too many requests to receivers of this namespace\n";
                (StatusCode::TOO_MANY_REQUESTS, retry_after("1"), text).into_response()
            }
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "the body exceeds 1 MiB\n").into_response(),
            Self::Failed => {
                let text = "the request was not handled in time; repeat it\n";
                (StatusCode::SERVICE_UNAVAILABLE, retry_after("5"), text).into_response()
            }
        }
    }
}
