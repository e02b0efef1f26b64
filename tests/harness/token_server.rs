use reqwest::{Client, RequestBuilder, Response, StatusCode, header};
use serde_json::Value;
use url::Url;

use crate::support::archives::Chart;
use crate::support::registry::{PASSWORD, Registry, Setup, USER};
use crate::support::token_server::{SERVICE, TokenServer, basic_authorization};

const SCOPE: &str = "repository:harbour:pull";

/// A registry with one chart and a token server.
struct World {
    server: TokenServer,
    registry: Registry,
    client: Client,
}

impl World {
    async fn new() -> Self {
        portolan::http::install_crypto_provider();
        let server = TokenServer::start().await;
        let registry = Registry::start(Setup::default().tokens(&server)).await;
        let archive = Chart::new("harbour", "1.2.3").pack();
        registry.push_chart("harbour", "1.2.3", &archive).await;
        let client = Client::builder().no_proxy().build().unwrap();
        Self {
            server,
            registry,
            client,
        }
    }

    async fn ask(&self, scope: &str, login: Option<(&str, &str)>) -> Response {
        let url = Url::parse_with_params(&self.server.realm(), [("service", SERVICE), ("scope", scope)]);
        let mut request = self.client.get(url.unwrap());
        if let Some((user, password)) = login {
            request = request.basic_auth(user, Some(password));
        }
        request.send().await.unwrap()
    }

    async fn token(&self, field: &str) -> String {
        let answer = self.ask(SCOPE, Some((USER, PASSWORD))).await;
        let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        answer[field].as_str().unwrap().to_owned()
    }

    /// Returns status and challenge of the tag list.
    async fn tags(&self, token: Option<&str>) -> (StatusCode, String) {
        let request = self.client.get(self.registry.url("/v2/harbour/tags/list"));
        let request = token.into_iter().fold(request, RequestBuilder::bearer_auth);
        let answer = request.send().await.unwrap();
        let challenge = answer.headers().get(header::WWW_AUTHENTICATE);
        let challenge = challenge.map(|value| value.to_str().unwrap().to_owned());
        (answer.status(), challenge.unwrap_or_default())
    }
}

#[tokio::test]
async fn a_token_from_the_challenge_grants_access() {
    let world = World::new().await;
    let (status, challenge) = world.tags(None).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let realm = world.server.realm();
    assert_eq!(
        challenge,
        format!("Bearer realm=\"{realm}\",service=\"{SERVICE}\",scope=\"{SCOPE}\"")
    );

    assert_eq!(world.ask(SCOPE, None).await.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        world.ask(SCOPE, Some((USER, "calm"))).await.status(),
        StatusCode::UNAUTHORIZED
    );
    let token = world.token("token").await;
    assert_eq!(world.tags(Some(&token)).await.0, StatusCode::OK);

    let requests = world.server.requests();
    let statuses: Vec<_> = requests.iter().map(|request| request.status.as_u16()).collect();
    assert_eq!(statuses, [401, 401, 200], "the push by the test requested no token");
    assert_eq!(requests[0].authorization, None);
    assert_eq!(requests[2].authorization, Some(basic_authorization()));
    assert_eq!(
        (requests[2].scopes.as_slice(), requests[2].method.as_str()),
        ([SCOPE.to_owned()].as_slice(), "GET")
    );
    assert_eq!(requests[2].service.as_deref(), Some(SERVICE));
}

#[tokio::test]
async fn expired_and_denied_tokens_do_not_grant_access() {
    let world = World::new().await;
    world.server.expire(1);
    let token = world.token("token").await;
    let (status, challenge) = world.tags(Some(&token)).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert!(challenge.ends_with("error=\"invalid_token\""), "{challenge}");
    let token = world.token("token").await;
    assert_eq!(world.tags(Some(&token)).await.0, StatusCode::OK);

    world.server.deny("harbour");
    let token = world.token("token").await;
    let (status, challenge) = world.tags(Some(&token)).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert!(challenge.ends_with("error=\"insufficient_scope\""), "{challenge}");
}

#[tokio::test]
async fn anonymous_pulls_work_if_allowed() {
    let world = World::new().await;
    world.server.allow_anonymous_pulls();
    world.server.claim_lifetime(7);
    let answer = world.ask("repository:harbour:pull,push", None).await;
    let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(answer["expires_in"], 7);
    let token = answer["token"].as_str().unwrap();
    assert_eq!(world.tags(Some(token)).await.0, StatusCode::OK);
    let upload = world.registry.url("/v2/harbour/blobs/uploads/");
    let push = world.client.post(upload).bearer_auth(token).send().await.unwrap();
    assert_eq!(push.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(
        world.ask(SCOPE, Some((USER, "calm"))).await.status(),
        StatusCode::UNAUTHORIZED
    );
}

#[tokio::test]
async fn responses_can_be_rejected_and_changed() {
    let world = World::new().await;
    world.server.refuse_once(429, Some("3"));
    world.server.refuse_once(500, None);
    let busy = world.ask(SCOPE, Some((USER, PASSWORD))).await;
    assert_eq!(
        (busy.status().as_u16(), &busy.headers()[header::RETRY_AFTER]),
        (429, &"3".parse().unwrap())
    );
    assert_eq!(world.ask(SCOPE, Some((USER, PASSWORD))).await.status(), 500);
    world.server.use_access_token_field();
    let token = world.token("access_token").await;
    assert_eq!(world.tags(Some(&token)).await.0, StatusCode::OK);
}
