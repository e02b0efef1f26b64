//! Limits requests to the API server, fairly between namespaces. Watches and the Lease bypass them, except the rate
//! of remote API servers.

use std::num::NonZeroU32;
use std::time::Duration;

use axum::http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use governor::clock::Clock;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use kube::client::Body;
use tokio::time::{Instant, sleep, sleep_until};

use super::pauses::{Flow, Pauses, Verb};
use super::response_timeout::ResponseTimedOut;
use super::time_limit::TimeLimit;
use crate::budget::ResourceMetrics;
use crate::clock::TokioClock;
use crate::runtime::fair_semaphore::{FairLimits, FairPermit, FairSemaphore, Requester};

/// Requests in flight for one object.
const PER_OBJECT: usize = 4;
/// Upper bound of a `Retry-After`; API Priority and Fairness sends one second.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Retries of a request that the API server refused as too many; client-go has ten.
const MAX_RETRIES: u32 = 10;
/// Same for an impersonated user: the caller holds a worker, and retries with backoff.
const MAX_RETRIES_OF_USER: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    pub inflight: usize,
    /// No limit if `None`.
    pub per_second: Option<NonZeroU32>,
    /// Requests above the rate; the requests of one second if `None`.
    pub burst: Option<NonZeroU32>,
    /// Only the limits of the callers if `None`.
    pub timeouts: Option<RequestTimeouts>,
}

/// Time limits from the sending of a request to the end of its response, except of watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTimeouts {
    pub get: Duration,
    pub list: Duration,
    pub write: Duration,
}

impl RequestTimeouts {
    #[must_use]
    pub fn limit_of(&self, request: &Request<Body>) -> Duration {
        match Verb::of(request) {
            Verb::Get => self.get,
            Verb::List => self.list,
            Verb::Write => self.write,
        }
    }
}

pub(super) struct RequestLimiter {
    permits: FairSemaphore,
    rate: Option<RateLimiter<NotKeyed, InMemoryState, TokioClock>>,
    timeouts: Option<RequestTimeouts>,
    /// The time limits include waits and retries.
    has_total_timeouts: bool,
    pauses: Pauses,
}

impl RequestLimiter {
    pub(super) fn new(limits: RequestLimits, metrics: ResourceMetrics) -> Self {
        let quota = |rate| Quota::per_second(rate).allow_burst(limits.burst.unwrap_or(rate));
        let rate = limits.per_second.map(quota);
        Self {
            permits: FairSemaphore::new(
                FairLimits {
                    total: limits.inflight,
                    per_object: PER_OBJECT,
                },
                metrics,
            ),
            rate: rate.map(|quota| RateLimiter::direct_with_clock(quota, TokioClock)),
            timeouts: limits.timeouts,
            has_total_timeouts: false,
            pauses: Pauses::default(),
        }
    }

    /// Ends each request at its time limit, although it waits or is repeated: for API servers that are not trusted.
    pub(super) fn with_total_timeouts(self) -> Self {
        Self {
            has_total_timeouts: true,
            ..self
        }
    }

    /// Repeats a request after a 429 with `Retry-After`. `send` returns the complete response. Waiting for a permit
    /// does not count towards the time limit unless it is total, and no permit is held during a pause.
    pub(super) async fn limit<B, E, F>(
        &self,
        request: Request<Body>,
        send: impl Fn(Request<Body>) -> F,
    ) -> Result<axum::http::Response<B>, E>
    where
        F: Future<Output = Result<axum::http::Response<B>, E>>,
        E: From<ResponseTimedOut>,
    {
        let limit = self.timeouts.map(|timeouts| timeouts.limit_of(&request));
        let time = TimeLimit::start(limit, self.has_total_timeouts);
        let requester = requester(request.method(), request.uri());
        let flow = self.pauses.flow_of(&request);
        let max_retries = if flow.is_impersonated() {
            MAX_RETRIES_OF_USER
        } else {
            MAX_RETRIES
        };
        let mut request = request;
        let mut retries = 0;
        loop {
            let again = copy(&request);
            let pause = self.pauses.end_of(flow);
            // The caller would wait for nothing.
            pause.map_or(Ok(()), |end| time.check_lasts_until(end))?;
            let permit = time.limit_wait(self.acquire(&requester, flow)).await?;
            let response = time.limit_attempt(send(request)).await??;
            drop(permit);
            let Some(pause) = retry_after(response.status(), response.headers()) else {
                return Ok(response);
            };
            let end = Instant::now() + pause;
            self.pauses.add(flow, end);
            match again {
                Some(again) if retries < max_retries && time.lasts_until(end) => request = again,
                _ => return Ok(response),
            }
            sleep_until(end).await;
            retries += 1;
        }
    }

    async fn acquire(&self, requester: &Requester, flow: Flow) -> FairPermit {
        let permit = loop {
            self.pauses.wait(flow).await;
            let permit = self.permits.acquire(requester.clone()).await;
            // The pause may have begun during the wait for the permit, which others can use meanwhile.
            if self.pauses.end_of(flow).is_none() {
                break permit;
            }
        };
        self.wait_for_rate().await;
        permit
    }

    pub(super) async fn wait_for_rate(&self) {
        if let Some(rate) = &self.rate {
            while let Err(not_yet) = rate.check() {
                sleep(not_yet.wait_time_from(TokioClock.now())).await;
            }
        }
    }
}

fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

fn retry_after(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    (status == StatusCode::TOO_MANY_REQUESTS).then(|| Duration::from_secs(seconds).min(MAX_PAUSE))
}

/// Groups requests by namespace. Status writes of each resource are a class of their own, so that many writes of one
/// resource alternate with writes of another.
pub(super) fn requester(method: &Method, uri: &Uri) -> Requester {
    let segments: Vec<&str> = uri.path().split('/').collect();
    let resource = match segments.as_slice() {
        ["", "api", _, resource @ ..] | ["", "apis", _, _, resource @ ..] => resource,
        _ => return Requester::default(),
    };
    let (namespace, resource) = match resource {
        ["namespaces", namespace, resource @ ..] if !resource.is_empty() => (*namespace, resource),
        _ => ("", resource),
    };
    let class = match resource {
        [resource, _, "status"] if method != Method::GET => *resource,
        _ => "",
    };
    let object = match resource {
        [resource, name, ..] => format!("{namespace}/{resource}/{name}"),
        _ => String::new(),
    };
    Requester {
        class: class.to_owned(),
        group: namespace.to_owned(),
        object,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::Response;
    use futures::future::join_all;
    use parking_lot::Mutex;

    use super::*;

    fn limiter(inflight: usize, per_second: Option<u32>) -> RequestLimiter {
        let limits = RequestLimits {
            inflight,
            per_second: per_second.and_then(NonZeroU32::new),
            burst: None,
            timeouts: None,
        };
        RequestLimiter::new(limits, ResourceMetrics::unregistered())
    }

    fn patch(uri: &str) -> Request<Body> {
        Request::patch(uri).body(Body::from(b"{}".to_vec())).unwrap()
    }

    fn status_of(kind: &str, namespace: usize, name: usize) -> String {
        format!("/apis/example.com/v1/namespaces/n{namespace}/{kind}/{name}/status")
    }

    #[tokio::test(start_paused = true)]
    async fn every_request_is_answered_within_the_limits() {
        let limiter = limiter(64, None);
        let (current, highest) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let send = |_: Request<Body>| async {
            highest.fetch_max(current.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_millis(10)).await;
            current.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, ResponseTimedOut>(Response::new(()))
        };
        let start = Instant::now();
        let all = (0..1_000).map(|number| limiter.limit(patch(&status_of("ships", number % 7, number)), send));
        assert_eq!(join_all(all).await.into_iter().filter(Result::is_ok).count(), 1_000);
        assert_eq!(highest.load(Ordering::SeqCst), 64);
        assert_eq!(start.elapsed(), Duration::from_millis(10 * 1_000_u64.div_ceil(64)));
        highest.store(0, Ordering::SeqCst);
        join_all((0..20).map(|_| limiter.limit(patch(&status_of("ships", 1, 1)), send))).await;
        assert_eq!(highest.load(Ordering::SeqCst), PER_OBJECT);
    }

    #[tokio::test(start_paused = true)]
    async fn status_writes_of_two_resources_alternate_and_namespaces_take_turns() {
        let limiter = limiter(1, None);
        let order = Mutex::new(Vec::new());
        let send = |request: Request<Body>| {
            order.lock().push(request.uri().path().to_owned());
            async {
                sleep(Duration::from_millis(1)).await;
                Ok::<_, ResponseTimedOut>(Response::new(()))
            }
        };
        let ships = (0..4).map(|name| status_of("ships", 0, name));
        let more_ships = [status_of("ships", 1, 0)];
        let harbors = (0..3).map(|name| status_of("harbors", 0, name));
        let uris: Vec<_> = ships.chain(more_ships).chain(harbors).collect();
        join_all(uris.iter().map(|uri| limiter.limit(patch(uri), send))).await;
        let expected = [
            ("ships", 0, 0),
            ("ships", 0, 1),
            ("harbors", 0, 0),
            ("ships", 1, 0),
            ("harbors", 0, 1),
            ("ships", 0, 2),
            ("harbors", 0, 2),
            ("ships", 0, 3),
        ];
        assert_eq!(
            *order.lock(),
            expected.map(|(kind, namespace, name)| status_of(kind, namespace, name))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_pauses_all_requests_of_its_verb_and_the_refused_one_is_repeated() {
        let limiter = limiter(64, None);
        let sent = Arc::<Mutex<Vec<u64>>>::default();
        let start = Instant::now();
        let times = Arc::clone(&sent);
        let send = move |request: Request<Body>| {
            let mut times = times.lock();
            times.push(start.elapsed().as_secs());
            let mut response = Response::new(());
            if times.len() == 1 {
                assert_eq!(request.uri().path(), "/first");
                *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
                response.headers_mut().insert(header::RETRY_AFTER, 3.into());
            }
            async { Ok::<_, ResponseTimedOut>(response) }
        };
        let first = limiter.limit(patch("/first"), &send).await.unwrap();
        assert_eq!(first.status(), StatusCode::OK);
        limiter.limit(patch("/second"), &send).await.unwrap();
        assert_eq!(*sent.lock(), [0, 3, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_user_delays_no_other_and_holds_no_permit() {
        let limiter = limiter(1, None);
        let refused = |request: &Request<Body>| {
            let user = request.headers().get("impersonate-user");
            user.is_some_and(|user| user == "eve")
        };
        let send = |request: Request<Body>| {
            let status = if refused(&request) { 429 } else { 200 };
            let response = Response::builder().status(status).header("Retry-After", "10");
            async { Ok::<_, ResponseTimedOut>(response.body(()).unwrap()) }
        };
        let start = Instant::now();
        let write = async |user: &str| {
            let mut request = patch("/api/v1/namespaces/sea/pods/a");
            if !user.is_empty() {
                request.headers_mut().insert("impersonate-user", user.parse().unwrap());
            }
            (
                limiter.limit(request, send).await.unwrap().status().as_u16(),
                start.elapsed().as_secs(),
            )
        };
        let answers = futures::join!(write("eve"), write("eve"), write("ann"), write(""));
        assert_eq!([answers.2, answers.3], [(200, 0), (200, 0)]);
        let given_up = 10 * u64::from(MAX_RETRIES_OF_USER);
        assert_eq!(answers.0, (429, given_up));
        assert_eq!(answers.1.0, 429);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_always_refused_ends_with_the_refusal() {
        let limiter = limiter(64, None);
        let refuse = |_: Request<Body>| async {
            let refused = Response::builder().status(429).header("Retry-After", "1");
            Ok::<_, ResponseTimedOut>(refused.body(()).unwrap())
        };
        let start = Instant::now();
        let response = limiter.limit(patch("/refused"), refuse).await.unwrap();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(start.elapsed().as_secs(), u64::from(MAX_RETRIES));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_has_the_time_of_its_verb_after_its_wait_for_a_permit() {
        let limits = RequestLimits {
            inflight: 1,
            per_second: None,
            burst: None,
            timeouts: Some(RequestTimeouts {
                get: Duration::from_secs(10),
                list: Duration::from_secs(30),
                write: Duration::from_secs(15),
            }),
        };
        let limiter = RequestLimiter::new(limits, ResourceMetrics::unregistered());
        let send = |_: Request<Body>| std::future::pending::<Result<Response<()>, ResponseTimedOut>>();
        let path = "/api/v1/namespaces/sea/pods";
        let object = format!("{path}/a");
        let get = |uri: &str| Request::get(uri).body(Body::empty()).unwrap();
        let requests = [get(&object), get(path), patch(&object)];
        let errors = join_all(requests.map(|request| limiter.limit(request, send))).await;
        let texts: Vec<_> = errors.into_iter().map(|error| error.unwrap_err().to_string()).collect();
        assert_eq!(
            texts,
            [10, 30, 15].map(|seconds| format!("no response within {seconds}s"))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_limit_applies_only_if_it_is_set() {
        let send = |_: Request<Body>| async { Ok::<_, ResponseTimedOut>(Response::new(())) };
        for (per_second, seconds) in [(None, 0), (Some(10), 9)] {
            let limiter = limiter(64, per_second);
            let start = Instant::now();
            join_all((0..100).map(|number| limiter.limit(patch(&status_of("ships", 0, number)), send))).await;
            assert_eq!(start.elapsed().as_secs(), seconds);
        }
    }

    #[test]
    fn requests_are_grouped_by_namespace_resource_and_object() {
        let of = |method: Method, path: &str| {
            let Requester { class, group, object } = requester(&method, &path.parse().unwrap());
            [class, group, object]
        };
        let status = "/apis/example.com/v1/namespaces/sea/ships/a/status?fieldManager=x";
        assert_eq!(of(Method::PATCH, status), ["ships", "sea", "sea/ships/a"]);
        assert_eq!(of(Method::GET, status), ["", "sea", "sea/ships/a"]);
        assert_eq!(
            of(Method::PATCH, "/api/v1/namespaces/sea/pods/a"),
            ["", "sea", "sea/pods/a"]
        );
        assert_eq!(of(Method::GET, "/api/v1/namespaces/sea"), ["", "", "/namespaces/sea"]);
        assert_eq!(of(Method::GET, "/api/v1/pods?limit=200"), ["", "", ""]);
        assert_eq!(
            of(Method::POST, "/apis/events.k8s.io/v1/namespaces/sea/events"),
            ["", "sea", ""]
        );
        assert_eq!(of(Method::GET, "/version"), ["", "", ""]);
    }
}
