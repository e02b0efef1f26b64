use std::collections::{BTreeMap, HashMap};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use futures::FutureExt;
use futures::future::join_all;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use rstest::rstest;
use tower::ServiceExt;

use super::*;
use crate::budget::Metrics;

/// The example of GitHub's documentation.
const TOKEN: &str = "It's a Secret to Everybody";
const BODY: &str = "Hello, World!";
const SHA256: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
/// The example of Standard Webhooks.
const WEBHOOK_TOKEN: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const WEBHOOK_BODY: &str = r#"{"test": 2432232314}"#;
const WEBHOOK: [(&str, &str); 3] = [
    ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
    ("webhook-timestamp", "1614265330"),
    (
        "webhook-signature",
        "v1a,other v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ),
];

fn name(namespace: &str, name: &str) -> NamespacedName {
    NamespacedName::new(namespace, name)
}

fn receiver(name: &NamespacedName, type_: &str, token: &str) -> Result<Receiver, ReceiverError> {
    let data = [("type", type_), ("token", token)];
    let data = data.map(|(key, value)| (key.to_owned(), ByteString(value.into())));
    let secret = Secret {
        data: Some(BTreeMap::from(data)),
        ..Secret::default()
    };
    Receiver::of(name, &secret)
}

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let parse = |(name, value): &(&str, &str)| {
        (
            name.parse::<HeaderName>().unwrap(),
            value.parse::<HeaderValue>().unwrap(),
        )
    };
    pairs.iter().map(parse).collect()
}

fn verify(type_: &str, token: &str, sent: &[(&str, &str)], body: &str, seconds: i64) -> Result<(), Mismatch> {
    let receiver = receiver(&name("team-a", "stable"), type_, token).unwrap();
    let headers = headers(sent);
    let now = Timestamp::from_second(seconds).unwrap();
    receiver.verify_headers(&headers)?;
    receiver.verify_body(&headers, body.as_bytes(), now)
}

#[rstest]
#[case::generic_hmac("generic-hmac", &[("X-Signature", SHA256)])]
#[case::upper_case("generic-hmac", &[("X-Signature", "sha256=757107EA0EB2509FC211221CCE984B8A37570B6D7586C22C46F4379C8B043E17")])]
#[case::generic_hmac_with_sha512("generic-hmac", &[("X-Signature", "sha512=11ed355a617e98134e842012a7944ccf59c10256cb182357bd7e3a42013ff07c376f8c14cf5cc1923da20b51d64256b2fb8ebbf100aa67a61326f61fea8111bc")])]
#[case::github("github", &[("X-Hub-Signature-256", SHA256), ("X-GitHub-Event", "push")])]
#[case::gitlab("gitlab", &[("X-Gitlab-Token", TOKEN)])]
#[case::harbor("harbor", &[("Authorization", TOKEN)])]
#[case::distribution("distribution", &[("Authorization", TOKEN)])]
#[case::generic("generic", &[])]
fn each_type_accepts_what_its_sender_documents(#[case] type_: &str, #[case] sent: &[(&str, &str)]) {
    assert_eq!(verify(type_, TOKEN, sent, BODY, 0), Ok(()));
    let other = "another token of a tenant";
    let refused = verify(type_, other, sent, BODY, 0);
    assert_eq!(refused.is_err(), type_ != "generic", "a token of another repository");
    assert_eq!(
        verify(type_, TOKEN, &[], BODY, 0).is_err(),
        type_ != "generic",
        "nothing is signed"
    );
}

#[rstest]
#[case::another_body("generic-hmac", &[("X-Signature", SHA256)])]
#[case::without_algorithm("generic-hmac", &[("X-Signature", &SHA256[7..])])]
#[case::old_algorithm("github", &[("X-Hub-Signature-256", "sha1=757107ea0eb2509fc211221cce984b8a37570b6d")])]
#[case::sha512_is_not_githubs("github", &[("X-Hub-Signature-256", "sha512=00")])]
#[case::part_of_the_token("harbor", &[("Authorization", &TOKEN[..10])])]
#[case::header_of_another_type("gitlab", &[("Authorization", TOKEN)])]
#[case::token_beside_a_wrong_signature("gitlab", &[("X-Gitlab-Token", TOKEN), ("webhook-signature", "v1,AAAA")])]
fn a_wrong_signature_is_refused(#[case] type_: &str, #[case] sent: &[(&str, &str)]) {
    assert!(verify(type_, TOKEN, sent, "Hello, World?", 0).is_err());
}

#[test]
fn the_key_of_an_address_signs_no_body() {
    let name = name("team-a", "stable");
    for (type_, header) in [("generic-hmac", "X-Signature"), ("github", "X-Hub-Signature-256")] {
        let path = receiver(&name, type_, TOKEN).unwrap().path(&name);
        let signature = format!("sha256={}", path.rsplit('/').next().unwrap());
        let refused = verify(type_, TOKEN, &[(header, signature.as_str())], "team-a/stable", 0);
        assert!(matches!(refused, Err(Mismatch::Wrong(_))), "{type_}: {refused:?}");
    }
}

#[test]
fn a_signed_webhook_of_gitlab_is_valid_for_5_minutes() {
    let verify = |seconds: i64| verify("gitlab", WEBHOOK_TOKEN, &WEBHOOK, WEBHOOK_BODY, 1_614_265_330 + seconds);
    for seconds in [-300, 0, 300] {
        assert_eq!(verify(seconds), Ok(()), "{seconds}");
    }
    for seconds in [-301, 301] {
        assert_eq!(verify(seconds), Err(Mismatch::Late), "{seconds}");
    }
    let mut later = WEBHOOK;
    later[1].1 = "1614265331";
    let refused = super::tests::verify("gitlab", WEBHOOK_TOKEN, &later, WEBHOOK_BODY, 1_614_265_331);
    assert_eq!(refused, Err(Mismatch::Wrong("webhook-signature")), "the time is signed");
}

#[test]
fn pulls_from_a_registry_are_no_changes() {
    let receiver = |type_: &str| receiver(&name("team-a", "stable"), type_, TOKEN).unwrap();
    let distribution = |actions: &[&str]| {
        let events: Vec<_> = actions
            .iter()
            .map(|action| serde_json::json!({ "id": "1", "action": action }))
            .collect();
        receiver("distribution").is_change(serde_json::json!({ "events": events }).to_string().as_bytes())
    };
    assert!(!distribution(&["pull", "pull"]));
    let changes: [&[&str]; 4] = [&["push"], &["pull", "push"], &["delete"], &[]];
    for changes in changes {
        assert!(distribution(changes), "{changes:?}");
    }
    let harbor = |type_: &str| {
        let event = serde_json::json!({ "type": type_, "occur_at": 1_586_922_308, "event_data": {} });
        receiver("harbor").is_change(event.to_string().as_bytes())
    };
    assert!(harbor("PUSH_ARTIFACT") && harbor("harbor.artifact.pushed") && harbor("DELETE_ARTIFACT"));
    assert!(!harbor("PULL_ARTIFACT") && !harbor("harbor.artifact.pulled"));
    assert!(receiver("harbor").is_change(b"no JSON"));
    assert!(receiver("generic").is_change(br#"{ "type": "PULL_ARTIFACT" }"#));
}

#[test]
fn a_secret_without_type_or_with_a_short_or_long_token_is_no_receiver() {
    let name = name("team-a", "stable");
    let error = |type_: &str, token: &str| receiver(&name, type_, token).unwrap_err().to_string();
    assert!(error("nexus", TOKEN).contains("nexus"));
    assert!(error("", TOKEN).contains("no valid `type`; use"));
    let long = "0".repeat(1025);
    for refused in ["", "0123456789abcde", "0123456789abcde\n", &long] {
        let error = error("generic", refused);
        assert!(
            error.contains("at least 16 bytes and at most 1024"),
            "{refused}: {error}"
        );
    }
    let [plain, file] = [TOKEN.to_owned(), format!("{TOKEN}\n")];
    let path = |token: &str| receiver(&name, "generic\n", token).unwrap().path(&name);
    assert_eq!(path(&plain), path(&file));
    let printed = format!("{:?}", receiver(&name, "generic", TOKEN).unwrap());
    assert!(
        !printed.contains("Secret") && !printed.contains(&path(TOKEN)),
        "{printed}"
    );
}

#[derive(Default)]
struct Fake {
    receivers: Mutex<HashMap<NamespacedName, (&'static str, &'static str)>>,
    lookups: Mutex<Vec<NamespacedName>>,
    polls: Mutex<Vec<Instant>>,
    error: Mutex<Option<ApiError>>,
}

impl Objects for Fake {
    fn receiver<'a>(&'a self, name: &'a NamespacedName) -> BoxFuture<'a, Result<Option<Receiver>, ApiError>> {
        self.lookups.lock().push(name.clone());
        let found = self.receivers.lock().get(name).copied();
        let found = found.map(|(type_, token)| receiver(name, type_, token).unwrap());
        let result = self.error.lock().clone().map_or(Ok(found), Err);
        async move { result }.boxed()
    }

    fn poll<'a>(&'a self, _: &'a NamespacedName, _: Timestamp) -> BoxFuture<'a, Result<(), ApiError>> {
        self.polls.lock().push(Instant::now());
        let result = self.error.lock().clone().map_or(Ok(()), Err);
        async move { result }.boxed()
    }
}

struct Site {
    fake: Arc<Fake>,
    routes: Router,
    registry: Registry,
}

impl Site {
    fn new(receivers: &[(&str, &str, &'static str)]) -> Self {
        let fake = Arc::new(Fake::default());
        let declared = receivers
            .iter()
            .map(|(namespace, repository, type_)| (name(namespace, repository), (*type_, TOKEN)));
        fake.receivers.lock().extend(declared);
        let mut registry = Registry::default();
        let hooks = Hooks::new(HookOptions {
            objects: Arc::clone(&fake) as Arc<dyn Objects>,
            namespaces: vec!["team-a".to_owned(), "team-b".to_owned()],
            trusted_proxies: TrustedProxies::default(),
            bodies: Metrics::default().of("receiver_bodies", MAX_BODIES as u64),
            metrics: HookMetrics::register(&mut registry),
        });
        Self {
            fake,
            routes: hooks.routes(),
            registry,
        }
    }

    async fn post(&self, path: &str, peer: u8) -> Response {
        self.send(path, peer, &[], Body::from(BODY)).await
    }

    async fn send(&self, path: &str, peer: u8, sent: &[(&str, &str)], body: Body) -> Response {
        let mut request = axum::http::Request::post(path).body(body).unwrap();
        *request.headers_mut() = headers(sent);
        request.extensions_mut().insert(Peer(IpAddr::from([10, 0, 0, peer])));
        self.routes.clone().oneshot(request).await.unwrap()
    }

    async fn status(&self, path: &str, peer: u8) -> u16 {
        self.post(path, peer).await.status().as_u16()
    }

    fn lookups(&self) -> usize {
        self.fake.lookups.lock().len()
    }

    fn count(&self, result: &str) -> u64 {
        let mut metrics = String::new();
        text::encode(&mut metrics, &self.registry).unwrap();
        let sample = format!("portolan_receiver_requests_total{{result=\"{result}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&sample));
        line.map_or(0, |count| count.parse().unwrap())
    }
}

fn path(namespace: &str, repository: &str) -> String {
    let name = name(namespace, repository);
    receiver(&name, "generic", TOKEN).unwrap().path(&name)
}

fn guess(namespace: &str, repository: &str) -> String {
    format!("/hooks/{namespace}/{repository}/{}", "0".repeat(64))
}

#[tokio::test(start_paused = true)]
async fn unknown_wrong_and_foreign_addresses_answer_alike() {
    let site = Site::new(&[("team-a", "stable", "generic"), ("team-a", "signed", "github")]);
    let other_key = path("team-b", "stable").replace("team-b", "team-a");
    let cases = [
        guess("team-a", "stable"),
        guess("team-a", "absent"),
        guess("team-c", "stable"),
        other_key,
        path("team-a", "stable") + "0",
        path("team-a", "signed"),
    ];
    let mut answers = Vec::new();
    for path in cases {
        let started = Instant::now();
        let response = site.post(&path, 1).await;
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, 1024).await.unwrap();
        answers.push((parts.status, parts.headers, body, started.elapsed()));
    }
    assert_eq!(answers[0].0, StatusCode::NOT_FOUND);
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(site.count("refused"), 6);
    assert!(site.fake.polls.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_right_key_is_looked_up_once_a_minute() {
    let site = Site::new(&[("team-a", "stable", "generic")]);
    let path = path("team-a", "stable");
    for lookups in 1..=2 {
        assert_eq!([site.status(&path, 1).await, site.status(&path, 1).await], [202, 202]);
        assert_eq!(site.lookups(), lookups);
        tokio::time::advance(Duration::from_secs(60)).await;
    }
    site.fake.receivers.lock().clear();
    assert_eq!(site.status(&path, 1).await, 404);
    assert_eq!(site.count("accepted"), 4);
}

#[tokio::test(start_paused = true)]
async fn requests_within_a_second_share_the_patch_at_its_end() {
    let site = Site::new(&[("team-a", "stable", "generic")]);
    let path = path("team-a", "stable");
    assert_eq!(site.status(&path, 1).await, 202);
    let arrived = Instant::now();
    let statuses = join_all((0..20).map(|_| site.status(&path, 1))).await;
    assert!(statuses.iter().all(|status| *status == 202), "{statuses:?}");
    let polls = site.fake.polls.lock().clone();
    assert_eq!(polls.len(), 2);
    assert!(polls[1] > arrived && polls[1] - polls[0] >= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_failed_patch_is_reported_to_all_who_wait_for_it_and_the_next_one_may_succeed() {
    let site = Site::new(&[("team-a", "stable", "generic")]);
    let path = path("team-a", "stable");
    assert_eq!(site.status(&path, 1).await, 202);
    *site.fake.error.lock() = Some(ApiError::unavailable("no response".to_owned()));
    let statuses = join_all((0..3).map(|_| site.status(&path, 1))).await;
    assert_eq!(statuses, [503; 3]);
    assert_eq!(site.fake.polls.lock().len(), 2);
    *site.fake.error.lock() = None;
    assert_eq!(site.status(&path, 1).await, 202);
    assert_eq!(site.count("failed"), 3);
}

#[tokio::test(start_paused = true)]
async fn guesses_are_limited_and_keep_no_known_sender_out() {
    let site = Site::new(&[("team-a", "stable", "generic"), ("team-b", "stable", "generic")]);
    let path = path("team-a", "stable");
    assert_eq!(site.status(&path, 1).await, 202);
    tokio::time::advance(Duration::from_secs(61)).await;
    for number in 0..10_000 {
        let peer = u8::try_from(number % 250).unwrap();
        let guess = guess("team-a", &format!("guess-{number}"));
        let pending = site.post(&guess, peer).now_or_never();
        assert!(pending.is_none_or(|response| response.status() == StatusCode::NOT_FOUND));
    }
    assert!(site.lookups() <= 1 + 32, "{}", site.lookups());
    assert_eq!(site.status(&path, 1).await, 202, "a known sender");
    let other = super::tests::path("team-b", "stable");
    assert_eq!(site.status(&other, 1).await, 202, "a new sender of another namespace");
    assert!(site.count("limited") > 9_900);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_guesses_is_limited_before_others_are() {
    let site = Site::new(&[("team-a", "stable", "generic")]);
    for number in 0..1000 {
        let _ = site
            .post(&guess("team-c", &format!("guess-{number}")), 1)
            .now_or_never();
    }
    let path = path("team-a", "stable");
    assert_eq!(site.status(&path, 1).await, 404);
    assert_eq!(site.status(&path, 2).await, 202);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_has_a_rate_of_its_own() {
    let site = Site::new(&[("team-a", "stable", "generic"), ("team-b", "stable", "generic")]);
    let path = path("team-a", "stable");
    assert_eq!(site.status(&path, 1).await, 202);
    let statuses = join_all((0..200).map(|_| site.status(&path, 1))).await;
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 100);
    assert_eq!(site.status(&super::tests::path("team-b", "stable"), 1).await, 202);
}

#[tokio::test(start_paused = true)]
async fn a_large_body_is_refused_whether_its_size_is_declared_or_not() {
    let site = Site::new(&[("team-a", "stable", "generic")]);
    let path = path("team-a", "stable");
    let declared = [("content-length", "1073741824")];
    let endless = || Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let response = site.send(&path, 1, &declared, endless()).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let chunks = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![0_u8; 64 * 1024]));
    let response = site.send(&path, 1, &[], Body::from_stream(chunks)).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let response = site.send(&path, 1, &[], endless()).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(site.fake.polls.lock().is_empty());
    let largest = Body::from(vec![0_u8; MAX_BODY]);
    assert_eq!(site.send(&path, 1, &[], largest).await.status(), StatusCode::ACCEPTED);
}

#[tokio::test(start_paused = true)]
async fn slow_bodies_of_a_namespace_leave_permits_to_others() {
    let site = Site::new(&[("team-a", "stable", "generic"), ("team-b", "stable", "generic")]);
    let path = path("team-a", "stable");
    let endless = || Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let mut slow = Box::pin(join_all((0..50).map(|_| site.send(&path, 1, &[], endless()))));
    assert!(slow.as_mut().now_or_never().is_none());
    assert_eq!(site.status(&super::tests::path("team-b", "stable"), 1).await, 202);
    assert!(
        slow.await
            .iter()
            .all(|response| response.status() == StatusCode::SERVICE_UNAVAILABLE)
    );
}
