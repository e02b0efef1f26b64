//! HTTP/1.1 server for probes, metrics, webhooks and the catalog. Clients are not authenticated, so connections, handshake timeout,
//! header size, header timeout and connection lifetime are limited. Probes have reserved places: no other client can
//! keep the kubelet out.

mod connections;
pub mod cpu_profile;
mod exposition;
mod gzip;
mod health;
mod limits;
mod listen;
mod log_filter;
mod metrics_auth;
mod observed;
mod process;
mod routes;
pub mod tls;
pub mod tokens;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::{io, sync::Arc, time::Duration};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::budget::ResourceMetrics;
pub use connections::RESERVED as RESERVED_CONNECTIONS;
use connections::{Connections, OpenConnection};
pub use gzip::{accepts_gzip, gzip};
pub use health::{HealthCheck, HealthMetrics};
use limits::LAST_RESPONSE_AGE;
pub use limits::{BodyLimits, ServerLimits};
pub use listen::{ListenAddress, ListenAddressError};
pub use log_filter::{LogFilter, log_filter_routes};
pub use metrics_auth::{AccessDecision, Authorize};
use observed::{ObservedBody, ObservedStream};
pub use process::ProcessMetrics;
pub use routes::{Info, info_routes, metrics_routes, probe_routes};

/// Size limit of the request line and headers, in bytes.
const MAX_HEADER_SIZE: usize = 16 * 1024;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay after a failed accept, usually because file descriptors are exhausted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(500);

/// The address of the client, for handlers.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// An extension of a response, which is dropped once the response is sent, or its connection is closed. It has no effect
/// without limits of bodies.
#[derive(Clone)]
pub struct KeepUntilSent(pub Arc<dyn SentResponse>);

pub trait SentResponse: Send + Sync {
    /// The response is cut at a limit of bodies.
    fn cut(&self);
}

pub struct Server {
    listener: TcpListener,
    connections: Connections,
    handler: Handler,
}

impl Server {
    pub async fn bind(
        address: &ListenAddress,
        routes: Router,
        limits: ServerLimits,
        metrics: ResourceMetrics,
    ) -> io::Result<Self> {
        Ok(Self::new(address.bind().await?, routes, limits, None, metrics))
    }

    /// Serves at an address that is bound already. With a configuration for TLS, plain text is refused.
    #[must_use]
    pub fn new(
        listener: TcpListener,
        routes: Router,
        limits: ServerLimits,
        tls: Option<Arc<rustls::ServerConfig>>,
        metrics: ResourceMetrics,
    ) -> Self {
        Self {
            listener,
            connections: Connections::new(&limits, metrics),
            handler: Handler {
                routes,
                tls: tls.map(TlsAcceptor::from),
                limits,
            },
        }
    }

    /// Returns the bound address, with the actual port for port 0.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` and a while longer, then drains in-flight responses.
    pub async fn run(self, shutdown: CancellationToken) {
        let limits = self.handler.limits;
        let shutdown = Shutdown {
            begun: shutdown,
            closing: CancellationToken::new(),
        };
        let mut tasks = JoinSet::new();
        let serve = async {
            loop {
                match self.listener.accept().await {
                    Ok((stream, peer)) => {
                        // Without a place the stream is closed here.
                        if let Some(place) = self.connections.admit(peer.ip()) {
                            limits.apply_to(&stream);
                            tasks.spawn(self.handler.clone().serve(stream, place, shutdown.clone()));
                        }
                    }
                    Err(error) if is_disconnect(&error) => {}
                    Err(error) => {
                        tracing::warn!(%error, "failed to accept connection");
                        sleep(ACCEPT_RETRY_DELAY).await;
                    }
                }
                while tasks.try_join_next().is_some() {}
            }
        };
        let lingered = async {
            shutdown.begun.cancelled().await;
            sleep(limits.linger).await;
        };
        tokio::select! {
            () = serve => {}
            () = lingered => {}
        }
        shutdown.closing.cancel();
        let drain = async { while tasks.join_next().await.is_some() {} };
        if timeout(limits.drain_timeout, drain).await.is_err() {
            tracing::debug!("closing connections still open at shutdown");
        }
    }
}

/// The stages of a shutdown.
#[derive(Clone)]
struct Shutdown {
    /// From now on, each response is the last one of its connection.
    begun: CancellationToken,
    /// Idle connections are closed.
    closing: CancellationToken,
}

fn is_disconnect(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

#[derive(Clone)]
struct Handler {
    routes: Router,
    tls: Option<TlsAcceptor>,
    limits: ServerLimits,
}

impl Handler {
    async fn serve(self, stream: TcpStream, place: OpenConnection, shutdown: Shutdown) {
        let Some(acceptor) = &self.tls else {
            return self.serve_http(stream, place, shutdown).await;
        };
        let handshake = tokio::select! {
            handshake = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)) => handshake,
            () = place.closed() => return,
            () = shutdown.closing.cancelled() => return,
        };
        match handshake {
            Ok(Ok(stream)) => self.serve_http(stream, place, shutdown).await,
            // Among others, a client that does not trust the certificate.
            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake timed out"),
        }
    }

    async fn serve_http<S>(self, stream: S, place: OpenConnection, shutdown: Shutdown)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (place, opened) = (Arc::new(place), Instant::now());
        let service = service_fn(|request| {
            // A client that sends its next request while an idle connection is closed gets no response.
            let is_last = shutdown.begun.is_cancelled() || opened.elapsed() >= LAST_RESPONSE_AGE;
            self.respond(Arc::clone(&place), request, is_last)
        });
        let stream = ObservedStream::new(stream, Arc::clone(&place));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.idle_timeout)
            .max_header_size(MAX_HEADER_SIZE)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = place.closed() => return,
            // Also resolves at the shutdown.
            _ = shutdown.closing.run_until_cancelled(sleep(self.limits.max_connection_age())) => {
                connection.as_mut().graceful_shutdown();
                match timeout(self.limits.drain_timeout, connection).await {
                    Ok(ended) => ended,
                    Err(_) => return,
                }
            }
        };
        if let Err(error) = ended {
            tracing::trace!(%error, "connection failed");
        }
    }

    async fn respond(
        &self,
        place: Arc<OpenConnection>,
        request: hyper::Request<Incoming>,
        is_last: bool,
    ) -> Result<hyper::Response<ObservedBody>, Infallible> {
        if !place.begin(request.uri().path()) {
            let refused = closing((StatusCode::SERVICE_UNAVAILABLE, "too many connections\n").into_response());
            return Ok(refused.map(|body| ObservedBody::new(body, None)));
        }
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Peer(place.peer()));
        let response = timeout(self.limits.request_timeout, self.routes.clone().oneshot(request)).await;
        let mut response = match response {
            Ok(Ok(response)) if is_last => closing(response),
            Ok(Ok(response)) => response,
            Err(_) => closing((StatusCode::GATEWAY_TIMEOUT, "no response in time\n").into_response()),
        };
        let kept = response.extensions_mut().remove::<KeepUntilSent>();
        let is_observed = place.begin_body(kept);
        Ok(response.map(|body| ObservedBody::new(body, is_observed.then_some(place))))
    }
}

/// Makes a response the last one of its connection.
fn closing(mut response: Response) -> Response {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}

#[cfg(test)]
mod tests;
