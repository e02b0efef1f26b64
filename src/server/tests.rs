use std::sync::atomic::{AtomicBool, Ordering};

use axum::middleware::map_response;
use axum::routing::get;
use futures::FutureExt;
use prometheus_client::{metrics::counter::Counter, registry::Registry};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use super::*;

struct TestServer {
    address: SocketAddr,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

async fn start(checks: Vec<HealthCheck>, registry: Registry) -> TestServer {
    start_with(probe_routes(vec![], checks).merge(metrics_routes(Arc::new(registry), None))).await
}

async fn start_with(routes: Router) -> TestServer {
    start_within(ServerLimits::with_probes(256), routes).await
}

async fn start_within(limits: ServerLimits, routes: Router) -> TestServer {
    let server = Server::bind(
        &"127.0.0.1:0".parse().unwrap(),
        routes,
        limits,
        ResourceMetrics::unregistered(),
    )
    .await
    .unwrap();
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
        vec![HealthCheck::new("never", || async { Err("no".to_owned()) })],
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
        HealthCheck::new("database", move || {
            let up = up.load(Ordering::SeqCst);
            async move { if up { Ok(()) } else { Err("away".to_owned()) } }
        })
    };
    let server = start(
        vec![HealthCheck::new("caches", || async { Ok(()) }), check],
        Registry::default(),
    )
    .await;
    let response = server.get("/readyz").await;
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
    assert!(response.contains("[+]caches ok\n[-]database failed"), "{response}");
    up.store(true, Ordering::SeqCst);
    let response = server.get("/readyz").await;
    assert!(response.ends_with("\r\n\r\nreadyz check passed\n"), "{response}");
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
    let again = Server::bind(
        &server.address.to_string().parse().unwrap(),
        Router::new(),
        ServerLimits::with_probes(256),
        ResourceMetrics::unregistered(),
    )
    .await;
    assert_eq!(again.err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));
}

/// Opens a connection, sends a request and returns it after the response, still open.
async fn keep_alive(server: &TestServer, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 15];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    stream
}

#[tokio::test]
async fn probes_are_served_within_a_second_beside_300_idle_connections() {
    let server = start(vec![], Registry::default()).await;
    let mut idle = Vec::new();
    for number in 0..300 {
        idle.push(match number % 2 {
            0 => keep_alive(&server, "/livez").await,
            _ => TcpStream::connect(server.address).await.unwrap(),
        });
        if number % 25 == 0 {
            for path in ["/livez", "/readyz"] {
                let response = timeout(Duration::from_secs(1), server.get(path)).await.unwrap();
                assert!(
                    response.starts_with("HTTP/1.1 200 "),
                    "{path} beside {number}: {response}"
                );
            }
        }
    }
    // The oldest connections made way for the newest.
    let mut oldest = Vec::new();
    let read = timeout(Duration::from_secs(1), idle[0].read_to_end(&mut oldest));
    assert!(read.await.is_ok());
    let mut newest = [0; 1];
    let read = timeout(Duration::from_millis(50), idle[299].read(&mut newest));
    assert!(read.await.is_err());
}

#[tokio::test]
async fn probes_are_served_while_all_other_places_serve_requests() {
    let routes = probe_routes(vec![], vec![])
        .route("/hang", get(async || std::future::pending::<()>().await))
        .route("/metrics", get(async || "metrics"));
    let server = start_with(routes).await;
    let mut hanging = Vec::new();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream
            .write_all(b"GET /hang HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .unwrap();
        hanging.push(stream);
    }
    for path in ["/livez", "/readyz"] {
        let response = timeout(Duration::from_secs(1), server.get(path)).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 200 "), "{path}: {response}");
    }
    let response = timeout(Duration::from_secs(1), server.get("/metrics")).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
}

#[tokio::test]
async fn metrics_require_a_token_if_authorization_is_enabled() {
    let authorize: Authorize = Box::new(|token| {
        let decision = match token.as_str() {
            "good" => AccessDecision::Allowed,
            "other" => AccessDecision::Forbidden,
            "away" => AccessDecision::Unknown,
            _ => AccessDecision::Unauthenticated,
        };
        async move { decision }.boxed()
    });
    let metrics = metrics_routes(Arc::new(Registry::default()), Some(authorize));
    let server = start_with(probe_routes(vec![], vec![]).merge(metrics)).await;
    let status = async |header: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{header}Connection: close\r\n\r\n");
        server.send(&request).await[9..12].to_owned()
    };
    assert_eq!(status("").await, "401");
    assert_eq!(status("Authorization: Bearer bad\r\n").await, "401");
    assert_eq!(status("Authorization: Bearer other\r\n").await, "403");
    assert_eq!(status("Authorization: Bearer away\r\n").await, "503");
    assert_eq!(status("Authorization: Bearer good\r\n").await, "200");
    assert!(server.get("/livez").await.starts_with("HTTP/1.1 200 "));
}

const DOWNLOAD: usize = 5 * 1024 * 1024;

fn download_routes() -> Router {
    let content = axum::body::Bytes::from(vec![b'x'; DOWNLOAD]);
    Router::new()
        .route("/", get("ok"))
        .route("/download", get(async move || content.clone()))
}

/// Begins a download, and returns its connection and the bytes of it that were read. The kernel has a small part of the rest.
async fn begin_download(server: &TestServer) -> (TcpStream, Vec<u8>) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 * 1024).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    let request = b"GET /download HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut first = vec![0; 1024];
    stream.read_exact(&mut first).await.unwrap();
    (stream, first)
}

#[tokio::test]
async fn a_download_of_5_mb_survives_300_new_connections() {
    let server = start_within(ServerLimits::for_catalog(256), download_routes()).await;
    let (mut stream, mut read) = begin_download(&server).await;
    let mut others = Vec::new();
    for _ in 0..300 {
        others.push(keep_alive(&server, "/").await);
    }
    stream.read_to_end(&mut read).await.unwrap();
    let head = read.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    assert_eq!(read.len() - head, DOWNLOAD);
}

fn panicking() -> &'static str {
    panic!("in a handler")
}

#[tokio::test]
async fn a_handler_that_panics_gives_its_place_back() {
    let routes = download_routes().route("/panic", get(async || panicking()));
    let server = start_within(ServerLimits::for_catalog(1), routes).await;
    for _ in 0..3 {
        assert_eq!(server.get("/panic").await, "");
    }
    assert!(server.get("/").await.starts_with("HTTP/1.1 200 "));
}

/// Notified when a response is cut.
struct Cut(Notify);

impl SentResponse for Cut {
    fn cut(&self) {
        self.0.notify_one();
    }
}

#[tokio::test]
async fn a_download_of_a_client_that_does_not_read_is_cut() {
    let mut limits = ServerLimits::for_catalog(256);
    limits.bodies = limits.bodies.map(|bodies| BodyLimits {
        period: Duration::from_millis(200),
        ..bodies
    });
    let cut = Arc::new(Cut(Notify::new()));
    let kept: Arc<dyn SentResponse> = Arc::<Cut>::clone(&cut);
    let keep = KeepUntilSent(kept);
    let routes = download_routes().layer(map_response(move |mut response: Response| {
        response.extensions_mut().insert(keep.clone());
        std::future::ready(response)
    }));
    let server = start_within(limits, routes).await;
    let (mut stream, mut read) = begin_download(&server).await;
    timeout(Duration::from_secs(10), cut.0.notified()).await.unwrap();
    let _ = stream.read_to_end(&mut read).await;
    assert!(read.len() < DOWNLOAD, "{}", read.len());
}
