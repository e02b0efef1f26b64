//! HTTP/1.1 server for probes and metrics.
//!
//! Clients are not authenticated, so connections, header size, header timeout and connection lifetime are limited.

mod health;
mod listen;
mod process;
mod routes;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use futures::FutureExt;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

pub use health::Check;
pub use listen::{ListenAddress, ListenAddressError};
pub use process::ProcessMetrics;
pub use routes::routes;

/// Further connections wait in the kernel's backlog.
const MAX_CONNECTIONS: u32 = 128;
/// Size limit of the request line and headers, in bytes.
const MAX_HEADER_SIZE: usize = 16 * 1024;
/// Also limits idle keep-alive connections.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// A slow reader could otherwise hold a connection indefinitely.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(600);
/// Timeout of in-flight responses at shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Delay after a failed accept, usually because file descriptors are exhausted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(500);

pub struct Server {
    listener: TcpListener,
    routes: Router,
}

impl Server {
    pub async fn bind(address: &ListenAddress, routes: Router) -> io::Result<Self> {
        Ok(Self {
            listener: address.bind().await?,
            routes,
        })
    }

    /// Returns the bound address, with the actual port for port 0.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown`, then drains in-flight responses.
    pub async fn run(self, shutdown: CancellationToken) {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS as usize));
        let serve = async {
            loop {
                // The semaphore is never closed.
                let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                    return;
                };
                match self.listener.accept().await {
                    Ok((stream, _)) => {
                        let connection = connection(stream, self.routes.clone(), shutdown.clone());
                        tokio::spawn(connection.map(|()| drop(permit)));
                    }
                    Err(error) if is_disconnect(&error) => {}
                    Err(error) => {
                        tracing::warn!(%error, "failed to accept connection");
                        sleep(ACCEPT_RETRY_DELAY).await;
                    }
                }
            }
        };
        shutdown.run_until_cancelled(serve).await;
        // All permits are available once the last connection is closed.
        let drained = timeout(DRAIN_TIMEOUT, permits.acquire_many(MAX_CONNECTIONS)).await;
        if drained.is_err() {
            tracing::debug!("closing connections still open at shutdown");
        }
    }
}

fn is_disconnect(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn connection(stream: TcpStream, routes: Router, shutdown: CancellationToken) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_header_size(MAX_HEADER_SIZE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use prometheus_client::{metrics::counter::Counter, registry::Registry};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    struct TestServer {
        address: SocketAddr,
        shutdown: CancellationToken,
        task: tokio::task::JoinHandle<()>,
    }

    async fn start(checks: Vec<Check>, registry: Registry) -> TestServer {
        let routes = routes(checks, Arc::new(registry));
        let server = Server::bind(&"127.0.0.1:0".parse().unwrap(), routes).await.unwrap();
        let address = server.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(server.run(shutdown.clone()));
        TestServer {
            address,
            shutdown,
            task,
        }
    }

    impl TestServer {
        async fn send(&self, request: &str) -> String {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            // The server may reset the connection during the write.
            let _ = stream.write_all(request.as_bytes()).await;
            let mut response = Vec::new();
            let _ = stream.read_to_end(&mut response).await;
            String::from_utf8(response).unwrap()
        }

        async fn get(&self, path: &str) -> String {
            self.send(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
                .await
        }
    }

    #[tokio::test]
    async fn liveness_does_not_depend_on_readiness() {
        let server = start(
            vec![Check::new("never", || async { Err("no".to_owned()) })],
            Registry::default(),
        )
        .await;
        for path in ["/livez", "/healthz", "/livez?verbose"] {
            assert!(server.get(path).await.starts_with("HTTP/1.1 200 OK\r\n"), "{path}");
        }
    }

    #[tokio::test]
    async fn readiness_lists_and_reflects_each_check() {
        let up = Arc::new(AtomicBool::new(false));
        let check = {
            let up = Arc::clone(&up);
            Check::new("database", move || {
                let up = up.load(Ordering::SeqCst);
                async move { if up { Ok(()) } else { Err("away".to_owned()) } }
            })
        };
        let server = start(
            vec![Check::new("caches", || async { Ok(()) }), check],
            Registry::default(),
        )
        .await;
        let response = server.get("/readyz").await;
        assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
        assert!(response.contains("[+]caches ok\n[-]database failed"), "{response}");
        up.store(true, Ordering::SeqCst);
        let response = server.get("/readyz?verbose").await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        assert!(
            response.contains("[+]caches ok\n[+]database ok\nreadyz check passed\n"),
            "{response}"
        );
    }

    #[tokio::test]
    async fn metrics_use_the_openmetrics_format_and_include_process_metrics() {
        let mut registry = Registry::default();
        let counter = Counter::<u64>::default();
        registry.register("portolan_tests", "Tests", counter.clone());
        registry.register_collector(Box::new(ProcessMetrics));
        counter.inc();
        let response = start(vec![], registry).await.get("/metrics").await;
        assert!(
            response.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"),
            "{response}"
        );
        assert!(response.contains("portolan_tests_total 1\n"), "{response}");
        assert!(response.contains("process_resident_memory_bytes "), "{response}");
        assert!(response.ends_with("# EOF\n"), "{response}");
    }

    #[tokio::test]
    async fn unknown_paths_return_404_and_other_methods_405() {
        let server = start(vec![], Registry::default()).await;
        assert!(server.get("/etc/passwd").await.starts_with("HTTP/1.1 404 "));
        let response = server
            .send("POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .await;
        assert!(response.starts_with("HTTP/1.1 405 "), "{response}");
    }

    #[tokio::test]
    async fn too_long_headers_are_rejected_and_other_requests_are_served() {
        let server = start(vec![], Registry::default()).await;
        let response = server
            .send(&format!(
                "GET /livez HTTP/1.1\r\nHost: x\r\nX: {}",
                "a".repeat(4 * MAX_HEADER_SIZE)
            ))
            .await;
        assert!(
            response.is_empty() || response.starts_with("HTTP/1.1 431 "),
            "{response}"
        );
        assert!(server.get("/livez").await.starts_with("HTTP/1.1 200 "));
    }

    #[tokio::test]
    async fn an_invalid_request_returns_400() {
        let server = start(vec![], Registry::default()).await;
        let response = server.send("\u{0}\u{1}\u{2} no request\r\n\r\n").await;
        assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
    }

    #[tokio::test]
    async fn shutdown_closes_idle_connections_and_the_listener() {
        let server = start(vec![], Registry::default()).await;
        let mut idle = TcpStream::connect(server.address).await.unwrap();
        idle.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut head = [0; 15];
        idle.read_exact(&mut head).await.unwrap();
        server.shutdown.cancel();
        server.task.await.unwrap();
        let mut remaining = Vec::new();
        idle.read_to_end(&mut remaining).await.unwrap();
        assert!(TcpStream::connect(server.address).await.is_err());
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error() {
        let server = start(vec![], Registry::default()).await;
        let again = Server::bind(&server.address.to_string().parse().unwrap(), Router::new()).await;
        assert_eq!(again.err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));
    }
}
