//! Deduplicates downloads of identical requests made by several AppRepositories.
//!
//! ```text
//! 09:10:00  tick of the schedule            oldest acceptable response: 09:10:00
//! 09:10:02  team-a/bitnami ─► fetch, started at 09:10:02 ─┬─► team-a
//! 09:10:02  team-b/bitnami ─► joins the request ──────────┼─► team-b
//! 09:10:41  team-c/bitnami ─► cached response is fresh ───┴─► team-c
//! 09:10:50  team-d, requested sync ─► needs a newer response ─► fetch
//! ```
//! A response serves only identical requests: same URL, credentials, TLS settings, proxies and limits.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::api::NamespacedName;
use crate::helm::index::SharedSplit;
use crate::http::{FetchError, FetchLimits, Fetched, Fetcher, RequestTracker, RequesterDigest, Validators};
use crate::text::public_url;

/// TTL of a shared response. Must exceed the schedule jitter (1 min).
const TTL: Duration = Duration::from_secs(90);
/// Maximum size of all cached bodies. Other responses are fetched by each requester.
const MAX_MEMORY: u64 = 8 * 1024 * 1024;
/// A quarter of the default `--spool-limit`: cached bodies are not aborted when it is full.
const MAX_FILES: u64 = 256 * 1024 * 1024;
/// Maximum number of request keys; unused ones are dropped beyond it.
const MAX_KEYS: usize = 20_000;
/// Concurrent requests for one key, which differ by their validators.
const MAX_REQUESTS: usize = 4;

#[derive(Clone, Default)]
pub(super) struct DownloadCache(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    entries: HashMap<RequestKey, Entry>,
    cached: CachedBytes,
}

#[derive(Default)]
struct CachedBytes {
    in_memory: u64,
    in_files: u64,
}

impl CachedBytes {
    fn add(&mut self, result: &ResponseRef) -> bool {
        let (in_memory, in_files) = Self::of(result);
        let fits = self.in_memory + in_memory <= MAX_MEMORY && self.in_files + in_files <= MAX_FILES;
        if fits {
            self.in_memory += in_memory;
            self.in_files += in_files;
        }
        fits
    }

    fn remove(&mut self, request: &SentRequest) {
        if let ResponseState::Cached(result) = &request.state {
            let (in_memory, in_files) = Self::of(result);
            self.in_memory = self.in_memory.saturating_sub(in_memory);
            self.in_files = self.in_files.saturating_sub(in_files);
        }
    }

    fn of(result: &ResponseRef) -> (u64, u64) {
        match &result.fetched {
            Ok(Fetched::Body(body)) if body.is_in_memory() => (body.bytes, 0),
            Ok(Fetched::Body(body)) => (0, body.bytes),
            Ok(Fetched::NotModified) | Err(_) => (0, 0),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct RequestKey {
    url: String,
    by: RequesterDigest,
    limits: FetchLimits,
}

#[derive(Default)]
struct Entry {
    /// At most two of the requesters. Responses for a single requester are not cached.
    requesters: HashSet<NamespacedName>,
    requests: Vec<SentRequest>,
}

type ResponseRef = Arc<SharedResponse>;

pub(super) struct SharedResponse {
    pub(super) fetched: Result<Fetched, FetchError>,
    pub(super) split: SharedSplit,
}

type ResponseFuture = BoxFuture<'static, ResponseRef>;

struct SentRequest {
    sent_at: Timestamp,
    validators: Option<Validators>,
    tracker: RequestTracker,
    state: ResponseState,
}

enum ResponseState {
    /// Driven by the requesters that wait for it; canceled with the last one.
    InFlight(WeakShared<ResponseFuture>),
    Cached(ResponseRef),
}

pub(super) struct DownloadRequest<'a> {
    pub(super) requester: &'a NamespacedName,
    pub(super) session: &'a Fetcher,
    pub(super) url: &'a url::Url,
    pub(super) validators: Option<Validators>,
    pub(super) limits: FetchLimits,
    pub(super) fresh_since: Timestamp,
}

/// A response; `is_initiator` is true for the requester that sent the request.
pub(super) struct Download {
    pub(super) result: ResponseRef,
    pub(super) is_initiator: bool,
}

enum ResponseSource {
    Cached(ResponseRef),
    Joined(Shared<ResponseFuture>, Timestamp, RequestTracker),
    New(Shared<ResponseFuture>, Timestamp),
}

impl Download {
    fn aborted(request: &DownloadRequest<'_>) -> Self {
        let fetched = Err(FetchError::Aborted(public_url(request.url)));
        let split = SharedSplit::default();
        Self {
            result: Arc::new(SharedResponse { fetched, split }),
            is_initiator: true,
        }
    }
}

impl DownloadCache {
    pub(super) async fn get(&self, request: DownloadRequest<'_>) -> Download {
        let key = RequestKey {
            url: request.url.to_string(),
            by: request.session.requester(),
            limits: request.limits,
        };
        let download = self.download(&key, &request).await;
        let is_due_to_initiator = matches!(
            download.result.fetched,
            Err(FetchError::Timeout { .. }
                | FetchError::Stalled { .. }
                | FetchError::SpoolFull(_)
                | FetchError::Aborted(_)
                | FetchError::BackingOff { .. })
        );
        if download.is_initiator || !is_due_to_initiator {
            return download;
        }
        // Time, spool, worker and pauses belonged to another requester. Failed requests are not kept, so requesters
        // that retry share a request again.
        self.download(&key, &request).await
    }

    async fn download(&self, key: &RequestKey, request: &DownloadRequest<'_>) -> Download {
        let (result, sent_at, is_initiator) = match self.source(key, request) {
            ResponseSource::Cached(result) => {
                let is_initiator = false;
                return Download { result, is_initiator };
            }
            ResponseSource::New(fetch, sent_at) => (fetch.await, sent_at, true),
            ResponseSource::Joined(fetch, sent_at, sender) => {
                let tracker = request.session.tracker();
                let in_flight = tracker.join(&sender);
                let result = tokio::select! {
                    result = fetch => result,
                    () = tracker.aborted() => return Download::aborted(request),
                };
                if result.fetched.is_ok() {
                    in_flight.answered();
                }
                (result, sent_at, false)
            }
        };
        self.store(key, sent_at, &result);
        Download { result, is_initiator }
    }

    fn source(&self, key: &RequestKey, request: &DownloadRequest<'_>) -> ResponseSource {
        let mut inner = self.0.lock();
        let Inner { entries, cached } = &mut *inner;
        if entries.len() >= MAX_KEYS {
            entries.retain(|_, entry| !entry.requests.is_empty());
        }
        let entry = entries.entry(key.clone()).or_default();
        if entry.requesters.len() < 2 {
            entry.requesters.insert(request.requester.clone());
        }
        entry.requests.retain(SentRequest::is_alive);
        if let Some(source) = entry.requests.iter().rev().find_map(|sent| sent.response_for(request)) {
            return source;
        }
        let (session, url) = (request.session.clone(), request.url.clone());
        let (validators, limits) = (request.validators.clone(), request.limits);
        let fetch = async move {
            Arc::new(SharedResponse {
                fetched: session.get(&url, validators.as_ref(), &limits).await,
                split: SharedSplit::default(),
            })
        };
        let fetch = fetch.boxed().shared();
        let sent_at = Timestamp::now();
        if entry.requests.len() >= MAX_REQUESTS {
            // Newer responses serve every request that the oldest could.
            cached.remove(&entry.requests.remove(0));
        }
        if let Some(weak) = fetch.downgrade() {
            entry.requests.push(SentRequest {
                sent_at,
                validators: request.validators.clone(),
                tracker: request.session.tracker().clone(),
                state: ResponseState::InFlight(weak),
            });
        }
        ResponseSource::New(fetch, sent_at)
    }

    /// Caches a response if several requesters use it. Errors are not cached.
    fn store(&self, key: &RequestKey, sent_at: Timestamp, result: &ResponseRef) {
        if result.fetched.is_err() {
            return self.drop_request(key, sent_at);
        }
        let mut inner = self.0.lock();
        let Inner { entries, cached } = &mut *inner;
        let Some(entry) = entries.get_mut(key) else { return };
        let is_shared = entry.requesters.len() > 1;
        let Some(request) = entry.requests.iter_mut().find(|request| request.sent_at == sent_at) else {
            return;
        };
        // Otherwise, waiting requesters get the response, and it is dropped with them.
        if matches!(request.state, ResponseState::Cached(_)) || !is_shared || !cached.add(result) {
            return;
        }
        request.state = ResponseState::Cached(Arc::clone(result));
        drop(inner);
        let (cache, key) = (self.clone(), key.clone());
        tokio::spawn(async move {
            tokio::time::sleep(TTL).await;
            cache.drop_request(&key, sent_at);
        });
    }

    fn drop_request(&self, key: &RequestKey, sent_at: Timestamp) {
        let mut inner = self.0.lock();
        let Inner { entries, cached } = &mut *inner;
        if let Some(entry) = entries.get_mut(key)
            && let Some(at) = entry.requests.iter().position(|request| request.sent_at == sent_at)
        {
            cached.remove(&entry.requests.remove(at));
        }
    }
}

impl SentRequest {
    fn is_alive(&self) -> bool {
        match &self.state {
            ResponseState::Cached(_) => true,
            ResponseState::InFlight(fetch) => fetch.upgrade().is_some(),
        }
    }

    /// A 304 only serves requests with the same validators, and so does a request in flight, which may end with one.
    fn response_for(&self, request: &DownloadRequest<'_>) -> Option<ResponseSource> {
        if self.sent_at < request.fresh_since {
            return None;
        }
        match &self.state {
            ResponseState::Cached(result) => {
                let is_usable = matches!(result.fetched, Ok(Fetched::Body(_))) || self.validators == request.validators;
                is_usable.then(|| ResponseSource::Cached(Arc::clone(result)))
            }
            ResponseState::InFlight(fetch) if self.validators == request.validators => {
                let fetch = fetch.upgrade()?;
                Some(ResponseSource::Joined(fetch, self.sent_at, self.tracker.clone()))
            }
            ResponseState::InFlight(_) => None,
        }
    }
}
