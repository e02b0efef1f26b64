//! Getting in.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;

const TAGS: &str = r#"{"name":"a","tags":["1.0.0"]}"#;

/// A registry that wants tokens, with its token server on the same port, which numbers them: the token is the scope and
/// the number. The registry takes what `takes` takes.
async fn token_registry(
    answer_of_token_server: &'static str,
    takes: impl Fn(&str, &str) -> bool + Send + Sync + 'static,
) -> Server {
    let count = AtomicUsize::new(0);
    Server::start(move |head| {
        let target = target(head);
        if target.starts_with("/token") {
            if answer_of_token_server.is_empty() {
                return answer("401 Unauthorized", "", b"");
            }
            let number = (count.fetch_add(1, Ordering::SeqCst) + 1).to_string();
            return ok(answer_of_token_server.replace("NUMBER", &number));
        }
        if takes(&target, header(head, "authorization")) {
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
async fn an_open_registry_is_asked_once_and_shown_nothing() {
    let server = Server::start(|_| ok(TAGS)).await;
    assert_eq!(tags(&registry(&server), "a").await.unwrap(), ["1.0.0"]);
    assert_eq!(targets(&server), ["/v2/a/tags/list?n=1000"]);
    assert_eq!(header(&server.requests()[0], "authorization"), "");
}

#[tokio::test]
async fn a_token_is_asked_for_by_the_challenge_and_kept_for_its_scope() {
    let server = token_registry(r#"{"token":"t-NUMBER","expires_in":300}"#, |_, shown| {
        shown.starts_with("Bearer t-")
    })
    .await;
    let registry = registry(&server);
    for _ in 0..3 {
        assert_eq!(tags(&registry, "a/b").await.unwrap(), ["1.0.0"]);
    }
    assert_eq!(tag_requests(&server), 4, "one of them was refused");
    let query = "/token?a=b&service=the+%22registry%22&scope=repository%3A";
    assert_eq!(token_requests(&server), [format!("{query}a%2Fb%3Apull")]);

    // Another repository has a scope of its own; where to ask is known by now.
    assert_eq!(tags(&registry, "c").await.unwrap(), ["1.0.0"]);
    assert_eq!(token_requests(&server)[1..], [format!("{query}c%3Apull")]);
    assert_eq!(tag_requests(&server), 5);
    let shown: Vec<String> = server
        .requests()
        .iter()
        .map(|head| header(head, "authorization").to_owned())
        .collect();
    assert_eq!(
        shown,
        ["", "", "Bearer t-1", "Bearer t-1", "Bearer t-1", "", "Bearer t-2"]
    );
}

#[tokio::test]
async fn the_token_server_gets_the_credentials_and_the_registry_gets_the_token() {
    let server = token_registry(r#"{"access_token":"t-NUMBER"}"#, |_, shown| {
        shown.starts_with("Bearer t-")
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
async fn basic_credentials_go_to_a_registry_that_wants_them() {
    let server = Server::start(|head| match header(head, "authorization") {
        "" => unauthorized(r#"Basic realm="registry""#),
        shown if shown == basic("user", "secret") => ok(TAGS),
        _ => answer("403 Forbidden", "", b""),
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
async fn credentials_are_shown_to_a_registry_that_lets_anybody_in_too() {
    let server = Server::start(|_| ok(TAGS)).await;
    tags(&registry_with(&server, &basic("user", "secret")), "a")
        .await
        .unwrap();
    assert_eq!(header(&server.requests()[1], "authorization"), basic("user", "secret"));
}

#[tokio::test]
async fn one_path_may_want_something_else_than_the_rest() {
    // As Harbor does it.
    let server = token_registry(r#"{"token":"t-NUMBER"}"#, |_, shown| shown.starts_with("Bearer t-")).await;
    let harbor = Server::start(
        move |head| match (target(head).as_str(), header(head, "authorization")) {
            ("/v2/_catalog?n=1000", shown) if shown == basic("user", "secret") => ok(r#"{"repositories":["p/a"]}"#),
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
async fn a_header_of_the_users_is_shown_as_it_is_and_nothing_is_asked_for_with_it() {
    let server = token_registry(r#"{"token":"t"}"#, |target, shown| {
        shown == "Bearer of-the-user" && target.contains("/a/")
    })
    .await;
    let registry = registry_with(&server, "Bearer of-the-user");
    assert_eq!(tags(&registry, "a").await.unwrap(), ["1.0.0"]);
    let error = tags(&registry, "b").await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("Unauthorized", false));
    assert!(
        error.to_string().contains("spec.auth") && !error.to_string().contains("of-the-user"),
        "{error}"
    );
    assert_eq!(targets(&server), ["/v2/a/tags/list?n=1000", "/v2/b/tags/list?n=1000"]);
}

#[tokio::test]
async fn a_token_whose_time_is_over_is_asked_for_anew() {
    let server = token_registry(r#"{"token":"t-NUMBER","expires_in":300}"#, |_, shown| {
        shown.starts_with("Bearer t-")
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
    assert_eq!(tag_requests(&server), 4, "the registry never saw one that is over");
}

#[tokio::test]
async fn a_token_that_is_refused_before_its_time_is_asked_for_anew() {
    let revoked = Arc::new(AtomicUsize::new(0));
    let limit = Arc::clone(&revoked);
    let server = token_registry(r#"{"token":"NUMBER"}"#, move |_, shown| {
        let number = shown
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
async fn a_registry_that_is_never_content_is_left_after_one_more_try() {
    let server = token_registry(r#"{"token":"t-NUMBER"}"#, |_, _| false).await;
    for (registry, what) in [
        (registry(&server), "give the repository some by spec.auth"),
        (registry_with(&server, &basic("user", "secret")), "do not suffice"),
    ] {
        let before = tag_requests(&server);
        let error = tags(&registry, "a").await.unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("Unauthorized", false));
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(tag_requests(&server) - before, 2);
    }
}

#[tokio::test]
async fn a_token_server_that_refuses_the_credentials_is_named_without_them() {
    let server = token_registry("", |_, _| false).await;
    let error = tags(&registry_with(&server, &basic("user", "hunter2")), "a")
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "Unauthorized");
    let text = format!("{error} {error:?}");
    assert!(
        text.contains("/token answered 401") && text.contains("check the credentials"),
        "{text}"
    );
    assert!(
        !text.contains("hunter2") && !text.contains(&basic("user", "hunter2")[6..]),
        "{text}"
    );
}

#[tokio::test]
async fn those_who_ask_at_once_wait_for_one_token() {
    let server = token_registry(r#"{"token":"t-NUMBER"}"#, |_, shown| shown.starts_with("Bearer t-")).await;
    let registry = registry(&server);
    let all = futures::future::join_all((0..8).map(|_| tags(&registry, "a"))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(token_requests(&server).len(), 1);
}

#[tokio::test]
async fn another_host_that_the_registry_leads_to_gets_and_learns_nothing() {
    let greedy =
        Server::start(|head| unauthorized(&format!(r#"Bearer realm="http://{}/token""#, header(head, "host")))).await;
    let to = greedy.url.clone();
    let server = Server::start(move |head| match target(head).as_str() {
        "/v2/" => unauthorized("Basic realm=r"),
        target => answer(
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
    assert_eq!(greedy.requests().len(), 1, "its token server is not asked");
    assert_eq!(header(&greedy.requests()[0], "authorization"), "");
}

#[tokio::test]
async fn credentials_for_another_host_stay_away_from_a_registry_and_its_token_server() {
    // As when a chart repository with a password lists charts that stand in somebody's registry.
    let server = token_registry(r#"{"token":"t-NUMBER"}"#, |_, shown| shown.starts_with("Bearer t-")).await;
    let scope = "https://charts.example.com/".parse().unwrap();
    tags(&registry_within(&server, &scope, &basic("user", "secret")), "a")
        .await
        .unwrap();
    for head in server.requests() {
        assert!(!head.contains(&basic("user", "secret")), "{head}");
    }
}

#[tokio::test]
async fn a_challenge_that_leads_nowhere_is_an_error_that_says_so() {
    for (challenge, reason, part) in [
        ("Bearer service=x", "InvalidChallenge", "names no realm"),
        ("Bearer realm=\"::\"", "InvalidChallenge", "is no URL"),
        ("Bearer realm=\"ftp://a/\"", "InvalidChallenge", "is not https"),
        (
            "Bearer realm=\"https://u:p@a/\"",
            "InvalidChallenge",
            "holds credentials",
        ),
        ("Negotiate, NTLM abc", "Unauthorized", "negotiate, ntlm"),
        ("Basic realm=x", "Unauthorized", "give the repository some"),
        ("", "Unauthorized", "give the repository some"),
    ] {
        let challenge = challenge.to_owned();
        let server = Server::start(move |_| unauthorized(&challenge)).await;
        let error = tags(&registry(&server), "a").await.unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), (reason, false));
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn a_token_server_that_gives_no_token_is_an_error() {
    let server = token_registry(r#"{"token":"two\nlines"}"#, |_, _| false).await;
    let error = tags(&registry(&server), "a").await.unwrap_err();
    assert_eq!(error.reason(), "InvalidAnswer");
    assert!(!error.to_string().contains("lines"), "{error}");
}
