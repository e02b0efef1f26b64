//! HTTP/1.1 server for probes, metrics, webhooks and the catalog. Clients are not authenticated, so connections, handshake timeout,
//! header size, header timeout and connection lifetime are limited. Probes have reserved places: no other client can
//! keep the kubelet out.

mod connections;
pub mod cpu_profile;
mod exposition;
mod gzip;
mod health;
mod listen;
mod log_filter;
mod metrics_auth;
mod process;
mod routes;
pub mod tls;
pub mod tokens;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::{io, sync::Arc, time::Duration};

use axum::Router;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
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
pub use listen::{ListenAddress, ListenAddressError};
pub use log_filter::{LogFilter, log_filter_routes};
pub use metrics_auth::{AccessDecision, Authorize};
pub use process::ProcessMetrics;
pub use routes::{Info, info_routes, metrics_routes, probe_routes};

/// Size limit of the request line and headers, in bytes.
const MAX_HEADER_SIZE: usize = 16 * 1024;
/// A slow reader could otherwise hold a connection indefinitely. The first response after this time is the last one.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(600);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay after a failed accept, usually because file descriptors are exhausted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    pub connections: usize,
    /// Those of `connections` that only probes may take.
    pub reserved_connections: usize,
    /// Timeout of a keep-alive connection that receives no request.
    pub idle_timeout: Duration,
    /// Timeout from the header of a request to the header of its response.
    pub request_timeout: Duration,
    /// Time for which requests are still accepted after a shutdown has begun, from clients that do not know of it.
    pub linger: Duration,
    /// Timeout of in-flight responses after that.
    pub drain_timeout: Duration,
}

impl ServerLimits {
    /// Returns the limits of a server for probes, metrics and profiles.
    #[must_use]
    pub const fn with_probes(connections: usize) -> Self {
        Self {
            connections,
            reserved_connections: RESERVED_CONNECTIONS,
            idle_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(120),
            linger: Duration::ZERO,
            drain_timeout: Duration::from_secs(2),
        }
    }

    /// Returns the limits of a server for reviews. API servers wait 30 s at most for a response.
    #[must_use]
    pub const fn for_webhooks(connections: usize) -> Self {
        Self {
            connections,
            reserved_connections: 0,
            // API servers close idle connections after 90 s. If they were closed here, a review that is just sent would fail.
            idle_timeout: Duration::from_secs(120),
            request_timeout: Duration::from_secs(30),
            // Until nodes know that the pod ends.
            linger: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(10),
        }
    }

    /// Returns the limits of a server for clients that read the catalog.
    #[must_use]
    pub const fn for_catalog(connections: usize) -> Self {
        Self {
            connections,
            reserved_connections: 0,
            // Proxies keep idle connections for 60 s.
            idle_timeout: Duration::from_secs(75),
            // Above the timeout of the routes, whose response says more.
            request_timeout: Duration::from_secs(15),
            // Until nodes know that the pod ends.
            linger: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(20),
        }
    }
}

/// The address of the client, for handlers.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

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
            connections: Connections::new(limits.connections, limits.reserved_connections, metrics),
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
            let is_last = shutdown.begun.is_cancelled() || opened.elapsed() >= MAX_CONNECTION_AGE;
            self.respond(Arc::clone(&place), request, is_last)
        });
        let stream = ObservedStream {
            stream,
            place: Arc::clone(&place),
        };
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
            _ = shutdown.closing.run_until_cancelled(sleep(MAX_CONNECTION_AGE + self.limits.idle_timeout)) => {
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
    ) -> Result<Response, Infallible> {
        if !place.begin(request.uri().path()) {
            return Ok(closing(
                (StatusCode::SERVICE_UNAVAILABLE, "too many connections\n").into_response(),
            ));
        }
        let mut request = request.map(axum::body::Body::new);
        request.extensions_mut().insert(Peer(place.peer()));
        let response = timeout(self.limits.request_timeout, self.routes.clone().oneshot(request)).await;
        place.end();
        match response {
            Ok(response) if is_last => response.map(closing),
            Ok(response) => response,
            Err(_) => Ok(closing(
                (StatusCode::GATEWAY_TIMEOUT, "no response in time\n").into_response(),
            )),
        }
    }
}

/// Makes a response the last one of its connection.
fn closing(mut response: Response) -> Response {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}

/// A stream that reports when it receives bytes: hyper has one timeout for idle connections and for incomplete headers.
struct ObservedStream<S> {
    stream: S,
    place: Arc<OpenConnection>,
}

impl<S: AsyncRead + Unpin> AsyncRead for ObservedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.place.register_bytes();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ObservedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
