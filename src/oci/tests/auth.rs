//! Authentication.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;

const TAGS: &str = r#"{"name":"a","tags":["1.0.0"]}"#;

/// Starts a registry with a token server on the same port. `NUMBER` in its response counts the tokens; `accepts` gets the
/// target and the `Authorization` header.
async fn token_registry(
    token_response: &'static str,
    accepts: impl Fn(&str, &str) -> bool + Send + Sync + 'static,
) -> Server {
    let count = AtomicUsize::new(0);
    Server::start(move |head| {
        let target = target(head);
        if target.starts_with("/token") {
            if token_response.is_empty() {
                return response("401 Unauthorized", "", b"");
            }
            let number = (count.fetch_add(1, Ordering::SeqCst) + 1).to_string();
            return ok(token_response.replace("NUMBER", &number));
        }
        if accepts(&target, header(head, "authorization")) {
            return ok(TAGS);
        }
        let name = target
            .trim_start_matches("/v2/")
            .split("/tags")
            .next()
            .unwrap_or_default();
        let scope = if name.is_empty() {
            String::new()
        } else {
            format!(r#",scope="repository:{name}:pull""#)
        };
        unauthorized(&format!(
            r#"Bearer realm="http://{}/token?a=b",service="the \"registry\""{scope}"#,
            header(head, "host")
        ))
    })
    .await
}

async fn tags(registry: &Registry, repository: &str) -> Result<Vec<String>, OciError> {
    registry.tags(repository, None).await.map(listed)
}

fn tag_requests(server: &Server) -> usize {
    targets(server)
        .iter()
        .filter(|target| target.starts_with("/v2/") && target.len() > 4)
        .count()
}

fn token_requests(server: &Server) -> Vec<String> {
    targets(server)
        .into_iter()
        .filter(|target| target.starts_with("/token"))
        .collect()
}

#[tokio::test]
async fn a_public_registry_gets_one_request_without_credentials() {
    let server = Server::start(|_| ok(TAGS)).await;
    assert_eq!(tags(&registry(&server), "a").await.unwrap(), ["1.0.0"]);
    assert_eq!(targets(&server), ["/v2/a/tags/list?n=1000"]);
    assert_eq!(header(&server.requests()[0], "authorization"), "");
}

#[tokio::test]
async fn a_token_is_requested_by_the_challenge_and_cached_for_its_scope() {
    let server = token_registry(r#"{"token":"t-NUMBER","expires_in":300}"#, |_, sent| {
        sent.starts_with("Bearer t-")
    })
    .await;
    let registry = registry(&server);
    for _ in 0..3 {
        assert_eq!(tags(&registry, "a/b").await.unwrap(), ["1.0.0"]);
    }
    assert_eq!(tag_requests(&server), 4, "one request got a 401");
    let query = "/token?a=b&service=the+%22registry%22&scope=repository%3A";
    assert_eq!(token_requests(&server), [format!("{query}a%2Fb%3Apull")]);

    // Another repository has another scope, but the same token server.
    assert_eq!(tags(&registry, "c").await.unwrap(), ["1.0.0"]);
    assert_eq!(token_requests(&server)[1..], [format!("{query}c%3Apull")]);
    assert_eq!(tag_requests(&server), 5);
    let sent: Vec<String> = server
        .requests()
        .iter()
        .map(|head| header(head, "authorization").to_owned())
        .collect();
    assert_eq!(
        sent,
        ["", "", "Bearer t-1", "Bearer t-1", "Bearer t-1", "", "Bearer t-2"]
    );
}

#[tokio::test]
async fn credentials_are_sent_to_the_token_server_and_the_token_to_the_registry() {
    let server = token_registry(r#"{"access_token":"t-NUMBER"}"#, |_, sent| {
        sent.starts_with("Bearer t-")
    })
    .await;
    let registry = registry_with(&server, &basic("user", "secret"));
    tags(&registry, "a").await.unwrap();
    tags(&registry, "a").await.unwrap();
    for head in server.requests() {
        let expected = match target(&head) {
            target if target.starts_with("/token") => basic("user", "secret"),
            target if target == "/v2/" => String::new(),
            _ => "Bearer t-1".to_owned(),
        };
        assert_eq!(header(&head, "authorization"), expected);
    }
    assert_eq!(targets(&server).len(), 4);
}

#[tokio::test]
async fn basic_credentials_are_sent_after_a_basic_challenge() {
    let server = Server::start(|head| match header(head, "authorization") {
        "" => unauthorized(r#"Basic realm="registry""#),
        sent if sent == basic("user", "secret") => ok(TAGS),
        _ => response("403 Forbidden", "", b""),
    })
    .await;
    let registry = registry_with(&server, &basic("user", "secret"));
    assert_eq!(tags(&registry, "a").await.unwrap(), ["1.0.0"]);
    assert_eq!(tags(&registry, "b").await.unwrap(), ["1.0.0"]);
    assert_eq!(
        targets(&server),
        ["/v2/", "/v2/a/tags/list?n=1000", "/v2/b/tags/list?n=1000"]
    );
}

#[tokio::test]
async fn credentials_are_sent_to_a_registry_with_anonymous_access() {
    let server = Server::start(|_| ok(TAGS)).await;
    tags(&registry_with(&server, &basic("user", "secret")), "a")
        .await
        .unwrap();
    assert_eq!(header(&server.requests()[1], "authorization"), basic("user", "secret"));
}

#[tokio::test]
async fn a_path_may_require_another_scheme() {
    // Harbor requires Basic for _catalog.
    let server = token_registry(r#"{"token":"t-NUMBER"}"#, |_, sent| sent.starts_with("Bearer t-")).await;
    let harbor = Server::start(
        move |head| match (target(head).as_str(), header(head, "authorization")) {
            ("/v2/_catalog?n=1000", sent) if sent == basic("user", "secret") => ok(r#"{"repositories":["p/a"]}"#),
            ("/v2/_catalog?n=1000", _) => unauthorized("Basic realm=harbor"),
            (target, _) if target.contains("charts-index") => not_found(),
            (target, _) if target.starts_with("/token") => ok(r#"{"token":"t"}"#),
            _ => unauthorized(&format!(r#"Bearer realm="{}token""#, server.url)),
        },
    )
    .await;
    let registry = registry_with(&harbor, &basic("user", "secret"));
    assert_eq!(registry.list().await.unwrap(), ["p/a"]);
}

#[tokio::test]
async fn a_custom_header_is_sent_unchanged_and_not_used_for_tokens() {
    let server = token_registry(r#"{"token":"t"}"#, |target, sent| {
        sent == "Bearer custom" && target.contains("/a/")
    })
    .await;
    let registry = registry_with(&server, "Bearer custom");
    assert_eq!(tags(&registry, "a").await.unwrap(), ["1.0.0"]);
    let error = tags(&registry, "b").await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("Unauthorized", false));
    assert!(
        error.to_string().contains("spec.auth") && !error.to_string().contains("custom"),
        "{error}"
    );
    assert_eq!(targets(&server), ["/v2/a/tags/list?n=1000", "/v2/b/tags/list?n=1000"]);
}

#[tokio::test]
async fn an_expired_token_is_renewed() {
    let server = token_registry(r#"{"token":"t-NUMBER","expires_in":300}"#, |_, sent| {
        sent.starts_with("Bearer t-")
    })
    .await;
    let registry = registry(&server);
    tags(&registry, "a").await.unwrap();
    for (seconds, tokens) in [(280, 1), (11, 2)] {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
        tags(&registry, "a").await.unwrap();
        assert_eq!(token_requests(&server).len(), tokens);
    }
    assert_eq!(tag_requests(&server), 4, "the registry never got an expired token");
}

#[tokio::test]
async fn a_rejected_token_is_renewed() {
    let revoked = Arc::new(AtomicUsize::new(0));
    let limit = Arc::clone(&revoked);
    let server = token_registry(r#"{"token":"NUMBER"}"#, move |_, sent| {
        let number = sent
            .strip_prefix("Bearer ")
            .and_then(|number| number.parse::<usize>().ok());
        number.is_some_and(|number| number > limit.load(Ordering::SeqCst))
    })
    .await;
    let registry = registry(&server);
    tags(&registry, "a").await.unwrap();
    revoked.store(1, Ordering::SeqCst);
    tags(&registry, "a").await.unwrap();
    assert_eq!((token_requests(&server).len(), tag_requests(&server)), (2, 4));
}

#[tokio::test]
async fn a_request_is_repeated_once_after_a_401() {
    let server = token_registry(r#"{"token":"t-NUMBER"}"#, |_, _| false).await;
    for (registry, message) in [
        (registry(&server), "set them in spec.auth"),
        (
            registry_with(&server, &basic("user", "secret")),
            "insufficient permissions",
        ),
    ] {
        let before = tag_requests(&server);
        let error = tags(&registry, "a").await.unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("Unauthorized", false));
        assert!(error.to_string().contains(message), "{error}");
        assert_eq!(tag_requests(&server) - before, 2);
    }
}

#[tokio::test]
async fn an_error_names_the_token_server_but_not_the_credentials() {
    let server = token_registry("", |_, _| false).await;
    let error = tags(&registry_with(&server, &basic("user", "hunter2")), "a")
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "Unauthorized");
    let text = format!("{error} {error:?}");
    assert!(
        text.contains("/token returned 401") && text.contains("check the credentials"),
        "{text}"
    );
    assert!(
        !text.contains("hunter2") && !text.contains(&basic("user", "hunter2")[6..]),
        "{text}"
    );
}

#[tokio::test]
async fn concurrent_requests_share_one_token() {
    let server = token_registry(r#"{"token":"t-NUMBER"}"#, |_, sent| sent.starts_with("Bearer t-")).await;
    let registry = registry(&server);
    let all = futures::future::join_all((0..8).map(|_| tags(&registry, "a"))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(token_requests(&server).len(), 1);
}

#[tokio::test]
async fn a_challenge_of_a_redirect_target_is_ignored() {
    let other =
        Server::start(|head| unauthorized(&format!(r#"Bearer realm="http://{}/token""#, header(head, "host")))).await;
    let to = other.url.clone();
    let server = Server::start(move |head| match target(head).as_str() {
        "/v2/" => unauthorized("Basic realm=r"),
        target => response(
            "307 Temporary Redirect",
            &format!("Location: {}{target}", to.as_str().trim_end_matches('/')),
            b"",
        ),
    })
    .await;
    let registry = registry_with(&server, &basic("user", "secret"));
    let error = tags(&registry, "a").await.unwrap_err();
    assert_eq!(error.reason(), "Unauthorized");
    assert!(error.to_string().contains("another host"), "{error}");
    assert_eq!(other.requests().len(), 1, "no request to its token server");
    assert_eq!(header(&other.requests()[0], "authorization"), "");
}

#[tokio::test]
async fn credentials_for_another_host_are_not_sent_to_registry_or_token_server() {
    // A Helm repository with a password may list charts in another registry.
    let server = token_registry(r#"{"token":"t-NUMBER"}"#, |_, sent| sent.starts_with("Bearer t-")).await;
    let scope = "https://charts.example.com/".parse().unwrap();
    tags(&registry_with_scope(&server, &scope, &basic("user", "secret")), "a")
        .await
        .unwrap();
    for head in server.requests() {
        assert!(!head.contains(&basic("user", "secret")), "{head}");
    }
}

#[tokio::test]
async fn invalid_and_unsupported_challenges_are_errors() {
    for (challenge, reason, part) in [
        ("Bearer service=x", "InvalidChallenge", "has no realm"),
        ("Bearer realm=\"::\"", "InvalidChallenge", "is not a valid URL"),
        ("Bearer realm=\"ftp://a/\"", "InvalidChallenge", "is not an https URL"),
        (
            "Bearer realm=\"https://u:p@a/\"",
            "InvalidChallenge",
            "contains credentials",
        ),
        ("Negotiate, NTLM abc", "Unauthorized", "negotiate, ntlm"),
        ("Basic realm=x", "Unauthorized", "credentials required"),
        ("", "Unauthorized", "credentials required"),
    ] {
        let challenge = challenge.to_owned();
        let server = Server::start(move |_| unauthorized(&challenge)).await;
        let error = tags(&registry(&server), "a").await.unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), (reason, false));
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn an_invalid_token_is_an_error() {
    let server = token_registry(r#"{"token":"two\nlines"}"#, |_, _| false).await;
    let error = tags(&registry(&server), "a").await.unwrap_err();
    assert_eq!(error.reason(), "InvalidAnswer");
    assert!(!error.to_string().contains("lines"), "{error}");
}
