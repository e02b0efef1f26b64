//! An HTTP proxy between Portolan and the API server, which counts requests, injects faults and closes connections.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, Response, StatusCode, header};
use futures::StreamExt;
use serde_json::json;
use tokio::net::TcpListener;

use super::chart_server::close_connection;
use super::control_plane::ControlPlane;
use super::forward::Upstream;
use super::gate::Gate;
use super::signal::Signal;
use super::watch_filter::WatchFilter;

/// The longest `Retry-After` that is obeyed.
pub const THROTTLED_FOR: Duration = Duration::from_secs(10);

/// A recorded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiRequest {
    pub method: Method,
    /// Without the query.
    pub path: String,
    pub query: BTreeMap<String, String>,
    /// The `Accept` header.
    pub accept: String,
    /// The user that is impersonated; empty for none.
    pub user: String,
}

impl ApiRequest {
    /// Returns true if it opens a watch.
    pub fn is_watch(&self) -> bool {
        self.query
            .get("watch")
            .is_some_and(|value| matches!(value.as_str(), "1" | "true"))
    }

    /// Returns true if it lists or watches the resource `plural`.
    pub fn is_of(&self, plural: &str) -> bool {
        self.method == Method::GET && self.path.rsplit('/').next() == Some(plural)
    }

    /// Returns true if it requests metadata only.
    pub fn is_partial(&self) -> bool {
        self.accept.contains("PartialObjectMetadata")
    }
}

/// A fault injected into a request.
#[derive(Clone, Debug)]
pub enum ApiFault {
    /// An error with this status code, as the API server writes it; the request is not forwarded.
    Status(u16),
    /// A 429 with `Retry-After: 1`; the request is not forwarded.
    TooManyRequests,
    /// Same with `Retry-After` of `THROTTLED_FOR`.
    Throttled,
    /// A watch that opens and immediately reports that its resource version is too old (410).
    WatchExpired,
    /// A watch that opens and ends in the middle of an event.
    WatchTruncated,
    /// The connection is closed without a response; the request is not forwarded.
    Refused,
    /// No response, and the connection stays open.
    Stalled,
    /// The request is forwarded and processed, but the response is lost with the connection.
    ResponseLost,
    /// The request is forwarded and processed, and no response follows. The signal is given once it is processed.
    ResponseHeld(Arc<Signal>),
    /// The request is forwarded and processed, and the connection is closed in the middle of the response.
    HalfBody,
    /// The events of a watch are filtered.
    Filtered(Arc<WatchFilter>),
    /// The request is forwarded when the test says so.
    Paused(Arc<Pause>),
    /// None, but the request is counted while it is processed.
    Counted(Arc<AtOnce>),
}

/// A request that waits.
#[derive(Debug, Default)]
pub struct Pause {
    pub arrived: Signal,
    pub goes_on: Signal,
}

/// Counts requests that are processed at the same time.
#[derive(Debug, Default)]
pub struct AtOnce {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl AtOnce {
    /// Counts a request until the guard is dropped, also if its client closes the connection before the answer.
    fn count(&self) -> impl Drop + '_ {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        Counted(self)
    }

    /// Returns the most requests that were processed at the same time.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

struct Counted<'a>(&'a AtOnce);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

type Chooser = Box<dyn Fn(&ApiRequest) -> bool + Send>;

struct Rule {
    chooser: Chooser,
    fault: ApiFault,
    left: usize,
}

struct Shared {
    upstream: Upstream,
    rules: Mutex<Vec<Rule>>,
    requests: Mutex<Vec<ApiRequest>>,
    applied: Mutex<Vec<ApiRequest>>,
}

/// A running proxy; it ends with the test's runtime.
pub struct FaultProxy {
    /// Closes all connections, or the proxy for a while.
    pub gate: Gate,
    shared: Arc<Shared>,
}

impl FaultProxy {
    /// A proxy that forwards everything.
    pub async fn in_front_of(control_plane: &ControlPlane) -> Self {
        Self::to(Upstream::new(&control_plane.url(), Some(control_plane.ca_pem()))).await
    }

    /// A proxy of another HTTP server.
    pub async fn to(upstream: Upstream) -> Self {
        let shared = Arc::new(Shared {
            upstream,
            rules: Mutex::default(),
            requests: Mutex::default(),
            applied: Mutex::default(),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let service = Router::new().fallback(pass).with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, service).await });
        Self {
            gate: Gate::in_front_of(address).await,
            shared,
        }
    }

    /// Returns the server address for a kubeconfig (`ControlPlane::kubeconfig_for`).
    pub fn url(&self) -> String {
        format!("http://{}", self.gate.address())
    }

    /// Injects a fault into the next `times` requests that `chooser` selects. The first matching rule applies.
    pub fn inject(&self, times: usize, fault: ApiFault, chooser: impl Fn(&ApiRequest) -> bool + Send + 'static) {
        let rule = Rule {
            chooser: Box::new(chooser),
            fault,
            left: times,
        };
        self.shared.rules.lock().expect("mutex is not poisoned").push(rule);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.shared.rules.lock().expect("mutex is not poisoned").clear();
    }

    /// Returns all recorded requests, including those with faults.
    pub fn requests(&self) -> Vec<ApiRequest> {
        self.shared.requests.lock().expect("mutex is not poisoned").clone()
    }

    /// Returns the patches that created an object.
    pub fn applied(&self) -> Vec<ApiRequest> {
        self.shared.applied.lock().expect("mutex is not poisoned").clone()
    }
}

impl Shared {
    fn fault_for(&self, request: &ApiRequest) -> Option<ApiFault> {
        let mut rules = self.rules.lock().expect("mutex is not poisoned");
        let rule = rules.iter_mut().find(|rule| rule.left > 0 && (rule.chooser)(request))?;
        rule.left -= 1;
        Some(rule.fault.clone())
    }
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let query = request.uri().query().unwrap_or_default();
    let recorded = ApiRequest {
        method: request.method().clone(),
        path: request.uri().path().to_owned(),
        query: url::form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
        accept: text_of(&request, "accept"),
        user: text_of(&request, "impersonate-user"),
    };
    shared
        .requests
        .lock()
        .expect("mutex is not poisoned")
        .push(recorded.clone());
    match shared.fault_for(&recorded) {
        None => {
            let answer = forward(&shared, request).await;
            if recorded.method == Method::PATCH && answer.status() == StatusCode::CREATED {
                shared.applied.lock().expect("mutex is not poisoned").push(recorded);
            }
            answer
        }
        Some(ApiFault::Status(code)) => error(code),
        Some(ApiFault::TooManyRequests) => too_many_requests(1),
        Some(ApiFault::Throttled) => too_many_requests(THROTTLED_FOR.as_secs()),
        Some(ApiFault::WatchExpired) => expired(),
        Some(ApiFault::WatchTruncated) => torn(),
        Some(ApiFault::Refused) => close_connection(),
        Some(ApiFault::Stalled) => std::future::pending().await,
        Some(ApiFault::Counted(count)) => {
            let _counted = count.count();
            forward(&shared, request).await
        }
        Some(ApiFault::ResponseLost) => {
            let answer = forward(&shared, request).await;
            // Read to its end, so that the server has processed the request.
            let _ = axum::body::to_bytes(answer.into_body(), usize::MAX).await;
            close_connection()
        }
        Some(ApiFault::ResponseHeld(signal)) => {
            // A task of its own: the client is killed when the signal is given, and its connection with it.
            tokio::spawn(async move {
                let answer = forward(&shared, request).await;
                let _ = axum::body::to_bytes(answer.into_body(), usize::MAX).await;
                signal.give();
            });
            std::future::pending().await
        }
        Some(ApiFault::Paused(pause)) => {
            pause.arrived.give();
            pause.goes_on.given().await;
            forward(&shared, request).await
        }
        Some(ApiFault::HalfBody) => half(forward(&shared, request).await).await,
        Some(ApiFault::Filtered(filter)) => filter.apply(recorded, forward(&shared, request).await),
    }
}

fn text_of(request: &Request, header: &str) -> String {
    let value = request.headers().get(header).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}

fn too_many_requests(retry_after: u64) -> Response<Body> {
    let mut refused = error(429);
    refused.headers_mut().insert(header::RETRY_AFTER, retry_after.into());
    refused
}

/// Announces the complete body, and closes the connection after half of it.
async fn half(answer: Response<Body>) -> Response<Body> {
    let (mut parts, body) = answer.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    parts.headers.insert(header::CONTENT_LENGTH, body.len().into());
    let start = Ok::<_, std::io::Error>(body.slice(..body.len() / 2));
    let cut = async {
        // Written data is sent first.
        tokio::task::yield_now().await;
        Err(std::io::Error::other("cut"))
    };
    let pieces = futures::stream::iter([start]).chain(futures::stream::once(cut));
    Response::from_parts(parts, Body::from_stream(pieces))
}

async fn forward(shared: &Shared, request: Request) -> Response<Body> {
    let answer = shared.upstream.answer(request).await;
    answer.unwrap_or_else(|| close_connection())
}

fn error(code: u16) -> Response<Body> {
    let status = StatusCode::from_u16(code).expect("a status");
    let reason = match code {
        403 => "Forbidden",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        500 => "InternalError",
        _ => "ServiceUnavailable",
    };
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "injected by the test", "reason": reason, "code": code});
    let response = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json");
    response.body(body.to_string().into()).expect("the response is valid")
}

fn expired() -> Response<Body> {
    let event = json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version: 1 (2)", "reason": "Expired", "code": 410}});
    let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
    response
        .body(format!("{event}\n").into())
        .expect("the response is valid")
}

fn torn() -> Response<Body> {
    let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
    response
        .body("{\"type\": \"MODIFIED\", \"object\": {\"apiVersion\": \"v1\", \"meta".into())
        .expect("the response is valid")
}
