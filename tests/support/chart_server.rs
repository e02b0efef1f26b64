//! A chart repository on loopback: pages with validators, required credentials, and injected faults. It can also run in
//! front of another server, such as a registry.

mod fault;
mod page;

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use axum::serve::Listener;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tokio::net::TcpListener;

use super::archives::Archive;
use super::forward::Upstream;
use super::tls::{Authority, TlsListener};

pub use fault::Fault;
pub use page::Page;

/// A recorded request.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    pub method: Method,
    /// Without the query.
    pub path: String,
    pub query: Option<String>,
    pub headers: HeaderMap,
    /// The response status; `None` if the connection was closed instead.
    pub status: Option<StatusCode>,
    pub at: Instant,
}

impl RecordedRequest {
    /// Returns true for a conditional request.
    pub fn is_conditional(&self) -> bool {
        self.headers.contains_key(header::IF_NONE_MATCH) || self.headers.contains_key(header::IF_MODIFIED_SINCE)
    }

    /// Returns the `Authorization` header.
    pub fn authorization(&self) -> Option<&str> {
        self.header(&header::AUTHORIZATION)
    }

    /// Returns host and port of the `Host` header.
    pub fn host(&self) -> Option<&str> {
        self.header(&header::HOST)
    }

    fn header(&self, name: &HeaderName) -> Option<&str> {
        let value = self.headers.get(name)?;
        Some(value.to_str().expect("headers of these tests are text"))
    }
}

/// Requirements for each request.
#[derive(Clone)]
struct Demand {
    authorization: String,
    challenge: String,
}

#[derive(Default)]
struct Shared {
    upstream: Option<Upstream>,
    demand: Mutex<Option<Demand>>,
    pages: Mutex<HashMap<String, Page>>,
    faults: Mutex<HashMap<String, VecDeque<(Fault, usize)>>>,
    requests: Mutex<Vec<RecordedRequest>>,
}

/// A running server; it ends with the test's runtime.
pub struct ChartServer {
    base: String,
    ca_pem: Option<String>,
    shared: Arc<Shared>,
}

impl ChartServer {
    /// An HTTP server without pages.
    pub async fn start() -> Self {
        Self::start_with(None, None).await
    }

    /// An HTTPS server with a certificate of a new authority, available as `ca_pem`.
    pub async fn start_tls() -> Self {
        Self::start_with(Some(&Authority::new()), None).await
    }

    /// An HTTPS server with a certificate of this authority, which other servers may share.
    pub async fn start_tls_with(authority: &Authority) -> Self {
        Self::start_with(Some(authority), None).await
    }

    /// An HTTP server that forwards requests for missing pages.
    pub async fn in_front_of(upstream: Upstream) -> Self {
        Self::start_with(None, Some(upstream)).await
    }

    /// Same over HTTPS.
    pub async fn in_front_of_tls(authority: &Authority, upstream: Upstream) -> Self {
        Self::start_with(Some(authority), Some(upstream)).await
    }

    async fn start_with(authority: Option<&Authority>, upstream: Option<Upstream>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            upstream,
            ..Shared::default()
        });
        match authority {
            None => serve(listener, &shared),
            Some(authority) => serve(TlsListener::new(listener, authority), &shared),
        }
        let scheme = if authority.is_some() { "https" } else { "http" };
        Self {
            base: format!("{scheme}://{address}"),
            ca_pem: authority.map(|authority| authority.ca_pem.clone()),
            shared,
        }
    }

    /// Returns the URL of a path, which begins with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// `127.0.0.1:port`
    pub fn host(&self) -> &str {
        self.base.split_once("://").map_or("", |(_, host)| host)
    }

    /// Returns the authority's certificate; requires HTTPS.
    pub fn ca_pem(&self) -> &str {
        self.ca_pem.as_deref().expect("the server was started with TLS")
    }

    /// Serves a page at a path from now on.
    pub fn serve(&self, path: &str, page: Page) {
        self.shared
            .pages
            .lock()
            .expect("mutex is not poisoned")
            .insert(path.to_owned(), page);
    }

    /// Serves chart archives below `/directory`.
    pub fn serve_archives<'a>(&self, directory: &str, archives: impl IntoIterator<Item = &'a Archive>) {
        for archive in archives {
            self.serve(&format!("/{directory}/{}", archive.file_name()), Page::archive(archive));
        }
    }

    /// Responds with 401 and a challenge to every request without this `Authorization` header from now on.
    pub fn demand(&self, authorization: &str) {
        let kind = authorization.split(' ').next().unwrap_or_default();
        *self.shared.demand.lock().expect("mutex is not poisoned") = Some(Demand {
            authorization: authorization.to_owned(),
            challenge: format!("{kind} realm=\"charts\""),
        });
    }

    /// Requires this user and password from now on.
    pub fn demand_basic(&self, user: &str, password: &str) {
        let encoded = BASE64_STANDARD.encode(format!("{user}:{password}"));
        self.demand(&format!("Basic {encoded}"));
    }

    /// Injects a fault into all requests for a path.
    pub fn break_path(&self, path: &str, fault: Fault) {
        self.break_times(path, fault, usize::MAX);
    }

    /// Injects a fault into the next requests for a path, after previously injected ones.
    pub fn break_times(&self, path: &str, fault: Fault, times: usize) {
        let mut faults = self.shared.faults.lock().expect("mutex is not poisoned");
        faults.entry(path.to_owned()).or_default().push_back((fault, times));
    }

    /// Removes all faults of a path.
    pub fn clear_faults(&self, path: &str) {
        self.shared.faults.lock().expect("mutex is not poisoned").remove(path);
    }

    /// Returns the recorded requests for a path, oldest first.
    pub fn requests(&self, path: &str) -> Vec<RecordedRequest> {
        let recorded = self.shared.requests.lock().expect("mutex is not poisoned");
        recorded
            .iter()
            .filter(|request| request.path == path)
            .cloned()
            .collect()
    }

    /// Returns all recorded requests, oldest first.
    pub fn all_requests(&self) -> Vec<RecordedRequest> {
        self.shared.requests.lock().expect("mutex is not poisoned").clone()
    }

    /// Counts all requests.
    pub fn request_count(&self) -> usize {
        self.shared.requests.lock().expect("mutex is not poisoned").len()
    }

    /// Counts the requests for a path.
    pub fn count(&self, path: &str) -> usize {
        self.requests(path).len()
    }
}

impl Shared {
    fn next_fault(&self, path: &str) -> Option<Fault> {
        let mut faults = self.faults.lock().expect("mutex is not poisoned");
        let queue = faults.get_mut(path)?;
        let (fault, left) = queue.front_mut()?;
        let fault = fault.clone();
        *left -= 1;
        if *left == 0 {
            queue.pop_front();
        }
        Some(fault)
    }

    fn refusal(&self, headers: &HeaderMap) -> Option<Response<Body>> {
        let demand = self.demand.lock().expect("mutex is not poisoned").clone()?;
        if headers
            .get(header::AUTHORIZATION)
            .is_some_and(|shown| *shown == demand.authorization)
        {
            return None;
        }
        let mut response = respond(StatusCode::UNAUTHORIZED, Body::from("who are you?\n"));
        let challenge = HeaderValue::from_str(&demand.challenge).expect("a header");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        Some(response)
    }

    async fn good(&self, request: Request) -> Response<Body> {
        let page = {
            let pages = self.pages.lock().expect("mutex is not poisoned");
            pages.get(request.uri().path()).cloned()
        };
        match (page, &self.upstream) {
            (Some(page), _) => page.answer(request.headers()),
            (None, Some(upstream)) => upstream.answer(request).await.unwrap_or_else(|| close_connection()),
            (None, None) => respond(StatusCode::NOT_FOUND, Body::from("404 page not found\n")),
        }
    }
}

fn serve<L: Listener<Addr = SocketAddr>>(listener: L, shared: &Arc<Shared>) {
    let service = Router::new().fallback(answer).with_state(Arc::clone(shared));
    tokio::spawn(async move { axum::serve(listener, service).await });
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let at = Instant::now();
    let path = request.uri().path().to_owned();
    let mut recorded = RecordedRequest {
        method: request.method().clone(),
        path: path.clone(),
        query: request.uri().query().map(str::to_owned),
        headers: request.headers().clone(),
        status: None,
        at,
    };
    let response = match shared.refusal(request.headers()) {
        Some(refusal) => Some(refusal),
        None => match shared.next_fault(&path) {
            None => Some(shared.good(request).await),
            Some(fault) => fault.apply(request, |request| shared.good(request)).await,
        },
    };
    recorded.status = response.as_ref().map(Response::status);
    shared.requests.lock().expect("mutex is not poisoned").push(recorded);
    response.unwrap_or_else(|| close_connection())
}

/// Unwinds the task that serves this connection, which drops it. Prints nothing, unlike a panic.
pub fn close_connection() -> ! {
    std::panic::resume_unwind(Box::new("the connection is closed without a response"))
}

fn respond(status: StatusCode, body: Body) -> Response<Body> {
    Response::builder()
        .status(status)
        .body(body)
        .expect("a status and a body make a response")
}
