//! HTTP: health and metrics, on one listener.
//!
//! Whoever can reach the listener can ask, so what one peer can hold is bounded: connections at once, bytes of a request's head, the time to send it,
//! and the life of a connection. Only HTTP/1.1 is spoken, as probes and scrapers do.

mod health;
mod listen;
mod process;
mod routes;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
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

/// Connections at once; more wait in the kernel's queue. Probes and a scraper or two need a handful.
const CONNECTIONS: u32 = 128;
/// Bytes of a request line with all headers.
const MAX_HEAD: usize = 16 * 1024;
/// How long a peer may take to send a request's head, waiting for it on a kept-alive connection included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// After this long a connection gets its last answer, so that a peer that reads slowly holds nothing for ever.
const CONNECTION_LIFE: Duration = Duration::from_secs(600);
/// How long answers under way may take once shutdown was asked for.
const GRACE: Duration = Duration::from_secs(2);
/// What to wait when a connection can't be accepted, which mostly means that file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// A bound listener and what it will serve.
pub struct Server {
    listener: TcpListener,
    routes: Router,
}

impl Server {
    /// Binds the listener; nothing is served before [`Server::run`].
    pub async fn bind(address: &ListenAddress, routes: Router) -> io::Result<Self> {
        Ok(Self {
            listener: address.bind().await?,
            routes,
        })
    }

    /// The address that was really bound: for port 0, the port that was free.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown`, then lets answers under way end for a moment.
    pub async fn run(self, shutdown: CancellationToken) {
        let places = Arc::new(Semaphore::new(CONNECTIONS as usize));
        let serve = async {
            loop {
                // The semaphore is never closed.
                let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                    return;
                };
                match self.listener.accept().await {
                    Ok((stream, _)) => {
                        let connection = connection(stream, self.routes.clone(), shutdown.clone());
                        tokio::spawn(async move {
                            connection.await;
                            drop(place);
                        });
                    }
                    Err(error) if is_of_the_peer(&error) => {}
                    Err(error) => {
                        tracing::warn!(%error, "failed to accept connection");
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        shutdown.run_until_cancelled(serve).await;
        // All places free again: no connection is left.
        if timeout(GRACE, places.acquire_many(CONNECTIONS)).await.is_err() {
            tracing::debug!("closing connections still open at shutdown");
        }
    }
}

/// Whether the peer went away between connecting and being accepted.
fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn connection(stream: TcpStream, routes: Router, shutdown: CancellationToken) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = async { tokio::select! { () = shutdown.cancelled() => {}, () = sleep(CONNECTION_LIFE) => {} } } => {
            connection.as_mut().graceful_shutdown();
            match timeout(GRACE, connection).await {
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

    /// A server on a free port of the loopback.
    struct Running {
        address: SocketAddr,
        shutdown: CancellationToken,
        task: tokio::task::JoinHandle<()>,
    }

    async fn start(checks: Vec<Check>, registry: Registry) -> Running {
        let routes = routes(checks, Arc::new(registry));
        let server = Server::bind(&"127.0.0.1:0".parse().unwrap(), routes).await.unwrap();
        let address = server.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(server.run(shutdown.clone()));
        Running {
            address,
            shutdown,
            task,
        }
    }

    impl Running {
        /// Sends `request` and reads all that comes until the server closes.
        async fn send(&self, request: &str) -> String {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            // A server that has had enough may reset the connection while we still write.
            let _ = stream.write_all(request.as_bytes()).await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            String::from_utf8(answer).unwrap()
        }

        async fn get(&self, path: &str) -> String {
            self.send(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
                .await
        }
    }

    #[tokio::test]
    async fn the_process_is_alive_as_soon_as_it_listens() {
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
    async fn readiness_lists_each_check_and_follows_it() {
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
        let answer = server.get("/readyz").await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.contains("[+]caches ok\n[-]database failed"), "{answer}");
        up.store(true, Ordering::SeqCst);
        let answer = server.get("/readyz?verbose").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(
            answer.contains("[+]caches ok\n[+]database ok\nreadyz check passed\n"),
            "{answer}"
        );
    }

    #[tokio::test]
    async fn metrics_are_open_metrics_with_those_of_the_process() {
        let mut registry = Registry::default();
        let counter = Counter::<u64>::default();
        registry.register("portolan_tests", "Tests", counter.clone());
        registry.register_collector(Box::new(ProcessMetrics));
        counter.inc();
        let answer = start(vec![], registry).await.get("/metrics").await;
        assert!(
            answer.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"),
            "{answer}"
        );
        assert!(answer.contains("portolan_tests_total 1\n"), "{answer}");
        assert!(answer.contains("process_resident_memory_bytes "), "{answer}");
        assert!(answer.ends_with("# EOF\n"), "{answer}");
    }

    #[tokio::test]
    async fn what_is_not_served_is_not_found_and_other_methods_are_refused() {
        let server = start(vec![], Registry::default()).await;
        assert!(server.get("/etc/passwd").await.starts_with("HTTP/1.1 404 "));
        let answer = server
            .send("POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .await;
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    }

    #[tokio::test]
    async fn a_head_that_never_ends_is_cut_off_and_others_are_served() {
        let server = start(vec![], Registry::default()).await;
        let answer = server
            .send(&format!(
                "GET /livez HTTP/1.1\r\nHost: x\r\nX: {}",
                "a".repeat(4 * MAX_HEAD)
            ))
            .await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
        assert!(server.get("/livez").await.starts_with("HTTP/1.1 200 "));
    }

    #[tokio::test]
    async fn garbage_is_answered_by_a_refusal() {
        let server = start(vec![], Registry::default()).await;
        let answer = server.send("\u{0}\u{1}\u{2} no request\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
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
        let mut rest = Vec::new();
        idle.read_to_end(&mut rest).await.unwrap();
        assert!(TcpStream::connect(server.address).await.is_err());
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_an_error() {
        let server = start(vec![], Registry::default()).await;
        let again = Server::bind(&server.address.to_string().parse().unwrap(), Router::new()).await;
        assert_eq!(again.err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));
    }
}
