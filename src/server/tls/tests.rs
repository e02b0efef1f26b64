use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::routing::{get, post};
use jiff::Timestamp;
use rcgen::{CertificateParams, CustomExtension, KeyPair, date_time_ymd};
use rstest::rstest;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{self, Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::budget::ResourceMetrics;
use crate::server::{Server, ServerLimits};

/// A self-signed certificate for localhost, and its key.
struct Pem {
    certificate: String,
    key: String,
}

fn pem_with(change: impl FnOnce(&mut CertificateParams)) -> Pem {
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(["localhost".to_owned()]).unwrap();
    change(&mut parameters);
    Pem {
        certificate: parameters.self_signed(&key).unwrap().pem(),
        key: key.serialize_pem(),
    }
}

fn pem() -> Pem {
    pem_with(|_| {})
}

impl Pem {
    fn pair(&self) -> CertificatePair {
        CertificatePair::from_pem(self.certificate.as_bytes(), self.key.as_bytes()).unwrap()
    }

    fn write(&self, directory: &Path) {
        fs::write(directory.join("tls.crt"), &self.certificate).unwrap();
        fs::write(directory.join("tls.key"), &self.key).unwrap();
    }

    async fn connect(&self, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }
}

fn served() -> ServedCertificate {
    ServedCertificate::new(CertificateMetrics::default()).unwrap()
}

const LIMITS: ServerLimits = ServerLimits::for_webhooks(2);

struct TestServer {
    address: SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
    /// A request for another path than `/` was received.
    begun: Arc<Notify>,
}

async fn start(certificate: &ServedCertificate) -> TestServer {
    let begun = Arc::new(Notify::new());
    let (slow, body) = (Arc::clone(&begun), Arc::clone(&begun));
    let respond = async move || {
        slow.notify_one();
        sleep(Duration::from_secs(8)).await;
    };
    let receive = async move |request: Request| {
        body.notify_one();
        to_bytes(request.into_body(), 100).await.map(drop).unwrap();
    };
    let routes = Router::new()
        .route("/", get("ok"))
        .route("/slow", get(respond))
        .route("/body", post(receive));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tls = Some(certificate.server_config());
    let server = Server::new(listener, routes, LIMITS, tls, ResourceMetrics::unregistered());
    let (address, shutdown) = (server.local_addr().unwrap(), CancellationToken::new());
    let task = tokio::spawn(server.run(shutdown.clone()));
    TestServer {
        address,
        shutdown,
        task,
        begun,
    }
}

/// Lets time pass at once. Without the network: the kernel has no part in a paused clock.
async fn pass(duration: Duration) {
    time::pause();
    sleep(duration).await;
    time::resume();
}

async fn get_ok(stream: &mut TlsStream<TcpStream>) {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\nok") {
        assert_ne!(stream.read_buf(&mut response).await.unwrap(), 0, "closed");
    }
    assert!(response.starts_with(b"HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn a_replaced_certificate_is_for_new_connections_and_ends_no_other() {
    let (first, second, certificate) = (pem(), pem(), served());
    let address = start(&certificate).await.address;
    assert!(!certificate.is_ready() && first.connect(address).await.is_err());
    certificate.set(&first.pair());
    certificate.ready().await;
    let mut open = first.connect(address).await.unwrap();
    assert_eq!(open.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    get_ok(&mut open).await;
    certificate.set(&second.pair());
    get_ok(&mut open).await;
    assert!(first.connect(address).await.is_err());
    get_ok(&mut second.connect(address).await.unwrap()).await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_answered_after_half_a_minute() {
    let (pem, certificate) = (pem(), served());
    certificate.set(&pem.pair());
    let server = start(&certificate).await;
    let mut stream = pem.connect(server.address).await.unwrap();
    let request = b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n";
    stream.write_all(request).await.unwrap();
    server.begun.notified().await;
    time::pause();
    let (start, mut response) = (Instant::now(), Vec::new());
    // The connection ends without the rest of the request.
    let _ = stream.read_to_end(&mut response).await;
    assert!(response.starts_with(b"HTTP/1.1 504 "));
    assert!((29..31).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

/// Returns the time until the server closes the connection.
async fn closed_after(mut stream: TcpStream) -> Duration {
    let (start, mut received) = (Instant::now(), Vec::new());
    // The server may reset the connection.
    let _ = stream.read_to_end(&mut received).await;
    assert!(!received.starts_with(b"HTTP/"));
    start.elapsed()
}

#[tokio::test]
async fn a_client_that_sends_plain_text_is_closed_at_once() {
    let certificate = served();
    certificate.set(&pem().pair());
    let address = start(&certificate).await.address;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    assert!(closed_after(stream).await < Duration::from_secs(4));
}

#[tokio::test]
async fn a_client_without_a_hello_is_closed_after_five_seconds() {
    let certificate = served();
    certificate.set(&pem().pair());
    let address = start(&certificate).await.address;
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The header of a record that never comes.
    stream.write_all(&[0x16, 3, 1]).await.unwrap();
    // The server has accepted the connection.
    sleep(Duration::from_millis(100)).await;
    time::pause();
    let closed = closed_after(stream).await;
    assert!((4..7).contains(&closed.as_secs()), "{closed:?}");
}

#[tokio::test]
async fn handshakes_take_places_and_the_oldest_makes_way() {
    let (pem, certificate) = (pem(), served());
    certificate.set(&pem.pair());
    let address = start(&certificate).await.address;
    let mut silent = Vec::new();
    for _ in 0..LIMITS.connections {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    get_ok(&mut pem.connect(address).await.unwrap()).await;
    assert!(closed_after(silent.remove(0)).await < Duration::from_secs(4));
}

#[tokio::test]
async fn a_shutdown_waits_for_responses_and_not_for_handshakes() {
    let (pem, certificate) = (pem(), served());
    certificate.set(&pem.pair());
    let server = start(&certificate).await;
    let mut slow = pem.connect(server.address).await.unwrap();
    slow.write_all(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    server.begun.notified().await;
    let _silent = TcpStream::connect(server.address).await.unwrap();
    time::pause();
    let start = Instant::now();
    server.shutdown.cancel();
    let mut response = Vec::new();
    slow.read_to_end(&mut response).await.unwrap();
    assert!(response.starts_with(b"HTTP/1.1 200 OK\r\n"));
    server.task.await.unwrap();
    assert!((7..9).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test]
async fn after_a_shutdown_has_begun_clients_are_served_once_more() {
    let (pem, certificate) = (pem(), served());
    certificate.set(&pem.pair());
    let server = start(&certificate).await;
    let mut open = pem.connect(server.address).await.unwrap();
    get_ok(&mut open).await;
    server.shutdown.cancel();
    for mut stream in [open, pem.connect(server.address).await.unwrap()] {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await.unwrap();
        let text = String::from_utf8(response).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(text.contains("connection: close\r\n"), "{text}");
    }
}

#[test]
fn a_pair_has_a_certificate_with_its_key() {
    let (first, second) = (pem(), pem());
    let parse = |certificate: &str, key: &str| {
        let pair = CertificatePair::from_pem(certificate.as_bytes(), key.as_bytes());
        pair.map(|pair| pair.chain().len())
    };
    assert_eq!(parse(&first.certificate, &first.key), Ok(1));
    assert_eq!(
        parse(&(first.certificate.clone() + &second.certificate), &first.key),
        Ok(2)
    );
    assert_eq!(parse(&first.certificate, &second.key), Err(CertificateError::Mismatch));
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for certificate in [
        "",
        "x",
        garbage,
        &first.key,
        &(first.certificate.clone() + "-----BEGIN x"),
    ] {
        assert_eq!(
            parse(certificate, &first.key),
            Err(CertificateError::Certificate),
            "{certificate}"
        );
    }
    let garbage = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    for key in ["", "x", garbage, &first.certificate] {
        assert_eq!(parse(&first.certificate, key), Err(CertificateError::Key), "{key}");
    }
    assert!(!format!("{:?}", first.pair()).to_lowercase().contains("key"));
}

#[rstest]
#[case(2024, "2024-02-29T00:00:00Z", 2051, "2051-02-28T00:00:00Z")]
#[case(1972, "1972-02-29T00:00:00Z", 1999, "1999-02-28T00:00:00Z")]
fn the_validity_is_read_without_a_parser_of_certificates(
    #[case] from: i32,
    #[case] not_before: Timestamp,
    #[case] to: i32,
    #[case] not_after: Timestamp,
) {
    let pem = pem_with(|parameters| {
        parameters.not_before = date_time_ymd(from, 2, 29);
        parameters.not_after = date_time_ymd(to, 2, 28);
    });
    assert_eq!(pem.pair().validity(), Validity { not_before, not_after });
}

#[test]
fn a_certificate_without_an_end_is_valid_until_the_last_timestamp() {
    let pem = pem_with(|parameters| {
        parameters.not_after = date_time_ymd(9999, 12, 31);
        // An extension that is unknown and not critical.
        parameters.custom_extensions = vec![CustomExtension::from_oid_content(&[1, 2, 3], vec![5, 0])];
    });
    let validity = pem.pair().validity();
    assert_eq!(validity.not_after, Timestamp::MAX);
    assert!(validity.contains(Timestamp::from_second(2_000_000_000).unwrap()));
}

#[tokio::test]
async fn changed_files_are_served_and_pairs_that_do_not_match_are_not() {
    let (directory, certificate) = (tempfile::tempdir().unwrap(), served());
    let (first, second) = (pem(), pem());
    first.write(directory.path());
    let files = CertificateFiles::new(directory.path());
    let keeping = certificate.clone();
    tokio::spawn(async move { files.keep(&keeping).await });
    certificate.ready().await;
    let address = start(&certificate).await.address;
    let is_served = async |pem: &Pem| pem.connect(address).await.is_ok();
    let is_outdated = || certificate.metrics.is_outdated.get() == 1;
    assert!(is_served(&first).await && !is_outdated());
    for (file, contents) in [
        ("tls.crt", second.certificate.clone()),
        ("tls.crt", "garbage".to_owned()),
        ("tls.key", "x".repeat((1 << 20) + 1)),
    ] {
        fs::write(directory.path().join(file), contents).unwrap();
        pass(Duration::from_secs(11)).await;
        assert!(is_served(&first).await && is_outdated(), "{file}");
    }
    first.write(directory.path());
    pass(Duration::from_secs(11)).await;
    assert!(is_served(&first).await && !is_outdated());
    fs::remove_file(directory.path().join("tls.key")).unwrap();
    pass(Duration::from_secs(11)).await;
    assert!(is_served(&first).await && is_outdated());
    second.write(directory.path());
    pass(Duration::from_secs(11)).await;
    assert!(is_served(&second).await && !is_served(&first).await && !is_outdated());
    let expiry = second.pair().validity().not_after.as_second();
    assert_eq!(certificate.metrics.expiry.get(), expiry);
}

#[tokio::test(start_paused = true)]
async fn files_may_come_within_a_minute() {
    let (directory, certificate) = (tempfile::tempdir().unwrap(), served());
    let files = CertificateFiles::new(directory.path().join("certs"));
    let start = Instant::now();
    let Err(error) = files.keep(&certificate).await;
    assert_eq!(start.elapsed().as_secs(), 60);
    let text = error.to_string();
    let beginning = format!(
        "no certificate in {}/certs after 60s: failed to read tls.crt: ",
        directory.path().display()
    );
    assert!(text.starts_with(&beginning), "{text}");
    assert!(text.contains("; provide tls.crt and tls.key there"), "{text}");

    let keep = files.keep(&certificate);
    assert!(timeout(Duration::from_secs(50), keep).await.is_err() && !certificate.is_ready());
    fs::create_dir(directory.path().join("certs")).unwrap();
    pem().write(&directory.path().join("certs"));
    let keep = files.keep(&certificate);
    assert!(timeout(Duration::from_secs(2), keep).await.is_err() && certificate.is_ready());
}
