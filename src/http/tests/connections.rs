//! Connections, host limits and redirects.

use rstest::rstest;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::*;

#[tokio::test]
async fn connections_are_reused() {
    let server = Server::start(|_| response("200 OK", "", b"hello")).await;
    let fetcher = fetcher();
    for _ in 0..5 {
        assert!(fetcher.get(&server.url, None, &limits()).await.is_ok());
    }
    assert_eq!((server.requests().len(), server.connections()), (5, 1));
}

#[rstest]
#[case("30")]
#[case("Sun, 06 Nov 1994 08:50:07 GMT")]
#[tokio::test]
async fn retry_after_blocks_further_requests_to_the_host(
    #[case] retry_after: &'static str,
    #[values("429 Too Many Requests", "503 Service Unavailable")] status: &'static str,
) {
    let server = Server::start(move |_| {
        response(
            status,
            &format!("Retry-After: {retry_after}\nDate: Sun, 06 Nov 1994 08:49:37 GMT"),
            b"",
        )
    })
    .await;
    let fetcher = fetcher();
    let error = fetcher.get(&server.at("a"), None, &limits()).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(30)));
    let blocked = fetcher.clone().get(&server.at("b"), None, &limits()).await.unwrap_err();
    assert!(matches!(blocked, FetchError::BackingOff { .. }), "{blocked}");
    assert_eq!((blocked.reason(), blocked.is_transient()), (error.reason(), true));
    assert!(blocked.retry_after().unwrap() > Duration::from_secs(20));
    assert_eq!(server.requests().len(), 1);

    let other = Server::start(|_| response("200 OK", "", b"")).await;
    assert!(fetcher.get(&other.url, None, &limits()).await.is_ok());
}

#[tokio::test]
async fn retry_after_is_ignored_with_other_statuses() {
    let server = Server::start(|_| response("500 Internal Server Error", "Retry-After: 30", b"")).await;
    let fetcher = fetcher();
    for _ in 0..2 {
        assert_eq!(
            fetcher
                .get(&server.url, None, &limits())
                .await
                .unwrap_err()
                .retry_after(),
            None
        );
    }
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_permit_is_released_after_the_body_has_been_read() {
    let resume = Arc::new(tokio::sync::Notify::new());
    let server = Server::start({
        let resume = Arc::clone(&resume);
        move |request| {
            if !request.starts_with("GET /slow") {
                return response("200 OK", "", b"fast");
            }
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsl".to_vec();
            vec![
                Part::Bytes(head),
                Part::Until(Arc::clone(&resume)),
                Part::Bytes(b"ow".to_vec()),
            ]
        }
    })
    .await;
    let fetcher = Fetcher::new(Settings {
        max_concurrent_requests: NonZeroU32::MIN,
        ..Settings::default()
    })
    .unwrap();
    let (slow_url, fast_url, limits) = (server.at("slow"), server.at("fast"), limits());
    let slow = fetcher.get(&slow_url, None, &limits);
    let fast = fetcher.get(&fast_url, None, &limits);
    tokio::pin!(slow, fast);
    for fetch in [&mut slow, &mut fast] {
        assert!(tokio::time::timeout(Duration::from_millis(100), fetch).await.is_err());
    }
    assert_eq!(server.requests().len(), 1);
    resume.notify_one();
    slow.await.unwrap();
    fast.await.unwrap();
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn redirects_are_followed_without_user_information() {
    let target = Server::start(|_| response("200 OK", "", b"hello")).await;
    let to = target.at("b").to_string();
    let server = Server::start(move |request| {
        if request.starts_with("GET /a ") {
            redirect("/c?d=e")
        } else {
            redirect(&to)
        }
    })
    .await;
    let mut url = server.at("a");
    url.set_username("user").unwrap();
    url.set_password(Some("pass")).unwrap();
    assert_eq!(bytes(body(&url).await), b"hello");
    assert!(server.requests()[0].to_lowercase().contains("authorization: basic"));
    assert!(server.requests()[1].starts_with("GET /c?d=e "));
    assert!(!target.requests()[0].to_lowercase().contains("authorization"));
}

#[tokio::test]
async fn redirect_loops_end_after_ten_redirects() {
    let server = Server::start(|_| redirect("/again")).await;
    let fetcher = Fetcher::new(Settings {
        max_concurrent_requests: NonZeroU32::MIN,
        ..Settings::default()
    })
    .unwrap();
    let error = fetcher.get(&server.url, None, &limits()).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("TooManyRedirects", false));
    assert!(error.to_string().contains("more than 10 times"), "{error}");
    assert_eq!(server.requests().len(), 11);
}

#[rstest]
#[case("HTTP/1.1 302 Found")]
#[case("HTTP/1.1 301 Moved\nLocation: http://")]
#[case("HTTP/1.1 307 Moved\nLocation: file:///etc/passwd")]
#[case("HTTP/1.1 308 Moved\nLocation: ftp://example.com/")]
#[tokio::test]
async fn invalid_redirects_are_rejected(#[case] head: &str) {
    let server = Server::always(head, b"").await;
    let error = get(&server.url).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("InvalidRedirect", false));
}

#[tokio::test]
async fn other_schemes_are_rejected() {
    for url in ["file:///etc/passwd", "ftp://example.com/", "data:text/plain,x"] {
        assert_eq!(get(&url.parse().unwrap()).await.unwrap_err().reason(), "InvalidURL");
    }
}

#[tokio::test]
async fn resolver_and_connection_errors_have_different_reasons() {
    let error = get(&"http://nowhere.invalid/?token=secret".parse().unwrap())
        .await
        .unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("DNSFailure", true));
    assert!(error.to_string().contains("nowhere.invalid"), "{error}");

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = get(&format!("http://user:secret@{address}/?token=secret").parse().unwrap())
        .await
        .unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("ConnectFailed", true));
    let message = format!("{error} {error:?}");
    assert!(message.contains("refused") && !message.contains("secret"), "{message}");
}

#[tokio::test]
async fn a_connection_closed_without_a_response_is_transient() {
    let server = Server::start(|_| vec![Part::Close]).await;
    let error = get(&server.url).await.unwrap_err();
    assert_eq!(
        (error.reason(), error.is_transient()),
        ("ConnectionLost", true),
        "{error}"
    );
}

/// Returns a TLS acceptor for `name` and its certificate in PEM.
pub(super) fn tls(name: &str) -> (TlsAcceptor, Vec<u8>) {
    crate::http::install_crypto_provider();
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    (TlsAcceptor::from(Arc::new(config)), cert.pem().into_bytes())
}

async fn get_over_tls(name: &str, is_trusted: bool) -> Result<Fetched, FetchError> {
    let (acceptor, pem) = tls(name);
    let server = Server::start_with(Some(acceptor), |_| response("200 OK", "", b"hello")).await;
    let access = Access {
        ca: is_trusted.then_some(pem),
        ..Access::default()
    };
    fetcher().with(access).unwrap().get(&server.url, None, &limits()).await
}

#[tokio::test]
async fn certificate_authority_and_host_name_are_verified() {
    assert!(matches!(get_over_tls("127.0.0.1", true).await, Ok(Fetched::Body(_))));
    for (name, is_trusted) in [("127.0.0.1", false), ("elsewhere.example.com", true)] {
        let error = get_over_tls(name, is_trusted).await.unwrap_err();
        assert_eq!(
            (error.reason(), error.is_transient()),
            ("CertificateNotTrusted", false),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_failed_tls_handshake_is_transient() {
    let plain = Server::start(|_| response("200 OK", "", b"")).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closing = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            // Reads first, so that the client sees EOF instead of a reset.
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 1024]).await;
        }
    });
    let plain_text = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plain_text_address = plain_text.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = plain_text.accept().await.unwrap();
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"220 mail.example.com ESMTP\r\n").await;
        }
    });
    drop(plain);
    for address in [closing, plain_text_address] {
        let error = get(&format!("https://{address}/").parse().unwrap()).await.unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("TLSFailure", true), "{error}");
    }
}

#[test]
fn an_invalid_user_agent_is_rejected_at_startup() {
    let settings = Settings {
        user_agent: "line\nbreak".to_owned(),
        ..Settings::default()
    };
    assert_eq!(Fetcher::new(settings).unwrap_err().reason(), "ClientFailed");
}

/// Set in the child process of `a_proxy_is_read_from_the_environment`.
const PROXIED: &str = "PORTOLAN_TEST_PROXIED";

#[tokio::test]
async fn child_process_behind_a_proxy() {
    // Changing the environment of this process is not safe, so this runs in a child process.
    if std::env::var_os(PROXIED).is_some() {
        assert_eq!(
            bytes(body(&"http://charts.invalid/index.yaml".parse().unwrap()).await),
            b"by proxy"
        );
    }
}

#[tokio::test]
async fn a_proxy_is_read_from_the_environment() {
    let proxy = Server::start(|_| response("200 OK", "", b"by proxy")).await;
    for name in ["HTTP_PROXY", "http_proxy"] {
        let status = tokio::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "http::tests::connections::child_process_behind_a_proxy"])
            .env_remove("HTTP_PROXY")
            .env_remove("http_proxy")
            .env(name, proxy.url.as_str())
            .env(PROXIED, "yes")
            .stdout(std::process::Stdio::null())
            .status()
            .await
            .unwrap();
        assert!(status.success());
    }
    let requests = proxy.requests();
    assert_eq!(requests.len(), 2);
    assert!(
        requests
            .iter()
            .all(|request| request.starts_with("GET http://charts.invalid/index.yaml ")),
        "{requests:?}"
    );
}
