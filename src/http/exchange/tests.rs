use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use rcgen::generate_simple_self_signed;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::*;
use crate::http::secret::Secret;
use crate::http::tests::server::{Part, Parts, Server, response};
use crate::http::{Access, Settings, install_crypto_provider};

fn fetcher() -> Fetcher {
    Fetcher::new(Settings::default()).unwrap()
}

fn limits() -> FetchLimits {
    FetchLimits {
        max_bytes: 1_000,
        total: Duration::from_secs(5),
        ..FetchLimits::default()
    }
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &'static str)| {
        (header::HeaderName::from_static(name), HeaderValue::from_static(value))
    };
    pairs.iter().map(pair).collect()
}

fn post(url: Url) -> Exchange {
    Exchange {
        method: Method::POST,
        url,
        headers: headers(&[("content-type", "text/plain"), ("x-plain", "yes"), ("cookie", "a=b")]),
        credentials: headers(&[("x-token", "hunter2")]),
        body: b"payload".to_vec(),
    }
}

async fn send(exchange: &Exchange) -> Result<Exchanged, FetchError> {
    fetcher().exchange(exchange, &limits()).await
}

async fn reason(exchange: &Exchange) -> &'static str {
    send(exchange).await.unwrap_err().reason()
}

/// A server that redirects `/` to another URL and answers elsewhere.
async fn redirecting(status: &'static str, to: String) -> Server {
    Server::start(move |request| {
        if request.split(' ').nth(1) == Some("/") {
            response(status, &format!("Location: {to}"), b"")
        } else {
            response("200 OK", "", b"here")
        }
    })
    .await
}

#[tokio::test]
async fn method_headers_and_body_are_sent_and_any_status_is_returned() {
    let server = Server::start(|_| response("418 I'm a teapot", "X-A: 1\nX-A: 2", b"short and stout")).await;
    let exchanged = send(&post(server.at("pot?milk=1"))).await.unwrap();
    assert_eq!(exchanged.status, 418);
    assert_eq!(exchanged.body, b"short and stout");
    assert_eq!(exchanged.headers.get_all("x-a").iter().count(), 2);
    let request = server.requests().remove(0);
    assert!(request.starts_with("POST /pot?milk=1 HTTP/1.1\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\npayload"), "{request}");
    for expected in ["x-plain: yes", "x-token: hunter2", "cookie: a=b"] {
        assert!(request.contains(expected), "{request}");
    }
}

#[tokio::test]
async fn trailers_are_returned() {
    let server = Server::start(|_| {
        let body =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nab\r\n0\r\nX-Sum: 7\r\n\r\n";
        vec![Part::Bytes(body.as_bytes().to_vec())]
    })
    .await;
    let exchanged = send(&post(server.url.clone())).await.unwrap();
    assert_eq!(exchanged.body, b"ab");
    assert_eq!(exchanged.trailers.get("x-sum").unwrap(), "7");
}

#[tokio::test]
async fn user_information_is_sent_as_basic_credentials() {
    let server = Server::start(|_| response("204 No Content", "", b"")).await;
    let mut url = server.url.clone();
    url.set_username("u").unwrap();
    url.set_password(Some("p")).unwrap();
    send(&post(url)).await.unwrap();
    assert!(server.requests()[0].contains("authorization: Basic dTpw"));
}

#[tokio::test]
async fn a_redirect_repeats_the_body_only_if_its_status_says_so() {
    for (status, line, has_body) in [
        ("302 Found", "GET /next", false),
        ("303 See Other", "GET /next", false),
        ("307 Temporary Redirect", "POST /next", true),
        ("308 Permanent Redirect", "POST /next", true),
    ] {
        let server = redirecting(status, "/next".to_owned()).await;
        assert_eq!(send(&post(server.url.clone())).await.unwrap().body, b"here");
        let request = server.requests().remove(1);
        assert!(request.starts_with(line), "{request}");
        assert_eq!(request.ends_with("payload"), has_body, "{request}");
        assert_eq!(request.contains("content-type"), has_body, "{request}");
        // The same origin gets the credentials again.
        assert!(request.contains("x-token: hunter2"), "{request}");
    }
}

#[tokio::test]
async fn another_origin_gets_no_credentials_even_after_a_hop_back() {
    let last = Server::start(|_| response("200 OK", "", b"")).await;
    let other = redirecting("307 Temporary Redirect", last.at("last").to_string()).await;
    let first = redirecting("307 Temporary Redirect", other.url.to_string()).await;
    let mut url = first.url.clone();
    url.set_username("u").unwrap();
    send(&post(url)).await.unwrap();
    assert!(first.requests()[0].contains("hunter2"));
    for server in [&other, &last] {
        let request = server.requests().remove(0);
        assert!(request.contains("x-plain: yes"), "{request}");
        for name in ["x-token", "authorization", "cookie"] {
            assert!(!request.contains(name), "{request}");
        }
    }
}

#[tokio::test]
async fn a_redirect_to_a_metadata_service_is_refused() {
    for target in [
        "http://169.254.169.254/latest",
        "http://metadata.google.internal/",
        "http://[fd00:ec2::254]/",
    ] {
        let server = redirecting("302 Found", target.to_owned()).await;
        assert_eq!(reason(&post(server.url.clone())).await, "AddressRefused", "{target}");
    }
}

#[tokio::test]
async fn a_redirect_to_the_api_server_is_refused() {
    let api_server = Server::start(|_| response("200 OK", "", b"")).await;
    let server = redirecting("302 Found", api_server.url.to_string()).await;
    let endpoint = ("127.0.0.1".to_owned(), api_server.url.port().unwrap());
    let guarded = fetcher().without_api_server(vec![endpoint]).await;
    let error = guarded
        .exchange(&post(server.url.clone()), &limits())
        .await
        .unwrap_err();
    assert_eq!((error.reason(), api_server.connections()), ("AddressRefused", 0));
}

#[tokio::test]
async fn loopback_is_refused_without_a_connection() {
    let server = Server::start(|_| response("200 OK", "", b"")).await;
    let settings = Settings {
        allow_loopback: false,
        ..Settings::default()
    };
    let fetcher = Fetcher::new(settings).unwrap();
    let localhost = format!("http://localhost:{}/", server.url.port().unwrap());
    for url in [server.url.clone(), localhost.parse().unwrap()] {
        let error = fetcher.exchange(&post(url), &limits()).await.unwrap_err();
        assert_eq!(error.reason(), "AddressRefused");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn endless_redirects_end() {
    let server = Server::start(|_| response("302 Found", "Location: /", b"")).await;
    assert_eq!(reason(&post(server.url.clone())).await, "TooManyRedirects");
    assert_eq!(server.requests().len(), MAX_REDIRECTS + 1);
}

#[tokio::test]
async fn a_redirect_without_a_location_is_a_response() {
    let server = Server::start(|_| response("304 Not Modified", "", b"")).await;
    assert_eq!(send(&post(server.url.clone())).await.unwrap().status, 304);
    let server = Server::start(|_| response("302 Found", "", b"")).await;
    assert_eq!(send(&post(server.url.clone())).await.unwrap().status, 302);
}

#[tokio::test]
async fn an_endless_body_ends_at_the_limit() {
    let chunks = || {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        let mut parts: Parts = vec![Part::Bytes(head)];
        parts.extend((0..100).map(|_| Part::Bytes([b"64\r\n", [b'x'; 100].as_slice(), b"\r\n"].concat())));
        parts.push(Part::Hang);
        parts
    };
    let server = Server::start(move |_| chunks()).await;
    assert_eq!(reason(&post(server.url.clone())).await, "TooLarge");
    let server = Server::always("HTTP/1.1 200 OK\nContent-Length: 1001", b"").await;
    assert_eq!(reason(&post(server.url.clone())).await, "TooLarge");
}

#[tokio::test]
async fn a_slow_response_ends_at_the_time_limit() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx".to_vec();
    for parts in [vec![], vec![head]] {
        let server = Server::start(move |_| {
            let parts = parts.iter().cloned().map(Part::Bytes);
            parts.chain([Part::Hang]).collect()
        })
        .await;
        let limits = FetchLimits {
            total: Duration::from_millis(200),
            ..limits()
        };
        let error = fetcher()
            .exchange(&post(server.url.clone()), &limits)
            .await
            .unwrap_err();
        assert_eq!(error.reason(), "Timeout");
    }
}

#[tokio::test]
async fn a_flood_of_headers_is_refused() {
    let flood: String = (0..1_000).map(|number| format!("X-{number}: a\n")).collect();
    let server = Server::start(move |_| response("200 OK", flood.trim_end(), b"")).await;
    assert_eq!(reason(&post(server.url.clone())).await, "ConnectionLost");
    let long = format!("X-A: {}", "a".repeat(2 * 1024 * 1024));
    let server = Server::start(move |_| response("200 OK", &long, b"")).await;
    assert_eq!(reason(&post(server.url.clone())).await, "ConnectionLost");
}

#[tokio::test]
async fn a_body_that_ends_early_is_an_error() {
    let server = Server::always("HTTP/1.1 200 OK\nContent-Length: 10", b"short").await;
    assert_eq!(reason(&post(server.url.clone())).await, "ConnectionInterrupted");
}

#[test]
fn debug_output_contains_no_values() {
    let printed = format!("{:?}", post("http://u:hunter2@host/hunter2?hunter2".parse().unwrap()));
    assert!(
        printed.contains("x-token") && !printed.contains("hunter2") && !printed.contains("payload"),
        "{printed}"
    );
}

/// A server that requires a certificate of the client. Returns the settings of a client that has it.
async fn mutual_tls() -> (Server, Access) {
    install_crypto_provider();
    let server = generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let client = generate_simple_self_signed(vec!["client".to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(client.cert.der().clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
    let key = PrivateKeyDer::try_from(server.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![server.cert.der().clone()], key)
        .unwrap();
    let access = Access {
        ca: Some(server.cert.pem().into_bytes()),
        client_certificate: Some(Secret::new(client.cert.pem() + &client.signing_key.serialize_pem())),
        ..Access::default()
    };
    let tls = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let server = Server::start_with(Some(tls), |_| response("200 OK", "", b"hello")).await;
    (server, access)
}

#[tokio::test]
async fn a_client_certificate_is_sent_by_its_owner_only() {
    let (server, access) = mutual_tls().await;
    let shared = fetcher();
    let anonymous = Access {
        client_certificate: None,
        ..access.clone()
    };
    let exchange = post(server.url.clone());
    for (access, is_accepted) in [(&access, true), (&anonymous, false), (&access, true)] {
        let fetcher = shared.with(access.clone()).unwrap();
        let exchanged = fetcher.exchange(&exchange, &limits()).await;
        assert_eq!(exchanged.is_ok(), is_accepted, "{exchanged:?}");
    }
    let [own, other] = [access, anonymous].map(|access| shared.with(access).unwrap().requester());
    assert!(own != other);
}

#[test]
fn an_invalid_client_certificate_is_an_error_without_its_text() {
    for text in [
        "hunter2",
        "-----BEGIN CERTIFICATE-----\nhunter2\n-----END CERTIFICATE-----",
    ] {
        let access = Access {
            client_certificate: Some(Secret::new(text.to_owned())),
            ..Access::default()
        };
        let error = fetcher().with(access.clone()).unwrap_err();
        assert!(!format!("{error} {error:?} {access:?}").contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn a_notification_follows_no_redirect_and_does_not_wait_for_the_body() {
    let elsewhere = Server::start(|_| response("200 OK", "", b"")).await;
    let location = format!("Location: {}\nRetry-After: 7", elsewhere.at("stolen"));
    let server = Server::start(move |_| response("307 Temporary Redirect", &location, b"")).await;
    let head = fetcher().notify(&post(server.at("")), &limits()).await.unwrap();
    assert_eq!(
        (head.status.as_u16(), head.retry_after),
        (307, Some(Duration::from_secs(7)))
    );
    assert!(elsewhere.requests().is_empty());

    let slow = Server::start(|_| {
        let start = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nx";
        vec![Part::Bytes(start.to_vec()), Part::Hang]
    })
    .await;
    let head = fetcher().notify(&post(slow.at("")), &limits()).await.unwrap();
    assert_eq!(head.status, 200);
}
