//! An HTTP proxy between Portolan and the API server, which counts requests, injects faults and closes connections.

mod responses;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, Response, StatusCode};
use axum::serve::Listener;
use tokio::net::TcpListener;

use super::chart_server::close_connection;
use super::control_plane::ControlPlane;
use super::forward::Upstream;
use super::gate::Gate;
use super::signal::Signal;
use super::tls::TlsListener;
use super::watch_filter::WatchFilter;
use responses::{endless, error, expired, half, huge, redirect, too_many_requests, torn};

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
    /// An object with this many MiB; the request is not forwarded.
    Huge(usize),
    /// A watch that opens and sends an event without an end.
    Endless,
    /// A redirect to this URL; the request is not forwarded.
    Redirect(String),
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
    scheme: &'static str,
    shared: Arc<Shared>,
}

impl FaultProxy {
    /// A proxy that forwards everything.
    pub async fn in_front_of(control_plane: &ControlPlane) -> Self {
        Self::to(upstream_of(control_plane)).await
    }

    /// Same over TLS, with the certificate of the API server.
    pub async fn in_front_of_tls(control_plane: &ControlPlane) -> Self {
        let (listener, shared) = prepare(upstream_of(control_plane)).await;
        let address = listener.local_addr().expect("a bound socket has an address");
        serve(TlsListener::new(listener, control_plane.authority()), &shared);
        Self {
            gate: Gate::in_front_of(address).await,
            scheme: "https",
            shared,
        }
    }

    /// A proxy of another HTTP server.
    pub async fn to(upstream: Upstream) -> Self {
        let (listener, shared) = prepare(upstream).await;
        let address = listener.local_addr().expect("a bound socket has an address");
        serve(listener, &shared);
        Self {
            gate: Gate::in_front_of(address).await,
            scheme: "http",
            shared,
        }
    }

    /// Returns the server address for a kubeconfig (`ControlPlane::kubeconfig_for`) or the Secret of a cluster.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.gate.address())
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

fn upstream_of(control_plane: &ControlPlane) -> Upstream {
    Upstream::new(&control_plane.url(), Some(control_plane.ca_pem()))
}

async fn prepare(upstream: Upstream) -> (TcpListener, Arc<Shared>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a port is free");
    let shared = Shared {
        upstream,
        rules: Mutex::default(),
        requests: Mutex::default(),
        applied: Mutex::default(),
    };
    (listener, Arc::new(shared))
}

fn serve<L: Listener<Addr = SocketAddr>>(listener: L, shared: &Arc<Shared>) {
    let service = Router::new().fallback(pass).with_state(Arc::clone(shared));
    tokio::spawn(async move { axum::serve(listener, service).await });
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
        Some(ApiFault::Huge(mebibytes)) => huge(mebibytes),
        Some(ApiFault::Endless) => endless(),
        Some(ApiFault::Redirect(to)) => redirect(&to),
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

async fn forward(shared: &Shared, request: Request) -> Response<Body> {
    let answer = shared.upstream.answer(request).await;
    answer.unwrap_or_else(|| close_connection())
}
