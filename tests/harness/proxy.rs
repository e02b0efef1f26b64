use reqwest::{Client, StatusCode};

use crate::support::chart_server::{ChartServer, Page};
use crate::support::proxy::Proxy;
use crate::support::tls::Authority;

/// Returns a client that trusts a CA and uses a proxy, with an optional login.
fn client(authority: &Authority, proxy: &Proxy, login: Option<(&str, &str)>) -> Client {
    portolan::http::install_crypto_provider();
    let mut through = reqwest::Proxy::all(proxy.url()).unwrap();
    if let Some((user, password)) = login {
        through = through.basic_auth(user, password);
    }
    let certificate = reqwest::Certificate::from_pem(authority.ca_pem.as_bytes()).unwrap();
    Client::builder()
        .proxy(through)
        .tls_certs_only([certificate])
        .build()
        .unwrap()
}

#[tokio::test]
async fn plain_requests_are_forwarded_and_recorded() {
    let (authority, proxy, server) = (Authority::new(), Proxy::start().await, ChartServer::start().await);
    server.serve("/index.yaml", Page::new("x"));
    proxy.add_host("charts.example.com:80", server.host());
    let client = client(&authority, &proxy, None);
    for _ in 0..2 {
        let answer = client
            .get("http://charts.example.com/index.yaml?q=1")
            .send()
            .await
            .unwrap();
        assert_eq!(answer.text().await.unwrap(), "x");
    }
    let requests = proxy.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(
        (requests[0].method.as_str(), requests[0].target.as_str()),
        ("GET", "http://charts.example.com/index.yaml?q=1")
    );
    let seen = server.requests("/index.yaml");
    assert_eq!(
        (seen[0].host(), seen[0].query.as_deref()),
        (Some("charts.example.com"), Some("q=1"))
    );
}

#[tokio::test]
async fn tls_requests_use_a_tunnel() {
    let (authority, proxy) = (Authority::new(), Proxy::start().await);
    let server = ChartServer::start_tls_with(&authority).await;
    server.serve("/index.yaml", Page::new("x"));
    let answer = client(&authority, &proxy, None).get(server.url("/index.yaml"));
    assert_eq!(
        answer
            .bearer_auth("open-sesame")
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap(),
        "x"
    );
    let requests = proxy.requests();
    assert_eq!(
        (requests[0].method.as_str(), requests[0].target.as_str()),
        ("CONNECT", server.host())
    );
    assert_eq!(
        requests[0].header("authorization"),
        None,
        "the header is only for the server"
    );
    assert_eq!(server.all_requests()[0].authorization(), Some("Bearer open-sesame"));
}

#[tokio::test]
async fn a_proxy_may_require_a_password_and_may_not_reach_a_host() {
    let (authority, proxy, server) = (Authority::new(), Proxy::start().await, ChartServer::start().await);
    proxy.demand("pilot", "low-tide");
    let refused = client(&authority, &proxy, None)
        .get(server.url("/"))
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), StatusCode::PROXY_AUTHENTICATION_REQUIRED);
    assert!(server.all_requests().is_empty());
    let authorized = client(&authority, &proxy, Some(("pilot", "low-tide")));
    assert_eq!(
        authorized.get(server.url("/")).send().await.unwrap().status(),
        StatusCode::NOT_FOUND
    );
    let seen = server.all_requests();
    assert!(
        seen[0].headers.keys().all(|name| !name.as_str().starts_with("proxy-")),
        "{seen:?}"
    );

    proxy.add_host("away.example.com:80", "127.0.0.1:1");
    let away = authorized.get("http://away.example.com/").send().await.unwrap();
    assert_eq!(away.status(), StatusCode::BAD_GATEWAY);
}
