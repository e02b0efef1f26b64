//! Requests to servers on loopback.

use rstest::rstest;
use serde_json::json;

use super::*;
use crate::controllers::oam::functions::secrets::tests::FakeSecrets;
use crate::http::Settings;
use crate::http::tests::server::{Part, Server, response};

const WORKERS: usize = 8;

fn requests() -> HttpRequests {
    HttpRequests::new(Fetcher::new(Settings::default()).unwrap(), &Budgets::default(), WORKERS)
}

fn application() -> NamespacedName {
    NamespacedName::new("ns", "app")
}

async fn send_with(params: &Value, secrets: &FakeSecrets) -> Answer {
    requests().send(&application(), params, secrets, &mut None).await
}

async fn returned(params: &Value) -> Value {
    match send_with(params, &FakeSecrets::default()).await {
        Answer::Returned(value) => value,
        other => panic!("{other:?}"),
    }
}

async fn failed(params: &Value, secrets: &FakeSecrets) -> String {
    match send_with(params, secrets).await {
        Answer::Failed { message, .. } => message,
        other => panic!("{other:?}"),
    }
}

fn with_token(url: &str, secret: &str, key: &str) -> Value {
    let headers = json!([{"header": "X-Token", "secret": secret, "key": key}]);
    json!({"url": url, "method": "POST", "request": {"body": "payload", "headersFromSecret": headers}})
}

#[tokio::test]
async fn a_response_has_the_fields_that_templates_read() {
    let server = Server::start(|_| response("404 Not Found", "Content-Type: text/plain", b"no\xff")).await;
    let expected = json!({
        "statusCode": 404,
        "body": "no\u{fffd}",
        "header": {"Content-Type": ["text/plain"], "Content-Length": ["3"]},
    });
    assert_eq!(returned(&json!({"url": server.url.as_str()})).await, expected);
    let request = server.requests().remove(0);
    assert!(
        request.starts_with("GET / ") && request.contains("content-type: application/json"),
        "{request}"
    );
}

#[tokio::test]
async fn a_header_comes_from_a_secret_in_the_namespace_of_the_application() {
    let server = Server::start(|_| response("200 OK", "", b"")).await;
    let secrets = FakeSecrets::with("ns", "webhook", &[("token", b"hunter2\n")]);
    let answer = send_with(&with_token(server.url.as_str(), "webhook", "token"), &secrets).await;
    assert!(matches!(answer, Answer::Returned(_)), "{answer:?}");
    let request = server.requests().remove(0);
    assert!(
        request.contains("x-token: hunter2\r\n") && request.ends_with("payload"),
        "{request}"
    );
}

#[rstest]
#[case("other", "token", b"a", "Secret other not found in namespace ns")]
#[case("../kube-system/secrets/x", "token", b"a", "is not valid")]
#[case("webhook", "hunter2", b"a", "has no key")]
#[case("webhook", "token", b"hunter2\r\nX-Evil: 1", "is not a header")]
#[tokio::test]
async fn a_secret_that_cannot_be_used_fails_before_the_request(
    #[case] secret: &str,
    #[case] key: &str,
    #[case] value: &[u8],
    #[case] why: &str,
) {
    let server = Server::start(|_| response("200 OK", "", b"")).await;
    let secrets = FakeSecrets::with("ns", "webhook", &[("token", value)]);
    let message = failed(&with_token(server.url.as_str(), secret, key), &secrets).await;
    assert!(message.contains(why) && !message.contains("hunter2"), "{message}");
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn a_secret_of_another_namespace_is_not_read() {
    let secrets = FakeSecrets::with("kube-system", "webhook", &[("token", b"hunter2")]);
    let message = failed(&with_token("http://127.0.0.1:1/", "webhook", "token"), &secrets).await;
    assert_eq!(message, "Secret webhook not found in namespace ns");
}

#[tokio::test]
async fn no_message_contains_the_path_query_or_credentials_of_the_url() {
    let silent = Server::start(|_| vec![Part::Hang]).await;
    let large = Server::always("HTTP/1.1 200 OK\nContent-Length: 9999999", b"").await;
    let short = Server::always("HTTP/1.1 200 OK\nContent-Length: 10", b"a").await;
    let closed = Server::start(|_| vec![Part::Close]).await;
    let looping = Server::start(|_| response("302 Found", "Location: /hunter2", b"")).await;
    let wild = Server::start(|_| response("302 Found", "Location: gopher://hunter2", b"")).await;
    let refused = Server::start(|_| response("302 Found", "Location: http://169.254.169.254/", b"")).await;
    let flood = "X-A: a\n".repeat(1_000);
    let flooding = Server::start(move |_| response("200 OK", flood.trim_end(), b"")).await;
    let wide = format!("X-A: {}", "a".repeat(100_000));
    let wide = Server::start(move |_| response("200 OK", &wide, b"")).await;
    let secrets = FakeSecrets::with("ns", "webhook", &[("token", b"hunter2")]);
    for (server, why) in [
        (&silent, "no complete response"),
        (&large, "larger than 1048576 bytes"),
        (&short, "ended after 1 bytes"),
        (&closed, "closed the connection"),
        (&looping, "redirects more than 10 times"),
        (&wild, "invalid redirect"),
        (&refused, "not allowed"),
        (&flooding, "closed the connection"),
        (&wide, "bytes of headers"),
    ] {
        let mut url = server.at("services/hunter2?token=hunter2");
        url.set_password(Some("hunter2")).unwrap();
        let mut params = with_token(url.as_str(), "webhook", "token");
        params["request"]["timeout"] = json!("300ms");
        let message = failed(&params, &secrets).await;
        assert!(message.contains(why) && !message.contains("hunter2"), "{message}");
    }
}

#[tokio::test]
async fn a_refused_connection_and_an_unknown_name_are_failures() {
    let message = failed(&json!({"url": "http://127.0.0.1:1/hunter2"}), &FakeSecrets::default()).await;
    assert!(
        message.starts_with("failed to connect to 127.0.0.1:1") && !message.contains("hunter2"),
        "{message}"
    );
}

#[tokio::test]
async fn a_rate_that_is_exceeded_fails_without_a_request() {
    let server = Server::start(|_| response("200 OK", "", b"")).await;
    let rate = json!({"limit": 1, "period": "1h"});
    let params = json!({"url": server.url.as_str(), "request": {"ratelimiter": rate}});
    let (requests, secrets) = (requests(), FakeSecrets::default());
    let first = requests.send(&application(), &params, &secrets, &mut None).await;
    assert!(matches!(first, Answer::Returned(_)), "{first:?}");
    let second = requests.send(&application(), &params, &secrets, &mut None).await;
    assert_eq!(second, Answer::failed("request exceeds the rate limiter"));
    assert_eq!(server.requests().len(), 1);
}

/// The answer that a template without a permit gets to a request of `params`. No server listens at the port 1.
async fn first_answer(requests: &HttpRequests, namespace: &str, params: &Value) -> Answer {
    let application = NamespacedName::new(namespace, "app");
    requests
        .send(&application, params, &FakeSecrets::default(), &mut None)
        .await
}

fn was_sent(answer: &Answer) -> bool {
    matches!(answer, Answer::Failed { message, .. } if message.starts_with("failed to connect"))
}

#[tokio::test(start_paused = true)]
async fn requests_hold_half_of_the_workers_and_those_of_a_namespace_a_quarter() {
    let requests = requests();
    let mut held = Vec::new();
    while let Some(permit) = requests.permit("ns").await {
        held.push(permit);
    }
    assert_eq!(held.len(), WORKERS / 4);
    let params = json!({"url": "http://127.0.0.1:1/"});
    let answer = first_answer(&requests, "ns", &params).await;
    assert!(matches!(answer, Answer::Waiting(_)), "{answer:?}");
    let answer = first_answer(&requests, "other", &params).await;
    assert!(was_sent(&answer), "{answer:?}");
    drop(held);
    let answer = first_answer(&requests, "ns", &params).await;
    assert!(was_sent(&answer), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_template_that_waits_for_a_permit_does_not_use_up_its_rate() {
    let requests = HttpRequests::new(Fetcher::new(Settings::default()).unwrap(), &Budgets::default(), 1);
    let held = requests.permit("other").await.unwrap();
    let rate = json!({"limit": 1, "period": "1h"});
    let params = json!({"url": "http://127.0.0.1:1/", "request": {"ratelimiter": rate}});
    let answer = first_answer(&requests, "ns", &params).await;
    assert!(matches!(answer, Answer::Waiting(_)), "{answer:?}");
    drop(held);
    let answer = first_answer(&requests, "ns", &params).await;
    assert!(was_sent(&answer), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn secrets_are_read_before_the_permit_is_taken() {
    let requests = HttpRequests::new(Fetcher::new(Settings::default()).unwrap(), &Budgets::default(), 1);
    let _held = requests.permit("other").await.unwrap();
    let params = with_token("http://127.0.0.1:1/", "missing", "token");
    let answer = first_answer(&requests, "ns", &params).await;
    assert_eq!(answer, Answer::failed("Secret missing not found in namespace ns"));
}

#[tokio::test(start_paused = true)]
async fn a_template_that_has_sent_a_request_keeps_its_permit_for_the_next_one() {
    let requests = HttpRequests::new(Fetcher::new(Settings::default()).unwrap(), &Budgets::default(), 1);
    let params = json!({"url": "http://127.0.0.1:1/"});
    let mut permit = None;
    for _ in 0..2 {
        let secrets = FakeSecrets::default();
        let answer = requests.send(&application(), &params, &secrets, &mut permit).await;
        assert!(was_sent(&answer), "{answer:?}");
        let answer = first_answer(&requests, "other", &params).await;
        assert!(matches!(answer, Answer::Waiting(_)), "{answer:?}");
    }
    drop(permit);
    let answer = first_answer(&requests, "other", &params).await;
    assert!(was_sent(&answer), "{answer:?}");
}
