use reqwest::{Client, StatusCode, header};
use serde_json::Value;

use crate::support::archives::{Archive, Chart, sha256};
use crate::support::registry::push::MANIFEST;
use crate::support::registry::{Registry, Setup};
use crate::support::tls::Authority;
use crate::support::token_server::{TokenServer, basic_authorization};

fn client() -> Client {
    portolan::http::install_crypto_provider();
    Client::builder().no_proxy().build().unwrap()
}

fn harbour() -> Archive {
    Chart::new("harbour", "1.2.3").file("values.yaml", "berths: 3\n").pack()
}

/// Pushes and pulls a chart with helm and compares the bytes.
async fn assert_round_trip(registry: &Registry) {
    registry.helm_push(&harbour(), "ports/charts").await;
    let pulled = registry.helm_pull("ports/charts/harbour", "1.2.3").await;
    assert_eq!(sha256(&pulled), harbour().sha256());
}

async fn tags(registry: &Registry, repository: &str) -> Vec<String> {
    let answer = client()
        .get(registry.url(&format!("/v2/{repository}/tags/list")))
        .send();
    let list: Value = serde_json::from_str(&answer.await.unwrap().text().await.unwrap()).unwrap();
    list["tags"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|tag| tag.as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_public_registry_accepts_anonymous_pushes() {
    let (one, other) = (
        Registry::start(Setup::default()).await,
        Registry::start(Setup::default()).await,
    );
    assert_round_trip(&one).await;
    assert_eq!(tags(&one, "ports/charts/harbour").await, ["1.2.3"]);
    assert!(
        tags(&other, "ports/charts/harbour").await.is_empty(),
        "each registry has its own storage"
    );
}

#[tokio::test]
async fn basic_authentication_requires_a_password() {
    let registry = Registry::start(Setup::default().password()).await;
    assert_round_trip(&registry).await;
    let answer = client().get(registry.url("/v2/")).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(answer.headers()[header::WWW_AUTHENTICATE], "Basic realm=\"a test\"");
    let wrong = client().get(registry.url("/v2/")).basic_auth("navigator", Some("calm"));
    assert_eq!(wrong.send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let right = client()
        .get(registry.url("/v2/"))
        .header(header::AUTHORIZATION, basic_authorization());
    assert_eq!(right.send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn clients_need_the_private_ca() {
    let authority = Authority::new();
    let registry = Registry::start(Setup::default().tls(&authority)).await;
    assert_round_trip(&registry).await;
    assert!(client().get(registry.url("/v2/")).send().await.is_err());
}

#[tokio::test]
async fn tokens_and_tls_go_together() {
    let authority = Authority::new();
    let server = TokenServer::start_tls(&authority).await;
    let registry = Registry::start(Setup::default().tls(&authority).tokens(&server)).await;
    // Helm also trusts the CA of the token server and requests a token automatically.
    assert_round_trip(&registry).await;
    let requests = server.requests();
    assert!(
        requests.iter().any(|request| {
            request.authorization == Some(basic_authorization())
                && request
                    .scopes
                    .contains(&"repository:ports/charts/harbour:pull,push".to_owned())
        }),
        "{requests:?}"
    );
}

#[tokio::test]
async fn hundreds_of_tags_are_pushed_and_listed_in_pages() {
    let registry = Registry::start(Setup::default().pages_of(200)).await;
    let archives = (0..500).map(|number| Chart::new("tides", &format!("1.0.{number}")).pack());
    registry.push_charts("tides", archives).await;
    assert_eq!(
        tags(&registry, "tides").await.len(),
        500,
        "without `n` all tags are returned"
    );
    let page = client()
        .get(registry.url("/v2/tides/tags/list?n=1000"))
        .send()
        .await
        .unwrap();
    let next = page.headers()[header::LINK].to_str().unwrap().to_owned();
    assert!(next.contains("rel=\"next\"") && next.contains("n=200"), "{next}");
    let pulled = registry.helm_pull("tides", "1.0.499").await;
    assert_eq!(sha256(&pulled), Chart::new("tides", "1.0.499").pack().sha256());
}

#[tokio::test]
async fn tags_can_move_be_deleted_and_be_other_artifacts() {
    let registry = Registry::start(Setup::default()).await;
    let first = registry.push_chart("harbour", "1.2.3", &harbour()).await;
    let other = harbour().truncated(10);
    let second = registry.push_chart("harbour", "1.2.3", &other).await;
    let digest = async |tag: &str| {
        let head = client()
            .head(registry.url(&format!("/v2/harbour/manifests/{tag}")))
            .header(header::ACCEPT, MANIFEST);
        let answer = head.send().await.unwrap();
        answer
            .headers()
            .get("docker-content-digest")
            .map(|value| value.to_str().unwrap().to_owned())
    };
    assert_ne!(first.digest, second.digest);
    assert_eq!(digest("1.2.3").await, Some(second.digest.clone()));

    let signature = registry.push_signature("harbour", &second).await;
    registry.push_image("harbour", "latest").await;
    registry.push_image_index("harbour", "all").await;
    registry.push_charts_index("ports", &["harbour"]).await;
    assert_eq!(
        tags(&registry, "harbour").await,
        ["1.2.3", "all", "all-amd64", "latest", &signature]
    );
    assert_eq!(tags(&registry, "ports/charts-index").await, ["latest"]);
    registry.delete_tag("harbour", "1.2.3").await;
    assert_eq!(digest("1.2.3").await, None);
    assert_eq!(digest(&first.digest).await, Some(first.digest));
}
