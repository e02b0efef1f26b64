//! Requests of a Kubernetes client.

use axum::body::Body;
use axum::http::{Request, Response};
use rstest::rstest;
use tower::{BoxError, ServiceExt as _};

use super::addresses::fetcher_with_names;
use super::*;

const CONNECT: Duration = Duration::from_secs(5);

fn without_loopback() -> Settings {
    Settings {
        allow_loopback: false,
        ..Settings::default()
    }
}

async fn transport(server: &Url, access: Access) -> HttpTransport {
    let fetcher = fetcher().with(access).unwrap();
    fetcher.transport(server, CONNECT).await.unwrap()
}

async fn send(transport: HttpTransport, path: &str) -> Result<Response<reqwest::Body>, BoxError> {
    let request = Request::get(path).body(Body::empty()).unwrap();
    transport.oneshot(request).await
}

async fn reason(transport: HttpTransport) -> &'static str {
    let error = send(transport, "/version").await.unwrap_err();
    error.downcast::<FetchError>().unwrap().reason()
}

#[tokio::test]
async fn a_request_goes_below_the_path_of_the_server_with_its_credentials() {
    let server = Server::start(|_| response("404 Not Found", "", b"{}")).await;
    let base = server.at("/k8s/one/");
    let access = Access {
        authorization: Some(Secret::new("Bearer hunter2".to_owned())),
        scope: Some(base.clone()),
        ..Access::default()
    };
    let answer = send(transport(&base, access).await, "/api/v1/pods?limit=2").await;
    assert_eq!(answer.unwrap().status(), 404);
    let requests = server.requests();
    let expected = "GET /k8s/one/api/v1/pods?limit=2 HTTP/1.1\r\n";
    assert!(requests[0].starts_with(expected), "{requests:?}");
    assert!(requests[0].contains("authorization: Bearer hunter2"), "{requests:?}");
}

#[rstest]
#[case("/api/v1/namespaces/../secrets")]
#[case("/api/v1/namespaces/%2e%2E/secrets")]
#[case("/api/v1/./secrets")]
#[tokio::test]
async fn a_path_that_means_another_one_is_not_sent(#[case] path: &str) {
    let server = Server::start(|_| response("200 OK", "", b"{}")).await;
    let error = send(transport(&server.url, Access::default()).await, path).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("invalid path of a request"), "{error}");
    assert_eq!(server.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn a_redirect_is_an_error_and_its_target_gets_no_request() {
    let target = Server::start(|_| response("200 OK", "", b"{}")).await;
    let location = format!("Location: {}", target.url);
    let server = Server::start(move |_| response("307 Temporary Redirect", &location, b"")).await;
    let transport = transport(&server.url, Access::default()).await;
    assert_eq!(reason(transport).await, "InvalidRedirect");
    assert_eq!(target.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn the_address_policy_applies_before_a_connection_and_to_resolved_names() {
    let fetcher = fetcher_with_names(without_loopback(), &[("one.example", &["127.0.0.1"])]);
    for url in ["https://127.0.0.1:6443", "https://169.254.169.254", "https://localhost"] {
        let refused = fetcher.transport(&url.parse().unwrap(), CONNECT).await;
        assert_eq!(refused.err().unwrap().reason(), "AddressRefused", "{url}");
    }
    let server = "https://one.example".parse().unwrap();
    let transport = fetcher.transport(&server, CONNECT).await.unwrap();
    assert_eq!(reason(transport).await, "AddressRefused");
}

#[tokio::test]
async fn the_own_api_server_is_refused() {
    let fetcher = fetcher().without_api_server(vec![("127.0.0.1".to_owned(), 6443)]).await;
    let refused = fetcher
        .transport(&"https://127.0.0.1:6443".parse().unwrap(), CONNECT)
        .await;
    let message = refused.err().unwrap().to_string();
    assert!(message.contains("it is the API server"), "{message}");
    let other = "https://127.0.0.1:6444".parse().unwrap();
    assert!(fetcher.transport(&other, CONNECT).await.is_ok());
}

#[tokio::test]
async fn a_custom_authority_is_the_only_one() {
    let (acceptor, pem) = connections::tls("127.0.0.1");
    let (_, other) = connections::tls("127.0.0.1");
    let server = Server::start_with(Some(acceptor), |_| response("200 OK", "", b"{}")).await;
    let access = |ca: &[u8]| Access {
        ca: Some(ca.to_vec()),
        ..Access::default()
    };
    let answer = send(transport(&server.url, access(&pem)).await, "/version").await;
    assert_eq!(answer.unwrap().status(), 200);
    let untrusted = transport(&server.url, access(&other)).await;
    assert_eq!(reason(untrusted).await, "CertificateNotTrusted");
}

#[tokio::test]
async fn a_tls_handshake_without_an_answer_ends_at_the_connect_timeout() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: Url = format!("https://{}", listener.local_addr().unwrap()).parse().unwrap();
    let transport = fetcher().transport(&url, Duration::from_millis(50)).await.unwrap();
    assert_eq!(reason(transport).await, "ConnectFailed");
}
