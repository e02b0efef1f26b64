use portolan::http::Access;
use portolan::oci::Limits;

use super::{access, chart, client, client_as, client_with, tags};
use crate::support::registry::{Registry, Setup};
use crate::support::tls::Authority;
use crate::support::token_server::{TokenServer, basic_authorization};

/// Sends every kind of request.
async fn assert_all_requests_succeed(registry: &Registry, access: Access) {
    registry.push_chart("ports/harbour", "1.0.0", &chart("1.0.0")).await;
    let client = client_with(registry, "ports", access, Limits::default());
    assert_eq!(client.list().await.unwrap(), ["harbour"]);
    assert_eq!(tags(&client, "ports/harbour").await.unwrap(), ["1.0.0"]);
    let found = client.manifest("ports/harbour", "1.0.0").await.unwrap();
    assert_eq!(client.digest("ports/harbour", "1.0.0").await.unwrap(), found.digest);
    assert!(!client.config("ports/harbour", &found).await.unwrap().is_empty());
    let limits = Limits::default().fetch;
    let body = client.layer("ports/harbour", &found, &limits).await.unwrap();
    assert_eq!(body.sha256, chart("1.0.0").sha256());
}

async fn reason(client: &super::Client) -> &'static str {
    let error = tags(client, "harbour").await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    error.reason()
}

#[tokio::test]
async fn requests_succeed_only_with_a_password() {
    let registry = Registry::start(Setup::default().password()).await;
    assert_all_requests_succeed(&registry, access(&registry, basic_authorization())).await;
    assert_eq!(reason(&client(&registry, "")).await, "Unauthorized");
    assert_eq!(
        reason(&client_as(&registry, "Basic bmF2aWdhdG9yOmNhbG0=".to_owned())).await,
        "Unauthorized"
    );
    let error = client(&registry, "ports").list().await.unwrap_err();
    assert_eq!(error.reason(), "Unauthorized");
    assert!(error.to_string().contains("set them in spec.auth"), "{error}");
    assert!(error.to_string().contains("spec.ociRepositories"), "{error}");
}

#[tokio::test]
async fn a_password_for_another_host_is_not_sent() {
    let registry = Registry::start(Setup::default().password()).await;
    let access = Access {
        scope: Some("https://charts.example.com/".parse().unwrap()),
        ..access(&registry, basic_authorization())
    };
    assert_eq!(
        reason(&client_with(&registry, "", access.clone(), Limits::default())).await,
        "Unauthorized"
    );
    let access = Access {
        pass_credentials: true,
        scope: Some("http://charts.example.com/".parse().unwrap()),
        ..access
    };
    assert_all_requests_succeed(&registry, access).await;
}

#[tokio::test]
async fn tokens_are_requested_with_the_password_and_cached_per_repository() {
    let server = TokenServer::start().await;
    let registry = Registry::start(Setup::default().tokens(&server)).await;
    assert_all_requests_succeed(&registry, access(&registry, basic_authorization())).await;
    let requests = server.requests();
    assert!(
        requests
            .iter()
            .all(|request| request.authorization == Some(basic_authorization()))
    );
    let scopes: Vec<&str> = requests
        .iter()
        .flat_map(|request| &request.scopes)
        .map(String::as_str)
        .collect();
    let expected = [
        "repository:ports/charts-index:pull",
        "registry:catalog:*",
        "repository:ports/harbour:pull",
    ];
    assert_eq!(scopes, expected, "one token each");
}

#[tokio::test]
async fn tokens_are_requested_over_tls_with_a_private_ca() {
    let authority = Authority::new();
    let server = TokenServer::start_tls(&authority).await;
    let registry = Registry::start(Setup::default().tls(&authority).tokens(&server)).await;
    let access = Access {
        ca: Some(authority.ca_pem.clone().into_bytes()),
        ..access(&registry, basic_authorization())
    };
    assert_all_requests_succeed(&registry, access).await;
    let stranger = client_as(&registry, basic_authorization());
    assert_eq!(reason(&stranger).await, "CertificateNotTrusted");
}

#[tokio::test]
async fn a_token_server_without_tls_is_rejected_if_the_registry_uses_tls() {
    let authority = Authority::new();
    let server = TokenServer::start().await;
    let registry = Registry::start(Setup::default().tls(&authority).tokens(&server)).await;
    let access = Access {
        ca: Some(authority.ca_pem.clone().into_bytes()),
        ..access(&registry, basic_authorization())
    };
    assert_eq!(
        reason(&client_with(&registry, "", access, Limits::default())).await,
        "InvalidChallenge"
    );
    assert!(
        server.requests().is_empty(),
        "the password was not sent over plain http"
    );
}

#[tokio::test]
async fn anonymous_pulls_work_if_allowed() {
    let server = TokenServer::start().await;
    server.allow_anonymous_pulls();
    let registry = Registry::start(Setup::default().tokens(&server)).await;
    registry.push_chart("harbour", "1.0.0", &chart("1.0.0")).await;
    let client = client(&registry, "");
    for _ in 0..3 {
        assert_eq!(tags(&client, "harbour").await.unwrap(), ["1.0.0"]);
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(
        (requests[0].authorization.as_ref(), requests[0].status.as_u16()),
        (None, 200)
    );
}

#[tokio::test]
async fn an_expired_token_is_renewed_and_an_insufficient_one_is_an_error() {
    let server = TokenServer::start().await;
    let registry = Registry::start(Setup::default().tokens(&server)).await;
    registry.push_chart("harbour", "1.0.0", &chart("1.0.0")).await;
    server.expire(1);
    assert_eq!(
        tags(&client_as(&registry, basic_authorization()), "harbour")
            .await
            .unwrap(),
        ["1.0.0"]
    );
    assert_eq!(server.requests().len(), 2);

    server.deny("harbour");
    assert_eq!(
        reason(&client_as(&registry, basic_authorization())).await,
        "Unauthorized"
    );
    assert_eq!(server.requests().len(), 4, "no request loop");
    assert_eq!(reason(&client(&registry, "")).await, "Unauthorized");
}

#[tokio::test]
async fn a_busy_token_server_is_retried() {
    let server = TokenServer::start().await;
    let registry = Registry::start(Setup::default().tokens(&server)).await;
    registry.push_chart("harbour", "1.0.0", &chart("1.0.0")).await;
    server.refuse_once(429, Some("1"));
    let client = client_as(&registry, basic_authorization());
    let error = tags(&client, "harbour").await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("TooManyRequests", true));
    tokio::time::pause();
    tokio::time::advance(error.retry_after().unwrap()).await;
    tokio::time::resume();
    assert_eq!(tags(&client, "harbour").await.unwrap(), ["1.0.0"]);
}

#[tokio::test]
async fn a_custom_token_is_sent_unchanged() {
    let server = TokenServer::start().await;
    let registry = Registry::start(Setup::default().tokens(&server)).await;
    registry.push_chart("harbour", "1.0.0", &chart("1.0.0")).await;
    let header = registry.authorization("harbour").unwrap();
    assert_eq!(tags(&client_as(&registry, header), "harbour").await.unwrap(), ["1.0.0"]);
    assert!(server.requests().is_empty());
}
