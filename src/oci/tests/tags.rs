//! Listing tags.

use std::time::Duration;

use rstest::rstest;

use super::*;
use crate::http::Validators;

fn page(tags: &[&str], next: &str) -> Parts {
    let body = serde_json::json!({ "name": "a", "tags": tags }).to_string();
    let link = if next.is_empty() {
        String::new()
    } else {
        format!("Link: <{next}>; rel=\"next\"")
    };
    response("200 OK", &link, body.as_bytes())
}

/// Starts a registry with three pages and different forms of links.
async fn three_pages() -> Server {
    Server::start(|head| match target(head).as_str() {
        "/v2/p/a/tags/list?n=1000" => page(&["1.0.0", "1.1.0"], "/v2/p/a/tags/list?last=1.1.0&n=2"),
        "/v2/p/a/tags/list?last=1.1.0&n=2" => page(
            &["1.1.0", "latest"],
            &format!("http://{}/v2/p/a/tags/list?last=latest", header(head, "host")),
        ),
        "/v2/p/a/tags/list?last=latest" => page(&["v2"], ""),
        target => panic!("{target}"),
    })
    .await
}

#[tokio::test]
async fn all_pages_are_fetched_and_duplicate_tags_dropped() {
    let server = three_pages().await;
    let registry = registry_of(&server, "p/", Limits::default());
    let tags = registry.tags(&registry.repository("a"), None).await.unwrap();
    assert_eq!(
        tags,
        Tags::Listed {
            tags: ["1.0.0", "1.1.0", "latest", "v2"].map(str::to_owned).to_vec(),
            validators: Validators::default(),
        }
    );
}

#[rstest]
#[case(Limits { pages: 2, ..Limits::default() }, "pages")]
#[case(Limits { tags: 3, ..Limits::default() }, "tags")]
#[case(Limits { listing_bytes: 60, ..Limits::default() }, "bytes")]
#[case(Limits { listing_timeout: Duration::ZERO, ..Limits::default() }, "timed out")]
#[tokio::test]
async fn a_listing_that_exceeds_a_limit_is_rejected(#[case] limits: Limits, #[case] message: &str) {
    let server = three_pages().await;
    let error = registry_of(&server, "", limits).tags("p/a", None).await.unwrap_err();
    assert!(matches!(error.reason(), "TooMany" | "TooLarge" | "Timeout"), "{error}");
    assert!(error.to_string().contains(message), "{error}");
}

#[tokio::test]
async fn validators_make_the_listing_conditional() {
    let server = Server::start(|head| match header(head, "if-none-match") {
        "\"7\"" => response("304 Not Modified", "", b""),
        _ => response("200 OK", "ETag: \"7\"", br#"{"tags":["1.0.0"]}"#),
    })
    .await;
    let registry = registry(&server);
    let Tags::Listed { validators, .. } = registry.tags("a", None).await.unwrap() else {
        panic!()
    };
    assert_eq!(validators.etag.as_deref(), Some("\"7\""));
    assert_eq!(registry.tags("a", Some(&validators)).await.unwrap(), Tags::NotModified);
}

#[tokio::test]
async fn validators_of_the_first_of_several_pages_are_ignored() {
    let server = Server::start(|head| {
        let more = if target(head).contains("last") {
            ""
        } else {
            "\nLink: </v2/a/tags/list?last=1>; rel=next"
        };
        response("200 OK", &format!("ETag: \"7\"{more}"), br#"{"tags":["1.0.0"]}"#)
    })
    .await;
    let Tags::Listed { validators, .. } = registry(&server).tags("a", None).await.unwrap() else {
        panic!()
    };
    assert_eq!(validators, Validators::default());
    let heads = server.requests();
    assert!(heads.iter().all(|head| header(head, "if-none-match").is_empty()));
}

#[tokio::test]
async fn a_rejected_page_size_is_omitted() {
    let server = Server::start(|head| match target(head).as_str() {
        "/v2/a/tags/list?n=1000" => response("400 Bad Request", "", br#"{"errors":[{"code":"TAG_LIMIT_EXCEEDED"}]}"#),
        _ => page(&["1.0.0"], ""),
    })
    .await;
    assert_eq!(listed(registry(&server).tags("a", None).await.unwrap()), ["1.0.0"]);
    assert_eq!(targets(&server), ["/v2/a/tags/list?n=1000", "/v2/a/tags/list"]);
}

#[rstest]
#[case("https://127.0.0.1:1/v2/a/tags/list", "another origin")]
#[case("http://127.0.0.1:1/v2/a/tags/list", "another origin")]
#[case("//evil.example.com/", "another origin")]
#[case("file:///etc/passwd", "another origin")]
#[case("http://[", "is not a valid URL")]
#[case("/v2/a/tags/list?n=1000", "cycle")]
#[tokio::test]
async fn links_to_other_origins_and_cycles_are_rejected(#[case] next: &'static str, #[case] part: &str) {
    let server = Server::start(move |_| page(&["1.0.0"], next)).await;
    let error = registry(&server).tags("a", None).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("InvalidNextPage", false));
    assert!(error.to_string().contains(part), "{error}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_link_that_is_too_long_is_rejected() {
    let server = Server::start(move |_| page(&["1.0.0"], &format!("/v2/{}", "a".repeat(10_000)))).await;
    let error = registry(&server).tags("a", None).await.unwrap_err();
    assert!(error.to_string().contains("too long"), "{error}");
}

#[rstest]
#[case("200 OK", "", "InvalidAnswer", false)]
#[case("404 Not Found", "", "NotFound", false)]
#[case("403 Forbidden", "", "Forbidden", false)]
#[case("500 Internal Server Error", "", "ServerError", true)]
#[case("429 Too Many Requests", "Retry-After: 7", "TooManyRequests", true)]
#[tokio::test]
async fn other_responses_are_transient_or_permanent_errors(
    #[case] status: &'static str,
    #[case] headers: &'static str,
    #[case] reason: &str,
    #[case] transient: bool,
) {
    let server = Server::start(move |_| response(status, headers, b"<html>")).await;
    let registry = registry(&server);
    let error = registry.tags("a", None).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), (reason, transient), "{error}");
    assert_eq!(error.is_not_found(), reason == "NotFound");
    assert!(!error.to_string().contains("index.yaml"), "{error}");
    if !headers.is_empty() {
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        assert!(
            registry.digest("b", "1.0.0").await.unwrap_err().retry_after().is_some(),
            "the backoff applies to the host"
        );
        assert_eq!(server.requests().len(), 1);
    }
}

#[rstest]
#[tokio::test]
async fn invalid_names_are_rejected_before_a_request_is_sent(
    #[values("", "../x", "a?b", "a b", "a\u{1b}[31m")] name: &str,
) {
    let server = Server::start(|_| panic!("unexpected request")).await;
    let registry = registry(&server);
    for error in [
        registry.tags(name, None).await.unwrap_err(),
        registry.digest(name, "1.0.0").await.unwrap_err(),
        registry.manifest(name, "1.0.0").await.unwrap_err(),
    ] {
        assert_eq!(error.reason(), "InvalidName");
        assert!(!error.to_string().contains('\u{1b}'));
    }
    assert_eq!(
        registry.manifest("a", "1.0.0+b").await.unwrap_err().reason(),
        "InvalidTag"
    );
    assert!(server.requests().is_empty());
}
