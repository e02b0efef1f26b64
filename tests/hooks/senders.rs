//! Each sender, with payloads in its documented format.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use portolan::api::SUSPEND;
use ring::hmac;
use serde_json::json;

use super::{Receiving, TOKEN, declared, poll_at};
use crate::cluster::World;

const GITHUB: &str = r#"{"action":"published","registry_package":{"name":"web","ecosystem":"CONTAINER","package_version":{"container_metadata":{"tag":{"name":"1.1.0"}}}},"repository":{"full_name":"crew/charts"}}"#;
const GITLAB: &str =
    r#"{"object_kind":"tag_push","ref":"refs/tags/v1.1.0","project":{"path_with_namespace":"crew/charts"}}"#;
const HARBOR: &str = r#"{"type":"PUSH_ARTIFACT","occur_at":1586922308,"operator":"admin","event_data":{"resources":[{"digest":"sha256:00","tag":"1.1.0","resource_url":"hub.example/charts/web:1.1.0"}],"repository":{"name":"web","namespace":"charts","repo_full_name":"charts/web"}}}"#;
const DISTRIBUTION: &str = r#"{"events":[{"id":"320678d8","timestamp":"2026-03-09T14:44:26Z","action":"push","target":{"mediaType":"application/vnd.oci.image.manifest.v1+json","repository":"charts/web","tag":"1.1.0"}}]}"#;

type Headers = Vec<(&'static str, String)>;

fn hmac_of(algorithm: hmac::Algorithm, token: &str, body: &str) -> Vec<u8> {
    let key = hmac::Key::new(algorithm, token.as_bytes());
    hmac::sign(&key, body.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(token: &str, body: &str) -> String {
    format!("sha256={}", hex(&hmac_of(hmac::HMAC_SHA256, token, body)))
}

/// Signs as GitLab does with a signing token.
fn webhook(token: &str, body: &str, age: i64) -> Headers {
    let (id, at) = ("f5e5f430", (Timestamp::now().as_second() - age).to_string());
    let signature = hmac_of(hmac::HMAC_SHA256, token, &format!("{id}.{at}.{body}"));
    let signature = format!("v1,{}", STANDARD.encode(signature));
    vec![
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", at),
        ("webhook-signature", signature),
    ]
}

/// Returns a repository's name, the type of its receiver, and a request that is signed with a token.
fn senders(token: &str) -> [(&'static str, &'static str, &'static str, Headers); 8] {
    let sha512 = format!("sha512={}", hex(&hmac_of(hmac::HMAC_SHA512, token, "{}")));
    [
        ("hmac", "generic-hmac", "{}", vec![("X-Signature", sha256(token, "{}"))]),
        ("hmac-512", "generic-hmac", "{}", vec![("X-Signature", sha512)]),
        (
            "github",
            "github",
            GITHUB,
            vec![("X-Hub-Signature-256", sha256(token, GITHUB))],
        ),
        ("gitlab", "gitlab", GITLAB, vec![("X-Gitlab-Token", token.to_owned())]),
        ("gitlab-signed", "gitlab", GITLAB, webhook(token, GITLAB, 0)),
        ("harbor", "harbor", HARBOR, vec![("Authorization", token.to_owned())]),
        (
            "distribution",
            "distribution",
            DISTRIBUTION,
            vec![("Authorization", token.to_owned())],
        ),
        ("generic", "generic", "", vec![]),
    ]
}

fn borrowed<'a>(headers: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    headers.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_sender_requests_a_sync_and_nothing_else_changes() {
    let world = World::new().await;
    let receiving = Receiving::start(&world).await;
    for (repository, type_, body, headers) in senders(TOKEN) {
        let path = declared(&world, repository, type_).await;
        let before = world.repositories.get(repository).await.unwrap();
        assert_eq!(
            receiving.post(&path, &borrowed(&headers), body).await,
            202,
            "{repository}"
        );
        let after = world.repositories.get(repository).await.unwrap();
        assert_eq!(after.spec, before.spec, "{repository}");
        assert_eq!(after.metadata.generation, before.metadata.generation, "{repository}");
        let polled: Timestamp = poll_at(&world, repository).await.unwrap().parse().unwrap();
        assert!(
            Timestamp::now().duration_since(polled).as_secs() < 60,
            "{repository}: {polled}"
        );
    }
    assert_eq!(receiving.count("accepted").await, Some(8.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_signature_is_answered_like_an_unknown_repository() {
    let world = World::new().await;
    let receiving = Receiving::start(&world).await;
    let other = "fedcba9876543210fedcba9876543210";
    for (repository, type_, body, headers) in senders(other) {
        let path = declared(&world, repository, type_).await;
        // The address alone authenticates a generic sender.
        let expected = if type_ == "generic" { 202 } else { 404 };
        assert_eq!(
            receiving.post(&path, &borrowed(&headers), body).await,
            expected,
            "{repository}"
        );
        assert_eq!(receiving.post(&path, &[], body).await, expected, "{repository}");
        assert_eq!(
            poll_at(&world, repository).await.is_some(),
            type_ == "generic",
            "{repository}"
        );
        let renamed = path.replace(&format!("/{repository}/"), "/another/");
        assert_eq!(
            receiving.post(&renamed, &borrowed(&headers), body).await,
            404,
            "{repository}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_signature_is_refused_and_a_replayed_one_asks_for_nothing_more_than_a_sync() {
    let world = World::new().await;
    let receiving = Receiving::start(&world).await;
    let path = declared(&world, "late", "gitlab").await;
    let late = webhook(TOKEN, GITLAB, 400);
    assert_eq!(receiving.post(&path, &borrowed(&late), GITLAB).await, 404);
    assert_eq!(poll_at(&world, "late").await, None);
    let signed = webhook(TOKEN, GITLAB, 10);
    for _ in 0..2 {
        assert_eq!(receiving.post(&path, &borrowed(&signed), GITLAB).await, 202);
    }
    let changed = GITLAB.replace("1.1.0", "1.2.0");
    assert_eq!(receiving.post(&path, &borrowed(&signed), &changed).await, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signature_for_another_repository_opens_no_other_one() {
    let world = World::new().await;
    let receiving = Receiving::start(&world).await;
    let first = declared(&world, "first", "github").await;
    let second = declared(&world, "second", "github").await;
    world
        .write_secret(
            &world.namespace,
            "second-receiver",
            json!({ "type": "github", "token": "another token of 32 bytes length" }),
        )
        .await;
    let second_key = second.rsplit('/').next().unwrap();
    let signature = sha256(TOKEN, GITHUB);
    let signed = [("X-Hub-Signature-256", signature.as_str())];
    assert_eq!(receiving.post(&first, &signed, GITHUB).await, 202);
    let current = super::address(&world, "second").await;
    assert_ne!(current, second, "a new token has a new address");
    assert_eq!(receiving.post(&current, &signed, GITHUB).await, 404);
    let namespace = &world.namespace;
    let crossed = format!("/hooks/{namespace}/first/{second_key}");
    assert_eq!(receiving.post(&crossed, &signed, GITHUB).await, 404);
    assert_eq!(poll_at(&world, "second").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspended_repositories_and_those_without_a_receiver_are_unknown() {
    let world = World::new().await;
    let receiving = Receiving::start(&world).await;
    let suspended = declared(&world, "suspended", "generic").await;
    world.annotate("suspended", SUSPEND, "true").await;
    assert_eq!(receiving.post(&suspended, &[], "").await, 404);
    let short = declared(&world, "short", "generic").await;
    let secret = json!({ "type": "generic", "token": "short" });
    world.write_secret(&world.namespace, "short-receiver", secret).await;
    assert_eq!(receiving.post(&short, &[], "").await, 404);
    receiving.portolan.line_with("at least 16 bytes", super::SOON).await;
    world.declare("plain", "https://charts.example").await;
    let plain = suspended.replace("/suspended/", "/plain/");
    assert_eq!(receiving.post(&plain, &[], "").await, 404);
    for path in ["/hooks", "/hooks/a/b", "/", "/api/v1/charts", "/metrics"] {
        assert_eq!(receiving.post(path, &[], "").await, 404, "{path}");
    }
}
