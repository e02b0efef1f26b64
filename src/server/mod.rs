//! HTTP/1.1 server for probes and metrics. Clients are not authenticated, so connections, header size, header timeout
//! and connection lifetime are limited. Probes have reserved places: no other client can keep the kubelet out.

mod connections;
pub mod cpu_profile;
mod exposition;
mod health;
mod listen;
mod log_filter;
mod metrics_auth;
mod process;
mod routes;

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::{io, net::SocketAddr, sync::Arc, time::Duration};

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
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::budget::ResourceMetrics;
pub use connections::RESERVED as RESERVED_CONNECTIONS;
use connections::{Connection, Connections};
pub use health::{Check, HealthMetrics};
pub use listen::{ListenAddress, ListenAddressError};
pub use log_filter::{LogFilter, log_filter_routes};
pub use metrics_auth::{Authorize, Decision};
pub use process::ProcessMetrics;
pub use routes::{Info, info_routes, metrics_routes, probe_routes};

/// Size limit of the request line and headers, in bytes.
const MAX_HEADER_SIZE: usize = 16 * 1024;
/// Timeout of a keep-alive connection that receives no request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// A slow reader could otherwise hold a connection indefinitely.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(600);
/// Timeout of in-flight responses at shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Delay after a failed accept, usually because file descriptors are exhausted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(500);

pub struct Server {
    listener: TcpListener,
    routes: Router,
    connections: Connections,
}

impl Server {
    pub async fn bind(
        address: &ListenAddress,
        routes: Router,
        max_connections: usize,
        metrics: ResourceMetrics,
    ) -> io::Result<Self> {
        Ok(Self {
            listener: address.bind().await?,
            routes,
            connections: Connections::new(max_connections, metrics),
        })
    }

    /// Returns the bound address, with the actual port for port 0.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown`, then drains in-flight responses.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut tasks = JoinSet::new();
        let serve = async {
            loop {
                match self.listener.accept().await {
                    Ok((stream, peer)) => {
                        // Without a place the stream is closed here.
                        if let Some(place) = self.connections.admit(peer.ip()) {
                            tasks.spawn(serve_connection(stream, place, self.routes.clone(), shutdown.clone()));
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
        shutdown.run_until_cancelled(serve).await;
        let drain = async { while tasks.join_next().await.is_some() {} };
        if timeout(DRAIN_TIMEOUT, drain).await.is_err() {
            tracing::debug!("closing connections still open at shutdown");
        }
    }
}

fn is_disconnect(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn serve_connection(stream: TcpStream, place: Connection, routes: Router, shutdown: CancellationToken) {
    let place = Arc::new(place);
    let service = service_fn(|request| respond(Arc::clone(&place), routes.clone(), request));
    let stream = ObservedStream {
        stream,
        place: Arc::clone(&place),
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_header_size(MAX_HEADER_SIZE)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = place.closed() => return,
        // Also resolves at the shutdown.
        _ = shutdown.run_until_cancelled(sleep(MAX_CONNECTION_AGE)) => {
            connection.as_mut().graceful_shutdown();
            match timeout(DRAIN_TIMEOUT, connection).await {
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
    place: Arc<Connection>,
    routes: Router,
    request: hyper::Request<Incoming>,
) -> Result<Response, Infallible> {
    if !place.begin(request.uri().path()) {
        let mut refused = (StatusCode::SERVICE_UNAVAILABLE, "too many connections\n").into_response();
        let close = HeaderValue::from_static("close");
        refused.headers_mut().insert(header::CONNECTION, close);
        return Ok(refused);
    }
    let response = routes.oneshot(request.map(axum::body::Body::new)).await;
    place.end();
    response
}

/// A stream that reports when it receives bytes: hyper has one timeout for idle connections and for incomplete headers.
struct ObservedStream {
    stream: TcpStream,
    place: Arc<Connection>,
}

impl AsyncRead for ObservedStream {
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

impl AsyncWrite for ObservedStream {
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
