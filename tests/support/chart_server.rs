//! A chart repository on loopback: pages with validators, and faults on demand.

use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use axum::serve::Listener;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::{Stream, StreamExt, stream};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

use super::tls::{Authority, TlsListener};

/// What is served at a path.
#[derive(Clone, Debug)]
pub struct Page {
    body: Bytes,
    content_type: &'static str,
    etag: Option<String>,
    last_modified: Option<String>,
    gzip: bool,
}

impl Page {
    /// A page with an ETag that follows its content, as usual servers have it.
    pub fn new(body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let hash: String = Sha256::digest(&body)
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self {
            body,
            content_type: "application/yaml",
            etag: Some(format!("\"{hash}\"")),
            last_modified: None,
            gzip: false,
        }
    }

    /// Without an ETag (and, unless it is set, without Last-Modified): the server cannot answer 304.
    pub fn without_etag(mut self) -> Self {
        self.etag = None;
        self
    }

    /// With this ETag, quotes included.
    pub fn etag(mut self, etag: &str) -> Self {
        self.etag = Some(etag.to_owned());
        self
    }

    /// With this Last-Modified date.
    pub fn last_modified(mut self, date: &str) -> Self {
        self.last_modified = Some(date.to_owned());
        self
    }

    /// Compressed on the way, for clients that accept it.
    pub fn gzip(mut self) -> Self {
        self.gzip = true;
        self
    }

    /// With another content type.
    pub fn content_type(mut self, content_type: &'static str) -> Self {
        self.content_type = content_type;
        self
    }
}

/// What a path does instead of serving its page well.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Answers with this status, these headers and this body.
    Answer(StatusCode, Vec<(HeaderName, String)>, Bytes),
    /// Closes the connection without an answer.
    NoAnswer,
    /// Waits before it answers with the page.
    Delay(Duration),
    /// Sends so many bytes of the page, then nothing more; the connection stays open.
    StallAfter(usize),
    /// Announces the whole page, sends so many bytes of it and closes the connection.
    CutAfter(usize),
    /// Sends the page in pieces of so many bytes, with a pause after each.
    Drip(usize, Duration),
    /// A compressed body that expands without end.
    EndlessGzip,
}

impl Fault {
    /// A status with nothing else.
    pub fn status(status: u16) -> Self {
        Self::Answer(
            StatusCode::from_u16(status).expect("a status"),
            Vec::new(),
            Bytes::new(),
        )
    }

    /// A status with a `Retry-After` header.
    pub fn retry_after(status: u16, value: &str) -> Self {
        let headers = vec![(header::RETRY_AFTER, value.to_owned())];
        Self::Answer(StatusCode::from_u16(status).expect("a status"), headers, Bytes::new())
    }

    /// A redirect; a path that redirects to itself is a loop.
    pub fn redirect(location: &str) -> Self {
        Self::Answer(
            StatusCode::FOUND,
            vec![(header::LOCATION, location.to_owned())],
            Bytes::new(),
        )
    }

    /// A page for people with status 200, as captive portals and log-in pages answer.
    pub fn html() -> Self {
        let headers = vec![(header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned())];
        Self::Answer(
            StatusCode::OK,
            headers,
            "<!DOCTYPE html>\n<html><body>Please log in</body></html>\n".into(),
        )
    }
}

/// A request as it came in.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The path without the query.
    pub path: String,
    /// The query, if there was one.
    pub query: Option<String>,
    /// All headers.
    pub headers: HeaderMap,
    /// The status that was answered; `None` if the connection was closed instead.
    pub status: Option<StatusCode>,
    /// When it came in.
    pub at: Instant,
}

impl Seen {
    /// Whether it asked for the page only if that has changed.
    pub fn is_conditional(&self) -> bool {
        self.headers.contains_key(header::IF_NONE_MATCH) || self.headers.contains_key(header::IF_MODIFIED_SINCE)
    }
}

#[derive(Default)]
struct Shared {
    pages: Mutex<HashMap<String, Page>>,
    faults: Mutex<HashMap<String, VecDeque<(Fault, usize)>>>,
    seen: Mutex<Vec<Seen>>,
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
        let (listener, address) = bind().await;
        let shared = serve(listener);
        Self {
            base: format!("http://{address}"),
            ca_pem: None,
            shared,
        }
    }

    /// An HTTPS server with a certificate of an authority that nobody knows but through `ca_pem`.
    pub async fn start_tls() -> Self {
        let authority = Authority::new();
        let (listener, address) = bind().await;
        let shared = serve(TlsListener::new(listener, &authority));
        Self {
            base: format!("https://{address}"),
            ca_pem: Some(authority.ca_pem),
            shared,
        }
    }

    /// The address of a path, which begins with a slash.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// The authority's certificate; only HTTPS servers have one.
    pub fn ca_pem(&self) -> &str {
        self.ca_pem.as_deref().expect("the server was started with TLS")
    }

    /// Serves a page at a path from now on.
    pub fn serve(&self, path: &str, page: Page) {
        self.shared
            .pages
            .lock()
            .expect("no panic while it is held")
            .insert(path.to_owned(), page);
    }

    /// Breaks a path until it is repaired.
    pub fn break_path(&self, path: &str, fault: Fault) {
        self.break_times(path, fault, usize::MAX);
    }

    /// Breaks a path for the next so many requests, after the faults that were asked for before.
    pub fn break_times(&self, path: &str, fault: Fault, times: usize) {
        let mut faults = self.shared.faults.lock().expect("no panic while it is held");
        faults.entry(path.to_owned()).or_default().push_back((fault, times));
    }

    /// Takes all faults of a path away.
    pub fn repair(&self, path: &str) {
        self.shared
            .faults
            .lock()
            .expect("no panic while it is held")
            .remove(path);
    }

    /// The requests for a path so far, oldest first.
    pub fn seen(&self, path: &str) -> Vec<Seen> {
        let seen = self.shared.seen.lock().expect("no panic while it is held");
        seen.iter().filter(|request| request.path == path).cloned().collect()
    }
}

impl Shared {
    fn next_fault(&self, path: &str) -> Option<Fault> {
        let mut faults = self.faults.lock().expect("no panic while it is held");
        let queue = faults.get_mut(path)?;
        let (fault, left) = queue.front_mut()?;
        let fault = fault.clone();
        *left -= 1;
        if *left == 0 {
            queue.pop_front();
        }
        Some(fault)
    }
}

async fn bind() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a port is free");
    let address = listener.local_addr().expect("a bound socket has an address");
    (listener, address)
}

fn serve<L: Listener<Addr = SocketAddr>>(listener: L) -> Arc<Shared> {
    let shared = Arc::<Shared>::default();
    let service = Router::new().fallback(answer).with_state(Arc::clone(&shared));
    tokio::spawn(async move { axum::serve(listener, service).await });
    shared
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let at = Instant::now();
    let path = request.uri().path().to_owned();
    let page = shared
        .pages
        .lock()
        .expect("no panic while it is held")
        .get(&path)
        .cloned();
    let response = match shared.next_fault(&path) {
        None => page.map_or_else(not_found, |page| good(&page, request.headers())),
        Some(fault) => bad(fault, page, request.headers()).await,
    };
    shared.seen.lock().expect("no panic while it is held").push(Seen {
        path,
        query: request.uri().query().map(str::to_owned),
        headers: request.headers().clone(),
        status: response.as_ref().map(Response::status),
        at,
    });
    response.unwrap_or_else(|| close_connection())
}

/// Unwinds the task that serves this connection, which drops it. Nothing is printed, as a panic would.
pub fn close_connection() -> ! {
    std::panic::resume_unwind(Box::new("the connection is closed without an answer"))
}

fn not_found() -> Option<Response<Body>> {
    Some(respond(StatusCode::NOT_FOUND, Body::from("404 page not found\n")))
}

fn respond(status: StatusCode, body: Body) -> Response<Body> {
    Response::builder()
        .status(status)
        .body(body)
        .expect("a status and a body make a response")
}

/// The page, or that it has not changed. A date counts only when no ETag was asked for (RFC 9110, 13.1.3).
fn good(page: &Page, asked: &HeaderMap) -> Option<Response<Body>> {
    let asked_for = |name| asked.get(name).and_then(|value| value.to_str().ok());
    let unchanged = match (asked_for(header::IF_NONE_MATCH), asked_for(header::IF_MODIFIED_SINCE)) {
        (Some(tag), _) => page.etag.as_deref() == Some(tag),
        (None, Some(date)) => page.last_modified.as_deref() == Some(date),
        (None, None) => false,
    };
    let compressed = page.gzip && asked_for(header::ACCEPT_ENCODING).is_some_and(|accepted| accepted.contains("gzip"));
    let mut response = match (unchanged, compressed) {
        (true, _) => respond(StatusCode::NOT_MODIFIED, Body::empty()),
        (false, false) => respond(StatusCode::OK, page.body.clone().into()),
        (false, true) => respond(StatusCode::OK, gzip(&page.body).into()),
    };
    let mut set = |name, value: &str| {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_str(value).expect("a header"))
    };
    if !unchanged {
        set(header::CONTENT_TYPE, page.content_type);
        if compressed {
            set(header::CONTENT_ENCODING, "gzip");
        }
    }
    page.etag.iter().for_each(|tag| drop(set(header::ETAG, tag)));
    page.last_modified
        .iter()
        .for_each(|date| drop(set(header::LAST_MODIFIED, date)));
    Some(response)
}

async fn bad(fault: Fault, page: Option<Page>, asked: &HeaderMap) -> Option<Response<Body>> {
    let body = page.as_ref().map(|page| page.body.clone()).unwrap_or_default();
    let start = |bytes: usize| Ok::<_, std::io::Error>(body.slice(..bytes.min(body.len())));
    let response = match fault {
        Fault::NoAnswer => return None,
        Fault::Delay(pause) => {
            tokio::time::sleep(pause).await;
            return page.map_or_else(not_found, |page| good(&page, asked));
        }
        Fault::Answer(status, headers, body) => {
            let mut response = respond(status, body.into());
            for (name, value) in headers {
                response.headers_mut().insert(name, value.parse().expect("a header"));
            }
            return Some(response);
        }
        Fault::StallAfter(bytes) => stream::iter([start(bytes)]).chain(stream::pending()).boxed(),
        Fault::CutAfter(bytes) => stream::iter([start(bytes)]).chain(stream::once(cut())).boxed(),
        Fault::Drip(piece, pause) => drip(body.clone(), piece, pause).boxed(),
        Fault::EndlessGzip => {
            let mut response = respond(StatusCode::OK, Body::from_stream(endless_gzip()));
            response
                .headers_mut()
                .insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            return Some(response);
        }
    };
    let mut response = respond(StatusCode::OK, Body::from_stream(response));
    response.headers_mut().insert(header::CONTENT_LENGTH, body.len().into());
    Some(response)
}

/// The error that ends a connection. What was written before it is sent while it is not ready yet.
async fn cut() -> Result<Bytes, std::io::Error> {
    tokio::task::yield_now().await;
    Err(std::io::Error::other("cut"))
}

fn drip(body: Bytes, piece: usize, pause: Duration) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    stream::unfold(body, move |mut rest| async move {
        if rest.is_empty() {
            return None;
        }
        tokio::time::sleep(pause).await;
        let piece = rest.split_to(piece.min(rest.len()));
        Some((Ok(piece), rest))
    })
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder
        .write_all(body)
        .and_then(|()| encoder.finish())
        .expect("memory can be written")
}

/// One compressed mebibyte of empty lines, and the same again without end: after a flush a block stands on its own.
fn endless_gzip() -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    let lines = vec![b'\n'; 1 << 20];
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let mut block = || {
        encoder
            .write_all(&lines)
            .and_then(|()| encoder.flush())
            .expect("memory can be written");
        Bytes::from(std::mem::take(encoder.get_mut()))
    };
    let (first, next) = (block(), block());
    stream::iter([first]).chain(stream::repeat(next)).map(Ok)
}
